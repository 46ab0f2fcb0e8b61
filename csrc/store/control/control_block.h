#ifndef ROCKETPY_CONTROL_BLOCK_H
#define ROCKETPY_CONTROL_BLOCK_H
/* The control block: positions of the store and state of every queue, in shared memory. It is a sparse file `control`
 * in the store's root, mapped by every worker before the fork. It makes restart independent of the size of the log. It
 * may be lost at any time: recovery rebuilds it.
 *
 * One writer per field (named beside it); readers use rp_load_acquire of atomic.h. Queues are found by (topic, queue
 * id) through a hash that is only ever appended to; an entry is complete before its slot shows it. */
#include <stdint.h>
#include "base/status.h"

enum { RP_CONTROL_QUEUES_MAX = 1048576, RP_CONTROL_TOPICS_MAX = 262144 };
enum {
    RP_CONTROL_LAYOUT_VERSION = 2,
    RP_CONTROL_QUEUES_AT = 4096, /* bytes before the queue entries; the topics' names follow them */
    RP_CONTROL_TOPIC_ENTRY = 128 /* bytes of a topic's name: its length, then up to 127 */
};

/* running_flags: why the store takes no messages (the reference's RunningFlags). */
enum {
    RP_FLAG_NOT_READABLE = 1,
    RP_FLAG_NOT_WRITEABLE = 2, /* a sync of the log failed: nothing more counts as durable before the next start */
    RP_FLAG_CONSUME_QUEUE_FAULT = 4,
    RP_FLAG_INDEX_FAULT = 8,
    RP_FLAG_DISK_FULL = 16
};

typedef struct rp_control {
    uint64_t magic;
    uint32_t layout_version;
    uint32_t queue_count;              /* manager; entries below it are complete */
    uint32_t topic_count;              /* manager */
    uint32_t running_flags;            /* store worker: RP_FLAG_*, by rp_control_put_flag */
    uint8_t boot_id[16];               /* of the kernel that wrote this block */
    uint64_t commitlog_file_size;
    uint64_t min_phy_offset;           /* store worker */
    uint64_t published_phy_offset;     /* send worker: every record below it is complete */
    uint64_t durable_phy_offset;       /* store worker (flush): below it is on the disk */
    uint64_t dispatched_phy_offset;    /* store worker (dispatch): below it has its units */
    uint64_t replicated_phy_offset;    /* HA */
    int64_t last_store_timestamp_ms;   /* send worker */
    uint64_t clean;                    /* 1: written at the end of a clean stop */
    uint64_t units_durable_phy_offset; /* store worker (flush): units of all records below it are on the disk */
    int64_t physic_timestamp_ms;       /* store worker (flush): the three times of the checkpoint file */
    int64_t logics_timestamp_ms;
    int64_t index_timestamp_ms;
    int64_t lock_mtime_ns; /* supervisor: of the file `lock`; another value means another program was here */
    uint64_t delete_requests; /* manager: counts the requests to delete expired files now (code 329) */
    uint64_t rebuilding; /* supervisor: 1 while lost queues are rebuilt: they end before offsets that were read */
    uint64_t indexed_phy_offset; /* store worker (dispatch): the last record with keys that is in the index */
    int64_t dispatched_timestamp_ms; /* store worker (dispatch): store time of the last record that has its unit */
    int64_t clock_slow_base_ms; /* send worker: see broker_clock.c; 0: the wall clock was never set back */
    int64_t clock_slowed_from_ms; /* send worker: the broker's clock when it began to run at half speed */
    uint64_t units_lost; /* store worker: 1 after a failed sync of units or index; units_durable stays then */
    uint64_t flush_begun; /* store worker (flush): 1 once a sync of the log has been tried; recovery, too */
    uint64_t hash_seed; /* of both indexes; random, so that nobody makes names that meet; 0: of an old block */
    int64_t cautious_lead_ms; /* store worker: of the cautious clock (clocks.py) over CLOCK_BOOTTIME; 0: unknown */
    int64_t wall_ahead_since_ms; /* store worker: CLOCK_BOOTTIME since which the wall clock is ahead; 0: it is not */
    uint64_t queues_replaced; /* `pipeline rebuild --publish`: 1: queues and index are other ones. Of this block only
                                 the deletions hold */
    uint64_t confirmed_phy_offset; /* replicator: below it every member that has to has the log */
    uint64_t stops_at_confirmed; /* supervisor: 1: dispatch goes no further than that (a synchronous group with
                                    automatic failover) */
    int64_t lock_born_ns; /* supervisor: of the file `lock`; another value means a copy of the store; 0: unknown */
} rp_control;

enum { RP_QUEUE_FREE = 0, RP_QUEUE_LIVE = 1, RP_QUEUE_DELETED = 2 };
typedef struct rp_queue {
    uint64_t next_offset; /* send worker: QUEUEOFFSET of the next message */
    uint64_t max_offset; /* dispatch: units [min_offset, max_offset) can be read */
    uint64_t min_offset; /* dispatch, cleaning */
    uint64_t max_phy_offset; /* dispatch: end of the last record that has its unit */
    uint32_t topic; /* index of the topic's name */
    uint32_t queue_id;
    uint32_t watched; /* pull sets it to 1 when it suspends a pull; dispatch swaps it to 0 and sends ARRIVAL */
    uint32_t state; /* manager: RP_QUEUE_*; whoever adds the entry sets it LIVE first */
    uint64_t generation; /* store worker: increased when the queue's files are removed (descriptors are stale then) */
    uint64_t deleted_below; /* manager: units of records below this position of the log are deleted, with their topic */
} rp_queue;

typedef struct rp_control_block rp_control_block; /* the mapping; opaque */

/* Map (creating, with `commitlog_file_size`, if absent or not ours) the file at `path`. NULL with errno.
 * Once per store, by the process that holds the store's lock; workers inherit the mapping. */
rp_control_block *rp_control_open(const char *path, uint64_t commitlog_file_size);
void rp_control_close(rp_control_block *block);
/* 1 if the file that begins with this header is a control block of this layout. */
int rp_control_is_known(const rp_control *control);
/* Reset all fields, as in a new block. */
rp_status rp_control_reset(rp_control_block *block);
/* 1 if the running kernel wrote the block: the page cache, and so every position in it, can be trusted. */
int rp_control_is_same_boot(const rp_control_block *block);
void rp_control_mark_boot(rp_control_block *block);
/* Write the block back to its file. */
rp_status rp_control_sync(rp_control_block *block);
rp_control *rp_control_header(rp_control_block *block);
rp_queue *rp_control_queue(rp_control_block *block, uint32_t index);
uint32_t rp_control_queue_index(const rp_control_block *block, const rp_queue *queue);
/* The entry of (topic, queue id), or NULL. Any process. */
rp_queue *rp_control_find(rp_control_block *block, const uint8_t *topic, uint32_t topic_size, uint32_t queue_id);
/* Find or add an entry, and make it live. NULL with errno: the table is full (EOVERFLOW), the name cannot be a
 * directory (EINVAL), or the disk failed (others). Any process: a robust lock in the block protects additions. */
rp_queue *rp_control_add(rp_control_block *block, const uint8_t *topic, uint32_t topic_size, uint32_t queue_id);
/* 1 if this errno of rp_control_add is permanent; 0: another try may succeed. */
int rp_control_refuses(int error);
/* 1 if rp_control_add accepts the name: it fits, and can be the name of a directory. */
int rp_control_is_name(const uint8_t *topic, uint32_t topic_size);
/* 1 if all units of the queue belong to records that were deleted with their topic: its files can be removed. */
int rp_control_is_deleted(const rp_queue *queue);
/* The first entry from `from` on that is a queue of `topic`, or queue_count. A scan: for administration. */
uint32_t rp_control_next_of_topic(rp_control_block *block, const uint8_t *topic, uint32_t topic_size, uint32_t from);
/* One scan of all entries, into arrays of RP_CONTROL_TOPICS_MAX zeros by index of the topic's name. used: the number of
 * its live queues up to the last that has, or had, messages. deleted: 1 it has deleted queues, 3 and they hold
 * messages. */
void rp_control_sum_topics(rp_control_block *block, uint32_t *used, uint8_t *deleted);
/* Set (`on`) or clear a flag; 1 if it changed. */
int rp_control_put_flag(rp_control *control, uint32_t flag, int on);
/* Change a queue's min_offset from the value that the caller read; 0 if another process has changed it meanwhile. */
int rp_control_move_min(rp_queue *queue, uint64_t from, uint64_t to);
/* Name of a queue's topic: size returned, *name set. */
uint32_t rp_control_topic(const rp_control_block *block, uint32_t topic, const uint8_t **name);
#endif
