#ifndef ROCKETPY_HALF_COPIES_H
#define ROCKETPY_HALF_COPIES_H
/* Half messages that were stored again: a Java broker does so for each check, and in the immunity time. C only. */
#include <stdint.h>
#include "store/log/record.h"

/* 1 if `copy` may be a copy of another half message; *original: its offset in the half queue, if the copy names it,
 * else UINT64_MAX. Clients can write both properties, so the two messages have to be compared. */
int rp_half_may_be_copy(const rp_record_view *copy, uint64_t *original);
/* 1 if both are one message of one transaction. */
int rp_half_is_same(const rp_record_view *one, const rp_record_view *other);
#endif
