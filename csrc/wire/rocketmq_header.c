/* The compact binary header of a RemotingCommand.
 *
 *   0       2   code, signed
 *   2       1   language, not read
 *   3       2   version, signed
 *   5       4   opaque
 *   9       4   flag
 *   13      4   remark size r, 0: none
 *   17      r   remark, UTF-8
 *   17+r    4   size e of the fields, 0: none
 *   21+r    e   fields, each: key size (2), key, value size (4), value
 *
 * An empty key or value is the same as no field: the sender's null. Bytes after the fields are ignored, as the
 * reference does. A size that leaves its enclosing block is malformed. */
#include "base/endian.h"
#include "base/utf8.h"
#include "wire/header.h"

enum { FIXED_SIZE = 21 };

static rp_status read_fields(const uint8_t *at, const uint8_t *end, rp_header *out) {
    while (at < end) {
        if (end - at < 2) return RP_INVALID;
        uint32_t key_size = rp_load16(at);
        const uint8_t *key = at + 2;
        if (key_size > INT16_MAX || (uint64_t)(end - key) < (uint64_t)key_size + 4) return RP_INVALID;
        uint32_t value_size = rp_load32(key + key_size);
        const uint8_t *value = key + key_size + 4;
        if (value_size > (uint64_t)(end - value)) return RP_INVALID;
        at = value + value_size;
        if (!rp_utf8_is_valid(key, key_size) || !rp_utf8_is_valid(value, value_size)) return RP_UNSUPPORTED;
        if (key_size == 0 || value_size == 0) continue;
        if (out->field_count == RP_FIELDS_MAX) return RP_UNSUPPORTED;
        out->fields[out->field_count++] = (rp_field){key, value, key_size, value_size, 0};
    }
    return RP_OK;
}

rp_status rp_rocketmq_header_parse(const uint8_t *header, uint32_t size, rp_header *out) {
    if (size < FIXED_SIZE) return RP_INVALID;
    out->code = (int16_t)rp_load16(header);
    out->version = (int16_t)rp_load16(header + 3);
    out->opaque = (int32_t)rp_load32(header + 5);
    out->flag = (int32_t)rp_load32(header + 9);
    out->remark_size = rp_load32(header + 13);
    out->remark_escaped = 0;
    out->field_count = 0;
    if (out->remark_size > size - FIXED_SIZE) return RP_INVALID;
    out->remark = out->remark_size > 0 ? header + 17 : NULL;
    if (!rp_utf8_is_valid(header + 17, out->remark_size)) return RP_UNSUPPORTED;
    const uint8_t *fields = header + FIXED_SIZE + out->remark_size, *end = header + size;
    uint32_t fields_size = rp_load32(fields - 4);
    if (fields_size > (uint64_t)(end - fields)) return RP_INVALID;
    return read_fields(fields, fields + fields_size, out);
}
