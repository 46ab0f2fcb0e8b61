#ifndef ROCKETPY_TESTS_INVARIANTS_H
#define ROCKETPY_TESTS_INVARIANTS_H
/* What holds for any input at all; shared by the drivers (mutated input) and the fuzzers. */
#include "base/numbers.h"
#include "wire/header.h"
#include "wire/signature.h"
#include "store/log/record.h"
#include "check.h"

static inline int lies_in(const uint8_t *part, uint64_t part_size, const uint8_t *whole, uint64_t size) {
    return part >= whole && part_size <= size && (uint64_t)(part - whole) <= size - part_size;
}

/* An escaped value can be undone within its own size, or is refused. */
static inline void check_value(const uint8_t *value, uint32_t size, int escaped) {
    uint8_t *out = malloc(size > 0 ? size : 1);
    CHECK(out != NULL);
    int64_t unescaped = rp_json_unescape(value, size, out);
    CHECK(unescaped >= -1 && unescaped <= (int64_t)size);
    if (!escaped) CHECK(unescaped == (int64_t)size && memcmp(value, out, size) == 0);
    int32_t small;
    int64_t large;
    if (rp_parse_int32(value, size, &small) == RP_OK)
        CHECK(rp_parse_int64(value, size, &large) == RP_OK && large == small);
    free(out);
}

/* Spans of a header that was understood lie inside it. `data` is read in an exact copy. */
static inline rp_status check_header(uint8_t serialize_type, const uint8_t *data, uint32_t size) {
    uint8_t *copy = exact_copy(data, size);
    rp_header *header = malloc(sizeof *header);
    CHECK(header != NULL);
    memset(header, 0xA5, sizeof *header); /* whatever is not set shows */
    rp_status status = rp_header_parse(serialize_type, copy, size, header);
    CHECK(status == RP_OK || status == RP_UNSUPPORTED || status == RP_INVALID);
    if (status == RP_OK) {
        CHECK(header->field_count <= RP_FIELDS_MAX);
        CHECK(header->remark == NULL || lies_in(header->remark, header->remark_size, copy, size));
        if (header->remark != NULL) check_value(header->remark, header->remark_size, 1);
        for (uint32_t i = 0; i < header->field_count; i++) {
            const rp_field *field = &header->fields[i];
            CHECK(lies_in(field->key, field->key_size, copy, size));
            CHECK(lies_in(field->value, field->value_size, copy, size));
            CHECK(field->escaped <= 1);
            if (serialize_type == RP_SERIALIZE_JSON) check_value(field->value, field->value_size, field->escaped);
        }
        rp_frame frame = {.body = copy, .body_size = size};
        rp_signed asked[RP_HMAC_JOBS];
        for (uint32_t i = 0; i < RP_HMAC_JOBS; i++) asked[i] = (rp_signed){.header = header, .frame = &frame};
        for (uint32_t at = 0, done; at < RP_HMAC_JOBS; at += done)
            CHECK((done = rp_signatures_check(asked + at, RP_HMAC_JOBS - at)) > 0);
        for (uint32_t i = 1; i < RP_HMAC_JOBS; i++) CHECK(asked[i].is_valid == asked[0].is_valid);
    }
    free(header);
    free(copy);
    return status;
}

/* A frame that was cut is exactly its parts; one that is not whole says how much it needs, and more than there is. */
static inline rp_status check_frame(const uint8_t *data, uint32_t size, uint32_t frame_size_max) {
    uint8_t *copy = exact_copy(data, size);
    rp_frame frame;
    memset(&frame, 0xA5, sizeof frame);
    rp_status status = rp_frame_cut(copy, size, frame_size_max, &frame);
    if (status == RP_OK) {
        CHECK(frame.size <= size && frame.size <= frame_size_max);
        CHECK(frame.header == copy + 8 && frame.body == frame.header + frame.header_size);
        CHECK((uint64_t)frame.header_size + frame.body_size + 8 == frame.size);
    } else if (status == RP_INCOMPLETE) {
        CHECK(frame.size == 0 ? size < 4 : frame.size > size);
    } else {
        CHECK(status == RP_INVALID || status == RP_TOO_LARGE);
    }
    free(copy);
    return status;
}

/* A record that was decoded encodes to the same bytes (V1, and the reserved bits of ports clear). */
static inline void check_record_round_trip(const rp_record_view *view, const uint8_t *image, int check_crc) {
    rp_record record = {
        .queue_id = view->queue_id,
        .flag = view->flag,
        .queue_offset = view->queue_offset,
        .phy_offset = view->phy_offset,
        .sys_flag = view->sys_flag,
        .reconsume_times = view->reconsume_times,
        .born_timestamp_ms = view->born_timestamp_ms,
        .store_timestamp_ms = view->store_timestamp_ms,
        .prepared_transaction_offset = view->prepared_transaction_offset,
        .born_host = view->born_host,
        .store_host = view->store_host,
        .body = view->body,
        .topic = view->topic,
        .properties = view->properties,
        .body_size = view->body_size,
        .topic_size = view->topic_size,
        .properties_size = view->properties_size,
    };
    CHECK(rp_record_size(&record) == view->size);
    uint8_t *out = malloc(view->size);
    CHECK(out != NULL && rp_record_encode(&record, out) == view->size);
    uint32_t born = view->born_host.family == 6 ? 16 : 4, store = view->store_host.family == 6 ? 16 : 4;
    uint32_t born_port = 48 + born, store_port = born_port + 4 + 8 + store;
    for (uint32_t at = 0; at < view->size; at++) {
        int is_port_high = at == born_port || at == born_port + 1 || at == store_port || at == store_port + 1;
        int is_crc = at >= 8 && at < 12 && (!check_crc || view->body_size == 0);
        CHECK(is_port_high || is_crc || out[at] == image[at]);
    }
    free(out);
}

static inline rp_status check_record(const uint8_t *data, uint32_t size, int check_crc) {
    uint8_t *copy = exact_copy(data, size);
    rp_record_view view;
    memset(&view, 0xA5, sizeof view);
    rp_status status = rp_record_decode(copy, size, check_crc, &view);
    if (status == RP_OK) {
        CHECK(view.size <= size);
        CHECK(lies_in(view.body, view.body_size, copy, view.size));
        CHECK(lies_in(view.topic, view.topic_size, copy, view.size));
        CHECK(lies_in(view.properties, view.properties_size, copy, view.size));
        const uint8_t *value;
        uint32_t value_size = rp_property_find(view.properties, view.properties_size, "TAGS", &value);
        if (value_size) {
            CHECK(lies_in(value, value_size, view.properties, view.properties_size));
            (void)rp_string_hash(value, value_size);
        }
        CHECK(rp_index_hash(view.topic, view.topic_size) >= 0);
        if (view.magic == RP_MESSAGE_MAGIC_V1) check_record_round_trip(&view, copy, check_crc);
    } else {
        CHECK(status == RP_END_OF_FILE || status == RP_EMPTY || status == RP_INCOMPLETE || status == RP_CORRUPT);
    }
    free(copy);
    return status;
}
#endif
