#include "workers/pull/subscription.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "store/filters/topic_filters.h"
#include "store/log/record.h"

enum { KEY_MAX = 1024 };

static int is_blank(uint8_t c) { return c <= ' '; }

static void add_tag(rp_tags *tags, const uint8_t *start, const uint8_t *end) {
    while (start < end && is_blank(*start)) start++;
    while (end > start && is_blank(end[-1])) end--;
    if (start < end) tags->hashes[tags->count++] = rp_string_hash(start, (uint32_t)(end - start));
}

static int compare(const void *left, const void *right) {
    int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
    return (a > b) - (a < b);
}

static void sort_tags(rp_tags *tags) { qsort(tags->hashes, tags->count, sizeof tags->hashes[0], compare); }

rp_status rp_tags_parse(const uint8_t *expression, uint32_t size, int32_t *hashes, rp_tags *tags) {
    const uint8_t *at = expression, *end = expression + size;
    uint32_t bars = 0;
    tags->hashes = hashes;
    tags->flags = tags->count = 0;
    tags->filter = NULL;
    tags->place.id = 0;
    if (size == 0 || (size == 1 && *expression == '*')) {
        tags->flags = RP_SUBSCRIPTION_ALL;
        return RP_OK;
    }
    while (at < end) {
        const uint8_t *bar = at;
        while (bar < end && !(bar + 1 < end && bar[0] == '|' && bar[1] == '|')) bar++;
        if (bar < end && ++bars == RP_TAGS_MAX) return RP_UNSUPPORTED;
        add_tag(tags, at, bar);
        at = bar + 2;
    }
    sort_tags(tags);
    return RP_OK;
}

static uint32_t key_of(uint8_t *key, const uint8_t *group, uint32_t group_size, const uint8_t *topic,
                       uint32_t topic_size) {
    if ((uint64_t)group_size + topic_size + 1 > KEY_MAX) return 0;
    memcpy(key, group, group_size);
    key[group_size] = 0;
    memcpy(key + group_size + 1, topic, topic_size);
    return group_size + topic_size + 1;
}

void rp_tags_free(void *value) {
    rp_tags *tags = value;
    if (tags) rp_filter_release(tags->filter);
    free(tags);
}

/* The subscription that a record describes; NULL without memory. A program that is not sound selects nothing. */
static rp_tags *tags_new(const rp_msg_subscription *message, const uint8_t *hashes, const uint8_t *program) {
    rp_tags *tags = calloc(1, sizeof *tags + (size_t)message->tag_count * sizeof tags->hashes[0]);
    if (!tags) return NULL;
    tags->hashes = (int32_t *)(tags + 1);
    tags->sub_version = message->sub_version;
    tags->flags = message->flags;
    tags->count = message->tag_count;
    memcpy(tags->hashes, hashes, tags->count * sizeof tags->hashes[0]);
    sort_tags(tags);
    if (!message->program_size) return tags;
    if (rp_filter_place_is_sound(&message->place)) tags->place = message->place;
    tags->filter = rp_filter_open(program, message->program_size);
    if (!tags->filter) tags->flags |= RP_SUBSCRIPTION_SLOW;
    return tags;
}

rp_status rp_subscriptions_apply(rp_map *subscriptions, const uint8_t *data, uint32_t size) {
    const rp_msg_subscription *message = (const rp_msg_subscription *)data;
    uint8_t key[KEY_MAX];
    if (size < sizeof *message ||
        (uint64_t)message->tag_count * 4 + message->group_size + message->topic_size + message->program_size >
            size - sizeof *message)
        return RP_INVALID;
    const uint8_t *hashes = data + sizeof *message;
    const uint8_t *group = hashes + message->tag_count * 4;
    uint32_t key_size = key_of(key, group, message->group_size, group + message->group_size, message->topic_size);
    if (!key_size) return RP_INVALID;
    if (message->flags & RP_TABLE_REMOVE) {
        rp_tags_free(rp_map_remove(subscriptions, key, key_size));
        return RP_OK;
    }
    rp_tags *tags = tags_new(message, hashes, group + message->group_size + message->topic_size);
    int failed = !tags;
    if (tags) rp_tags_free(rp_map_put(subscriptions, key, key_size, tags, &failed));
    if (failed) rp_tags_free(tags);
    return failed ? RP_NO_MEMORY : RP_OK;
}

const rp_tags *rp_subscriptions_find(const rp_map *subscriptions, const uint8_t *group, uint32_t group_size,
                                     const uint8_t *topic, uint32_t topic_size) {
    uint8_t key[KEY_MAX];
    uint32_t key_size = key_of(key, group, group_size, topic, topic_size);
    return key_size ? rp_map_get(subscriptions, key, key_size) : NULL;
}

enum { MAP_CAPACITY = 16 };

int rp_expressions_init(rp_expressions *expressions) {
    expressions->bytes = 0;
    return rp_map_init(&expressions->by_text, MAP_CAPACITY);
}

void rp_expressions_destroy(rp_expressions *expressions) { rp_map_destroy(&expressions->by_text, rp_tags_free); }

/* An rp_tags without hashes. NULL: the program is not sound, or no memory. */
static rp_tags *tags_of(const uint8_t *program, uint32_t size) {
    rp_tags *tags = calloc(1, sizeof *tags);
    if (!tags) return NULL;
    tags->flags = RP_SUBSCRIPTION_ALL;
    tags->filter = rp_filter_open(program, size);
    if (tags->filter) return tags;
    free(tags);
    return NULL;
}

void rp_expressions_add(rp_expressions *expressions, const uint8_t *data, uint32_t size) {
    const rp_msg_expression *message = (const rp_msg_expression *)data;
    const uint8_t *text = data + sizeof *message;
    if (size < sizeof *message || (uint64_t)message->text_size + message->program_size > size - sizeof *message) return;
    if (!expressions->by_text.entries && rp_expressions_init(expressions) != 0) return;
    uint64_t bytes = sizeof(rp_tags) + (uint64_t)message->text_size + message->program_size;
    if (rp_map_get(&expressions->by_text, text, message->text_size)) return;
    if (expressions->by_text.live == RP_EXPRESSIONS_MAX || expressions->bytes + bytes > RP_EXPRESSIONS_BYTES_MAX) {
        rp_expressions_destroy(expressions);
        if (rp_expressions_init(expressions) != 0) return;
    }
    int failed = 0;
    rp_tags *tags = tags_of(text + message->text_size, message->program_size);
    if (!tags) return;
    rp_map_put(&expressions->by_text, text, message->text_size, tags, &failed);
    if (failed)
        rp_tags_free(tags);
    else
        expressions->bytes += bytes;
}

const rp_tags *rp_expressions_find(const rp_expressions *expressions, const uint8_t *text, uint32_t size) {
    return expressions->by_text.entries ? rp_map_get(&expressions->by_text, text, size) : NULL;
}
