#ifndef ROCKETPY_HEADER_H
#define ROCKETPY_HEADER_H
/* The header of a RemotingCommand in either serialisation (header.c), read without
 * allocating: spans point into the header. A value with JSON escapes is marked and must be unescaped when used.
 * Headers that the fast reader does not support (nesting, more than RP_FIELDS_MAX fields, unusual but legal JSON) are
 * RP_UNSUPPORTED: the slow path decides whether they are valid. */
#include <stdint.h>
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

/* Cut frames out of a byte stream: length(4) descriptor(4: type, header length) header body. */

enum { RP_LENGTH_SIZE = 4, RP_DESCRIPTOR_SIZE = 4, RP_FRAME_SIZE_MAX = 16777216 };
enum { RP_SERIALIZE_JSON = 0, RP_SERIALIZE_ROCKETMQ = 1 };

typedef struct rp_frame {
    uint32_t size;          /* whole frame including the 4 length bytes */
    uint8_t serialize_type; /* RP_SERIALIZE_* */
    const uint8_t *header;
    const uint8_t *body;
    uint32_t header_size;
    uint32_t body_size;
} rp_frame;

/* Look at the first frame of `data`. RP_OK with *frame filled; RP_INCOMPLETE (frame->size is set once the length is
 * known, else 0); RP_TOO_LARGE or RP_INVALID: close the connection. `frame_size_max` counts the length bytes. */
rp_status rp_frame_cut(const uint8_t *data, uint64_t size, uint32_t frame_size_max, rp_frame *frame);
/* The parts of a whole frame, without its length bytes. RP_OK; RP_INVALID. */
rp_status rp_frame_read(const uint8_t *data, uint32_t size, rp_frame *frame);
#endif
