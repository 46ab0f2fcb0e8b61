/* Replies of the fast path: whole frames to sends and of errors, heads of frames to pulls, in both serialisations.
 *
 * A frame's length, header size and (ROCKETMQ) field-block size come before what they measure, so they are written
 * last. The writer stops at the end of its room and remembers that it did. */
#include "wire/reply.h"

#include <string.h>

#include "base/endian.h"
#include "wire/header.h"

enum { FRAME_HEAD_SIZE = 8, FIELDS_AT = FRAME_HEAD_SIZE + 17 /* after a ROCKETMQ header's remark size */ };

typedef struct writer {
    uint8_t *at;
    uint8_t *end;
    int is_full;
} writer;

static void put(writer *w, const void *bytes, uint32_t size) {
    if (size > (uint64_t)(w->end - w->at)) {
        w->is_full = 1;
        return;
    }
    if (size > 0) memcpy(w->at, bytes, size);
    w->at += size;
}

#define PUT_TEXT(w, literal) put(w, literal, sizeof(literal) - 1)

static void put16(writer *w, uint16_t value) {
    uint8_t bytes[2];
    rp_store16(bytes, value);
    put(w, bytes, sizeof bytes);
}

static void put32(writer *w, uint32_t value) {
    uint8_t bytes[4];
    rp_store32(bytes, value);
    put(w, bytes, sizeof bytes);
}

enum { DECIMAL_SIZE_MAX = 20 };
typedef struct decimal {
    uint8_t digits[DECIMAL_SIZE_MAX]; /* right-aligned */
    uint32_t size;
} decimal;

static decimal decimal_of(int64_t value) {
    decimal out;
    uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    uint32_t at = DECIMAL_SIZE_MAX;
    do {
        out.digits[--at] = (uint8_t)('0' + magnitude % 10);
        magnitude /= 10;
    } while (magnitude > 0);
    if (value < 0) out.digits[--at] = '-';
    out.size = DECIMAL_SIZE_MAX - at;
    return out;
}

static const uint8_t *text_of(const decimal *number) { return number->digits + DECIMAL_SIZE_MAX - number->size; }

static void put_decimal(writer *w, int64_t value) {
    decimal number = decimal_of(value);
    put(w, text_of(&number), number.size);
}

/* One field of the extFields in the frame's serialisation; an empty value is left out, as a null is. */
static void put_field(writer *w, uint8_t type, const char *key, const uint8_t *value, uint32_t size) {
    uint32_t key_size = (uint32_t)strlen(key);
    if (size == 0) return;
    if (type == RP_SERIALIZE_ROCKETMQ) {
        put16(w, (uint16_t)key_size);
        put(w, key, key_size);
        put32(w, size);
        put(w, value, size);
        return;
    }
    if (!w->is_full && w->at[-1] != '{') PUT_TEXT(w, ",");
    PUT_TEXT(w, "\"");
    put(w, key, key_size);
    PUT_TEXT(w, "\":\"");
    put(w, value, size);
    PUT_TEXT(w, "\"");
}

static void put_flag_field(writer *w, uint8_t type, const char *key, int value) {
    const char *text = value ? "true" : "false";
    put_field(w, type, key, (const uint8_t *)text, (uint32_t)strlen(text));
}

static void put_number_field(writer *w, uint8_t type, const char *key, int64_t value) {
    decimal number = decimal_of(value);
    put_field(w, type, key, text_of(&number), number.size);
}

typedef struct head {
    uint8_t serialize_type;
    int32_t code;
    int32_t opaque;
    int32_t version;
    const uint8_t *remark;
    uint32_t remark_size;
    int has_fields;
} head;

/* Everything before the fields. */
static writer begin(const head *head, uint8_t *out, uint32_t capacity) {
    writer w = {out, out + capacity, 0};
    put32(&w, 0);
    put32(&w, 0);
    if (head->serialize_type == RP_SERIALIZE_ROCKETMQ) {
        put16(&w, (uint16_t)head->code);
        put(&w, &(uint8_t){RP_LANGUAGE_PYTHON}, 1);
        put16(&w, (uint16_t)head->version);
        put32(&w, (uint32_t)head->opaque);
        put32(&w, RP_FLAG_RESPONSE);
        put32(&w, head->remark_size);
        put(&w, head->remark, head->remark_size);
        put32(&w, 0);
    } else {
        PUT_TEXT(&w, "{\"code\":");
        put_decimal(&w, head->code);
        if (head->has_fields) PUT_TEXT(&w, ",\"extFields\":{");
    }
    return w;
}

/* Everything after the fields, and the sizes. Returns the size up to here, 0 if it did not fit. */
static uint32_t end(writer *w, const head *head, uint8_t *out, uint32_t body_size) {
    if (head->serialize_type == RP_SERIALIZE_JSON) {
        if (head->has_fields) PUT_TEXT(w, "}");
        PUT_TEXT(w, ",\"flag\":1,\"language\":\"PYTHON\",\"opaque\":");
        put_decimal(w, head->opaque);
        if (head->remark_size > 0) {
            PUT_TEXT(w, ",\"remark\":\"");
            put(w, head->remark, head->remark_size);
            PUT_TEXT(w, "\"");
        }
        PUT_TEXT(w, ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":");
        put_decimal(w, head->version);
        PUT_TEXT(w, "}");
    }
    if (w->is_full) return 0;
    uint32_t size = (uint32_t)(w->at - out);
    if (head->serialize_type == RP_SERIALIZE_ROCKETMQ) {
        uint8_t *fields = out + FIELDS_AT + head->remark_size;
        rp_store32(fields, (uint32_t)(w->at - fields) - 4);
    }
    rp_store32(out, size - 4 + body_size);
    rp_store32(out + 4, (uint32_t)head->serialize_type << 24 | (size - FRAME_HEAD_SIZE));
    return size;
}

uint32_t rp_send_reply_encode(const rp_send_reply *reply, uint8_t *out, uint32_t capacity) {
    uint8_t type = reply->serialize_type;
    head head = {type, reply->code, reply->opaque, reply->version, NULL, 0, 1};
    writer w = begin(&head, out, capacity);
    put_field(&w, type, "msgId", reply->message_ids, reply->message_ids_size);
    put_number_field(&w, type, "queueId", reply->queue_id);
    put_number_field(&w, type, "queueOffset", (int64_t)reply->queue_offset);
    put_field(&w, type, "MSG_REGION", reply->region, reply->region_size);
    put_flag_field(&w, type, "TRACE_ON", reply->trace_on);
    return end(&w, &head, out, 0);
}

uint32_t rp_pull_reply_encode(const rp_pull_reply *reply, uint8_t *out, uint32_t capacity) {
    uint8_t type = reply->serialize_type;
    head head = {type, reply->code, reply->opaque, reply->version, reply->remark, reply->remark_size, 1};
    writer w = begin(&head, out, capacity);
    put_number_field(&w, type, "suggestWhichBrokerId", reply->suggest_which_broker_id);
    put_number_field(&w, type, "nextBeginOffset", (int64_t)reply->next_begin_offset);
    put_number_field(&w, type, "minOffset", (int64_t)reply->min_offset);
    put_number_field(&w, type, "maxOffset", (int64_t)reply->max_offset);
    return end(&w, &head, out, reply->body_size);
}

uint32_t rp_error_reply_encode(const rp_error_reply *reply, uint8_t *out) {
    uint8_t type = reply->serialize_type;
    uint32_t remark_size = (uint32_t)strnlen(reply->remark, RP_ERROR_REMARK_MAX);
    const uint8_t *region = (const uint8_t *)reply->region, *remark = (const uint8_t *)reply->remark;
    head head = {type, reply->code, reply->opaque, reply->version, remark, remark_size, region != NULL};
    writer w = begin(&head, out, RP_ERROR_REPLY_MAX);
    if (region) {
        put_field(&w, type, "MSG_REGION", region, (uint32_t)strnlen(reply->region, RP_ERROR_REGION_MAX));
        put_flag_field(&w, type, "TRACE_ON", reply->trace_on);
    }
    return end(&w, &head, out, 0);
}
