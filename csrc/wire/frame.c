/* Cut frames out of a byte stream.
 *
 *   0  4  bytes that follow: 4 + header + body
 *   4  1  serialisation of the header: 0 JSON, 1 ROCKETMQ
 *   5  3  header size
 *   8  n  header, then body up to the end
 *
 * An invalid length or descriptor is detected as soon as its bytes are there: a peer with another protocol is
 * disconnected after eight bytes, not after sixteen million. */
#include "wire/frame.h"

#include "base/endian.h"

rp_status rp_frame_cut(const uint8_t *data, uint64_t size, uint32_t frame_size_max, rp_frame *frame) {
    frame->size = 0;
    if (size < 4) return RP_INCOMPLETE;
    uint32_t following = rp_load32(data); /* a negative length is a huge one here */
    if ((uint64_t)following + 4 > frame_size_max) return RP_TOO_LARGE;
    if (following < 4) return RP_INVALID;
    frame->size = following + 4;
    if (size < 8) return RP_INCOMPLETE;
    uint32_t descriptor = rp_load32(data + 4);
    frame->serialize_type = (uint8_t)(descriptor >> 24);
    frame->header_size = descriptor & 0xFFFFFF;
    if (frame->serialize_type > RP_SERIALIZE_ROCKETMQ || frame->header_size > following - 4) return RP_INVALID;
    if (size < frame->size) return RP_INCOMPLETE;
    frame->header = data + 8;
    frame->body = frame->header + frame->header_size;
    frame->body_size = following - 4 - frame->header_size;
    return RP_OK;
}
