#ifndef ROCKETPY_UNIT_TAGS_H
#define ROCKETPY_UNIT_TAGS_H
/* The third field of a consume queue unit. C only. */
#include <stdint.h>
#include "store/record.h"

/* Hash of the record's tags; of a delayed message, when it is due (ms). `delay_level_ms[0]` is level 1; a level beyond
 * the last counts as the last. */
int64_t rp_unit_tags_code(const rp_record_view *record, const int64_t *delay_level_ms, uint32_t delay_level_count);
#endif
