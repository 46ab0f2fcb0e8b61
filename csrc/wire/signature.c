/* Fields are sorted by name, which for ASCII is the order of bytes. Their values are put together in a buffer of
 * bounded size, where JSON escapes are undone; several requests share it, and their codes are made at once. */
#include "wire/signature.h"

#include <string.h>

#include "base/utf8.h"

enum {
    VALUES_MAX = 8192, /* bytes, of one request */
    ROOM = VALUES_MAX + RP_HMAC_JOBS * RP_HMAC_ROOM,
    SIGNATURE_SIZE = 28 /* of 20 bytes in base64 */
};
static const char SIGNATURE[] = "Signature";

const rp_field *rp_header_field(const rp_header *header, const char *name) {
    for (uint32_t i = header->field_count; i-- > 0;)
        if (rp_text_is(header->fields[i].key, header->fields[i].key_size, name)) return &header->fields[i];
    return NULL;
}

/* < 0: `left` is before `right`; 0: the same name. */
static int order(const rp_field *left, const rp_field *right) {
    uint32_t size = left->key_size < right->key_size ? left->key_size : right->key_size;
    int found = size > 0 ? left->key[0] - right->key[0] : 0;
    if (found == 0) found = memcmp(left->key, right->key, size);
    return found ? found : (left->key_size > right->key_size) - (left->key_size < right->key_size);
}

/* All fields but the signature by name. Returns their number, or -1: a name is not ASCII, or comes twice. */
static int32_t sort_fields(const rp_header *header, const rp_field **sorted) {
    int32_t count = 0;
    uint8_t high_bits = 0;
    for (uint32_t i = 0; i < header->field_count; i++) {
        const rp_field *one = &header->fields[i];
        int32_t at = count;
        for (uint32_t k = 0; k < one->key_size; k++) high_bits |= one->key[k];
        if (rp_text_is(one->key, one->key_size, SIGNATURE)) continue;
        for (int found; at > 0 && (found = order(sorted[at - 1], one)) >= 0; at--) {
            if (found == 0) return -1;
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = one;
        count++;
    }
    return high_bits & 0x80 ? -1 : count;
}

/* All values as they are decoded, one after the other. Returns their size, or -1: escapes are malformed, or they are
 * longer than `room` bytes. */
static int64_t put_values(const rp_field *const *sorted, int32_t count, uint8_t *out, int64_t room) {
    int64_t size = 0;
    for (int32_t i = 0; i < count; i++) {
        const rp_field *field = sorted[i];
        int64_t added = field->value_size;
        if (added > room - size) return -1;
        if (field->escaped) {
            added = rp_json_unescape(field->value, field->value_size, out + size);
            if (added < 0) return -1;
        } else {
            memcpy(out + size, field->value, field->value_size);
        }
        size += added;
    }
    return size;
}

static void encode_base64(const uint8_t *code, uint8_t *text) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (uint32_t i = 0, at = 0; i < RP_SHA1_SIZE; i += 3) {
        uint32_t is_last = i + 2 >= RP_SHA1_SIZE; /* two bytes are left of 20 */
        uint32_t three = (uint32_t)code[i] << 16 | (uint32_t)code[i + 1] << 8 | (is_last ? 0u : code[i + 2]);
        for (int shift = 18; shift >= 0; shift -= 6) text[at++] = (uint8_t)digits[three >> shift & 63];
        if (is_last) text[at - 1] = '=';
    }
}

static int is_equal(const uint8_t *left, const uint8_t *right) {
    uint8_t differences = 0;
    for (uint32_t i = 0; i < SIGNATURE_SIZE; i++) differences |= left[i] ^ right[i];
    return differences == 0;
}

/* What is signed, except for the body. -1: in an unusual form, without a signature, or longer than `room` bytes. */
static int64_t put_signed(const rp_header *header, uint8_t *out, int64_t room) {
    const rp_field *given = rp_header_field(header, SIGNATURE);
    const rp_field *sorted[RP_FIELDS_MAX];
    if (!given || given->escaped || given->value_size != SIGNATURE_SIZE || room < 0) return -1;
    int32_t count = sort_fields(header, sorted);
    return count < 0 ? -1 : put_values(sorted, count, out, room);
}

uint32_t rp_signatures_check(rp_signed *requests, uint32_t count) {
    uint8_t values[ROOM], expected[SIGNATURE_SIZE];
    rp_hmac_job jobs[RP_HMAC_JOBS];
    uint32_t asked[RP_HMAC_JOBS], job_count = 0, at = 0, done = 0;
    for (; done < count && job_count < RP_HMAC_JOBS; done++) {
        rp_signed *one = &requests[done];
        int64_t room = (int64_t)ROOM - RP_HMAC_ROOM - at; /* negative: too little even for a request without values */
        int64_t size = put_signed(one->header, values + at, room < VALUES_MAX ? room : VALUES_MAX);
        one->is_valid = 0;
        if (size < 0 && job_count > 0) break; /* alone it may have the room */
        if (size < 0) continue;
        jobs[job_count] = (rp_hmac_job){.key = &one->key,
                                        .edge = values + at,
                                        .edge_size = (uint64_t)size,
                                        .body = one->frame->body,
                                        .body_size = one->frame->body_size};
        asked[job_count++] = done;
        at += (uint32_t)size + RP_HMAC_ROOM;
    }
    rp_hmac(jobs, job_count);
    for (uint32_t i = 0; i < job_count; i++) {
        rp_signed *one = &requests[asked[i]];
        encode_base64(jobs[i].code, expected);
        one->is_valid = is_equal(rp_header_field(one->header, SIGNATURE)->value, expected);
    }
    return done;
}
