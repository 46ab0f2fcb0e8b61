#ifndef BENCH_HISTOGRAM_H
#define BENCH_HISTOGRAM_H
/* A log-linear histogram of nanoseconds: 128 equal steps per power of two, so a bucket is at most 0.8 % wide, from
 * 1 ns to 2^42 ns (73 minutes; longer values count as the longest). Recording is an index and an addition; percentiles
 * and merging are hdrhistogram's work, in Python, after the run. */
#include <stdint.h>

enum {
    HISTOGRAM_STEP_BITS = 7,
    HISTOGRAM_STEPS = 1 << HISTOGRAM_STEP_BITS,
    HISTOGRAM_VALUE_BITS = 42,
    HISTOGRAM_BUCKETS = (HISTOGRAM_VALUE_BITS - HISTOGRAM_STEP_BITS + 1) * HISTOGRAM_STEPS
};

typedef struct histogram {
    uint64_t max_ns;
    uint64_t counts[HISTOGRAM_BUCKETS];
} histogram;

/* Values below HISTOGRAM_STEPS are exact; above, the top HISTOGRAM_STEP_BITS + 1 bits choose the bucket. */
static inline uint32_t histogram_bucket(uint64_t value) {
    if (value < HISTOGRAM_STEPS) return (uint32_t)value;
    if (value >> HISTOGRAM_VALUE_BITS) return HISTOGRAM_BUCKETS - 1;
    uint32_t octave = 63u - (uint32_t)__builtin_clzll(value) - HISTOGRAM_STEP_BITS; /* 0 for the first such octave */
    return (octave + 1) * HISTOGRAM_STEPS + (uint32_t)((value >> octave) - HISTOGRAM_STEPS);
}

static inline uint64_t histogram_low(uint32_t bucket) {
    if (bucket < HISTOGRAM_STEPS) return bucket;
    return (uint64_t)(HISTOGRAM_STEPS + bucket % HISTOGRAM_STEPS) << (bucket / HISTOGRAM_STEPS - 1);
}

static inline void histogram_record(histogram *h, int64_t value_ns, uint64_t count) {
    uint64_t value = value_ns > 0 ? (uint64_t)value_ns : 0;
    h->counts[histogram_bucket(value)] += count;
    if (value > h->max_ns) h->max_ns = value;
}
#endif
