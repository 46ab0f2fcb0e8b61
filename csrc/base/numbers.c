/* See numbers.h. */
#include "base/numbers.h"

/* Sign and digits with a magnitude of at most `limit` (+ 1 if negative), as two's complement bits. */
static rp_status parse(const uint8_t *text, uint32_t size, uint64_t limit, uint64_t *out) {
    uint32_t at = 0;
    int is_negative = size > 0 && text[0] == '-';
    if (size > 0 && (text[0] == '-' || text[0] == '+')) at = 1;
    if (at == size) return RP_INVALID;
    uint64_t value = 0;
    if (is_negative) limit++;
    for (; at < size; at++) {
        uint32_t digit = (uint32_t)text[at] - '0';
        if (digit > 9 || value > (limit - digit) / 10) return RP_INVALID;
        value = value * 10 + digit;
    }
    *out = is_negative ? 0 - value : value;
    return RP_OK;
}

rp_status rp_parse_int32(const uint8_t *text, uint32_t size, int32_t *out) {
    uint64_t value;
    rp_status status = parse(text, size, INT32_MAX, &value);
    if (status == RP_OK) *out = (int32_t)(uint32_t)value;
    return status;
}

rp_status rp_parse_int64(const uint8_t *text, uint32_t size, int64_t *out) {
    uint64_t value;
    rp_status status = parse(text, size, INT64_MAX, &value);
    if (status == RP_OK) *out = (int64_t)value;
    return status;
}
