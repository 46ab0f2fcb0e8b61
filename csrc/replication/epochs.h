#ifndef ROCKETPY_EPOCHS_H
#define ROCKETPY_EPOCHS_H
/* The epochs of a log, as rocketpy/failover/rules/epochs.py lists them: which master wrote which bytes. */
#include <stdint.h>

typedef struct rp_epoch {
    uint64_t start; /* position of its first byte; the next one begins where it ends */
    int32_t number;
    uint32_t reserved;
} rp_epoch;

/* The epoch of the byte at `position`, of `count` ones in ascending order; -1: none of them. *end: where it ends, as
 * far as the list tells. */
int32_t rp_epochs_at(const rp_epoch *epochs, uint32_t count, uint64_t position, uint64_t *end);
#endif
