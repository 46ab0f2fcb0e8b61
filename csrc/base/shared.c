/* See shared.h.
 * Short: functions where atomic.h has inline code. */
#include "base/shared.h"
#include <string.h>
#include <sys/mman.h>
#include "base/atomic.h"

static void *create(uint64_t size, int sharing) {
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

void *rp_shared_create(uint64_t size) { return create(size, MAP_SHARED); }
void *rp_private_create(uint64_t size) { return create(size, MAP_PRIVATE); }

uint64_t rp_sequence_write(uint64_t *version, void *target, const void *source, uint64_t size) {
    uint64_t odd = rp_sequence_begin(version);
    memcpy(target, source, size);
    return rp_sequence_end(version, odd);
}

uint64_t rp_sequence_copy(const uint64_t *version, void *target, const void *source, uint64_t size) {
    uint64_t before = rp_sequence_read(version);
    memcpy(target, source, size);
    return rp_sequence_is_valid(version, before) ? before + 1 : 0;
}
