#ifndef ROCKETPY_INDEX_LAYOUT_H
#define ROCKETPY_INDEX_LAYOUT_H
/* The header and the units of an index file (docs/understand/file-formats.md), big-endian. C only.
 * Short: inline code for index_file.c and verify.c; cffi reads index_file.h. */
#include <stdint.h>
#include "base/endian.h"

enum { /* fields of the header: bytes from the beginning of the file */
       BEGIN_TIMESTAMP = 0,
       END_TIMESTAMP = 8,
       BEGIN_PHY_OFFSET = 16,
       END_PHY_OFFSET = 24,
       SLOT_COUNT = 32,
       INDEX_COUNT = 36
};

/* One key of a message. The units with one slot are a chain, the newest first. */
typedef struct rp_index_unit {
    uint32_t hash;
    uint64_t phy_offset; /* of the record */
    uint32_t seconds;    /* from the header's begin timestamp to the store time of the message */
    uint32_t previous;   /* number of the next unit of the chain; 0: none */
} rp_index_unit;

static inline rp_index_unit rp_index_unit_read(const uint8_t *bytes) {
    return (rp_index_unit){rp_load32(bytes), rp_load64(bytes + 4), rp_load32(bytes + 12), rp_load32(bytes + 16)};
}

/* Write RP_INDEX_UNIT_SIZE bytes. */
static inline void rp_index_unit_fill(uint8_t *bytes, const rp_index_unit *unit) {
    rp_store32(bytes, unit->hash);
    rp_store64(bytes + 4, unit->phy_offset);
    rp_store32(bytes + 12, unit->seconds);
    rp_store32(bytes + 16, unit->previous);
}
#endif
