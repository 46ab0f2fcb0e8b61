/* The choice of the reader by the type byte. */
#include "wire/header.h"
#include <string.h>
#include "base/endian.h"
#include "base/numbers.h"
#include "base/utf8.h"

rp_status rp_header_parse(uint8_t serialize_type, const uint8_t *header, uint32_t size, rp_header *out) {
    switch (serialize_type) {
        case RP_SERIALIZE_JSON: return rp_json_header_parse(header, size, out);
        case RP_SERIALIZE_ROCKETMQ: return rp_rocketmq_header_parse(header, size, out);
        default: return RP_INVALID;
    }
}

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
    out->field_count = out->remark_escaped = 0;
    if (out->remark_size > size - FIXED_SIZE) return RP_INVALID;
    out->remark = out->remark_size > 0 ? header + 17 : NULL;
    if (!rp_utf8_is_valid(header + 17, out->remark_size)) return RP_UNSUPPORTED;
    const uint8_t *fields = header + FIXED_SIZE + out->remark_size, *end = header + size;
    uint32_t fields_size = rp_load32(fields - 4);
    if (fields_size > (uint64_t)(end - fields)) return RP_INVALID;
    return read_fields(fields, fields + fields_size, out);
}

/* The JSON header of a RemotingCommand, in one pass, without allocating.
 *
 *   {"code":310,"extFields":{"a":"group","e":"3"},"flag":0,"language":"JAVA","opaque":7,"version":409}
 *
 * It supports the JSON that clients write: the eight known keys in any order, each at most once, keys without escapes,
 * whole numbers, one level of nesting. A null is the same as an absent key. `code` and `opaque` are mandatory.
 * RP_INVALID means that the header does not begin with { and end with } (as after a truncation). Everything else that
 * is not supported may be valid for the reference's lenient parser, and is RP_UNSUPPORTED.
 *
 * Strings are scanned eight bytes a step. Bytes above 0x7F can only be inside strings, so one flag decides whether
 * the whole header needs its UTF-8 checked. */

#define ONES 0x0101010101010101ull
#define HIGHS 0x8080808080808080ull

typedef struct reader {
    const uint8_t *at;
    const uint8_t *end;
    uint64_t high_bits; /* all bytes of strings, or-ed: is there anything above 0x7F */
} reader;

typedef enum kind { KIND_NONE, KIND_STRING, KIND_NUMBER, KIND_WORD, KIND_NULL } kind;
typedef struct scalar {
    const uint8_t *text; /* of a string, without its quotes */
    uint32_t size;
    uint8_t escaped;
    kind kind;
} scalar;

static int is_space(uint8_t byte) { return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t'; }

static void skip_space(reader *r) {
    while (r->at < r->end && is_space(*r->at)) r->at++;
}

/* Consume `byte` and the space around it: 1 if it was there. */
static int take(reader *r, uint8_t byte) {
    skip_space(r);
    if (r->at == r->end || *r->at != byte) return 0;
    r->at++;
    skip_space(r);
    return 1;
}

/* A high bit for each byte that ends the fast scan of a string: quote, backslash, control character. The lowest bit
 * set is exact; those above it may be borrows. */
static uint64_t stops(uint64_t word) {
    uint64_t quote = word ^ (ONES * '"'), backslash = word ^ (ONES * '\\');
    return (((quote - ONES) & ~quote) | ((backslash - ONES) & ~backslash) | ((word - ONES * 0x20) & ~word)) & HIGHS;
}

/* After the opening quote: *out up to the closing one, which is consumed. 0 if there is none or a control character
 * comes first. */
static int take_string(reader *r, scalar *out) {
    const uint8_t *at = r->at, *end = r->end;
    uint64_t high_bits = 0;
    out->text = at;
    out->escaped = 0;
    out->kind = KIND_STRING;
    int is_letter = end - at >= 2 && at[1] == '"' && *at >= 0x20 && *at < 0x80 && *at != '"' && *at != '\\';
    if (is_letter) at++; /* half the strings of a send, which the scan by words would slow down */
    while (!is_letter) {
        while (end - at >= 8) {
            uint64_t word;
            memcpy(&word, at, 8);
            high_bits |= word;
            uint64_t stop = stops(word);
            at += stop ? __builtin_ctzll(stop) >> 3 : 8;
            if (stop) break;
        }
        if (at == end || *at < 0x20) return 0;
        if (*at == '"') break;
        high_bits |= *at;
        if (*at == '\\') {
            out->escaped = 1;
            if (++at == end) return 0;
            high_bits |= *at;
        }
        at++;
    }
    out->size = (uint32_t)(at - out->text);
    r->at = at + 1;
    r->high_bits |= high_bits;
    return 1;
}

/* Parse -?(0|[1-9][0-9]*), followed by a byte that cannot continue a number. */
static int take_number(reader *r, scalar *out) {
    out->text = r->at;
    out->kind = KIND_NUMBER;
    if (*r->at == '-') r->at++;
    const uint8_t *digits = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9') r->at++;
    out->size = (uint32_t)(r->at - out->text);
    return r->at > digits && (*digits != '0' || r->at == digits + 1);
}

static int take_word(reader *r, scalar *out, const char *word, uint32_t size, kind kind) {
    if ((uint64_t)(r->end - r->at) < size || memcmp(r->at, word, size) != 0) return 0;
    *out = (scalar){r->at, size, 0, kind};
    r->at += size;
    return 1;
}

static int take_scalar(reader *r, scalar *out) {
    out->escaped = 0;
    if (r->at == r->end) return 0;
    switch (*r->at) {
        case '"': r->at++; return take_string(r, out);
        case 't': return take_word(r, out, "true", 4, KIND_WORD);
        case 'f': return take_word(r, out, "false", 5, KIND_WORD);
        case 'n': return take_word(r, out, "null", 4, KIND_NULL);
        default: return take_number(r, out);
    }
}

/* A key and its colon. */
static int take_key(reader *r, scalar *key) {
    if (r->at == r->end || *r->at != '"') return 0;
    r->at++;
    return take_string(r, key) && !key->escaped && take(r, ':');
}

static int take_fields(reader *r, rp_header *out) {
    out->field_count = 0;
    if (!take(r, '{')) return 0;
    if (take(r, '}')) return 1;
    do {
        scalar key, value;
        if (!take_key(r, &key) || !take_scalar(r, &value)) return 0;
        if (value.kind == KIND_NULL) continue;
        if (out->field_count == RP_FIELDS_MAX) return 0;
        out->fields[out->field_count++] = (rp_field){key.text, value.text, key.size, value.size, value.escaped};
    } while (take(r, ','));
    return take(r, '}');
}

enum {
    SEEN_CODE = 1,
    SEEN_FIELDS = 2,
    SEEN_FLAG = 4,
    SEEN_LANGUAGE = 8,
    SEEN_OPAQUE = 16,
    SEEN_REMARK = 32,
    SEEN_TYPE = 64,
    SEEN_VERSION = 128
};

static uint32_t which_key(const scalar *key) {
    if (rp_text_is(key->text, key->size, "code")) return SEEN_CODE;
    if (rp_text_is(key->text, key->size, "flag")) return SEEN_FLAG;
    if (rp_text_is(key->text, key->size, "opaque")) return SEEN_OPAQUE;
    if (rp_text_is(key->text, key->size, "version")) return SEEN_VERSION;
    if (rp_text_is(key->text, key->size, "language")) return SEEN_LANGUAGE;
    if (rp_text_is(key->text, key->size, "extFields")) return SEEN_FIELDS;
    if (rp_text_is(key->text, key->size, "remark")) return SEEN_REMARK;
    if (rp_text_is(key->text, key->size, "serializeTypeCurrentRPC")) return SEEN_TYPE;
    return 0;
}

static int set_number(const scalar *value, int32_t *out) {
    return value->kind == KIND_NUMBER && rp_parse_int32(value->text, value->size, out) == RP_OK;
}

/* Store one member of the outer object that is not null; 0 if its type is unexpected. */
static int set_member(uint32_t key, const scalar *value, rp_header *out) {
    switch (key) {
        case SEEN_CODE: return set_number(value, &out->code);
        case SEEN_FLAG: return set_number(value, &out->flag);
        case SEEN_OPAQUE: return set_number(value, &out->opaque);
        case SEEN_VERSION: return set_number(value, &out->version);
        case SEEN_LANGUAGE: return 1; /* nothing on the fast path asks for it */
        case SEEN_TYPE: return value->kind == KIND_STRING;
        case SEEN_REMARK:
            out->remark = value->text;
            out->remark_size = value->size;
            out->remark_escaped = value->escaped;
            return value->kind == KIND_STRING;
        default: return 0;
    }
}

/* One member of the outer object; its bit in *seen, and in *present unless it was null. */
static int take_member(reader *r, rp_header *out, uint32_t *seen, uint32_t *present) {
    scalar name, value;
    if (!take_key(r, &name)) return 0;
    uint32_t key = which_key(&name);
    if (key == 0 || (*seen & key)) return 0;
    *seen |= key;
    if (key == SEEN_FIELDS && r->at < r->end && *r->at == '{') return take_fields(r, out);
    if (!take_scalar(r, &value)) return 0;
    if (value.kind == KIND_NULL) return 1;
    *present |= key;
    return set_member(key, &value, out);
}

static int take_header(reader *r, rp_header *out) {
    uint32_t seen = 0, present = 0;
    if (!take(r, '{')) return 0;
    do {
        if (!take_member(r, out, &seen, &present)) return 0;
    } while (take(r, ','));
    return take(r, '}') && r->at == r->end && (present & SEEN_CODE) && (present & SEEN_OPAQUE);
}

rp_status rp_json_header_parse(const uint8_t *header, uint32_t size, rp_header *out) {
    reader r = {header, header + size, 0};
    skip_space(&r);
    while (r.end > r.at && is_space(r.end[-1])) r.end--;
    if (r.end - r.at < 2 || r.at[0] != '{' || r.end[-1] != '}') return RP_INVALID;
    out->code = out->version = out->opaque = out->flag = 0;
    out->remark = NULL;
    out->remark_size = out->field_count = out->remark_escaped = 0;
    const uint8_t *start = r.at;
    if (!take_header(&r, out)) return RP_UNSUPPORTED;
    if ((r.high_bits & HIGHS) && !rp_utf8_is_valid(start, (uint64_t)(r.end - start))) return RP_UNSUPPORTED;
    return RP_OK;
}

/* Four hexadecimal digits at `at`, or -1. */
static int32_t hex4(const uint8_t *at, const uint8_t *end) {
    int32_t value = 0;
    if (end - at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        uint8_t c = at[i], lower = c | 0x20;
        if (c >= '0' && c <= '9')
            value = value << 4 | (c - '0');
        else if (lower >= 'a' && lower <= 'f')
            value = value << 4 | (lower - 'a' + 10);
        else
            return -1;
    }
    return value;
}

/* The code point of the escape whose `u` is before *at, moving *at past it; -1 for half a surrogate pair. */
static int32_t unicode_escape(const uint8_t **at, const uint8_t *end) {
    int32_t unit = hex4(*at, end);
    if (unit < 0 || (unit >= 0xDC00 && unit <= 0xDFFF)) return -1;
    *at += 4;
    if (unit < 0xD800 || unit > 0xDBFF) return unit;
    if (end - *at < 6 || (*at)[0] != '\\' || (*at)[1] != 'u') return -1;
    int32_t low = hex4(*at + 2, end);
    if (low < 0xDC00 || low > 0xDFFF) return -1;
    *at += 6;
    return 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
}

int64_t rp_json_unescape(const uint8_t *text, uint32_t size, uint8_t *out) {
    static const uint8_t from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (size == 0) return 0;
    const uint8_t *at = text, *end = text + size;
    uint8_t *put = out;
    while (at < end) {
        const uint8_t *backslash = memchr(at, '\\', (size_t)(end - at));
        size_t plain = (size_t)((backslash ? backslash : end) - at);
        memcpy(put, at, plain);
        put += plain;
        if (backslash == NULL) break;
        if (end - backslash < 2) return -1;
        at = backslash + 2;
        if (backslash[1] == 'u') {
            int32_t code_point = unicode_escape(&at, end);
            if (code_point < 0) return -1;
            put += rp_utf8_put((uint32_t)code_point, put);
        } else {
            const uint8_t *known = memchr(from, backslash[1], sizeof from - 1);
            if (known == NULL) return -1;
            *put++ = to[known - from];
        }
    }
    return put - out;
}

/* Cut frames out of a byte stream.
 *
 *   0  4  bytes that follow: 4 + header + body
 *   4  1  serialisation of the header: 0 JSON, 1 ROCKETMQ
 *   5  3  header size
 *   8  n  header, then body up to the end
 *
 * An invalid length or descriptor is detected as soon as its bytes are there: a peer with another protocol is
 * disconnected after eight bytes, not after sixteen million. */

rp_status rp_frame_read(const uint8_t *data, uint32_t size, rp_frame *frame) {
    if (size < RP_DESCRIPTOR_SIZE) return RP_INVALID;
    uint32_t descriptor = rp_load32(data);
    frame->size = size + RP_LENGTH_SIZE;
    frame->serialize_type = (uint8_t)(descriptor >> 24);
    frame->header_size = descriptor & 0xFFFFFF;
    if (frame->serialize_type > RP_SERIALIZE_ROCKETMQ || frame->header_size > size - RP_DESCRIPTOR_SIZE)
        return RP_INVALID;
    frame->header = data + RP_DESCRIPTOR_SIZE;
    frame->body = frame->header + frame->header_size;
    frame->body_size = size - RP_DESCRIPTOR_SIZE - frame->header_size;
    return RP_OK;
}

rp_status rp_frame_cut(const uint8_t *data, uint64_t size, uint32_t frame_size_max, rp_frame *frame) {
    frame->size = 0;
    if (size < RP_LENGTH_SIZE) return RP_INCOMPLETE;
    uint32_t following = rp_load32(data); /* a negative length is a huge one here */
    if ((uint64_t)following + RP_LENGTH_SIZE > frame_size_max) return RP_TOO_LARGE;
    if (following < RP_DESCRIPTOR_SIZE) return RP_INVALID;
    frame->size = following + RP_LENGTH_SIZE;
    if (size < RP_LENGTH_SIZE + RP_DESCRIPTOR_SIZE) return RP_INCOMPLETE;
    rp_status status = rp_frame_read(data + RP_LENGTH_SIZE, following, frame);
    return status == RP_OK && size < frame->size ? RP_INCOMPLETE : status;
}
