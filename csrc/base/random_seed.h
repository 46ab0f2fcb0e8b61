#ifndef ROCKETPY_RANDOM_SEED_H
#define ROCKETPY_RANDOM_SEED_H
/* A number that nobody outside can know, for hash tables whose keys clients choose: without it they could choose keys
 * that all meet, and make each look go through all of them. C only. */
#include <stdint.h>
#include <sys/random.h>
#include "base/clock.h"

static inline uint64_t rp_random_seed(void) {
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed)
        seed = rp_now_ns(); /* the machine has just booted */
    return seed;
}
#endif
