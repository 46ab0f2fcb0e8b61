#ifndef ROCKETPY_TOPIC_FILTERS_H
#define ROCKETPY_TOPIC_FILTERS_H
/* The SQL92 subscriptions for which dispatch writes filter bits: a Bloom filter of the groups that a message matches. C
 * only.
 *
 * The filter mark of a subscription says which messages have its bits (filter_marks.h). */
#include <stdint.h>
#include "base/map.h"
#include "ipc/worker_messages.h"
#include "store/filters/filter_marks.h"
#include "store/log/record.h"
#include "store/queues/consume_queue_ext.h"

enum {
    RP_TOPIC_FILTERS_MAX = 128,          /* evaluated for a message; with more, all its bits are set */
    RP_TOPIC_FILTERS_WORK_MAX = 1 << 18 /* bytes looked at for a message; beyond it, all its bits are set */
};

typedef struct rp_topic_filters {
    rp_map by_topic;
    rp_filter_marks *marks; /* NULL: none are kept */
    int are_whole;          /* all were told: messages get bits */
} rp_topic_filters;

/* 1 if it has whole bytes of bits, and all its positions are among them. */
int rp_filter_place_is_sound(const rp_filter_place *place);
void rp_topic_filters_init(rp_topic_filters *filters, rp_filter_marks *marks);
void rp_topic_filters_destroy(rp_topic_filters *filters);
/* Apply a FILTER message. Units of records at or after `phy_offset` are yet to be written, those before may have been.
 * RP_OK; RP_INVALID; RP_NO_MEMORY. */
rp_status rp_topic_filters_apply(rp_topic_filters *filters, const uint8_t *data, uint32_t size, uint64_t phy_offset);
/* Set the filter bits of a record; it gets none if its topic has no filters. */
void rp_topic_filters_evaluate(rp_topic_filters *filters, const rp_record_view *record, rp_cq_extension *extension);
#endif
