/* Fields are sorted by name, which for ASCII is the order of bytes. Their values are put together in a buffer of
 * bounded size, where JSON escapes are undone. */
#include "wire/signature.h"

#include <string.h>

#include "base/endian.h"
#include "base/utf8.h"

enum { VALUES_MAX = 8192, SIGNATURE_SIZE = 28 /* of 20 bytes in base64 */ };
static const char SIGNATURE[] = "Signature";

const rp_field *rp_header_field(const rp_header *header, const char *name) {
    for (uint32_t i = header->field_count; i-- > 0;)
        if (rp_text_is(header->fields[i].key, header->fields[i].key_size, name)) return &header->fields[i];
    return NULL;
}

typedef struct sortable {
    uint64_t first; /* bytes of the name, the first one highest: decides between most names */
    const rp_field *field;
} sortable;

static uint64_t first_bytes(const rp_field *field) {
    uint8_t bytes[8] = {0};
    for (uint32_t i = 0; i < field->key_size && i < sizeof bytes; i++) bytes[i] = field->key[i];
    return rp_load64(bytes);
}

static int order(const sortable *left, const sortable *right) {
    if (left->first != right->first) return left->first < right->first ? -1 : 1;
    uint32_t sizes[2] = {left->field->key_size, right->field->key_size};
    int found = memcmp(left->field->key, right->field->key, sizes[0] < sizes[1] ? sizes[0] : sizes[1]);
    return found ? found : (sizes[0] > sizes[1]) - (sizes[0] < sizes[1]);
}

/* All fields but the signature by name. Returns their number, or -1: a name is not ASCII, or comes twice. */
static int32_t sort_fields(const rp_header *header, sortable *sorted) {
    int32_t count = 0;
    uint8_t high_bits = 0;
    for (uint32_t i = 0; i < header->field_count; i++) {
        sortable one = {first_bytes(&header->fields[i]), &header->fields[i]};
        int32_t at = count;
        for (uint32_t k = 0; k < one.field->key_size; k++) high_bits |= one.field->key[k];
        if (rp_text_is(one.field->key, one.field->key_size, SIGNATURE)) continue;
        for (int found; at > 0 && (found = order(&sorted[at - 1], &one)) >= 0; at--) {
            if (found == 0) return -1;
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = one;
        count++;
    }
    return high_bits & 0x80 ? -1 : count;
}

/* All values as they are decoded, one after the other. Returns their size, or -1: escapes are malformed, or they are
 * longer than `out`. */
static int64_t put_values(const sortable *sorted, int32_t count, uint8_t *out) {
    int64_t size = 0;
    for (int32_t i = 0; i < count; i++) {
        const rp_field *field = sorted[i].field;
        int64_t added = field->value_size;
        if (added > VALUES_MAX - size) return -1;
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

int rp_signature_is_of(const rp_header *header, const rp_frame *frame, const rp_hmac_key *key) {
    const rp_field *given = rp_header_field(header, SIGNATURE);
    sortable sorted[RP_FIELDS_MAX];
    uint8_t values[VALUES_MAX], code[RP_SHA1_SIZE], expected[SIGNATURE_SIZE];
    int32_t count = sort_fields(header, sorted);
    rp_sha1 sum;
    if (!given || given->escaped || given->value_size != SIGNATURE_SIZE || count < 0) return 0;
    int64_t size = put_values(sorted, count, values);
    if (size < 0) return 0;
    rp_hmac_begin(&sum, key);
    rp_sha1_update(&sum, values, (uint64_t)size);
    rp_sha1_update(&sum, frame->body, frame->body_size);
    rp_hmac_end(&sum, key, code);
    encode_base64(code, expected);
    return is_equal(given->value, expected);
}
