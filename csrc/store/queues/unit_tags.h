#ifndef ROCKETPY_UNIT_TAGS_H
#define ROCKETPY_UNIT_TAGS_H
/* The tags code of a consume queue unit. C only. */
#include <stdint.h>
#include "store/log/record.h"

/* Hash of the record's tags; for a delayed message its delivery time (ms). `delay_level_ms[0]` is level 1; a level
 * above the highest counts as the highest. */
int64_t rp_unit_tags_code(const rp_record_view *record, const int64_t *delay_level_ms, uint32_t delay_level_count);
#endif
