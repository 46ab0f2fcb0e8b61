#ifndef ROCKETPY_NUMBER_SET_H
#define ROCKETPY_NUMBER_SET_H
/* A set of numbers below 2^64 - 1: open addressing, sized when it is made. C only; one thread. */
#include <stdint.h>
#include "base/status.h"

typedef struct rp_number_set {
    uint64_t *slots; /* owned; number + 1, 0 is free */
    uint32_t mask;
    uint32_t count;
} rp_number_set;

/* For up to `count_max` numbers. RP_OK, RP_NO_MEMORY. */
rp_status rp_number_set_init(rp_number_set *set, uint32_t count_max);
void rp_number_set_destroy(rp_number_set *set);
int rp_number_set_has(const rp_number_set *set, uint64_t number);
void rp_number_set_add(rp_number_set *set, uint64_t number);
void rp_number_set_remove(rp_number_set *set, uint64_t number);
#endif
