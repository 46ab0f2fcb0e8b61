#ifndef ROCKETPY_REPLY_H
#define ROCKETPY_REPLY_H
/* Replies of the fast path in either serialisation. Texts are borrowed during the call and must need no JSON escapes.
 */
#include <stdint.h>

/* A whole reply frame to a send that was stored. `code` is 0, 10, 11 or 12. `message_ids` holds the offset message
 * ids, comma-joined. `region` must need no JSON escapes (checked at configuration).
 * Returns its size, or 0 if `capacity` does not hold it. */
typedef struct rp_send_reply {
    uint8_t serialize_type;
    uint8_t trace_on;
    int32_t opaque;
    int32_t code;
    int32_t version; /* ours */
    int32_t queue_id;
    uint64_t queue_offset;
    const uint8_t *message_ids;
    uint32_t message_ids_size;
    const uint8_t *region;
    uint32_t region_size;
} rp_send_reply;
uint32_t rp_send_reply_encode(const rp_send_reply *reply, uint8_t *out, uint32_t capacity);

/* The head (length, descriptor, header) of a pull reply whose body of `body_size` bytes is sent after it.
 * `remark` is a GetMessageStatus name (plain ASCII). Returns its size, or 0 if `capacity` does not hold it. */
typedef struct rp_pull_reply {
    uint8_t serialize_type;
    int32_t opaque;
    int32_t code;
    int32_t version;
    int64_t suggest_which_broker_id;
    uint64_t next_begin_offset;
    uint64_t min_offset;
    uint64_t max_offset;
    uint32_t body_size;
    const uint8_t *remark;
    uint32_t remark_size;
} rp_pull_reply;
uint32_t rp_pull_reply_encode(const rp_pull_reply *reply, uint8_t *out, uint32_t capacity);

/* A whole reply frame that carries a code and a remark: overload, refusals. Longer texts are cut. Returns its size,
 * never above RP_ERROR_REPLY_MAX, which is the room that `out` has. */
enum { RP_ERROR_REPLY_MAX = 768, RP_ERROR_REMARK_MAX = 400, RP_ERROR_REGION_MAX = 64 };
typedef struct rp_error_reply {
    int32_t opaque;
    int32_t code;
    int32_t version; /* ours */
    uint8_t serialize_type;
    uint8_t trace_on;
    const char *remark; /* ASCII without quotes or backslashes */
    const char *region; /* NULL, or MSG_REGION of a send's reply (then TRACE_ON follows `trace_on`) */
} rp_error_reply;
uint32_t rp_error_reply_encode(const rp_error_reply *reply, uint8_t *out);
#endif
