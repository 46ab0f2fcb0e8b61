/* One loop per column. Fields before the born host are at fixed places of a record; those after it move with the
 * sizes of the hosts, which sys_flag gives (offset table: store/log/record.c). */
#include "arrow/columns.h"
#include <arpa/inet.h>
#include <stdint.h>
#include <string.h>
#include "base/endian.h"
#include "base/utf8.h"
#include "store/log/record.h"
#include "arrow/separators.h"

/* A buffer of texts that is written from its begin to its end, and never beyond. */
enum { REPLACED_SIZE_MAX = 3 }; /* bytes that one malformed byte becomes at the most */

typedef struct rp_text_out {
    uint8_t *data;
    uint64_t size;
    uint64_t room;
} rp_text_out;

/* As memcpy; names, values and ids are short, and a call takes longer than their bytes. */
static void copy_text(uint8_t *target, const uint8_t *source, uint64_t size) {
    if (size > 32) {
        memcpy(target, source, size);
    } else if (size >= 16) {
        memcpy(target, source, 16);
        memcpy(target + size - 16, source + size - 16, 16);
    } else if (size >= 8) {
        memcpy(target, source, 8);
        memcpy(target + size - 8, source + size - 8, 8);
    } else if (size >= 4) {
        memcpy(target, source, 4);
        memcpy(target + size - 4, source + size - 4, 4);
    } else {
        for (uint64_t i = 0; i < size; i++) target[i] = source[i];
    }
}

static int text_out_put(rp_text_out *out, const uint8_t *text, uint64_t size) {
    if (size > out->room - out->size) return 0;
    copy_text(out->data + out->size, text, size);
    out->size += size;
    return 1;
}

/* As text_out_put, with U+FFFD in the place of what is not UTF-8. */
static int text_out_repair(rp_text_out *out, const uint8_t *text, uint64_t size) {
    const uint8_t *end = text + size;
    while (text < end) {
        uint32_t used;
        int is_valid = 1;
        uint8_t encoded[4];
        uint32_t code_point = rp_utf8_next(text, end, &used, &is_valid);
        uint32_t encoded_size = rp_utf8_put(code_point, encoded);
        if (encoded_size > out->room - out->size) return 0;
        memcpy(out->data + out->size, encoded, encoded_size);
        out->size += encoded_size;
        text += used;
    }
    return 1;
}

enum {
    QUEUE_ID_AT = 12,
    FLAG_AT = 16,
    QUEUE_OFFSET_AT = 20,
    PHY_OFFSET_AT = 28,
    SYS_FLAG_AT = 36,
    BORN_TIME_AT = 40,
    BORN_HOST_AT = 48,
    BODY_CRC_AT = 8,
    HOST_V4_SIZE = 8,
    HOST_V6_SIZE = 20,
    HOST_TEXT_MAX = INET6_ADDRSTRLEN + 14, /* brackets, colon, a signed port of 32 bits */
    MESSAGE_ID_MAX = 2 * (HOST_V6_SIZE + 8)
};
#define YEAR_1_MS (-62135596800000)
#define YEAR_10000_MS 253402300800000

static uint32_t sys_flag_of(const rp_row *row) { return rp_load32(row->record + SYS_FLAG_AT); }
static uint32_t born_host_size(const rp_row *row) {
    return sys_flag_of(row) & RP_SYS_FLAG_BORN_HOST_V6 ? HOST_V6_SIZE : HOST_V4_SIZE;
}
static uint32_t store_host_size(const rp_row *row) {
    return sys_flag_of(row) & RP_SYS_FLAG_STORE_HOST_V6 ? HOST_V6_SIZE : HOST_V4_SIZE;
}
static const uint8_t *store_time_of(const rp_row *row) { return row->record + BORN_HOST_AT + born_host_size(row); }
static const uint8_t *store_host_of(const rp_row *row) { return store_time_of(row) + 8; }
static const uint8_t *after_hosts(const rp_row *row) { return store_host_of(row) + store_host_size(row); }

static void clear_bit(uint8_t *valid, uint32_t i) { valid[i / 8] &= (uint8_t)~(1u << (i % 8)); }

static uint32_t put_time(const uint8_t *at, uint32_t i, int64_t *out, uint8_t *valid) {
    int64_t time_ms = (int64_t)rp_load64(at);
    int is_null = time_ms < YEAR_1_MS || time_ms >= YEAR_10000_MS;
    out[i] = is_null ? 0 : time_ms * 1000;
    if (is_null) clear_bit(valid, i);
    return (uint32_t)is_null;
}

uint32_t rp_column_numbers(rp_column column, const rp_row *rows, uint32_t count, void *out, uint8_t *valid) {
    uint32_t *out32 = out, nulls = 0;
    uint64_t *out64 = out;
    memset(valid, 0xFF, (count + 7) / 8);
#define EACH(expression)                                                                                               \
    for (uint32_t i = 0; i < count; i++) {                                                                             \
        const rp_row *row = &rows[i];                                                                                  \
        expression;                                                                                                    \
    }                                                                                                                  \
    break
    switch (column) {
        case RP_COLUMN_QUEUE_ID: EACH(out32[i] = rp_load32(row->record + QUEUE_ID_AT));
        case RP_COLUMN_FLAG: EACH(out32[i] = rp_load32(row->record + FLAG_AT));
        case RP_COLUMN_SYS_FLAG: EACH(out32[i] = sys_flag_of(row));
        case RP_COLUMN_RECONSUME_TIMES: EACH(out32[i] = rp_load32(after_hosts(row)));
        case RP_COLUMN_STORE_SIZE: EACH(out32[i] = row->size);
        case RP_COLUMN_BODY_CRC: EACH(out32[i] = rp_load32(row->record + BODY_CRC_AT));
        case RP_COLUMN_QUEUE_OFFSET: EACH(out64[i] = rp_load64(row->record + QUEUE_OFFSET_AT));
        case RP_COLUMN_PHY_OFFSET: EACH(out64[i] = rp_load64(row->record + PHY_OFFSET_AT));
        case RP_COLUMN_PREPARED_OFFSET: EACH(out64[i] = rp_load64(after_hosts(row) + 4));
        case RP_COLUMN_BORN_TIME: EACH(nulls += put_time(row->record + BORN_TIME_AT, i, out, valid));
        case RP_COLUMN_STORE_TIME: EACH(nulls += put_time(store_time_of(row), i, out, valid));
        default: memset(valid, 0, (count + 7) / 8); return count;
    }
#undef EACH
    return nulls;
}

static uint32_t put_number(uint8_t *out, int64_t number) {
    uint8_t digits[20];
    uint32_t size = 0, sign = number < 0;
    uint64_t rest = sign ? (uint64_t)-number : (uint64_t)number;
    do digits[size++] = (uint8_t)('0' + rest % 10);
    while ((rest /= 10) > 0);
    if (sign) *out++ = '-';
    for (uint32_t i = 0; i < size; i++) out[i] = digits[size - 1 - i];
    return size + sign;
}

/* `ip:port` or `[ip]:port` of a host field. Returns its size, at most HOST_TEXT_MAX. */
static uint32_t put_host(uint8_t *out, const uint8_t *host, uint32_t host_size) {
    uint32_t size = 0;
    if (host_size == HOST_V4_SIZE) {
        for (uint32_t i = 0; i < 4; i++) {
            size += put_number(out + size, host[i]);
            if (i < 3) out[size++] = '.';
        }
    } else {
        out[size++] = '[';
        inet_ntop(AF_INET6, host, (char *)out + size, INET6_ADDRSTRLEN);
        size += (uint32_t)strlen((char *)out + size);
        out[size++] = ']';
    }
    out[size++] = ':';
    return size + put_number(out + size, (int32_t)rp_load32(host + host_size - 4));
}

/* Upper-case hex of four bytes: their nibbles side by side in a word, and to each the distance to its digit. */
static void put_hex(uint8_t *out, const uint8_t *bytes) {
    uint64_t word = rp_load32(bytes);
    word = (word << 16 | word) & 0x0000FFFF0000FFFFu;
    word = (word << 8 | word) & 0x00FF00FF00FF00FFu;
    word = (word << 4 | word) & 0x0F0F0F0F0F0F0F0Fu;
    uint64_t is_letter = (word + 0x0606060606060606u) >> 4 & 0x0101010101010101u;
    rp_store64(out, word + 0x3030303030303030u + is_letter * ('A' - '0' - 10));
}

/* A text of a row: in its record, or made in `made`. Most rows have the host of the row before: it is made once. */
typedef struct text {
    const uint8_t *at;
    uint32_t size;
    uint32_t is_null;
    uint32_t host_size; /* of the host in `made`; 0: none */
    uint32_t made_size; /* of its text */
    uint8_t host[HOST_V6_SIZE];
    uint8_t made[HOST_TEXT_MAX > MESSAGE_ID_MAX ? HOST_TEXT_MAX : MESSAGE_ID_MAX];
} text;

/* 1 if `made` does not begin with the text of this host; the caller makes it. */
static int is_other_host(text *text, const uint8_t *host, uint32_t host_size) {
    int is_same = host_size == HOST_V4_SIZE ? rp_load64(text->host) == rp_load64(host)
                                            : memcmp(text->host, host, HOST_V6_SIZE) == 0;
    if (is_same && text->host_size == host_size) return 0;
    text->host_size = host_size;
    memcpy(text->host, host, host_size);
    return 1;
}

/* Upper-case hex of the store host and the phy offset. */
static void take_message_id(const rp_row *row, text *text) {
    const uint8_t *host = store_host_of(row);
    uint32_t host_size = store_host_size(row);
    if (is_other_host(text, host, host_size))
        for (uint32_t i = 0; i < host_size; i += 4) put_hex(text->made + 2 * i, host + i);
    put_hex(text->made + 2 * host_size, row->record + PHY_OFFSET_AT);
    put_hex(text->made + 2 * host_size + 8, row->record + PHY_OFFSET_AT + 4);
    text->at = text->made;
    text->size = 2 * (host_size + 8);
}

static void take_property(const rp_row *row, uint16_t at, uint16_t size, text *text) {
    text->at = row->record + row->properties_at + at;
    text->size = size;
    text->is_null = size == 0;
}

static void take_host(const uint8_t *host, uint32_t host_size, text *text) {
    if (is_other_host(text, host, host_size)) text->made_size = put_host(text->made, host, host_size);
    text->at = text->made;
    text->size = text->made_size;
}

static void take_text(rp_column column, const rp_row *row, text *text) {
    text->is_null = 0;
    if (column == RP_COLUMN_MSG_ID && row->unique_size == 0) column = RP_COLUMN_OFFSET_MSG_ID;
    switch (column) {
        case RP_COLUMN_BODY: text->at = row->body, text->size = row->body_size; break;
        case RP_COLUMN_TOPIC: text->at = row->record + row->topic_at, text->size = row->topic_size; break;
        case RP_COLUMN_TAGS: take_property(row, row->tags_at, row->tags_size, text); break;
        case RP_COLUMN_KEYS: take_property(row, row->keys_at, row->keys_size, text); break;
        case RP_COLUMN_MSG_ID: take_property(row, row->unique_at, row->unique_size, text); break;
        case RP_COLUMN_OFFSET_MSG_ID: take_message_id(row, text); break;
        case RP_COLUMN_BORN_HOST: take_host(row->record + BORN_HOST_AT, born_host_size(row), text); break;
        case RP_COLUMN_STORE_HOST: take_host(store_host_of(row), store_host_size(row), text); break;
        default: text->at = NULL, text->size = 0, text->is_null = 1;
    }
}

uint64_t rp_column_texts_room(rp_column column, const rp_row *rows, uint32_t count) {
    uint64_t room = 0;
#define SUM(size)                                                                                                      \
    for (uint32_t i = 0; i < count; i++) room += (size);                                                               \
    return room
#define REPAIRED(size) (uint64_t)rows[i].size *(rows[i].flags & RP_ROW_MALFORMED ? REPLACED_SIZE_MAX : 1)
    switch (column) {
        case RP_COLUMN_BODY: SUM(rows[i].body_size);
        case RP_COLUMN_TOPIC: SUM(REPAIRED(topic_size));
        case RP_COLUMN_TAGS: SUM(REPAIRED(tags_size));
        case RP_COLUMN_KEYS: SUM(REPAIRED(keys_size));
        case RP_COLUMN_MSG_ID: SUM(rows[i].unique_size > 0 ? REPAIRED(unique_size) : MESSAGE_ID_MAX);
        case RP_COLUMN_OFFSET_MSG_ID: return (uint64_t)MESSAGE_ID_MAX * count;
        default: return (uint64_t)HOST_TEXT_MAX * count;
    }
#undef REPAIRED
#undef SUM
}

rp_status rp_column_texts(rp_column column, const rp_row *rows, uint32_t count, int32_t *offsets, uint8_t *data,
                          uint64_t room, uint8_t *valid, uint32_t *nulls) {
    rp_text_out out = {data, 0, room < INT32_MAX ? room : INT32_MAX};
    text text = {.host_size = 0};
    memset(valid, 0xFF, (count + 7) / 8);
    *nulls = 0;
    offsets[0] = 0;
    for (uint32_t i = 0; i < count; i++) {
        take_text(column, &rows[i], &text);
        int is_repaired = rows[i].flags & RP_ROW_MALFORMED && column != RP_COLUMN_BODY, is_put = 1;
        if (text.is_null) {
            clear_bit(valid, i);
            ++*nulls;
        } else if (is_repaired) {
            is_put = text_out_repair(&out, text.at, text.size);
        } else {
            is_put = text_out_put(&out, text.at, text.size);
        }
        if (!is_put) return RP_TOO_LARGE;
        offsets[i + 1] = (int32_t)out.size;
    }
    return RP_OK;
}

/* The properties column: a map from names to values. A record has at most RP_PROPERTIES_SIZE_MAX / 3 pairs. Few pairs
 * are compared with each other; many are sorted by name first, so that no message takes quadratic time. */

enum { PAIR_SIZE_MIN = 3, PAIRS_MAX = RP_PROPERTIES_SIZE_MAX / PAIR_SIZE_MIN + 1, FEW = 24 };

typedef struct pair {
    uint16_t name_at; /* in the properties */
    uint16_t name_size;
    uint16_t value_size;
    uint16_t order;
} pair;

/* Pairs on their way out of a property string. */
typedef struct cutter {
    pair *pairs;
    uint32_t count;
    uint32_t begin;  /* of the current piece */
    uint32_t middle; /* of it; UINT32_MAX: none yet */
} cutter;

static void end_piece(cutter *cutter, uint32_t end) {
    if (cutter->middle != UINT32_MAX && cutter->middle > cutter->begin && cutter->middle + 1 < end) {
        cutter->pairs[cutter->count] = (pair){(uint16_t)cutter->begin, (uint16_t)(cutter->middle - cutter->begin),
                                              (uint16_t)(end - cutter->middle - 1), (uint16_t)cutter->count};
        cutter->count++;
    }
    cutter->begin = end + 1;
    cutter->middle = UINT32_MAX;
}

static uint32_t cut(const uint8_t *properties, uint32_t size, pair *pairs) {
    cutter cutter = {pairs, 0, 0, UINT32_MAX};
    for (uint32_t at = 0; at < size; at += SEPARATORS_STEP) {
        rp_separators found = rp_separators_at(properties + at, size - at);
        for (uint32_t bits = found.names | found.pieces; bits != 0; bits &= bits - 1) {
            uint32_t bit = (uint32_t)__builtin_ctz(bits);
            if (found.pieces >> bit & 1)
                end_piece(&cutter, at + bit);
            else if (cutter.middle == UINT32_MAX)
                cutter.middle = at + bit;
        }
    }
    end_piece(&cutter, size);
    return cutter.count;
}

static int same_name(const uint8_t *properties, const pair *left, const pair *right) {
    return left->name_size == right->name_size && properties[left->name_at] == properties[right->name_at] &&
           memcmp(properties + left->name_at, properties + right->name_at, left->name_size) == 0;
}

/* By name; equal names in the order of the properties. */
static int is_before(const uint8_t *properties, const pair *left, const pair *right) {
    if (left->name_size != right->name_size) return left->name_size < right->name_size;
    int order = memcmp(properties + left->name_at, properties + right->name_at, left->name_size);
    return order != 0 ? order < 0 : left->order < right->order;
}

static int is_before_in_order(const uint8_t *properties, const pair *left, const pair *right) {
    (void)properties;
    return left->order < right->order;
}

typedef int (*before)(const uint8_t *properties, const pair *left, const pair *right);

static void sink(const uint8_t *properties, pair *pairs, uint32_t at, uint32_t count, before before) {
    for (uint32_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && before(properties, &pairs[child], &pairs[child + 1])) child++;
        if (!before(properties, &pairs[at], &pairs[child])) return;
        pair moved = pairs[at];
        pairs[at] = pairs[child];
        pairs[child] = moved;
    }
}

/* Heap sort: no memory, and no worst case. */
static void sort(const uint8_t *properties, pair *pairs, uint32_t count, before before) {
    for (uint32_t at = count / 2; at-- > 0;) sink(properties, pairs, at, count, before);
    while (count > 1) {
        pair last = pairs[--count];
        pairs[count] = pairs[0];
        pairs[0] = last;
        sink(properties, pairs, 0, count, before);
    }
}

/* Remove each pair whose name comes again. Returns the number of the others, which keep their order. */
static uint32_t drop_superseded(const uint8_t *properties, pair *pairs, uint32_t count) {
    uint32_t kept = 0;
    int is_sorted = count > FEW;
    if (is_sorted) sort(properties, pairs, count, is_before);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t later = i + 1, end = is_sorted && later < count ? later + 1 : count;
        while (later < end && !same_name(properties, &pairs[i], &pairs[later])) later++;
        if (later >= end) pairs[kept++] = pairs[i];
    }
    if (is_sorted) sort(properties, pairs, kept, is_before_in_order);
    return kept;
}

void rp_column_pairs_room(const rp_row *rows, uint32_t count, rp_pairs_room *room) {
    *room = (rp_pairs_room){0, 0};
    for (uint32_t i = 0; i < count; i++) {
        room->bytes += (uint64_t)rows[i].properties_size * (rows[i].flags & RP_ROW_MALFORMED ? REPLACED_SIZE_MAX : 1);
        room->pairs += rows[i].separators + 1u;
    }
}

static inline int put(rp_text_out *out, const uint8_t *text, uint64_t size, int is_malformed) {
    return is_malformed ? text_out_repair(out, text, size) : text_out_put(out, text, size);
}

rp_status rp_column_pairs(const rp_row *rows, uint32_t count, const rp_pairs_room *room, int32_t *offsets,
                          int32_t *name_offsets, uint8_t *names, int32_t *value_offsets, uint8_t *values,
                          uint64_t *pairs) {
    pair cuts[PAIRS_MAX];
    if (room->bytes > INT32_MAX || room->pairs >= INT32_MAX) return RP_TOO_LARGE;
    rp_text_out name_out = {names, 0, room->bytes}, value_out = {values, 0, room->bytes};
    uint64_t total = 0;
    offsets[0] = name_offsets[0] = value_offsets[0] = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *properties = rows[i].record + rows[i].properties_at;
        int is_malformed = (rows[i].flags & RP_ROW_MALFORMED) != 0;
        uint32_t kept = drop_superseded(properties, cuts, cut(properties, rows[i].properties_size, cuts));
        if (kept > room->pairs - total) return RP_TOO_LARGE;
        for (uint32_t k = 0; k < kept; k++) {
            const uint8_t *name = properties + cuts[k].name_at;
            if (!put(&name_out, name, cuts[k].name_size, is_malformed) ||
                !put(&value_out, name + cuts[k].name_size + 1, cuts[k].value_size, is_malformed))
                return RP_TOO_LARGE;
            total++;
            name_offsets[total] = (int32_t)name_out.size;
            value_offsets[total] = (int32_t)value_out.size;
        }
        offsets[i + 1] = (int32_t)total;
    }
    *pairs = total;
    return RP_OK;
}
