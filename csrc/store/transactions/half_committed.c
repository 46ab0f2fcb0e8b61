/* A committed message names its half message in preparedTransactionOffset. No request of a client carries that field,
 * but a client can set the flag of a committed message in sysFlag: then the record names place 0, where another
 * message's half message may be. So the two messages are compared. */
#include "store/transactions/half_committed.h"

#include <string.h>

#include "store/transactions/transaction_names.h"

static int is_half(const rp_record_view *record) {
    return record->topic_size == sizeof RP_HALF_TOPIC - 1 &&
           memcmp(record->topic, RP_HALF_TOPIC, record->topic_size) == 0;
}

/* No client can send to the half topic, or write that property. The first message of a log has place 0. */
int rp_half_is_renewed(const rp_record_view *record) {
    const uint8_t *value;
    return is_half(record) && (record->prepared_transaction_offset != 0 ||
                               rp_property_find(record->properties, record->properties_size, RP_FIRST_STORED, &value));
}

int rp_half_has_op(const rp_record_view *record) {
    return (record->sys_flag & RP_TRANSACTION_MASK) == RP_SYS_FLAG_TRANSACTION_COMMIT || rp_half_is_renewed(record);
}

/* Read the record at a place in the log. 1: the caller releases the log at `phy_offset`. */
static int acquire(rp_log_view *log, const rp_control *control, uint64_t phy_offset, rp_record_view *record) {
    uint64_t size = control->commitlog_file_size - phy_offset % control->commitlog_file_size;
    if (phy_offset >= control->published_phy_offset) return 0;
    if (size > control->published_phy_offset - phy_offset) size = control->published_phy_offset - phy_offset;
    const uint8_t *image = rp_log_view_acquire(log, phy_offset, size);
    if (!image) return 0;
    if (rp_record_decode(image, size, 0, record) == RP_OK && record->phy_offset == phy_offset) return 1;
    rp_log_view_release(log, phy_offset);
    return 0;
}

/* 1 if `message` was made of `half`. */
static int is_of(const rp_record_view *message, const rp_record_view *half) {
    const uint8_t *topic, *key, *half_key;
    if (!is_half(half)) return 0;
    uint32_t topic_size = rp_property_find(half->properties, half->properties_size, RP_REAL_TOPIC, &topic),
             key_size = rp_property_find(message->properties, message->properties_size, "UNIQ_KEY", &key);
    if (!rp_half_is_renewed(message) &&
        (!topic_size || topic_size != message->topic_size || memcmp(topic, message->topic, topic_size) != 0))
        return 0;
    if (key_size != rp_property_find(half->properties, half->properties_size, "UNIQ_KEY", &half_key)) return 0;
    if (key_size && memcmp(key, half_key, key_size) != 0) return 0;
    return half->born_timestamp_ms == message->born_timestamp_ms && half->body_size == message->body_size &&
           (!half->body_size || memcmp(half->body, message->body, half->body_size) == 0);
}

int rp_half_of_committed(rp_log_view *log, const rp_control *control, uint64_t phy_offset, uint64_t *half_phy_offset,
                         uint64_t *half_offset) {
    rp_record_view message, half;
    int is_found = 0;
    if (!acquire(log, control, phy_offset, &message)) return 0;
    uint64_t at = (uint64_t)message.prepared_transaction_offset;
    if (rp_half_has_op(&message) && at < phy_offset && acquire(log, control, at, &half)) {
        is_found = is_of(&message, &half);
        *half_phy_offset = at;
        *half_offset = half.queue_offset;
        rp_log_view_release(log, at);
    }
    rp_log_view_release(log, phy_offset);
    return is_found;
}
