#include "workers/send/send_timer.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "base/crash_point.h"
#include "base/numbers.h"
#include "wire/codes.h"
#include "store/log/timer_properties.h"

enum {
    SPAN_MARGIN = 1 << 25, /* numbers: more than can be on their way between the check and the timer thread */
    LOG_FILES = 4          /* that are mapped to read timers */
};

static const uint8_t TIMER_TOPIC[] = RP_TIMER_TOPIC;
static const uint8_t DEAD_LETTERS[] = RP_TIMER_DEAD_LETTERS;
enum { TIMER_TOPIC_SIZE = sizeof TIMER_TOPIC - 1, DEAD_LETTERS_SIZE = sizeof DEAD_LETTERS - 1 };

rp_status rp_send_timer_open(rp_send *send) {
    const rp_timer_header *header = rp_timer_marks_header(send->config.timers);
    rp_timer_journal_recover(send->config.timers, send->control->published_phy_offset);
    send->timer_records =
        rp_log_view_open(send->config.commitlog_directory, send->control->commitlog_file_size, LOG_FILES);
    if (!send->timer_records || rp_number_set_init(&send->ended_timers, RP_TIMER_JOURNAL_MAX) != RP_OK)
        return RP_NO_MEMORY;
    send->ended_from = rp_load_acquire(&header->journal_begin);
    for (uint64_t at = send->ended_from; at < header->journal_end; at++)
        rp_number_set_add(&send->ended_timers, rp_timer_journal_at(send->config.timers, at).number);
    return rp_timer_end_index_open(&send->timer_ends, send->config.timers, header->journal_end);
}

void rp_send_timer_close(rp_send *send) {
    rp_log_view_close(send->timer_records);
    rp_number_set_destroy(&send->ended_timers);
    rp_timer_end_index_close(&send->timer_ends);
}

/* ---- ends ---- */

/* 1 if it was delivered, cancelled or moved. */
static int has_ended(const rp_send *send, uint64_t number) {
    return rp_number_set_has(&send->ended_timers, number) || rp_timer_has_ended(send->config.timers, number);
}

void rp_send_timer_end(rp_send *send, const rp_timer_end *end) {
    const rp_timer_marks *marks = send->config.timers;
    uint64_t begin = rp_load_acquire(&rp_timer_marks_header(send->config.timers)->journal_begin);
    for (; send->ended_from < begin; send->ended_from++) /* their bits are set */
        rp_number_set_remove(&send->ended_timers, rp_timer_journal_at(marks, send->ended_from).number);
    RP_CRASH_POINT("timer.end");
    rp_timer_journal_add(send->config.timers, end);
    RP_CRASH_POINT("timer.journal");
    rp_number_set_add(&send->ended_timers, end->number);
    rp_timer_end_index_follow(&send->timer_ends, rp_timer_marks_header(send->config.timers)->journal_end);
}

static int has_room(const rp_send *send, const rp_queue *queue) {
    return queue->next_offset - rp_load_acquire(&rp_timer_marks_header(send->config.timers)->floor) <
           RP_TIMER_SPAN_MAX - SPAN_MARGIN;
}

static const uint32_t STATE_AFTER[] = {[RP_TIMER_DELIVERED] = RP_TIMER_STATE_GONE,
                                       [RP_TIMER_CHANGED] = RP_TIMER_STATE_CHANGED,
                                       [RP_TIMER_RENEWED] = RP_TIMER_STATE_RENEWED};

/* `queue`: the timer queue; NULL: there is none. */
static uint32_t state_of(const rp_send *send, const rp_queue *queue, uint64_t number) {
    if (!queue || number >= queue->next_offset) return RP_TIMER_STATE_GONE;
    return has_ended(send, number) ? STATE_AFTER[rp_timer_end_index_kind(&send->timer_ends, number)]
                                   : RP_TIMER_STATE_PENDING;
}

int32_t rp_send_timer_check_change(const rp_send *send, const rp_put *put, uint32_t *timer_state) {
    const rp_queue *queue =
        send->config.from_store ? rp_control_find(send->config.block, TIMER_TOPIC, TIMER_TOPIC_SIZE, 0) : NULL;
    *timer_state = state_of(send, queue, put->timer);
    if (*timer_state != RP_TIMER_STATE_PENDING) return RP_RESPONSE_QUERY_NOT_FOUND;
    /* After a power failure the log tells first what was delivered before. */
    int is_known = !rp_load_acquire32(&rp_timer_marks_header(send->config.timers)->must_scan);
    int is_possible = is_known && has_room(send, queue) && rp_timer_journal_has_room(send->config.timers);
    return is_possible ? RP_RESPONSE_SUCCESS : RP_RESPONSE_SYSTEM_BUSY;
}

/* ---- accept ---- */

/* The time that the properties ask for; 0 if it is no number, or beyond all bounds. */
static int64_t due_of(const rp_put *put, int64_t now_ms) {
    const uint8_t *value;
    int64_t number, due_ms;
    for (int i = 0; i < RP_TIMER_PROPERTY_COUNT; i++) {
        uint32_t size =
            rp_property_find(put->properties, put->request->properties_size, RP_TIMER_PROPERTIES[i], &value);
        if (!size) continue;
        if (rp_parse_int64(value, size, &number) != RP_OK) return 0;
        if (i == RP_TIMER_DELAY_SEC && __builtin_mul_overflow(number, 1000, &number)) return 0;
        if (i > RP_TIMER_DELAY_MS) return number < 0 ? 0 : number ? number : 1;
        if (__builtin_add_overflow(now_ms, number, &due_ms)) return 0;
        return due_ms > 0 ? due_ms : 1;
    }
    return 1;
}

static rp_status refuse_far(const rp_send *send, rp_timed *timed) {
    snprintf(timed->fault, sizeof timed->fault,
             "timer message illegal, the delay time should not be bigger than the max delay %lldms (timerMaxDelaySec)",
             (long long)send->config.timer_max_delay_ms);
    return RP_INVALID;
}

static rp_status refuse(rp_timed *timed, const char *fault) {
    snprintf(timed->fault, sizeof timed->fault, "timer message illegal, %s", fault);
    return RP_INVALID;
}

/* The properties that bring it to its queue, after those that the broker adds to every message. */
static int write_tail(const rp_put *put, int64_t due_ms, rp_timed *timed) {
    int size = snprintf((char *)timed->tail, sizeof timed->tail,
                        "%.*s%s" RP_REAL_TOPIC "\x01%.*s\x02" RP_REAL_QUEUE_ID "\x01%d\x02" RP_TIMER_OUT_MS "\x01%lld",
                        (int)put->properties_tail_size, put->properties_tail ? (const char *)put->properties_tail : "",
                        put->properties_tail_size ? "\x02" : "", (int)put->topic_size, (const char *)put->topic,
                        put->queue_id, (long long)due_ms);
    return size > 0 && size < (int)sizeof timed->tail ? size : 0;
}

rp_status rp_send_timer_accept(rp_send *send, rp_put *put, rp_timed *timed) {
    if (put->request->flags & RP_REQUEST_BATCH) return refuse(timed, "a batch cannot be delayed");
    int64_t due_ms = due_of(put, send->now_ms);
    if (!due_ms) return refuse(timed, "its time is not a whole number of milliseconds");
    if (due_ms <= send->now_ms) return RP_OK;
    if (due_ms - send->now_ms > send->config.timer_max_delay_ms) return refuse_far(send, timed);
    rp_queue *queue =
        send->config.from_store ? rp_control_find(send->config.block, TIMER_TOPIC, TIMER_TOPIC_SIZE, 0) : NULL;
    if (!queue || queue->state != RP_QUEUE_LIVE || !rp_map_get(&send->topics, DEAD_LETTERS, DEAD_LETTERS_SIZE))
        return RP_NOT_FOUND;
    if (!has_room(send, queue)) return RP_FULL;
    if (!(put->properties_tail_size = (uint32_t)write_tail(put, due_ms, timed)))
        return refuse(timed, "its properties are too long");
    put->topic = TIMER_TOPIC;
    put->topic_size = TIMER_TOPIC_SIZE;
    put->properties_tail = timed->tail;
    put->queue = queue;
    put->queue_id = 0;
    put->dropped_sys_flag = RP_TRANSACTION_MASK; /* of a sender's own making: with them it would have no unit */
    count(send, RP_COUNT_TIMERS_ACCEPTED, 1);
    return RP_OK;
}

/* ---- deliver, renew ---- */

struct end {
    rp_send *send;
    uint64_t number;
    int kind; /* RP_TIMER_DELIVERED, RP_TIMER_RENEWED */
};

static void journal(void *context, const rp_put *put, const rp_stored *stored) {
    const struct end *end = context;
    rp_timer_end entry = {.number = end->number, .end_phy_offset = stored->end_phy_offset, .kind = end->kind};
    rp_send_timer_end(end->send, &entry);
}

/* What is stored for a timer: the same message, which names the timer's place in the log. */
static rp_msg_send request_of(const rp_msg_timer *message, const rp_record_view *record) {
    return (rp_msg_send){.origin = {.connection = RP_CONNECTION_INTERNAL, .peer = record->born_host},
                         .sys_flag = record->sys_flag,
                         .message_flag = record->flag,
                         .reconsume_times = record->reconsume_times,
                         .born_timestamp_ms = record->born_timestamp_ms,
                         .prepared_transaction_offset = rp_timer_place_field(message->phy_offset),
                         .body_size = record->body_size};
}

static rp_status skip(rp_send *send, const rp_msg_timer *message) {
    count(send, RP_COUNT_TIMERS_SKIPPED, 1);
    rp_send_timer_end(
        send, &(rp_timer_end){.number = message->number, .end_phy_offset = send->control->published_phy_offset});
    return RP_OK;
}

/* Where it goes: its queue, or the dead letters if its topic is gone. NULL: not even they are known. */
static rp_topic *target_of(rp_send *send, const rp_record_view *record, rp_put *put, uint32_t *topic_size) {
    int32_t queue_id;
    rp_topic *topic = NULL;
    if (rp_real_queue(record->properties, record->properties_size, &put->topic, topic_size, &queue_id)) {
        topic = rp_map_get(&send->topics, put->topic, *topic_size);
        if (topic && topic->queue_count && !(topic->flags & RP_TOPIC_NO_SEND))
            put->queue_id = (int32_t)((uint32_t)queue_id % topic->queue_count);
        else
            topic = NULL;
    }
    if (topic && topic->queues[put->queue_id]) return topic;
    put->queue_id = 0;
    put->topic = DEAD_LETTERS;
    *topic_size = DEAD_LETTERS_SIZE;
    topic = rp_map_get(&send->topics, DEAD_LETTERS, DEAD_LETTERS_SIZE);
    return topic && topic->queue_count && topic->queues[0] ? topic : NULL;
}

static int begins_with(const uint8_t *at, uint32_t size, const char *start) {
    size_t start_size = strlen(start);
    return size >= start_size && memcmp(at, start, start_size) == 0;
}

/* Copy the properties without those that were for the timer topic alone. Returns their size. */
static uint32_t copy_properties(const rp_record_view *record, uint8_t *out) {
    const uint8_t *at = record->properties, *end = at + record->properties_size;
    uint32_t size = 0;
    while (at < end) {
        const uint8_t *stop = memchr(at, 2, (uint64_t)(end - at));
        uint32_t whole = (uint32_t)((stop ? stop + 1 : end) - at);
        if (!begins_with(at, whole, RP_REAL_TOPIC "\x01") && !begins_with(at, whole, RP_REAL_QUEUE_ID "\x01")) {
            memcpy(out + size, at, whole);
            size += whole;
        }
        at += whole;
    }
    return size;
}

static void count_delivered(rp_send *send, const rp_record_view *record, int is_dead_letter) {
    const uint8_t *value;
    uint32_t size = rp_property_find(record->properties, record->properties_size, RP_TIMER_OUT_MS, &value), bucket = 0;
    int64_t due_ms, late_ms = 0;
    if (size && rp_parse_int64(value, size, &due_ms) == RP_OK && due_ms < send->now_ms) late_ms = send->now_ms - due_ms;
    while (bucket < RP_COUNT_TIMER_LATENESS_BUCKETS - 1 && (int64_t)1 << bucket < late_ms) bucket++;
    count(send, RP_COUNT_TIMER_LATENESS + bucket, 1);
    count(send, RP_COUNT_TIMER_LATENESS_SUM, (uint64_t)late_ms);
    count(send, RP_COUNT_TIMERS_DELIVERED, 1);
    if (is_dead_letter) count(send, RP_COUNT_TIMERS_DEAD_LETTERS, 1);
}

static rp_status deliver(rp_send *send, const rp_msg_timer *message, const rp_record_view *record) {
    uint8_t properties[RP_PROPERTIES_SIZE_MAX];
    rp_msg_send request = request_of(message, record);
    rp_put put = {.request = &request,
                  .properties = properties,
                  .body = record->body,
                  .store_host = send->config.store_host,
                  .store_timestamp_ms = send->now_ms};
    struct end delivery = {send, message->number, RP_TIMER_DELIVERED};
    rp_stored stored;
    uint64_t total;
    const rp_topic *topic = target_of(send, record, &put, &put.topic_size);
    if (!topic) return RP_OK; /* the manager has not told of it yet */
    put.queue = topic->queues[put.queue_id];
    put.extra_sys_flag = topic->flags & RP_TOPIC_MULTI_TAG ? RP_SYS_FLAG_MULTI_TAGS : 0;
    request.properties_size = copy_properties(record, properties);
    if (!rp_put_measure(&put, &total)) return skip(send, message);
    rp_status status = rp_put_append(send->log, &put, total, 1, journal, &delivery, &stored);
    if (status == RP_TOO_LARGE) return skip(send, message);
    if (status != RP_OK) return RP_OK;
    rp_send_count_put(send, &put, 1, total);
    count_delivered(send, record, put.topic == DEAD_LETTERS);
    return RP_OK;
}

/* Store it again at the end of the log, with its properties as they are. */
static rp_status renew(rp_send *send, const rp_msg_timer *message, const rp_record_view *record) {
    rp_msg_send request = request_of(message, record);
    rp_put put = {.request = &request,
                  .topic = TIMER_TOPIC,
                  .topic_size = TIMER_TOPIC_SIZE,
                  .properties = record->properties,
                  .body = record->body,
                  .store_host = send->config.store_host,
                  .store_timestamp_ms = send->now_ms};
    struct end renewal = {send, message->number, RP_TIMER_RENEWED};
    rp_stored stored;
    uint64_t total;
    put.queue = rp_control_find(send->config.block, TIMER_TOPIC, TIMER_TOPIC_SIZE, 0);
    if (!put.queue || !has_room(send, put.queue)) return RP_OK;
    request.properties_size = record->properties_size;
    if (!rp_put_measure(&put, &total)) return skip(send, message);
    if (rp_put_append(send->log, &put, total, 1, journal, &renewal, &stored) != RP_OK) return RP_OK;
    send->appended++;
    count(send, RP_COUNT_TIMERS_RENEWED, 1);
    return RP_OK;
}

/* 1 if nothing may be stored now. A renewal is for more space on the disk, and may use what is left. */
static int is_refused(const rp_send *send, int is_renewal) {
    uint32_t flags = rp_load_acquire32(&send->control->running_flags);
    if (send->config.member && !send->orders.takes_sends) return 1;
    return rp_store_fault(is_renewal ? flags & ~(uint32_t)RP_FLAG_DISK_FULL : flags) != NULL;
}

/* Of one that is due, or to be renewed. */
static rp_status serve(rp_send *send, const rp_msg_timer *message, int is_renewal) {
    rp_record_view record;
    uint64_t file_size = send->control->commitlog_file_size, published = send->control->published_phy_offset;
    if (message->size > file_size || message->phy_offset >= published ||
        message->size > published - message->phy_offset)
        return skip(send, message);
    const uint8_t *image = rp_log_view_acquire(send->timer_records, message->phy_offset, message->size);
    if (!image) return rp_log_view_is_missing(errno) ? skip(send, message) : RP_OK;
    rp_status status = rp_record_decode(image, message->size, 0, &record);
    if (status == RP_OK && rp_timer_is_timer(&record) && record.queue_offset == message->number)
        status = (is_renewal ? renew : deliver)(send, message, &record);
    else
        status = skip(send, message);
    rp_log_view_release(send->timer_records, message->phy_offset);
    return status;
}

rp_status rp_send_timer_serve(rp_send *send, const rp_msg_timer *message) {
    if (has_ended(send, message->number)) return RP_OK; /* cancelled or moved, or served by the previous process */
    if (!rp_timer_journal_has_room(send->config.timers)) return RP_FULL;
    if (send->now_ms < message->due_ms) rp_send_look_at_clock(send);
    int is_early = send->now_ms < message->due_ms;
    if (is_early && !message->is_renewal) return RP_OK;
    if (is_refused(send, is_early)) return RP_OK;
    rp_delivery delivery = {.phy_offset = message->phy_offset, .level = RP_DELIVERY_OF_TIMER};
    if (!rp_delivery_marks_begin(send->config.marks, &delivery)) return skip(send, message);
    rp_status status = serve(send, message, is_early);
    rp_delivery_marks_end(send->config.marks, &delivery);
    return status;
}
