#ifndef ROCKETPY_UNIT_TAGS_H
#define ROCKETPY_UNIT_TAGS_H
/* The fields of a consume queue unit. C only. */
#include <stdint.h>
#include "base/endian.h"
#include "store/record.h"

/* Write a unit: RP_CQ_UNIT_SIZE bytes. */
static inline void rp_unit_fill(uint8_t *unit, uint64_t phy_offset, uint32_t size, int64_t code) {
    rp_store64(unit, phy_offset);
    rp_store32(unit + 8, size);
    rp_store64(unit + 12, (uint64_t)code);
}

/* Hash of the record's tags; for a delayed message its delivery time (ms). `delay_level_ms[0]` is level 1; a level
 * above the highest counts as the highest. */
int64_t rp_unit_tags_code(const rp_record_view *record, const int64_t *delay_level_ms, uint32_t delay_level_count);
#endif
