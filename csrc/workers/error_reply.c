/* Both serialisations are small enough to be printed. */
#include "workers/error_reply.h"

#include <stdio.h>
#include <string.h>

#include "base/endian.h"
#include "wire/header.h"
#include "ipc/worker_messages.h"

static uint32_t json_header(const rp_error_reply *reply, char *out, uint32_t capacity) {
    char ext[160] = "";
    if (reply->region)
        snprintf(ext, sizeof ext, "\"extFields\":{\"MSG_REGION\":\"%.64s\",\"TRACE_ON\":\"%s\"},", reply->region,
                 reply->trace_on ? "true" : "false");
    return (uint32_t)snprintf(out, capacity,
                              "{\"code\":%d,%s\"flag\":1,\"language\":\"PYTHON\",\"opaque\":%d,\"remark\":\"%.400s\","
                              "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":%d}",
                              reply->code, ext, reply->opaque, reply->remark, reply->version);
}

static uint8_t *put_field(uint8_t *at, const char *key, const char *value, uint32_t value_size) {
    uint16_t key_size = (uint16_t)strlen(key);
    rp_store16(at, key_size);
    memcpy(at + 2, key, key_size);
    rp_store32(at + 2 + key_size, value_size);
    memcpy(at + 6 + key_size, value, value_size);
    return at + 6 + key_size + value_size;
}

static uint32_t rocketmq_header(const rp_error_reply *reply, uint8_t *out) {
    uint32_t remark_size = (uint32_t)strnlen(reply->remark, 400);
    rp_store16(out, (uint16_t)reply->code);
    out[2] = RP_LANGUAGE_PYTHON;
    rp_store16(out + 3, (uint16_t)reply->version);
    rp_store32(out + 5, (uint32_t)reply->opaque);
    rp_store32(out + 9, RP_FLAG_RESPONSE);
    rp_store32(out + 13, remark_size);
    memcpy(out + 17, reply->remark, remark_size);
    uint8_t *ext = out + 17 + remark_size;
    uint8_t *at = ext + 4;
    if (reply->region) {
        at = put_field(at, "MSG_REGION", reply->region, (uint32_t)strnlen(reply->region, 64));
        at = reply->trace_on ? put_field(at, "TRACE_ON", "true", 4) : put_field(at, "TRACE_ON", "false", 5);
    }
    rp_store32(ext, (uint32_t)(at - ext - 4));
    return (uint32_t)(at - out);
}

uint32_t rp_error_reply_encode(const rp_error_reply *reply, uint8_t *out) {
    uint32_t header_size = reply->serialize_type == RP_SERIALIZE_ROCKETMQ
                               ? rocketmq_header(reply, out + 8)
                               : json_header(reply, (char *)out + 8, RP_ERROR_REPLY_MAX - 8);
    rp_store32(out, 4 + header_size);
    rp_store32(out + 4, ((uint32_t)reply->serialize_type << 24) | header_size);
    return 8 + header_size;
}

rp_status rp_error_reply_send(rp_ring_writer *selector, const rp_error_reply *reply) {
    rp_reply *record = (rp_reply *)rp_ring_reserve(selector, sizeof(rp_reply) + RP_ERROR_REPLY_MAX);
    if (!record) return RP_FULL;
    *record =
        (rp_reply){.connection = reply->connection, .size = rp_error_reply_encode(reply, (uint8_t *)(record + 1))};
    rp_ring_commit(selector, (uint32_t)sizeof *record + record->size, RP_MSG_REPLY);
    return RP_OK;
}
