#ifndef ROCKETPY_RANDOM_SEED_H
#define ROCKETPY_RANDOM_SEED_H
/* A secret random seed for hash tables whose keys clients choose. Without it clients could choose colliding keys and
 * make each lookup go through all of them. C only. */
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
