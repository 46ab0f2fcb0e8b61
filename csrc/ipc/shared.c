/* See shared.h.
 * Short: functions where atomic.h has inline code. */
#include "ipc/shared.h"
#include <string.h>
#include "base/atomic.h"

void *rp_shared_create(uint64_t size) { return rp_shared_memory(size); }

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
