#ifndef ROCKETPY_FRAME_H
#define ROCKETPY_FRAME_H
/* Cut frames out of a byte stream: length(4) descriptor(4: type, header length) header body. */
#include <stdint.h>
#include "base/status.h"

enum { RP_FRAME_SIZE_MAX = 16777216, RP_SERIALIZE_JSON = 0, RP_SERIALIZE_ROCKETMQ = 1 };

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
#endif
