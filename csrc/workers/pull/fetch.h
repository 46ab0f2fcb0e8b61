#ifndef ROCKETPY_FETCH_H
#define ROCKETPY_FETCH_H
/* Finds the messages for a pull in a queue, from its consume queue units; the log is read for SQL92 expressions alone.
 * The statuses are those of the reference (DefaultMessageStore#getMessage). C only. */
#include <stdint.h>
#include "ipc/worker_messages.h"
#include "store/filters/filter_marks.h"
#include "store/log/log_view.h"
#include "store/queues/consume_queue.h"
#include "store/queues/consume_queue_ext.h"
#include "workers/pull/subscription.h"

/* Whether a pull selects a message: first by what its unit says (tags code, filter bits), then, for SQL92 expressions
 * alone, by the properties of its record. */

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

/* 1 if filter bits may exclude a message. */
static inline int rp_selection_uses_bits(const rp_selection *selection, const rp_tags *tags) {
    return tags->place.id && tags->flags & RP_SUBSCRIPTION_ALL && selection->ext && selection->marks;
}
/* 1 if the record has to be read as well. */
static inline int rp_selection_reads_records(const rp_selection *selection, const rp_tags *tags) {
    return tags->filter || selection->subscriptions;
}

typedef enum rp_fetch_status {
    RP_FOUND,
    RP_NO_MATCHED_MESSAGE,
    RP_MESSAGE_WAS_REMOVING,
    RP_OFFSET_FOUND_NULL,
    RP_OFFSET_OVERFLOW_BADLY,
    RP_OFFSET_OVERFLOW_ONE,
    RP_OFFSET_TOO_SMALL,
    RP_NO_MESSAGE_IN_QUEUE,
    RP_LOG_UNREADABLE /* only here: the first record that a SQL92 expression needs cannot be read now; see `error` */
} rp_fetch_status;

enum { RP_SLICES_MAX = 960 /* fit the smallest ring */, RP_EXAMINED_MIN = 800, RP_EXAMINED_MAX = 1024 /* units */ };
enum { RP_FETCH_WORK_MAX = 1 << 20 /* bytes looked at per call, for SQL92 expressions (filter.h) */ };

/* Limits of one response; a consumer far behind, whose messages are probably not in memory, has smaller ones. */
typedef struct rp_fetch_limits {
    uint32_t bytes_in_memory, count_in_memory;
    uint32_t bytes_on_disk, count_on_disk;
    uint32_t slices_on_disk; /* at most RP_SLICES_MAX: pieces of the log, for each of which the selector may wait */
    uint64_t memory_bytes; /* messages within this distance of the log's end are assumed in memory */
} rp_fetch_limits;

typedef struct rp_fetch {
    rp_fetch_status status;
    uint64_t next_begin_offset, min_offset, max_offset; /* queue offsets */
    uint32_t message_count;
    uint32_t body_size; /* bytes of all slices */
    uint32_t slice_count;
    uint32_t examined;  /* units that were read */
    int error;          /* errno of RP_LOG_UNREADABLE */
    int is_far_behind;  /* the last unit read is beyond memory_bytes */
    uint64_t work;      /* spent on SQL92 expressions */
    uint64_t behind_bytes; /* from the last message found to the end of the log */
    rp_slice slices[RP_SLICES_MAX];
} rp_fetch;

const char *rp_fetch_status_name(rp_fetch_status status);
/* Examine `queue` from `offset` on. `queue` NULL: the queue is empty. */
void rp_fetch_messages(rp_cq_reader *reader, const rp_selection *selection, const rp_control *control,
                       const rp_queue *queue, int64_t offset, int32_t max_msg_nums, const rp_tags *tags,
                       const rp_fetch_limits *limits, rp_fetch *out);
#endif
