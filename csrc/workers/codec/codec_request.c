/* Fields are found by key: one letter in the V2 send header, names elsewhere (docs/understand/wire-format.md, Fields).
 * Strings are unescaped straight into the ring message. */
#include "workers/codec/codec_request.h"

#include <string.h>
#include <strings.h>

#include "base/endian.h"
#include "base/numbers.h"
#include "base/utf8.h"
#include "wire/codes.h"
#include "ipc/worker_messages.h"
#include "store/log/record.h"
#include "store/log/timer_properties.h"
#include "store/transactions/half_states.h"

enum send_field {
    GROUP,
    TOPIC,
    DEFAULT_TOPIC,
    DEFAULT_NUMS,
    QUEUE_ID,
    SYS_FLAG,
    BORN,
    FLAG,
    PROPERTIES,
    RECONSUME,
    UNIT_MODE,
    MAX_RECONSUME,
    BATCH,
    SEND_FIELDS
};
/* The order of the V2 letters a..m. */
static const char *const SEND_NAMES[SEND_FIELDS] = {
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId",  "sysFlag",
    "bornTimestamp", "flag",  "properties",   "reconsumeTimes",        "unitMode", "maxReconsumeTimes",
    "batch"};

enum pull_field {
    P_GROUP,
    P_TOPIC,
    P_QUEUE_ID,
    P_OFFSET,
    P_MAX_NUMS,
    P_SYS_FLAG,
    P_COMMIT,
    P_SUSPEND,
    P_SUBSCRIPTION,
    P_SUB_VERSION,
    P_EXPRESSION_TYPE,
    PULL_FIELDS
};
static const char *const PULL_NAMES[PULL_FIELDS] = {
    "consumerGroup",        "topic",        "queueId",    "queueOffset",   "maxMsgNums", "sysFlag", "commitOffset",
    "suspendTimeoutMillis", "subscription", "subVersion", "expressionType"};

_Static_assert(sizeof(rp_msg_end_transaction) <= sizeof(rp_msg_send), "the bound of a send is enough for an end");
enum end_field { E_GROUP, E_QUEUE_OFFSET, E_PHY_OFFSET, E_ACTION, END_FIELDS };
static const char *const END_NAMES[END_FIELDS] = {"producerGroup", "tranStateTableOffset", "commitLogOffset",
                                                  "commitOrRollback"};

static void pick_by_name(const rp_header *header, const char *const *names, uint32_t count, const rp_field **found) {
    for (uint32_t i = 0; i < header->field_count; i++) {
        const rp_field *field = &header->fields[i];
        for (uint32_t n = 0; n < count; n++) {
            if (rp_text_is(field->key, field->key_size, names[n])) {
                found[n] = field;
                break;
            }
        }
    }
}

static void pick_by_letter(const rp_header *header, const rp_field **found) {
    for (uint32_t i = 0; i < header->field_count; i++) {
        const rp_field *field = &header->fields[i];
        if (field->key_size == 1 && field->key[0] >= 'a' && field->key[0] < 'a' + SEND_FIELDS)
            found[field->key[0] - 'a'] = field;
    }
}

static int read32(const rp_field *field, int32_t *out) {
    return field && !field->escaped && rp_parse_int32(field->value, field->value_size, out) == RP_OK;
}

static int read64(const rp_field *field, int64_t *out) {
    return field && !field->escaped && rp_parse_int64(field->value, field->value_size, out) == RP_OK;
}

/* An optional number: absent leaves *out, malformed is refused. */
static int read32_if(const rp_field *field, int32_t *out) { return !field || read32(field, out); }

static int is_true(const rp_field *field) {
    return field && field->value_size == 4 && strncasecmp((const char *)field->value, "true", 4) == 0;
}

/* Append a string; returns the place after it, or NULL if its escapes are malformed. Absent is empty. */
static uint8_t *put_string(uint8_t *at, const rp_field *field, uint32_t *size) {
    *size = 0;
    if (!field) return at;
    int64_t n = field->value_size;
    if (field->escaped)
        n = rp_json_unescape(field->value, field->value_size, at);
    else
        memcpy(at, field->value, field->value_size);
    if (n < 0) return NULL;
    *size = (uint32_t)n;
    return at + n;
}

static int piece_value_is(const uint8_t *value, uint32_t size, const char *text) {
    return strlen(text) == size && strncasecmp((const char *)value, text, size) == 0;
}

/* Drop properties that only brokers write from the property string in place: WAIT (it is honoured without being
 * stored), CLUSTER, and those of half messages that were stored again. Drop TRAN_MSG if a consumer sends a message to
 * its retry topic, because it has copied that from the message. Set the flags of what makes a send special. Returns the
 * new size. */
static uint32_t scan_properties(uint8_t *text, uint32_t size, int is_retry, uint32_t *flags) {
    uint8_t *out = text;
    int is_delivered = 0; /* a consumer sends a delivered timer again */
    for (uint32_t start = 0; start < size;) {
        const uint8_t *end = memchr(text + start, 2, size - start);
        uint32_t piece_size = end ? (uint32_t)(end - (text + start)) : size - start;
        const uint8_t *piece = text + start;
        const uint8_t *cut = memchr(piece, 1, piece_size);
        uint32_t name_size = cut ? (uint32_t)(cut - piece) : piece_size;
        const uint8_t *value = cut ? cut + 1 : piece + piece_size;
        uint32_t value_size = cut ? piece_size - name_size - 1 : 0;
        int dropped = 0;
        if (rp_text_is(piece, name_size, "WAIT")) {
            dropped = 1;
            *flags |= RP_REQUEST_HAS_WAIT;
            if (!piece_value_is(value, value_size, "true") && value_size) *flags |= RP_REQUEST_NO_WAIT;
        } else if (rp_text_is(piece, name_size, "CLUSTER") || rp_text_is(piece, name_size, RP_CHECK_TIMES) ||
                   rp_text_is(piece, name_size, RP_PREPARED_QUEUE_OFFSET) ||
                   rp_text_is(piece, name_size, RP_FIRST_STORED)) {
            dropped = 1;
        } else if (rp_text_is(piece, name_size, "DELAY") && value_size) {
            *flags |= RP_REQUEST_DELAY;
        } else if (rp_text_is(piece, name_size, "TRAN_MSG") && value_size) { /* the last one counts */
            dropped = is_retry;
            *flags &= ~(uint32_t)RP_REQUEST_HALF;
            if (!is_retry && piece_value_is(value, value_size, "true")) *flags |= RP_REQUEST_HALF;
        } else if (value_size && rp_timer_is_property(piece, name_size)) {
            *flags |= RP_REQUEST_TIMER;
        } else if (value_size && rp_timer_is_change_property(piece, name_size)) {
            *flags |= RP_REQUEST_SPECIAL;
        } else if (value_size && rp_text_is(piece, name_size, RP_TIMER_OUT_MS)) {
            is_delivered = 1;
        }
        uint32_t whole = piece_size + (end ? 1 : 0);
        if (!dropped) {
            memmove(out, piece, whole);
            out += whole;
        }
        start += whole;
    }
    if (*flags & RP_REQUEST_DELAY && (is_delivered || *flags & (RP_REQUEST_HALF | RP_REQUEST_TIMER)))
        *flags |= RP_REQUEST_SPECIAL;
    if (is_delivered || *flags & RP_REQUEST_HALF) *flags &= ~(uint32_t)RP_REQUEST_TIMER;
    return (uint32_t)(out - text);
}

uint32_t rp_request_bound(const rp_header *header, const rp_frame *frame, const rp_signer *signer,
                          uint32_t struct_size) {
    uint32_t size = struct_size + frame->body_size + (signer ? RP_DESCRIPTOR_SIZE + frame->header_size : 0);
    for (uint32_t i = 0; i < header->field_count; i++) size += header->fields[i].value_size;
    return size;
}

/* Append what access control in Python reads: the descriptor and the header, then `body_size` bytes of body. */
static uint8_t *put_unchecked(uint8_t *at, const rp_frame *frame, uint32_t body_size) {
    rp_store32(at, (uint32_t)frame->serialize_type << 24 | frame->header_size);
    memcpy(at + RP_DESCRIPTOR_SIZE, frame->header, frame->header_size);
    at += RP_DESCRIPTOR_SIZE + frame->header_size;
    if (body_size) memcpy(at, frame->body, body_size);
    return at + body_size;
}

static uint32_t common_flags(const rp_header *header, const rp_frame *frame) {
    return (header->flag & RP_FLAG_ONEWAY ? RP_REQUEST_ONEWAY : 0u) |
           (frame->serialize_type == RP_SERIALIZE_ROCKETMQ ? RP_REQUEST_ROCKETMQ : 0u);
}

static uint32_t unchecked_by(const rp_signer *signer) {
    return RP_REQUEST_UNCHECKED | (signer->version ? RP_REQUEST_COUNTED : 0u);
}

static int is_retry_topic(const uint8_t *topic, uint32_t size) { return size >= 7 && memcmp(topic, "%RETRY%", 7) == 0; }

/* Flags that batch and retry topic ask for; the properties have set theirs. */
static void mark_special(rp_msg_send *request, int is_retry) {
    if (request->flags & RP_REQUEST_BATCH) {
        if (request->sys_flag & RP_TRANSACTION_MASK || request->flags & (RP_REQUEST_HALF | RP_REQUEST_DELAY))
            request->flags |= RP_REQUEST_SPECIAL;
        request->flags &= ~(uint32_t)RP_REQUEST_HALF;
    }
    if (!is_retry) return;
    request->flags |= RP_REQUEST_SPECIAL;
    request->sys_flag &= ~RP_TRANSACTION_MASK;
}

uint32_t rp_send_request_fill(const rp_header *header, const rp_frame *frame, const rp_origin *origin,
                              const rp_signer *signer, uint8_t *out) {
    const rp_field *found[SEND_FIELDS] = {0};
    rp_msg_send *request = (rp_msg_send *)out;
    if (header->code == RP_CODE_SEND_MESSAGE)
        pick_by_name(header, SEND_NAMES, SEND_FIELDS, found);
    else
        pick_by_letter(header, found);
    *request = (rp_msg_send){.origin = *origin,
                             .opaque = header->opaque,
                             .code = header->code,
                             .version = header->version,
                             .flags = common_flags(header, frame) | RP_REQUEST_ADD_CLUSTER,
                             .body_size = frame->body_size};
    if (!found[GROUP] || !found[TOPIC] || !read32(found[DEFAULT_NUMS], &request->default_topic_queue_nums) ||
        !read32(found[QUEUE_ID], &request->queue_id) || !read32(found[SYS_FLAG], &request->sys_flag) ||
        !read64(found[BORN], &request->born_timestamp_ms) || !read32(found[FLAG], &request->message_flag) ||
        !read32_if(found[RECONSUME], &request->reconsume_times) ||
        !read32_if(found[MAX_RECONSUME], &request->max_reconsume_times))
        return 0;
    if (found[MAX_RECONSUME]) request->flags |= RP_REQUEST_HAS_MAX_RECONSUME;
    if (is_true(found[BATCH])) request->flags |= RP_REQUEST_BATCH;
    request->unit_mode = (uint32_t)is_true(found[UNIT_MODE]);

    uint8_t *at = out + sizeof *request;
    uint8_t *topic = at;
    uint8_t *properties = NULL;
    if (!(at = put_string(at, found[TOPIC], &request->topic_size)) ||
        !(at = put_string(at, found[GROUP], &request->group_size)) ||
        !(at = put_string(at, found[DEFAULT_TOPIC], &request->default_topic_size)) || !(properties = at) ||
        !(at = put_string(at, found[PROPERTIES], &request->properties_size)))
        return 0;
    int is_retry = is_retry_topic(topic, request->topic_size);
    request->properties_size = scan_properties(properties, request->properties_size, is_retry, &request->flags);
    at = properties + request->properties_size;
    mark_special(request, is_retry);
    if (frame->body_size) memcpy(at, frame->body, frame->body_size);
    at += frame->body_size;
    if (signer && !rp_access_is_allowed(signer, header->code, topic, request->topic_size, topic + request->topic_size,
                                        request->group_size)) {
        request->flags |= unchecked_by(signer);
        at = put_unchecked(at, frame, 0);
    }
    return (uint32_t)(at - out);
}

uint32_t rp_end_request_fill(const rp_header *header, const rp_frame *frame, const rp_origin *origin,
                             const rp_signer *signer, uint8_t *out) {
    const rp_field *found[END_FIELDS] = {0};
    rp_msg_end_transaction *request = (rp_msg_end_transaction *)out;
    if (signer) return 0;
    pick_by_name(header, END_NAMES, END_FIELDS, found);
    *request = (rp_msg_end_transaction){.origin = *origin,
                                        .opaque = header->opaque,
                                        .code = header->code,
                                        .version = header->version,
                                        .flags = common_flags(header, frame)};
    if (!found[E_GROUP] || !read64(found[E_QUEUE_OFFSET], &request->queue_offset) ||
        !read64(found[E_PHY_OFFSET], &request->phy_offset) || !read32(found[E_ACTION], &request->action))
        return 0;
    if (request->action != RP_END_COMMIT && request->action != RP_END_ROLLBACK) request->action = 0;
    uint8_t *at = put_string(out + sizeof *request, found[E_GROUP], &request->group_size);
    return at ? (uint32_t)(at - out) : 0;
}

uint32_t rp_pull_request_fill(const rp_header *header, const rp_frame *frame, const rp_origin *origin,
                              const rp_signer *signer, uint8_t *out) {
    const rp_field *found[PULL_FIELDS] = {0};
    rp_msg_pull *request = (rp_msg_pull *)out;
    pick_by_name(header, PULL_NAMES, PULL_FIELDS, found);
    *request = (rp_msg_pull){.origin = *origin,
                             .opaque = header->opaque,
                             .code = header->code,
                             .version = header->version,
                             .flags = common_flags(header, frame)};
    if (!found[P_GROUP] || !found[P_TOPIC] || !read32(found[P_QUEUE_ID], &request->queue_id) ||
        !read64(found[P_OFFSET], &request->queue_offset) || !read32(found[P_MAX_NUMS], &request->max_msg_nums) ||
        !read32(found[P_SYS_FLAG], &request->sys_flag) || !read64(found[P_COMMIT], &request->commit_offset) ||
        !read64(found[P_SUSPEND], &request->suspend_timeout_ms) || !read64(found[P_SUB_VERSION], &request->sub_version))
        return 0;
    uint8_t *at = out + sizeof *request;
    if (!(at = put_string(at, found[P_GROUP], &request->group_size)) ||
        !(at = put_string(at, found[P_TOPIC], &request->topic_size)) ||
        !(at = put_string(at, found[P_SUBSCRIPTION], &request->subscription_size)) ||
        !(at = put_string(at, found[P_EXPRESSION_TYPE], &request->expression_type_size)))
        return 0;
    const uint8_t *group = out + sizeof *request, *topic = group + request->group_size;
    if (signer && !rp_access_is_allowed(signer, header->code, topic, request->topic_size, group, request->group_size)) {
        request->flags |= unchecked_by(signer);
        at = put_unchecked(at, frame, frame->body_size);
    }
    return (uint32_t)(at - out);
}
