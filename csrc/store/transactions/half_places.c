/* The latest places are kept in memory, because a transaction mostly ends soon after its half message was stored, and
 * because dispatch may be behind. All others are read from the half queue. */
#include "store/transactions/half_places.h"

#include <stdlib.h>

#include "base/atomic.h"
#include "store/queues/unit.h"

enum { FILES = 4 };

struct rp_half_place {
    uint64_t offset; /* + 1; 0: none */
    uint64_t phy_offset;
};

rp_status rp_half_places_open(rp_half_places *places, rp_control_block *block, const char *consume_queue_directory,
                              uint64_t consume_queue_file_size) {
    places->latest = calloc(RP_HALF_PLACES_LATEST, sizeof *places->latest);
    places->units = rp_cq_reader_open(block, consume_queue_directory, consume_queue_file_size, FILES);
    return places->latest && places->units ? RP_OK : RP_NO_MEMORY;
}

void rp_half_places_close(rp_half_places *places) {
    if (places->units) rp_cq_reader_close(places->units);
    free(places->latest);
    *places = (rp_half_places){0};
}

void rp_half_places_add(rp_half_places *places, uint64_t offset, uint64_t phy_offset) {
    places->latest[offset % RP_HALF_PLACES_LATEST] = (rp_half_place){offset + 1, phy_offset};
}

int rp_half_places_is_latest(const rp_half_places *places, uint64_t offset) {
    return places->latest[offset % RP_HALF_PLACES_LATEST].offset == offset + 1;
}

int rp_half_places_in_memory(rp_half_places *places, const rp_queue *queue, uint64_t offset) {
    return rp_half_places_is_latest(places, offset) || rp_cq_in_memory(places->units, queue, offset);
}

rp_status rp_half_places_find(rp_half_places *places, const rp_queue *queue, uint64_t offset, uint64_t *phy_offset) {
    const rp_half_place *latest = &places->latest[offset % RP_HALF_PLACES_LATEST];
    uint8_t unit[RP_CQ_UNIT_SIZE];
    if (latest->offset == offset + 1) {
        *phy_offset = latest->phy_offset;
        return RP_OK;
    }
    if (offset >= rp_load_acquire(&queue->max_offset)) return RP_EMPTY;
    int32_t count = rp_cq_read(places->units, queue, offset, 1, unit);
    if (count < 0) return RP_IO_ERROR;
    if (count == 0) return RP_NOT_FOUND;
    *phy_offset = rp_unit_read(unit).phy_offset;
    return RP_OK;
}

void rp_half_places_release(rp_half_places *places) {
    if (places->units) rp_cq_reader_release(places->units);
}
