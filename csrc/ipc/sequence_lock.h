#ifndef ROCKETPY_SEQUENCE_LOCK_H
#define ROCKETPY_SEQUENCE_LOCK_H
/* A sequence lock: one writer changes bytes in shared memory, and readers copy them without waiting for it. C only.
 *
 * The version is odd while the writer changes the bytes. A reader compares the version before its copy with that after
 * it: if they differ, or are odd, the copy is not valid. A writer that is killed leaves the version odd until the next
 * change; then its readers keep what they have, or try again. */
#include <stdint.h>
#include "base/atomic.h"

/* Writer: before the bytes are changed. Returns the odd version, for rp_sequence_end. */
static inline uint64_t rp_sequence_begin(uint64_t *version) {
    uint64_t odd = rp_load_acquire(version) | 1;
    rp_store_release(version, odd);
    rp_full_fence(); /* orders the store of the odd version before the stores of the bytes */
    return odd;
}

/* Writer: the bytes are whole. Returns their version. */
static inline uint64_t rp_sequence_end(uint64_t *version, uint64_t odd) {
    rp_store_release(version, odd + 1);
    return odd + 1;
}

/* Reader: before the copy. */
static inline uint64_t rp_sequence_read(const uint64_t *version) { return rp_load_acquire(version); }

/* Reader: 1 if what was copied since rp_sequence_read returned `before` is valid. */
static inline int rp_sequence_is_valid(const uint64_t *version, uint64_t before) {
    rp_full_fence(); /* orders the loads of the bytes before the second load of the version */
    return !(before & 1) && rp_load_acquire(version) == before;
}
#endif
