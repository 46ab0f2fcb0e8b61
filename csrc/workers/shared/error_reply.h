#ifndef ROCKETPY_ERROR_REPLY_H
#define ROCKETPY_ERROR_REPLY_H
/* Replies of the fast path that carry a code and a remark, on their way to a selector. C only. */
#include <stdint.h>
#include "wire/reply.h"
#include "ipc/ring.h"

/* Write the reply for `connection` to the ring of its selector. RP_OK or RP_FULL. */
rp_status rp_error_reply_send(rp_ring_writer *selector, uint64_t connection, const rp_error_reply *reply);
#endif
