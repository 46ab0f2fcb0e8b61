#include "base/numbers.h"
#include <stdlib.h>
#include <string.h>
#include "base/utf8.h"

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

/* The form is checked here; the C library then reads what it also takes as a number, correctly
 * rounded as in Java. */

enum { NUMBER_SIZE_MAX = 255 };

static int is_digit(uint8_t c) { return c >= '0' && c <= '9'; }
static uint8_t lower(uint8_t c) { return c >= 'A' && c <= 'Z' ? (uint8_t)(c + 32) : c; }
static int is_hex_digit(uint8_t c) { return is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'f'); }

/* The digits at `at`, with at most one point between them; *digits counts them. Returns where they end. */
static uint32_t skip_digits(const uint8_t *text, uint32_t size, uint32_t at, int (*is_one)(uint8_t), uint32_t *digits) {
    int has_point = 0;
    for (*digits = 0; at < size && (is_one(text[at]) || (text[at] == '.' && !has_point)); at++) {
        if (text[at] == '.')
            has_point = 1;
        else
            ++*digits;
    }
    return at;
}

/* The end of an exponent with this letter at `at`; 0: there is none, or it has no digits. */
static uint32_t skip_exponent(const uint8_t *text, uint32_t size, uint32_t at, uint8_t letter) {
    if (at >= size || lower(text[at]) != letter) return 0;
    at++;
    if (at < size && (text[at] == '+' || text[at] == '-')) at++;
    uint32_t begin = at;
    while (at < size && is_digit(text[at])) at++;
    return at > begin ? at : 0;
}

/* The size of the number that `text` consists of, without the letter that may end it (f, d); 0: it is none. `text` has
 * no sign. */
static uint32_t number_size(const uint8_t *text, uint32_t size) {
    uint32_t digits, end, exponent;
    if (size > 2 && text[0] == '0' && lower(text[1]) == 'x') {
        end = skip_exponent(text, size, skip_digits(text, size, 2, is_hex_digit, &digits), 'p');
    } else {
        end = skip_digits(text, size, 0, is_digit, &digits);
        if (end < size && lower(text[end]) == 'e') {
            exponent = skip_exponent(text, size, end, 'e');
            end = exponent;
        }
    }
    if (!digits || !end) return 0;
    return end == size || (end + 1 == size && (lower(text[end]) == 'f' || lower(text[end]) == 'd')) ? end : 0;
}

rp_status rp_parse_double(const uint8_t *text, uint32_t size, double *value) {
    char copy[NUMBER_SIZE_MAX + 1];
    while (size && *text <= ' ') text++, size--;
    while (size && text[size - 1] <= ' ') size--;
    if (!size || size > NUMBER_SIZE_MAX) return RP_INVALID;
    int is_negative = *text == '-';
    if (*text == '-' || *text == '+') text++, size--;
    if (rp_text_is(text, size, "NaN"))
        size = 3;
    else if (rp_text_is(text, size, "Infinity"))
        size = 8;
    else
        size = number_size(text, size);
    if (!size) return RP_INVALID;
    memcpy(copy, text, size);
    copy[size] = 0;
    *value = strtod(copy, NULL);
    if (is_negative) *value = -*value;
    return RP_OK;
}
