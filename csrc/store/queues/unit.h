#ifndef ROCKETPY_UNIT_H
#define ROCKETPY_UNIT_H
/* A consume queue unit: where the record is that stands at a queue offset. C only.
 *
 *   position of the record in the log(8)  its size(4)  tags code(8)      big-endian, RP_CQ_UNIT_SIZE bytes
 * Short: inline code for every reader of queues; cffi reads consume_queue.h. */
#include <stdint.h>
#include "base/endian.h"
#include "store/log/record.h"

typedef struct rp_unit {
    uint64_t phy_offset;
    uint32_t size;     /* bytes; INT32_MAX: a blank, no record stands there */
    int64_t tags_code; /* hash of the tag, time of delivery (ms), or address of an extension unit */
} rp_unit;

static inline rp_unit rp_unit_read(const uint8_t *bytes) {
    return (rp_unit){rp_load64(bytes), rp_load32(bytes + 8), (int64_t)rp_load64(bytes + 12)};
}

static inline void rp_unit_set_tags_code(uint8_t *bytes, int64_t tags_code) {
    rp_store64(bytes + 12, (uint64_t)tags_code);
}

static inline void rp_unit_fill(uint8_t *bytes, uint64_t phy_offset, uint32_t size, int64_t tags_code) {
    rp_store64(bytes, phy_offset);
    rp_store32(bytes + 8, size);
    rp_unit_set_tags_code(bytes, tags_code);
}

/* 1: a message with this sysFlag takes the next offset of its queue and gets a unit: one outside of transactions, or a
 * committed one. A prepared message or a rollback has neither. */
static inline int rp_has_unit(int32_t sys_flag) {
    int32_t transaction = sys_flag & RP_TRANSACTION_MASK;
    return transaction == 0 || transaction == RP_SYS_FLAG_TRANSACTION_COMMIT;
}
#endif
