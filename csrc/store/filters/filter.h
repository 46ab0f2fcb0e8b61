#ifndef ROCKETPY_FILTER_H
#define ROCKETPY_FILTER_H
/* Runs SQL92 expressions: programs of rocketpy/filter/program.py, for the properties of one message at a time. What
 * they mean is said in rocketpy/filter/evaluate.py. */
#include <stdint.h>

typedef enum rp_filter_result {
    RP_FILTER_FALSE = 0,
    RP_FILTER_TRUE = 1,
    RP_FILTER_UNKNOWN = 2,
    RP_FILTER_FAULT = 3 /* a property is not of the kind that it is compared with; or the program is not sound */
} rp_filter_result;

typedef struct rp_filter rp_filter;

/* A copy of a program, held once. NULL with errno: EINVAL, it is not sound; ENOMEM. */
rp_filter *rp_filter_open(const uint8_t *program, uint32_t size);
uint32_t rp_filter_size(const rp_filter *filter); /* of its memory, in bytes */
/* Filters are shared within a process, by one thread. The last release frees it; NULL does nothing. */
rp_filter *rp_filter_hold(rp_filter *filter);
void rp_filter_release(rp_filter *filter);
/* Evaluate for a property string. Only RP_FILTER_TRUE selects the message. *work is increased by about the number of
 * bytes that were looked at, for callers that bound what they do at a time. */
rp_filter_result rp_filter_evaluate(const rp_filter *filter, const uint8_t *properties, uint32_t size, uint64_t *work);
#endif
