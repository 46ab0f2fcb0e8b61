/* Fields are sorted by name, which for ASCII is the order of bytes. JSON escapes are undone into a buffer of bounded
 * size: properties contain them. */
#include "wire/signature.h"

#include <string.h>

enum { DECODED_MAX = 8192, SIGNATURE_SIZE = 28 /* of 20 bytes in base64 */ };
static const char SIGNATURE[] = "Signature";

static int is_named(const rp_field *field, const char *name) {
    return field->key_size == strlen(name) && memcmp(field->key, name, field->key_size) == 0;
}

const rp_field *rp_header_field(const rp_header *header, const char *name) {
    for (uint32_t i = header->field_count; i-- > 0;)
        if (is_named(&header->fields[i], name)) return &header->fields[i];
    return NULL;
}

static int order(const rp_field *left, const rp_field *right) {
    uint32_t shorter = left->key_size < right->key_size ? left->key_size : right->key_size;
    int found = memcmp(left->key, right->key, shorter);
    return found ? found : (left->key_size > right->key_size) - (left->key_size < right->key_size);
}

/* All fields but the signature by name. Returns their number, or -1: a name is not ASCII, or comes twice. */
static int32_t sort_fields(const rp_header *header, const rp_field **sorted) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < header->field_count; i++) {
        const rp_field *field = &header->fields[i];
        uint32_t at = count;
        for (uint32_t k = 0; k < field->key_size; k++)
            if (field->key[k] & 0x80) return -1;
        if (is_named(field, SIGNATURE)) continue;
        for (; at > 0; at--) {
            int found = order(sorted[at - 1], field);
            if (found == 0) return -1;
            if (found < 0) break;
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = field;
        count++;
    }
    return (int32_t)count;
}

/* Add a value as it is decoded. 0: its escapes are malformed, or it is long. */
static int add_value(rp_sha1 *sum, const rp_field *field) {
    uint8_t decoded[DECODED_MAX];
    if (!field->escaped) {
        rp_sha1_update(sum, field->value, field->value_size);
        return 1;
    }
    if (field->value_size > sizeof decoded) return 0;
    int64_t size = rp_json_unescape(field->value, field->value_size, decoded);
    if (size >= 0) rp_sha1_update(sum, decoded, (uint64_t)size);
    return size >= 0;
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
    const rp_field *sorted[RP_FIELDS_MAX], *given = rp_header_field(header, SIGNATURE);
    uint8_t code[RP_SHA1_SIZE], expected[SIGNATURE_SIZE];
    int32_t count = sort_fields(header, sorted);
    rp_sha1 sum;
    if (!given || given->escaped || given->value_size != SIGNATURE_SIZE || count < 0) return 0;
    rp_hmac_begin(&sum, key);
    for (int32_t i = 0; i < count; i++)
        if (!add_value(&sum, sorted[i])) return 0;
    rp_sha1_update(&sum, frame->body, frame->body_size);
    rp_hmac_end(&sum, key, code);
    encode_base64(code, expected);
    return is_equal(given->value, expected);
}
