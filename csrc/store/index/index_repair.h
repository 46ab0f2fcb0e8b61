#ifndef ROCKETPY_INDEX_REPAIR_H
#define ROCKETPY_INDEX_REPAIR_H
/* Repairs an index file after a power failure, in which any of its pages may have been lost. */
#include <stdint.h>
#include "base/status.h"

/* Keep the leading units that are consistent and belong to records below `phy_limit`, and drop the units after them.
 * Rebuild slots and header from them if necessary. *end_phy_offset is set to the end offset of the header: keys of
 * later records may be missing. RP_OK: intact or repaired (*is_repaired 1); RP_EMPTY: no unit can be kept; RP_CORRUPT:
 * the file size does not match slot_num and index_num; RP_IO_ERROR, RP_NO_MEMORY. */
rp_status rp_index_repair(const char *path, uint32_t slot_num, uint32_t index_num, uint64_t phy_limit,
                          uint64_t *end_phy_offset, int *is_repaired);
#endif
