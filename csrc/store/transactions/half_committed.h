#ifndef ROCKETPY_HALF_COMMITTED_H
#define ROCKETPY_HALF_COMMITTED_H
/* Records whose op message follows them at once: committed messages, and half messages that were stored again
 * (renewed); and the half messages that they were made of. C only. */
#include <stdint.h>
#include "store/control/control_block.h"
#include "store/log/log_view.h"
#include "store/log/record.h"

int rp_half_is_renewed(const rp_record_view *record);
int rp_half_has_op(const rp_record_view *record);
/* 1 with the place (*half_phy_offset) and the queue offset of the half message that the record at `phy_offset` was made
 * of; 0: it is no such record, or its half message cannot be read. */
int rp_half_of_committed(rp_log_view *log, const rp_control *control, uint64_t phy_offset, uint64_t *half_phy_offset,
                         uint64_t *half_offset);
#endif
