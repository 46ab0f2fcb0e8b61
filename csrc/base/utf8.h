#ifndef ROCKETPY_UTF8_H
#define ROCKETPY_UTF8_H
/* Texts: UTF-8 as Java and Python read it. C only: not handed to cffi. */
#include <stdint.h>
#include <string.h>

enum { RP_UTF8_REPLACEMENT = 0xFFFD };

/* The code point that starts at `at` (< end); *used is set to its size. A malformed sequence gives U+FFFD for its
 * longest well-formed prefix, at least one byte, as the Unicode standard recommends and both languages do; then
 * *is_valid becomes 0 (it is never set to 1). */
uint32_t rp_utf8_next(const uint8_t *at, const uint8_t *end, uint32_t *used, int *is_valid);
/* 1 if all of `text` is well-formed; eight ASCII bytes a step. */
int rp_utf8_is_valid(const uint8_t *text, uint64_t size);
/* Write a code point (<= 0x10FFFF, no surrogate); returns 1 to 4. */
uint32_t rp_utf8_put(uint32_t code_point, uint8_t *out);

/* 1 if the text, of `size` bytes, is `word`. */
static inline int rp_text_is(const uint8_t *text, uint32_t size, const char *word) {
    return size == strlen(word) && memcmp(text, word, strlen(word)) == 0;
}
#endif
