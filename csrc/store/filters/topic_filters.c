/* See topic_filters.h. Each topic has a list of its groups' filters. A filter that cannot be kept leaves its mark
 * cleared, so that its messages are found without bits. */
#include "store/filters/topic_filters.h"
#include <stdlib.h>
#include <string.h>
#include "store/filters/filter.h"

struct topic_filter {
    struct topic_filter *next;
    rp_filter *filter;
    rp_filter_place place;
    uint32_t group_size;
    uint8_t group[];
};

struct topic {
    struct topic_filter *first;
    uint32_t count;
    uint32_t bit_count;
};

void rp_topic_filters_init(rp_topic_filters *filters, rp_filter_marks *marks) {
    *filters = (rp_topic_filters){.marks = marks};
}

static void free_filter(struct topic_filter *filter) {
    rp_filter_release(filter->filter);
    free(filter);
}

static void free_topic(void *value) {
    struct topic *topic = value;
    while (topic && topic->first) {
        struct topic_filter *filter = topic->first;
        topic->first = filter->next;
        free_filter(filter);
    }
    free(topic);
}

void rp_topic_filters_destroy(rp_topic_filters *filters) { rp_map_destroy(&filters->by_topic, free_topic); }

/* Where the group's filter is linked, or would be. */
static struct topic_filter **link_of(struct topic *topic, const uint8_t *group, uint32_t size) {
    struct topic_filter **link = &topic->first;
    while (*link && ((*link)->group_size != size || memcmp((*link)->group, group, size) != 0)) link = &(*link)->next;
    return link;
}

/* From here on its messages get no bits: no pull may miss them. */
static void remove_filter(rp_topic_filters *filters, const uint8_t *name, uint32_t name_size, const uint8_t *group,
                          uint32_t group_size) {
    struct topic *topic = filters->by_topic.entries ? rp_map_get(&filters->by_topic, name, name_size) : NULL;
    struct topic_filter **link = topic ? link_of(topic, group, group_size) : NULL, *filter = link ? *link : NULL;
    if (!filter) return;
    rp_filter_marks_set(filters->marks, filter->place.mark, 0, 0);
    *link = filter->next;
    free_filter(filter);
    if (--topic->count == 0) free_topic(rp_map_remove(&filters->by_topic, name, name_size));
}

static void remove_all(rp_topic_filters *filters) {
    for (uint32_t mark = 0; mark < RP_FILTER_MARKS; mark++) rp_filter_marks_set(filters->marks, mark, 0, 0);
    rp_topic_filters_destroy(filters);
    filters->are_whole = 0;
}

static struct topic *topic_of(rp_topic_filters *filters, const uint8_t *name, uint32_t size, uint32_t bit_count) {
    if (!filters->by_topic.entries && rp_map_init(&filters->by_topic, 16) != 0) return NULL;
    struct topic *topic = rp_map_get(&filters->by_topic, name, size);
    int failed = 0;
    if (topic) return topic;
    topic = calloc(1, sizeof *topic);
    if (!topic) return NULL;
    topic->bit_count = bit_count;
    rp_map_put(&filters->by_topic, name, size, topic, &failed);
    if (!failed) return topic;
    free(topic);
    return NULL;
}

int rp_filter_place_is_sound(const rp_filter_place *place) {
    if (!place->bit_count || place->bit_count % 8 || place->bit_count > 8 * RP_CQ_EXT_BITMAP_MAX) return 0;
    if (place->count > sizeof place->positions / sizeof place->positions[0]) return 0;
    for (uint32_t i = 0; i < place->count; i++)
        if (place->positions[i] >= place->bit_count) return 0;
    return 1;
}

rp_status rp_topic_filters_apply(rp_topic_filters *filters, const uint8_t *data, uint32_t size, uint64_t phy_offset) {
    const rp_msg_filter *message = (const rp_msg_filter *)data;
    if (!filters->marks) return RP_OK;
    if (size < sizeof *message ||
        (uint64_t)message->group_size + message->topic_size + message->program_size > size - sizeof *message)
        return RP_INVALID;
    const uint8_t *group = data + sizeof *message, *name = group + message->group_size;
    if (!message->topic_size) {
        remove_all(filters);
        return RP_OK;
    }
    remove_filter(filters, name, message->topic_size, group, message->group_size);
    if (message->flags & RP_TABLE_REMOVE) return RP_OK;
    if (!rp_filter_place_is_sound(&message->place)) return RP_INVALID;
    struct topic *topic = topic_of(filters, name, message->topic_size, message->place.bit_count);
    struct topic_filter *added = malloc(sizeof *added + message->group_size);
    if (added) added->filter = rp_filter_open(name + message->topic_size, message->program_size);
    if (!topic || !added || !added->filter || topic->bit_count != message->place.bit_count) {
        if (added) rp_filter_release(added->filter);
        free(added);
        if (topic && !topic->count) free_topic(rp_map_remove(&filters->by_topic, name, message->topic_size));
        return RP_NO_MEMORY;
    }
    added->place = message->place;
    added->group_size = message->group_size;
    memcpy(added->group, group, message->group_size);
    added->next = topic->first;
    topic->first = added;
    topic->count++;
    rp_filter_marks_set(filters->marks, added->place.mark, added->place.id, phy_offset);
    return RP_OK;
}

void rp_topic_filters_evaluate(rp_topic_filters *filters, const rp_record_view *record, rp_cq_extension *extension) {
    struct topic *topic = filters->by_topic.entries && filters->by_topic.live
                              ? rp_map_get(&filters->by_topic, record->topic, record->topic_size)
                              : NULL;
    uint64_t work = 0;
    if (!topic) return;
    extension->bitmap_size = topic->bit_count / 8;
    memset(extension->bitmap, 0, extension->bitmap_size);
    for (struct topic_filter *filter = topic->first; filter && topic->count <= RP_TOPIC_FILTERS_MAX;
         filter = filter->next) {
        if (work > RP_TOPIC_FILTERS_WORK_MAX) break;
        if (rp_filter_evaluate(filter->filter, record->properties, record->properties_size, &work) != RP_FILTER_TRUE)
            continue;
        for (uint32_t i = 0; i < filter->place.count; i++)
            extension->bitmap[filter->place.positions[i] / 8] |= (uint8_t)(1u << filter->place.positions[i] % 8);
    }
    if (topic->count > RP_TOPIC_FILTERS_MAX || work > RP_TOPIC_FILTERS_WORK_MAX)
        memset(extension->bitmap, 0xFF, extension->bitmap_size);
}
