/* The properties column: a map from names to values. A record has at most RP_PROPERTIES_SIZE_MAX / 3 pairs. Few pairs
 * are compared with each other; many are sorted by name first, so that no message takes quadratic time. */
#include <string.h>

#include "store/record.h"
#include "arrow/columns.h"
#include "arrow/text_out.h"

enum { PAIR_SIZE_MIN = 3, PAIRS_MAX = RP_PROPERTIES_SIZE_MAX / PAIR_SIZE_MIN + 1, FEW = 24 };

typedef struct pair {
    uint16_t name_at; /* in the properties */
    uint16_t name_size;
    uint16_t value_size;
    uint16_t order;
} pair;

static uint32_t cut(const uint8_t *properties, uint32_t size, pair *pairs) {
    const uint8_t *piece = properties, *end = properties + size;
    uint32_t count = 0;
    while (piece < end) {
        const uint8_t *next = memchr(piece, RP_PROPERTY_SEPARATOR, (size_t)(end - piece));
        if (next == NULL) next = end;
        const uint8_t *middle = memchr(piece, RP_NAME_VALUE_SEPARATOR, (size_t)(next - piece));
        if (middle != NULL && middle > piece && middle + 1 < next)
            pairs[count++] = (pair){(uint16_t)(piece - properties), (uint16_t)(middle - piece),
                                    (uint16_t)(next - middle - 1), (uint16_t)count};
        piece = next + 1;
    }
    return count;
}

static int same_name(const uint8_t *properties, const pair *left, const pair *right) {
    return left->name_size == right->name_size &&
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
        const uint8_t *at = rows[i].record + rows[i].properties_at, *end = at + rows[i].properties_size;
        room->bytes += (uint64_t)rows[i].properties_size * (rows[i].flags & RP_ROW_MALFORMED ? REPLACED_SIZE_MAX : 1);
        while (at < end) {
            const uint8_t *next = memchr(at, RP_PROPERTY_SEPARATOR, (size_t)(end - at));
            at = next == NULL ? end : next + 1;
            room->pairs++;
        }
    }
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
        int (*put)(rp_text_out *, const uint8_t *, uint64_t) =
            rows[i].flags & RP_ROW_MALFORMED ? rp_text_out_repair : rp_text_out_put;
        uint32_t kept = drop_superseded(properties, cuts, cut(properties, rows[i].properties_size, cuts));
        if (kept > room->pairs - total) return RP_TOO_LARGE;
        for (uint32_t k = 0; k < kept; k++) {
            const uint8_t *name = properties + cuts[k].name_at;
            if (!put(&name_out, name, cuts[k].name_size) ||
                !put(&value_out, name + cuts[k].name_size + 1, cuts[k].value_size))
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
