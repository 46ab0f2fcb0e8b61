#ifndef ROCKETPY_SELECTION_H
#define ROCKETPY_SELECTION_H
/* Whether a pull selects a message: first by what its unit says (tags code, filter bits), then, for SQL92 expressions
 * alone, by the properties of its record. C only. */
#include <stdint.h>
#include "store/filters/filter_marks.h"
#include "store/log/log_view.h"
#include "store/queues/consume_queue_ext.h"
#include "workers/pull/subscription.h"

typedef struct rp_selection {
    rp_cq_ext *ext;          /* NULL: a unit with an extension passes every tag filter */
    rp_log_view *log;        /* NULL: SQL92 expressions select nothing */
    const rp_filter_marks *marks; /* NULL: filter bits are not used */
    const rp_map *subscriptions;  /* of the retried messages' own topics; NULL: retries are selected as all others */
    const uint8_t *group;
    uint32_t group_size;
} rp_selection;

/* Select retried messages by the subscription to the topic that they were first in, if the topic after the group's
 * name is a retry topic. */
void rp_selection_of_retries(rp_selection *selection, const rp_map *subscriptions, const uint8_t *names,
                             uint32_t group_size, uint32_t topic_size);
/* Work of one look at a record, in bytes that are looked at: a cache line or a page may have to come. */
enum { RP_SELECTION_RECORD_WORK = 256 };

/* Whether filter bits may exclude a message. */
static inline int rp_selection_uses_bits(const rp_selection *selection, const rp_tags *tags) {
    return tags->place.id && tags->flags & RP_SUBSCRIPTION_ALL && selection->ext && selection->marks;
}
/* With filter bits: how many of `count` units, from the first one on, are excluded by their filter bits. Behind them
 * the caller asks again: 0 means that the bits do not exclude the first unit. */
uint32_t rp_selection_by_bits(const rp_selection *selection, const rp_queue *queue, const rp_tags *tags,
                              const uint8_t *units, uint32_t count);
/* 0: the tags code excludes the message. `code` is the third field of its unit. */
int rp_selection_by_tags(const rp_selection *selection, const rp_queue *queue, const rp_tags *tags, int64_t code);
/* Whether the record has to be read as well. */
static inline int rp_selection_reads_records(const rp_selection *selection, const rp_tags *tags) {
    return tags->filter || selection->subscriptions;
}
/* 1: the record of `size` bytes at `phy_offset`, which is below the end of the log, is selected. 0: it is not, or its
 * log file was deleted. -1 with errno: the log file is there, but cannot be read now. */
int rp_selection_by_record(const rp_selection *selection, const rp_tags *tags, uint64_t phy_offset, uint32_t size,
                           uint64_t *work);
#endif
