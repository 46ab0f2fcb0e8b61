#ifndef ROCKETPY_ATOMIC_H
#define ROCKETPY_ATOMIC_H
/* The few atomics of memory that processes share. A release store publishes everything written before it to a process
 * whose acquire load sees the value; the full fence orders a store before a later load (sleeping, waking, watching).
 * Short: inline code, and the one place that explains it. */
#include <stddef.h>
#include <stdint.h>

static inline uint64_t rp_load_acquire(const uint64_t *at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
static inline void rp_store_release(uint64_t *at, uint64_t value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); }
static inline uint32_t rp_load_acquire32(const uint32_t *at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
static inline void rp_store_release32(uint32_t *at, uint32_t value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); }
static inline uint32_t rp_exchange32(uint32_t *at, uint32_t value) {
    return __atomic_exchange_n(at, value, __ATOMIC_ACQ_REL);
}
/* Each use says which store (or load) it orders before which load (or store): a test looks for it. */
static inline void rp_full_fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
/* A counter that one process adds to and others read now and then. */
static inline void rp_add(uint64_t *counter, uint64_t n) { __atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED); }

/* A sequence lock: one writer changes bytes in shared memory, and readers copy them without waiting for it.
 *
 * The version is odd while the writer changes the bytes. A reader compares the version before its copy with that after
 * it: if they differ, or are odd, the copy is not valid. A writer that is killed leaves the version odd until the next
 * change; then its readers keep what they have, or try again. */

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
