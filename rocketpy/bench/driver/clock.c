/* The clock that all parts of the driver read; of its own, so that load.c alone knows the others. */
#define _GNU_SOURCE
#include <time.h>
#include "load.h"

int64_t load_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
