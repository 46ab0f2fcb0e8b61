/* See selection.h. */
#include "workers/pull/selection.h"
#include <errno.h>
#include <string.h>
#include "store/log/record.h"

/* A unit whose extension is lost passes: the client compares the tags. */
int rp_selection_by_tags(const rp_selection *selection, const rp_queue *queue, const rp_tags *tags, int64_t code) {
    rp_cq_ext_unit unit;
    if (tags->flags & RP_SUBSCRIPTION_ALL || !rp_cq_ext_is_address(code)) return rp_tags_match(tags, code);
    if (!selection->ext || rp_cq_ext_read(selection->ext, queue, code, &unit) != RP_OK) return 1;
    return rp_tags_match(tags, unit.tags_code);
}

uint32_t rp_selection_by_bits(const rp_selection *selection, const rp_queue *queue, const rp_tags *tags,
                              const uint8_t *units, uint32_t count) {
    const rp_filter_place *place = &tags->place;
    uint64_t begin = rp_filter_marks_begin(selection->marks, place->mark, place->id);
    return begin == UINT64_MAX ? 0 : rp_cq_ext_count_lacking(selection->ext, queue, place, begin, units, count);
}

void rp_selection_of_retries(rp_selection *selection, const rp_map *subscriptions, const uint8_t *names,
                             uint32_t group_size, uint32_t topic_size) {
    static const char PREFIX[] = "%RETRY%";
    int is_retry = topic_size >= sizeof PREFIX && memcmp(names + group_size, PREFIX, sizeof PREFIX - 1) == 0;
    selection->subscriptions = is_retry ? subscriptions : NULL;
    selection->group = names;
    selection->group_size = group_size;
}

/* The expression for a message of a retry topic: that of its group for the topic that it was first in. */
static const rp_filter *filter_of_retry(const rp_selection *selection, const rp_record_view *record) {
    const uint8_t *topic;
    uint32_t size = rp_property_find(record->properties, record->properties_size, "RETRY_TOPIC", &topic);
    if (!size) return NULL;
    const rp_tags *tags =
        rp_subscriptions_find(selection->subscriptions, selection->group, selection->group_size, topic, size);
    return tags ? tags->filter : NULL;
}

int rp_selection_by_record(const rp_selection *selection, const rp_tags *tags, uint64_t phy_offset, uint32_t size,
                           uint64_t *work) {
    rp_record_view record;
    if (!selection->log) return 0;
    const uint8_t *image = rp_log_view_acquire(selection->log, phy_offset, size);
    if (!image) return errno == ENOENT ? 0 : -1;
    int is_selected = 0;
    *work += RP_SELECTION_RECORD_WORK;
    if (rp_record_decode(image, size, 0, &record) == RP_OK) {
        const rp_filter *filter = selection->subscriptions ? filter_of_retry(selection, &record) : tags->filter;
        is_selected =
            !filter || rp_filter_evaluate(filter, record.properties, record.properties_size, work) == RP_FILTER_TRUE;
    }
    rp_log_view_release(selection->log, phy_offset);
    return is_selected;
}
