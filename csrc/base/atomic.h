#ifndef ROCKETPY_ATOMIC_H
#define ROCKETPY_ATOMIC_H
/* The few atomics that processes share. A release store publishes everything written before it to whoever sees the
 * value with an acquire load; the full fence orders a store before a later load (sleeping and waking, watching). */
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
#endif
