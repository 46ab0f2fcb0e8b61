#ifndef ROCKETPY_SUBSCRIPTION_H
#define ROCKETPY_SUBSCRIPTION_H
/* What a pull selects: a set of tag hashes or a SQL92 expression, from the pull itself or from the manager's table. C
 * only. */
#include <stdint.h>
#include "base/map.h"
#include "base/status.h"
#include "ipc/worker_messages.h"
#include "store/filters/filter.h"

typedef struct rp_tags {
    int64_t sub_version;
    rp_filter *filter; /* of a SQL92 expression, with RP_SUBSCRIPTION_ALL; NULL: tags alone */
    rp_filter_place place;
    uint32_t flags; /* RP_SUBSCRIPTION_* */
    uint32_t count;
    int32_t *hashes; /* in ascending order */
} rp_tags;

/* Read a tag expression ("*", empty, "a || b"): RP_OK, or RP_UNSUPPORTED (RP_TAGS_MAX bars or more). `hashes`: room
 * for RP_TAGS_MAX, which `tags` borrows. */
rp_status rp_tags_parse(const uint8_t *expression, uint32_t size, int32_t *hashes, rp_tags *tags);
/* 1 if a tags code is subscribed to. Hash collisions pass; clients compare the tags themselves. It is called for
 * every unit that a pull examines, so it takes a few steps even for many tags. */
static inline int rp_tags_match(const rp_tags *tags, int64_t tags_code) {
    int32_t wanted = (int32_t)tags_code;
    uint32_t from = 0;
    if (tags->flags & RP_SUBSCRIPTION_ALL) return 1;
    for (uint32_t size = tags->count; size > 0;) {
        uint32_t half = size / 2;
        if (tags->hashes[from + half] == wanted) return 1;
        if (tags->hashes[from + half] < wanted) {
            from += half + 1;
            size -= half + 1;
        } else {
            size = half;
        }
    }
    return 0;
}

/* Every message is selected, whatever it is. */
static inline int rp_tags_take_all(const rp_tags *tags) { return tags->flags & RP_SUBSCRIPTION_ALL && !tags->filter; }

void rp_tags_free(void *tags);
/* Apply one SUBSCRIPTION record to the table (keys: group, 0x00, topic; values: rp_tags_free). */
rp_status rp_subscriptions_apply(rp_map *subscriptions, const uint8_t *data, uint32_t size);
const rp_tags *rp_subscriptions_find(const rp_map *subscriptions, const uint8_t *group, uint32_t group_size,
                                     const uint8_t *topic, uint32_t topic_size);

/* The SQL92 expressions that pulls bring with them, by their text, as the manager has compiled them. A few, for clients
 * that pull again and again with the same one: when there are too many, all are forgotten, and the next pull with each
 * takes the slow path once more. */

enum { RP_EXPRESSIONS_MAX = 512, RP_EXPRESSIONS_BYTES_MAX = 4 << 20 };

typedef struct rp_expressions {
    rp_map by_text; /* values: rp_tags */
    uint64_t bytes;
} rp_expressions;

int rp_expressions_init(rp_expressions *expressions); /* 0, or -1 without memory */
void rp_expressions_destroy(rp_expressions *expressions);
/* Keep the expression of an EXPRESSION message; without memory, or if it is not sound, it is not kept. */
void rp_expressions_add(rp_expressions *expressions, const uint8_t *data, uint32_t size);
/* Borrowed until the next message; NULL: it is not known. */
const rp_tags *rp_expressions_find(const rp_expressions *expressions, const uint8_t *text, uint32_t size);
#endif
