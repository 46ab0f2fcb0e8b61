#ifndef ROCKETPY_HAS_UNIT_H
#define ROCKETPY_HAS_UNIT_H
/* Which messages are in a consume queue. C only. */
#include <stdint.h>
#include "store/log/record.h"

/* 1: a message with this sysFlag takes the next offset of its queue and gets a unit: one outside of transactions, or a
 * committed one. A prepared message or a rollback has neither. */
static inline int rp_has_unit(int32_t sys_flag) {
    int32_t transaction = sys_flag & RP_TRANSACTION_MASK;
    return transaction == 0 || transaction == RP_SYS_FLAG_TRANSACTION_COMMIT;
}
#endif
