#ifndef ROCKETPY_ENDIAN_H
#define ROCKETPY_ENDIAN_H
/* Big-endian loads and stores at any alignment: every integer on the wire and in the store is big-endian.
 * Short: it is inlined everywhere, and has nothing in common with other numbers. */
#include <stdint.h>
#include <string.h>

static inline uint16_t rp_load16(const void *at) {
    uint16_t v;
    memcpy(&v, at, sizeof v);
    return __builtin_bswap16(v);
}
static inline uint32_t rp_load32(const void *at) {
    uint32_t v;
    memcpy(&v, at, sizeof v);
    return __builtin_bswap32(v);
}
static inline uint64_t rp_load64(const void *at) {
    uint64_t v;
    memcpy(&v, at, sizeof v);
    return __builtin_bswap64(v);
}
static inline void rp_store16(void *at, uint16_t v) {
    v = __builtin_bswap16(v);
    memcpy(at, &v, sizeof v);
}
static inline void rp_store32(void *at, uint32_t v) {
    v = __builtin_bswap32(v);
    memcpy(at, &v, sizeof v);
}
static inline void rp_store64(void *at, uint64_t v) {
    v = __builtin_bswap64(v);
    memcpy(at, &v, sizeof v);
}
#endif
