#ifndef ROCKETPY_TESTS_CHECK_H
#define ROCKETPY_TESTS_CHECK_H
/* What the C drivers share: a check that says where, seeded randomness, and copies that end where their memory ends,
 * so that the address sanitizer sees the first byte read too far. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                    \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* xorshift64*; a driver starts it with a constant, so that every run is the same. */
typedef struct random_source {
    uint64_t state;
} random_source;

static inline uint64_t random_next(random_source *source) {
    source->state ^= source->state >> 12;
    source->state ^= source->state << 25;
    source->state ^= source->state >> 27;
    return source->state * 0x2545F4914F6CDD1Dull;
}

/* 0 <= result < limit */
static inline uint32_t random_below(random_source *source, uint32_t limit) {
    return (uint32_t)((random_next(source) >> 32) * limit >> 32);
}

static inline uint8_t *exact_copy(const void *bytes, size_t size) {
    uint8_t *copy = malloc(size > 0 ? size : 1);
    CHECK(copy != NULL);
    if (size > 0) memcpy(copy, bytes, size);
    return copy;
}

/* Change, cut, or repeat up to three pieces of `image` (room for 2 * *size + 8 bytes). */
static inline void mutate(random_source *source, uint8_t *image, uint32_t *size) {
    static const uint8_t telling[] = "\0\1\2\177\200\377{}[]\":,\\u0n- ";
    for (uint32_t round = random_below(source, 3) + 1; round > 0; round--) {
        uint32_t at = random_below(source, *size + 1);
        switch (random_below(source, 4)) {
            case 0:
                if (at < *size) image[at] = telling[random_below(source, sizeof telling)];
                break;
            case 1:
                if (at < *size) image[at] = (uint8_t)random_next(source);
                break;
            case 2: *size = at; break;
            default:
                memmove(image + at + 2, image + at, *size - at);
                image[at] = telling[random_below(source, sizeof telling)];
                image[at + 1] = (uint8_t)random_next(source);
                *size += 2;
        }
    }
}
#endif
