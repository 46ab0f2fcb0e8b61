#ifndef ROCKETPY_DISPATCH_PRIVATE_H
#define ROCKETPY_DISPATCH_PRIVATE_H
/* What the files of dispatch share: its state. For dispatch.c and dispatch_batch.c alone; each
 * calls only those after it. */
#include "store/dispatch/dispatch.h"
#include "store/dispatch/unit_batch.h"
#include "store/filters/topic_filters.h"
#include "store/index/index_file.h"
#include "store/log/log_view.h"
#include "store/log/record.h"
#include "store/queues/consume_queue.h"
#include "store/queues/consume_queue_ext.h"
#include "store/queues/queue_files.h"

enum {
    BATCH_RECORDS = 8192,
    ARRIVALS_MAX = 2 * RP_UNIT_RUNS_MAX, /* one batch's, and as many queues met again after a restart */
};

/* The fields of a record that the index needs; spans point into the mapped log. */
struct keyed {
    const uint8_t *topic;
    const uint8_t *properties;
    uint64_t phy_offset;
    int64_t store_timestamp_ms;
    uint32_t topic_size;
    uint32_t properties_size;
};

struct rp_dispatch {
    rp_control_block *block;
    rp_control *control;
    const uint64_t *limit; /* in the control block: dispatch goes no further */
    uint64_t incomplete_at; /* a limit inside a record: what is confirmed is what others said they have */
    rp_log_view *view;
    rp_cq_writer *writer;
    rp_cq_ext_writer *ext;
    int ext_enable;
    rp_index *index;
    const int64_t *delay_level_ms;
    uint32_t delay_level_count;
    uint64_t units_per_file;
    uint64_t dropped; /* pages of the log below it were given back */
    rp_topic_filters filters;
    rp_unit_batch *batch;
    uint32_t collected; /* records, since the batch began or its first keys were entered */
    struct keyed *keyed;
    uint32_t keyed_count;
    uint64_t *heartbeat_ns; /* of the worker, or NULL */
    rp_flush *flush;        /* woken within batches, or NULL */
    struct { /* queues with new units, for which ARRIVAL messages are sent to the pull workers that own them */
        rp_ring_writer *pulls[RP_PULL_WORKERS_MAX]; /* the caller's */
        uint32_t pull_count;                        /* 0: nobody waits */
        uint32_t *queues;                           /* indexes in the control block, up to ARRIVALS_MAX */
        uint32_t count; /* some are left between calls only while a ring is full */
    } arrivals;
    int64_t timestamp_ms; /* store time of the record collected last */
    rp_dispatch_counts counts;
    rp_key_hashes hashes;
};

/* Collect the records of [position, end), which is in one file and mapped at `image`, until a record begins at or after
 * `stop` and the batch is not thin; *reached is set to the end. RP_EMPTY: the rest of a record is not confirmed. */
rp_status rp_dispatch_span(rp_dispatch *dispatch, const uint8_t *image, uint64_t position, uint64_t end, uint64_t stop,
                           uint64_t *reached);
/* Write the arrivals to the rings of their owners and wake these. RP_FULL: the ring of the only pull worker had no
 * room; the rest of them stay.
 *
 * The queues of several pull workers do not wait for each other: if the ring of one is full, its queue stays watched.
 * Its next unit tries again, or the sweep of its owner finds what has come (pull_private.h). */
rp_status rp_dispatch_send_arrivals(rp_dispatch *dispatch);
/* Remove the files that an earlier process was removing when it died. Best effort: files that cannot be removed only
 * cost disk space. */
void rp_dispatch_finish_removals(rp_dispatch *dispatch);
#endif
