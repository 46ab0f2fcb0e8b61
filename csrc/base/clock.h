#ifndef ROCKETPY_CLOCK_H
#define ROCKETPY_CLOCK_H
/* The machine's clocks: monotonic nanoseconds for waiting and ages; wall and boot milliseconds, of which the broker's
 * clock is made (broker_clock.h), for records.
 * Short: the kernel's clocks, which every room reads inline. */
#include <stdint.h>
#include <time.h>

static inline uint64_t rp_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline int64_t rp_wall_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Milliseconds since the kernel started, suspended time included. Setting the wall clock does not change it. */
static inline int64_t rp_boot_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static inline uint64_t rp_earlier(uint64_t a, uint64_t b) { return a < b ? a : b; }
#endif
