/* See epochs.h. An epoch without bytes begins where the next one does: the last of those has the byte. */
#include "replication/epochs.h"

int32_t rp_epochs_at(const rp_epoch *epochs, uint32_t count, uint64_t position, uint64_t *end) {
    uint32_t low = 0, high = count; /* the first that begins after the position is in [low, high] */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (epochs[middle].start <= position)
            low = middle + 1;
        else
            high = middle;
    }
    *end = low < count ? epochs[low].start : UINT64_MAX;
    return low ? epochs[low - 1].number : -1;
}
