#ifndef ROCKETPY_HALF_COMMITTED_H
#define ROCKETPY_HALF_COMMITTED_H
/* Committed messages of transactions, and the half messages that they were made of. C only. */
#include <stdint.h>
#include "store/control_block.h"
#include "store/log_view.h"
#include "store/record.h"

int rp_half_is_committed(const rp_record_view *record);
/* 1 with the place (*half_phy_offset) and the queue offset of the half message that the committed message at
 * `phy_offset` was made of; 0: there is no committed message, or its half message cannot be read. */
int rp_half_of_committed(rp_log_view *log, const rp_control *control, uint64_t phy_offset, uint64_t *half_phy_offset,
                         uint64_t *half_offset);
#endif
