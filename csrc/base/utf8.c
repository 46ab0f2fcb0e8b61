/* UTF-8: the decoder behind hashes and header checks.
 *
 *   first byte   more  second byte        first byte   more  second byte
 *   00..7F       0                        ED           2     80..9F  (no surrogates)
 *   C2..DF       1     80..BF             F0           3     90..BF  (no overlong)
 *   E0           2     A0..BF (overlong)  F1..F3       3     80..BF
 *   E1..EC EE EF 2     80..BF             F4           3     80..8F  (<= 10FFFF)
 *
 * Third and fourth bytes are always 80..BF; every other first byte is malformed. */
#include "base/utf8.h"

#include <string.h>

static uint32_t malformed(uint32_t consumed, uint32_t *used, int *is_valid) {
    *used = consumed;
    *is_valid = 0;
    return RP_UTF8_REPLACEMENT;
}

uint32_t rp_utf8_next(const uint8_t *at, const uint8_t *end, uint32_t *used, int *is_valid) {
    uint8_t first = at[0];
    if (first < 0x80) {
        *used = 1;
        return first;
    }
    if (first < 0xC2 || first > 0xF4) return malformed(1, used, is_valid);
    uint32_t more = first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
    uint8_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    uint8_t high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    uint32_t code_point = first & (0x3Fu >> more);
    for (uint32_t i = 1; i <= more; i++) {
        if ((uint64_t)(end - at) <= i || at[i] < low || at[i] > high) return malformed(i, used, is_valid);
        code_point = code_point << 6 | (at[i] & 0x3Fu);
        low = 0x80;
        high = 0xBF;
    }
    *used = more + 1;
    return code_point;
}

int rp_utf8_is_valid(const uint8_t *text, uint64_t size) {
    const uint8_t *at = text, *end = text + size;
    int is_valid = 1;
    while (at < end && is_valid) {
        uint64_t word;
        while (end - at >= 8 && (memcpy(&word, at, 8), (word & 0x8080808080808080ull) == 0)) at += 8;
        while (at < end && *at < 0x80) at++;
        if (at == end) break;
        uint32_t used;
        rp_utf8_next(at, end, &used, &is_valid);
        at += used;
    }
    return is_valid;
}

uint32_t rp_utf8_put(uint32_t code_point, uint8_t *out) {
    if (code_point < 0x80) {
        out[0] = (uint8_t)code_point;
        return 1;
    }
    uint32_t more = code_point < 0x800 ? 1 : code_point < 0x10000 ? 2 : 3;
    static const uint8_t first[4] = {0x00, 0xC0, 0xE0, 0xF0};
    out[0] = (uint8_t)(first[more] | code_point >> (6 * more));
    for (uint32_t i = 1; i <= more; i++) out[i] = (uint8_t)(0x80 | (code_point >> (6 * (more - i)) & 0x3F));
    return more + 1;
}
