#include "workers/send/send_delay.h"
#include <stdio.h>
#include <string.h>
#include "base/utf8.h"
#include "wire/codes.h"

enum {
    SCHEDULE_TOPIC_SIZE = sizeof RP_SCHEDULE_TOPIC - 1,
    LOG_FILES = 4 /* that are mapped to read delayed messages */
};

rp_status rp_send_delay_open(rp_send *send) {
    send->delayed_records =
        rp_log_view_open(send->config.commitlog_directory, send->control->commitlog_file_size, LOG_FILES);
    return send->delayed_records ? RP_OK : RP_NO_MEMORY;
}

void rp_send_delay_close(rp_send *send) { rp_log_view_close(send->delayed_records); }

/* ---- accept ---- */

/* The properties that bring it to its queue, and WAIT as the client gave it, after those that the broker adds to every
 * message. Returns their size; 0: they are too long. */
static uint32_t write_tail(const rp_put *put, uint8_t *tail) {
    uint32_t flags = put->request->flags;
    const char *wait = !(flags & RP_REQUEST_HAS_WAIT) ? ""
                       : flags & RP_REQUEST_NO_WAIT   ? "\x02WAIT\x01"
                                                        "false"
                                                      : "\x02WAIT\x01"
                                                        "true";
    int size = snprintf(
        (char *)tail, RP_DELAY_TAIL_MAX, "%.*s%s" RP_REAL_TOPIC "\x01%.*s\x02" RP_REAL_QUEUE_ID "\x01%d%s",
        (int)put->properties_tail_size, put->properties_tail ? (const char *)put->properties_tail : "",
        put->properties_tail_size ? "\x02" : "", (int)put->topic_size, (const char *)put->topic, put->queue_id, wait);
    return size > 0 && size < RP_DELAY_TAIL_MAX ? (uint32_t)size : 0;
}

rp_status rp_send_delay_accept(const rp_send *send, rp_put *put, uint8_t *tail) {
    uint32_t size = put->request->properties_size;
    int32_t level = rp_delay_level(put->properties, size);
    if (!send->config.marks || level < 1 || (uint64_t)level > send->config.marks->level_max ||
        put->request->sys_flag & RP_TRANSACTION_MASK || rp_property_has(put->properties, size, RP_REAL_TOPIC) ||
        rp_property_has(put->properties, size, RP_REAL_QUEUE_ID))
        return RP_NOT_FOUND;
    rp_queue *queue = rp_control_find(send->config.block, (const uint8_t *)RP_SCHEDULE_TOPIC, SCHEDULE_TOPIC_SIZE,
                                      (uint32_t)level - 1);
    uint32_t tail_size = queue && queue->state == RP_QUEUE_LIVE ? write_tail(put, tail) : 0;
    if (!tail_size) return RP_NOT_FOUND;
    put->topic = (const uint8_t *)RP_SCHEDULE_TOPIC;
    put->topic_size = SCHEDULE_TOPIC_SIZE;
    put->properties_tail = tail;
    put->properties_tail_size = tail_size;
    put->queue = queue;
    put->queue_id = level - 1;
    put->extra_sys_flag = 0; /* MULTI_TAGS is for the topic that it goes to in the end */
    return RP_OK;
}

/* ---- deliver ---- */

/* Where it goes. NULL: the manager decides. */
static const rp_topic *target_of(const rp_send *send, const rp_record_view *record, rp_put *put) {
    int32_t queue_id;
    if (!rp_real_queue(record->properties, record->properties_size, &put->topic, &put->topic_size, &queue_id) ||
        rp_text_is(put->topic, put->topic_size, RP_HALF_TOPIC))
        return NULL;
    const rp_topic *topic = rp_map_get(&send->topics, put->topic, put->topic_size);
    if (!topic || !topic->queue_count) return NULL;
    put->queue_id = (int32_t)((uint32_t)queue_id % topic->queue_count);
    put->queue = topic->queues[put->queue_id];
    return put->queue && put->queue->state == RP_QUEUE_LIVE ? topic : NULL;
}

static void mark(void *context, const rp_put *put, const rp_stored *stored) {
    const rp_send *send = context;
    rp_delivery_marks_mark(send->config.marks, &put->delivery, stored->end_phy_offset);
}

/* Store the same message in its topic. Returns 1 if it is stored. */
static int store(rp_send *send, const rp_delivery *delivery, const rp_record_view *record) {
    rp_msg_send request = {.origin = {.connection = RP_CONNECTION_INTERNAL, .peer = record->born_host},
                           .sys_flag = record->sys_flag,
                           .message_flag = record->flag,
                           .reconsume_times = record->reconsume_times,
                           .born_timestamp_ms = record->born_timestamp_ms,
                           .properties_size = record->properties_size,
                           .body_size = record->body_size};
    rp_put put = {.request = &request,
                  .properties = record->properties,
                  .body = record->body,
                  .is_delivery = 1,
                  .delivery = *delivery,
                  .store_host = send->config.store_host,
                  .store_timestamp_ms = send->now_ms};
    rp_stored stored;
    uint64_t total;
    const rp_topic *topic = target_of(send, record, &put);
    if (!topic) return 0;
    put.extra_sys_flag = topic->flags & RP_TOPIC_MULTI_TAG ? RP_SYS_FLAG_MULTI_TAGS : 0;
    if (!rp_put_measure(&put, &total) || rp_put_append(send->log, &put, total, 1, mark, send, &stored) != RP_OK)
        return 0;
    rp_send_count_put(send, &put, 1, total);
    return 1;
}

static int is_delayed(const rp_record_view *record, const rp_delivery *delivery) {
    return rp_text_is(record->topic, record->topic_size, RP_SCHEDULE_TOPIC) &&
           record->queue_id == (int32_t)delivery->level - 1 && record->queue_offset == delivery->queue_offset &&
           record->phy_offset == delivery->phy_offset;
}

/* Returns RP_RESPONSE_SUCCESS, or why the manager has to deliver it. */
static int32_t read_and_store(rp_send *send, const rp_delivery *delivery, uint32_t size) {
    uint64_t published = send->control->published_phy_offset;
    rp_record_view record;
    if (delivery->phy_offset >= published || size > published - delivery->phy_offset) return RP_RESPONSE_SYSTEM_ERROR;
    const uint8_t *image = rp_log_view_acquire(send->delayed_records, delivery->phy_offset, size);
    if (!image) return RP_RESPONSE_SYSTEM_ERROR;
    int32_t code = RP_RESPONSE_SYSTEM_ERROR;
    if (!send->config.in_memory(image, size))
        code = RP_RESPONSE_SYSTEM_BUSY;
    else if (rp_record_decode(image, size, 0, &record) == RP_OK && is_delayed(&record, delivery) &&
             store(send, delivery, &record))
        code = RP_RESPONSE_SUCCESS;
    rp_log_view_release(send->delayed_records, delivery->phy_offset);
    return code;
}

/* Deliver a message, unless that was done before. */
static int32_t deliver(rp_send *send, const rp_delivery *delivery, uint32_t size) {
    rp_delivery_marks *marks = send->config.marks;
    if (rp_delivery_marks_has(marks, delivery)) return RP_RESPONSE_SUCCESS;
    if (!rp_delivery_marks_begin(marks, delivery)) return RP_RESPONSE_SYSTEM_ERROR;
    int32_t code = read_and_store(send, delivery, size);
    rp_delivery_marks_end(marks, delivery);
    return code;
}

rp_status rp_send_deliver(rp_send *send, const uint8_t *data, uint32_t size) {
    const rp_msg_deliver *due = (const rp_msg_deliver *)data;
    const rp_due *messages = (const rp_due *)(due + 1);
    if (size < sizeof *due || (size - sizeof *due) / sizeof *messages < due->count) return RP_OK;
    rp_wait wait = {.connection = RP_CONNECTION_INTERNAL, .token = due->token};
    if (!rp_send_has_room(send, &wait)) return RP_FULL;
    int32_t code = RP_RESPONSE_SUCCESS;
    if (!send->delayed_records || send->config.is_slave || rp_send_refusal(send)) code = RP_RESPONSE_SYSTEM_ERROR;
    rp_send_look_at_clock(send); /* the manager found them due after this pass had looked at it */
    uint32_t done = 0;
    while (done < due->count && code == RP_RESPONSE_SUCCESS) {
        rp_delivery delivery = {messages[done].phy_offset, due->queue_offset + done, due->level, 0};
        code = deliver(send, &delivery, messages[done].size);
        done += code == RP_RESPONSE_SUCCESS;
    }
    if (!rp_send_may_answer(send)) done = 0, code = RP_RESPONSE_SYSTEM_ERROR; /* marked: they are not stored again */
    wait.queue_offset = due->queue_offset + done;
    return rp_send_put_result(send, &wait, code);
}
