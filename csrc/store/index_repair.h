#ifndef ROCKETPY_INDEX_REPAIR_H
#define ROCKETPY_INDEX_REPAIR_H
/* An index file after a power failure, which may have kept any of its pages and lost the others. */
#include <stdint.h>
#include "base/status.h"

/* Keep the units of records below `phy_limit` from the first on that fit each other; make slots and header anew from
 * them if they do not fit, and forget the units behind. *end_phy_offset becomes the log offset from which on keys may
 * be missing: the header's end. RP_OK: was whole, or was repaired (*is_repaired 1); RP_EMPTY: nothing can be kept;
 * RP_CORRUPT: not of the size that belongs to the numbers; RP_IO_ERROR, RP_NO_MEMORY. */
rp_status rp_index_repair(const char *path, uint32_t slot_num, uint32_t index_num, uint64_t phy_limit,
                          uint64_t *end_phy_offset, int *is_repaired);
#endif
