/* The properties column: a map from names to values. A record has at most RP_PROPERTIES_SIZE_MAX / 3 pairs. Few pairs
 * are compared with each other; many are sorted by name first, so that no message takes quadratic time. */
#include <string.h>

#include "store/log/record.h"
#include "arrow/columns.h"
#include "arrow/separators.h"
#include "arrow/text_out.h"

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
    return is_malformed ? rp_text_out_repair(out, text, size) : rp_text_out_put(out, text, size);
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
