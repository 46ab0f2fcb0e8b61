#ifndef ROCKETPY_SHARED_H
#define ROCKETPY_SHARED_H
/* Shared memory: how it is made (mostly by rocketpy/native/core.py), and a sequence lock (atomic.h) around whole
 * copies. Short: functions where atomic.h has inline code. */
#include <stdint.h>

/* Zeroed memory that this process shares with all that are forked later. Only pages that are written take memory. NULL
 * with errno. */
void *rp_shared_create(uint64_t size);
/* Zeroed memory of this process alone. NULL with errno. */
void *rp_private_create(uint64_t size);
/* The one writer: change the `size` bytes at `target`. Returns their version, which is even. */
uint64_t rp_sequence_write(uint64_t *version, void *target, const void *source, uint64_t size);
/* Any process: copy them from `source`. Their version plus 1; 0: they are being changed, keep what you have. */
uint64_t rp_sequence_copy(const uint64_t *version, void *target, const void *source, uint64_t size);
#endif
