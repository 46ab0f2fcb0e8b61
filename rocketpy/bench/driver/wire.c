/* Patching requests and reading answers.
 *
 * Requests are encoded once, in Python, and only what must differ is written here: the opaque, the tail of the unique
 * message id, a pull's offset, a time stamp. An answer is looked at just as far as the load needs it: code and opaque.
 */
#define _GNU_SOURCE
#include "wire.h"
#include <string.h>

static uint16_t load16(const uint8_t *at) {
    uint16_t v;
    memcpy(&v, at, sizeof v);
    return __builtin_bswap16(v);
}
static uint32_t load32(const uint8_t *at) {
    uint32_t v;
    memcpy(&v, at, sizeof v);
    return __builtin_bswap32(v);
}
uint64_t wire_load64(const uint8_t *at) {
    uint64_t v;
    memcpy(&v, at, sizeof v);
    return __builtin_bswap64(v);
}

static void put_decimal(uint8_t *at, uint32_t digits, uint64_t value) {
    while (digits-- > 0) {
        at[digits] = (uint8_t)('0' + value % 10);
        value /= 10;
    }
}

static void put_hex16(uint8_t *at, uint64_t value) {
    for (int digit = 15; digit >= 0; digit--) {
        at[digit] = (uint8_t)"0123456789ABCDEF"[value & 15];
        value >>= 4;
    }
}

void load_patch(const load_template *t, uint8_t *frame, uint32_t opaque, uint64_t key, uint64_t offset,
                int64_t stamp_ns) {
    if (t->opaque_is_binary) {
        uint32_t big = __builtin_bswap32(opaque);
        memcpy(frame + t->opaque_at, &big, sizeof big);
    } else {
        put_decimal(frame + t->opaque_at, 9, opaque);
    }
    for (uint32_t i = 0; i < t->key_count; i++) put_hex16(frame + t->key_at[i], key + i);
    if (t->offset_at) put_decimal(frame + t->offset_at, t->offset_digits, offset);
    if (!t->stamp_at) return;
    const uint64_t big = __builtin_bswap64((uint64_t)stamp_ns);
    for (uint32_t i = 0; i < t->messages; i++) memcpy(frame + t->stamp_at + i * t->stamp_step, &big, sizeof big);
}

uint32_t wire_frame_size(const uint8_t *data, uint64_t size) {
    if (size < 4) return 0;
    uint32_t length = load32(data);
    return length < 4 || length > WIRE_FRAME_SIZE_MAX - 4 ? UINT32_MAX : length + 4;
}

static int64_t decimal(const uint8_t *at, const uint8_t *end) {
    while (at < end && (*at == ' ' || *at == '"' || *at == ':')) at++;
    int negative = at < end && *at == '-';
    at += negative;
    if (at == end || *at < '0' || *at > '9') return -1;
    int64_t value = 0;
    while (at < end && *at >= '0' && *at <= '9' && value < (int64_t)1 << 58) value = value * 10 + (*at++ - '0');
    return negative ? -value : value;
}

int64_t wire_json_field(const wire_head *head, const char *quoted_name) {
    const size_t size = strlen(quoted_name);
    const uint8_t *at = memmem(head->header, head->header_size, quoted_name, size);
    return at == NULL ? -1 : decimal(at + size, head->header + head->header_size);
}

int wire_json_message_id(const wire_head *head, uint64_t *phy_offset) {
    enum { AT = 16, DIGITS = 16 }; /* behind an IPv4 address and a port */
    static const char name[] = "\"msgId\"";
    const uint8_t *end = head->header + head->header_size, *at = memmem(head->header, head->header_size, name, 7);
    if (at != NULL) at = memchr(at + 7, '"', (size_t)(end - at - 7));
    if (at == NULL || end - at <= 1 + AT + DIGITS) return -1;
    *phy_offset = 0;
    for (const uint8_t *digits = at + 1 + AT; digits < at + 1 + AT + DIGITS; digits++) {
        uint32_t digit = (uint32_t)(*digits <= '9' ? *digits - '0' : *digits - 'A' + 10);
        if (digit > 15) return -1;
        *phy_offset = *phy_offset << 4 | digit;
    }
    return 0;
}

int wire_read(const uint8_t *frame, uint32_t size, wire_head *head) {
    if (size < 8) return -1;
    uint32_t descriptor = load32(frame + 4);
    head->header = frame + 8;
    head->header_size = descriptor & 0xffffff;
    if (head->header_size > size - 8) return -1;
    head->body = head->header + head->header_size;
    head->body_size = size - 8 - head->header_size;
    if (descriptor >> 24 == 0) {
        head->code = (int32_t)wire_json_field(head, "\"code\"");
        head->opaque = (uint32_t)wire_json_field(head, "\"opaque\"");
        return 0;
    }
    if (descriptor >> 24 != 1 || head->header_size < 21) return -1;
    head->code = (int16_t)load16(head->header);
    head->opaque = load32(head->header + 5);
    return 0;
}

int load_read_head(const uint8_t *frame, uint32_t size, int32_t *code, uint32_t *opaque) {
    wire_head head;
    if (wire_read(frame, size, &head) != 0) return -1;
    *code = head.code;
    *opaque = head.opaque;
    return 0;
}

/* Stored message: size 4, magic 4, crc 4, queue id 4, flag 4, queue offset 8 (at 20), physical offset 8, sysFlag 4 (at
 * 36), born time 8, born host 8 or 20, store time 8, store host 8 or 20, reconsume 4, prepared 8, body length 4. */
int wire_record_read(const uint8_t *data, uint64_t size, wire_record *record) {
    if (size < 91 || load32(data + 4) != 0xDAA320A7u) return -1;
    record->size = load32(data);
    if (record->size > size || record->size < 91) return -1;
    uint32_t sys_flag = load32(data + 36);
    uint32_t body_at = 88 + (sys_flag & 16 ? 12u : 0u) + (sys_flag & 32 ? 12u : 0u);
    if (body_at > record->size) return -1;
    record->queue_offset = wire_load64(data + 20);
    record->body_size = load32(data + body_at - 4);
    record->body = data + body_at;
    return record->body_size <= record->size - body_at ? 0 : -1;
}
