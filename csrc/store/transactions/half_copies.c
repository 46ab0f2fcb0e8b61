/* A copy has the body, the times, the sender and the properties of its original. A producer may send one message object
 * in two transactions: the born times of these differ. Another sender cannot take the born host, which the broker
 * writes. */
#include "store/transactions/half_copies.h"

#include <string.h>

#include "base/numbers.h"
#include "store/transactions/transaction_names.h"

int rp_half_may_be_copy(const rp_record_view *copy, uint64_t *original) {
    const uint8_t *value;
    int64_t named;
    uint32_t size = rp_property_find(copy->properties, copy->properties_size, RP_PREPARED_QUEUE_OFFSET, &value);
    int has_name = size && rp_parse_int64(value, size, &named) == RP_OK && named >= 0;
    *original = has_name ? (uint64_t)named : UINT64_MAX;
    return has_name || rp_property_find(copy->properties, copy->properties_size, RP_CHECK_TIMES, &value) > 0;
}

/* 1 if both have the property, with one value. */
static int has_same(const rp_record_view *one, const rp_record_view *other, const char *name) {
    const uint8_t *a, *b;
    uint32_t size = rp_property_find(one->properties, one->properties_size, name, &a);
    return size && size == rp_property_find(other->properties, other->properties_size, name, &b) &&
           memcmp(a, b, size) == 0;
}

int rp_half_is_same(const rp_record_view *one, const rp_record_view *other) {
    return one->born_timestamp_ms == other->born_timestamp_ms && one->body_size == other->body_size &&
           one->body_crc == other->body_crc && memcmp(&one->born_host, &other->born_host, sizeof one->born_host) == 0 &&
           has_same(one, other, "UNIQ_KEY") && has_same(one, other, RP_REAL_TOPIC) && has_same(one, other, "PGROUP") &&
           (!one->body_size || memcmp(one->body, other->body, one->body_size) == 0);
}
