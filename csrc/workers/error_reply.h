#ifndef ROCKETPY_ERROR_REPLY_H
#define ROCKETPY_ERROR_REPLY_H
/* Replies of the fast path that carry a code and a remark: overload, fast failure, refusals of the store. */
#include <stdint.h>
#include "ipc/ring.h"

enum { RP_ERROR_REPLY_MAX = 768 };

typedef struct rp_error_reply {
    uint64_t connection;
    int32_t opaque;
    int32_t code;
    int32_t version; /* ours */
    uint8_t serialize_type;
    const char *remark; /* ASCII without quotes or backslashes, at most 400 characters */
    const char *region; /* NULL, or MSG_REGION of a send's reply (then TRACE_ON follows `trace_on`) */
    uint8_t trace_on;
} rp_error_reply;

/* Encode the whole frame; returns its size (never above RP_ERROR_REPLY_MAX). */
uint32_t rp_error_reply_encode(const rp_error_reply *reply, uint8_t *out);
/* Write it as a REPLY record to the connection's selector. RP_OK or RP_FULL. */
rp_status rp_error_reply_send(rp_ring_writer *selector, const rp_error_reply *reply);
#endif
