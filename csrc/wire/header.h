#ifndef ROCKETPY_HEADER_H
#define ROCKETPY_HEADER_H
/* The header of a RemotingCommand in either serialisation (json_header.c, rocketmq_header.c), read without
 * allocating: spans point into the header. A value with JSON escapes is marked and must be unescaped when used.
 * What the fast reader does not understand (nesting, more than RP_FIELDS_MAX fields, odd but legal spellings) is
 * RP_UNSUPPORTED: the slow path decides whether it is good. */
#include <stdint.h>
#include "wire/frame.h"
#include "base/status.h"

enum { RP_FIELDS_MAX = 40, RP_FLAG_RESPONSE = 1, RP_FLAG_ONEWAY = 2, RP_LANGUAGE_PYTHON = 3 };

typedef struct rp_field {
    const uint8_t *key;
    const uint8_t *value;
    uint32_t key_size;
    uint32_t value_size;
    uint8_t escaped; /* the value holds JSON escapes */
} rp_field;

typedef struct rp_header {
    int32_t code;
    int32_t version;
    int32_t opaque;
    int32_t flag;
    uint8_t remark_escaped;
    const uint8_t *remark;
    uint32_t remark_size;
    uint32_t field_count;
    rp_field fields[RP_FIELDS_MAX];
} rp_header;

rp_status rp_header_parse(uint8_t serialize_type, const uint8_t *header, uint32_t size, rp_header *out);
rp_status rp_json_header_parse(const uint8_t *header, uint32_t size, rp_header *out);
rp_status rp_rocketmq_header_parse(const uint8_t *header, uint32_t size, rp_header *out);

/* Undo JSON escapes of `text` into `out` (room for `size` bytes is always enough). Surrogate pairs become UTF-8.
 * Returns the unescaped size, or -1 if an escape is malformed. `out` may not overlap `text`. */
int64_t rp_json_unescape(const uint8_t *text, uint32_t size, uint8_t *out);

/* Decimal integer as Java's parseInt/parseLong reads it: optional sign, digits only, in range. */
rp_status rp_parse_int32(const uint8_t *text, uint32_t size, int32_t *out);
rp_status rp_parse_int64(const uint8_t *text, uint32_t size, int64_t *out);

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
#endif
