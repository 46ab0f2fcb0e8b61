/* A batch is a row of entries (docs/understand/wire-format.md, Bodies); each becomes a record of its own with
 * consecutive queue offsets:
 *
 *   entry: size(4) magic(4) crc(4) flag(4) body size(4) body properties size(2) properties */
#define _GNU_SOURCE
#include "workers/send/send_store.h"

#include <string.h>

#include "base/crash_point.h"
#include "base/endian.h"
#include "store/log/timer_properties.h"
#include "store/queues/unit.h"
#include "workers/shared/replies.h"

int rp_put_open(const uint8_t *data, uint32_t size, rp_put *put) {
    const rp_msg_send *request = (const rp_msg_send *)data;
    uint64_t strings = (uint64_t)request->topic_size + request->group_size + request->default_topic_size +
                       request->properties_size + request->body_size;
    if (size < sizeof *request || strings > size - sizeof *request ||
        (strings < size - sizeof *request && !(request->flags & RP_REQUEST_UNCHECKED)))
        return 0;
    *put = (rp_put){.request = request, .topic = data + sizeof *request, .topic_size = request->topic_size};
    put->properties = put->topic + request->topic_size + request->group_size + request->default_topic_size;
    put->body = put->properties + request->properties_size;
    put->is_delivery = rp_is_internal(request->origin.connection) && request->flags & RP_REQUEST_DELIVERY &&
                       request->group_size == sizeof put->delivery;
    if (put->is_delivery) memcpy(&put->delivery, put->topic + request->topic_size, sizeof put->delivery);
    put->ends_timer = rp_is_internal(request->origin.connection) && request->flags & RP_REQUEST_ENDS_TIMER &&
                      request->group_size == sizeof put->timer;
    if (put->ends_timer) memcpy(&put->timer, put->topic + request->topic_size, sizeof put->timer);
    return 1;
}

static void record_of(const rp_put *put, rp_record *record) {
    const rp_msg_send *request = put->request;
    *record = (rp_record){.queue_id = put->queue_id,
                          .flag = request->message_flag,
                          .sys_flag = (request->sys_flag & ~put->dropped_sys_flag) | put->extra_sys_flag,
                          .reconsume_times = request->reconsume_times,
                          .born_timestamp_ms = request->born_timestamp_ms,
                          .store_timestamp_ms = put->store_timestamp_ms,
                          .prepared_transaction_offset = request->prepared_transaction_offset,
                          .born_host = request->origin.peer,
                          .store_host = put->store_host,
                          .body = put->body,
                          .topic = put->topic,
                          .properties = put->properties,
                          .properties_tail = put->properties_tail,
                          .body_size = request->body_size,
                          .topic_size = put->topic_size,
                          .properties_size = request->properties_size,
                          .properties_tail_size = put->properties_tail_size};
}

/* The batch entry at `at`; returns the place of the next, or NULL if it is malformed. Batch-level properties are not
 * appended to entries: they would override the entries' own. */
static const uint8_t *next_entry(const uint8_t *at, const uint8_t *end, rp_record *record) {
    if (end - at < RP_BATCH_ENTRY_MIN) return NULL;
    uint32_t size = rp_load32(at);
    uint32_t body_size = rp_load32(at + 16);
    if (size < RP_BATCH_ENTRY_MIN || size > (uint64_t)(end - at) || body_size > size - RP_BATCH_ENTRY_MIN) return NULL;
    uint32_t properties_size = rp_load16(at + 20 + body_size);
    if (size != RP_BATCH_ENTRY_MIN + body_size + properties_size) return NULL;
    record->flag = (int32_t)rp_load32(at + 12);
    record->body = at + 20;
    record->body_size = body_size;
    record->properties = at + RP_BATCH_ENTRY_MIN + body_size;
    record->properties_size = properties_size;
    return at + size;
}

/* A zero byte in the properties looks like a sector lost in a power failure: recovery would end the log at such a
 * record (recovery.c). Internal puts come from the log and stay unchanged. */
static int are_properties_legal(const rp_put *put, const rp_record *record) {
    return rp_is_internal(put->request->origin.connection) || !record->properties_size ||
           !memchr(record->properties, 0, record->properties_size);
}

/* A message of a batch can neither be a timer nor change one: it would be delivered at once. */
static int is_about_timers(const rp_record *record) {
    const uint8_t *properties = record->properties;
    uint32_t size = record->properties_size;
    if (!size ||
        (!memmem(properties, size, "DEL", 3) && !memmem(properties, size, RP_TIMER_MOVE, sizeof RP_TIMER_MOVE - 1)))
        return 0; /* each of the other names contains DEL */
    for (uint32_t i = 0; i < RP_TIMER_PROPERTY_COUNT; i++)
        if (rp_property_has(properties, size, RP_TIMER_PROPERTIES[i])) return 1;
    return rp_property_has(properties, size, RP_TIMER_CANCEL) || rp_property_has(properties, size, RP_TIMER_MOVE);
}

uint32_t rp_put_measure(const rp_put *put, uint64_t *total) {
    rp_record record;
    uint32_t count = 0, size;
    record_of(put, &record);
    *total = 0;
    if (!(put->request->flags & RP_REQUEST_BATCH)) {
        *total = size = rp_record_size(&record);
        return size && are_properties_legal(put, &record) ? 1 : 0;
    }
    const uint8_t *at = put->body, *end = put->body + put->request->body_size;
    while (at < end && count <= RP_BATCH_ENTRIES_MAX) {
        if (!(at = next_entry(at, end, &record)) || !(size = rp_record_size(&record))) return 0;
        if (!are_properties_legal(put, &record) || is_about_timers(&record)) return 0;
        *total += size;
        count++;
    }
    return count;
}

rp_status rp_put_append(rp_commitlog *log, const rp_put *put, uint64_t total, uint32_t count,
                        rp_before_publish before_publish, void *context, rp_stored *stored) {
    uint8_t *at;
    rp_record record;
    if (total > UINT32_MAX) return RP_TOO_LARGE;
    rp_status status = rp_commitlog_reserve(log, (uint32_t)total, &at, &stored->phy_offset);
    if (status != RP_OK) return status;
    record_of(put, &record);
    int counts = rp_has_unit(record.sys_flag);
    stored->queue_offset = counts ? put->queue->next_offset : 0;
    stored->size = (uint32_t)total;
    stored->records = at;
    stored->message_count = count;
    stored->end_phy_offset = stored->phy_offset + total;
    record.phy_offset = stored->phy_offset;
    record.queue_offset = stored->queue_offset;
    const uint8_t *entry = put->body, *end = put->body + put->request->body_size;
    for (uint32_t i = 0; i < count; i++) {
        if (put->request->flags & RP_REQUEST_BATCH) entry = next_entry(entry, end, &record);
        RP_CRASH_POINT("append.record");
        uint32_t size = rp_record_encode(&record, at);
        at += size;
        record.phy_offset += size;
        record.queue_offset += (uint64_t)counts;
    }
    before_publish(context, put, stored);
    rp_commitlog_publish(log, (uint32_t)total, put->store_timestamp_ms);
    if (counts) __atomic_store_n(&put->queue->next_offset, record.queue_offset, __ATOMIC_RELAXED);
    return RP_OK;
}

uint32_t rp_put_message_ids(const rp_put *put, const rp_stored *stored, uint8_t *out) {
    uint8_t *at = out;
    uint64_t offset = 0;
    for (uint32_t i = 0; i < stored->message_count; i++) {
        if (i) *at++ = ',';
        at += rp_message_id(&put->store_host, stored->phy_offset + offset, at);
        offset += rp_load32(stored->records + offset);
    }
    return (uint32_t)(at - out);
}
