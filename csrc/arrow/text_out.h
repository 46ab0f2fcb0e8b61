#ifndef ROCKETPY_TEXT_OUT_H
#define ROCKETPY_TEXT_OUT_H
/* A buffer of texts that is written from its begin to its end, and never beyond. For C alone. */
#include <stdint.h>
#include <string.h>

#include "base/utf8.h"

enum { REPLACED_SIZE_MAX = 3 }; /* bytes that one malformed byte becomes at the most */

typedef struct rp_text_out {
    uint8_t *data;
    uint64_t size;
    uint64_t room;
} rp_text_out;

/* As memcpy; names, values and ids are short, and a call takes longer than their bytes. */
static inline void rp_copy_text(uint8_t *target, const uint8_t *source, uint64_t size) {
    if (size > 32) {
        memcpy(target, source, size);
    } else if (size >= 16) {
        memcpy(target, source, 16);
        memcpy(target + size - 16, source + size - 16, 16);
    } else if (size >= 8) {
        memcpy(target, source, 8);
        memcpy(target + size - 8, source + size - 8, 8);
    } else if (size >= 4) {
        memcpy(target, source, 4);
        memcpy(target + size - 4, source + size - 4, 4);
    } else {
        for (uint64_t i = 0; i < size; i++) target[i] = source[i];
    }
}

static inline int rp_text_out_put(rp_text_out *out, const uint8_t *text, uint64_t size) {
    if (size > out->room - out->size) return 0;
    rp_copy_text(out->data + out->size, text, size);
    out->size += size;
    return 1;
}

/* As rp_text_out_put, with U+FFFD in the place of what is not UTF-8. */
static inline int rp_text_out_repair(rp_text_out *out, const uint8_t *text, uint64_t size) {
    const uint8_t *end = text + size;
    while (text < end) {
        uint32_t used;
        int is_valid = 1;
        uint8_t encoded[4];
        uint32_t code_point = rp_utf8_next(text, end, &used, &is_valid);
        uint32_t encoded_size = rp_utf8_put(code_point, encoded);
        if (encoded_size > out->room - out->size) return 0;
        memcpy(out->data + out->size, encoded, encoded_size);
        out->size += encoded_size;
        text += used;
    }
    return 1;
}
#endif
