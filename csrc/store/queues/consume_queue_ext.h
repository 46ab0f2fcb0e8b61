#ifndef ROCKETPY_CONSUME_QUEUE_EXT_H
#define ROCKETPY_CONSUME_QUEUE_EXT_H
/* Extension units of consume queues (ConsumeQueueExt): with enableConsumeQueueExt the third field of a unit is the
 * address of an extension unit, which holds the tags code and filter bits. Files lie in "<consume queue
 * directory>_ext". */
#include <stdint.h>
#include "base/status.h"
#include "ipc/worker_messages.h"
#include "store/control/control_block.h"

enum {
    RP_CQ_EXT_UNIT_SIZE = 20, /* without filter bits */
    RP_CQ_EXT_END_SIZE = 4,   /* kept free at the end of a file */
    RP_CQ_EXT_BITMAP_MAX = 64 /* bytes of filter bits that are written and used; others are passed over */
};

/* The content of a unit's extension beside its tags code. */
typedef struct rp_cq_extension {
    int64_t store_timestamp_ms;
    uint32_t bitmap_size; /* bytes of filter bits; 0: none */
    uint8_t bitmap[RP_CQ_EXT_BITMAP_MAX];
} rp_cq_extension;

typedef struct rp_cq_ext_unit {
    int64_t tags_code; /* hash of the tags; time of delivery (ms) in a delay queue */
    int64_t store_timestamp_ms;
    uint32_t size;        /* of the whole unit */
    uint32_t bitmap_size; /* bytes of filter bits after the fixed part */
    uint8_t bitmap[RP_CQ_EXT_BITMAP_MAX]; /* these bits, if there are not more */
} rp_cq_ext_unit;

/* 1 if the third field of a unit is an address: it is far below zero, which no hash (32 bits) and no time is. */
int rp_cq_ext_is_address(int64_t field);

typedef struct rp_cq_ext rp_cq_ext;
/* NULL with errno. */
rp_cq_ext *rp_cq_ext_open(rp_control_block *block, const char *consume_queue_directory, uint64_t file_size);
void rp_cq_ext_close(rp_cq_ext *ext);
/* RP_OK; RP_NOT_FOUND: there is no sound unit; RP_IO_ERROR. */
rp_status rp_cq_ext_read(rp_cq_ext *ext, const rp_queue *queue, int64_t address, rp_cq_ext_unit *unit);
/* How many of `count` units of the queue, from the first one on, lack a filter bit of `place` (sound), among those of
 * records at or after `phy_offset_min`. Anything else ends the count: a unit without a sound extension, or with
 * another number of bits, and one in another file than the first, after which a next call goes on. */
uint32_t rp_cq_ext_count_lacking(rp_cq_ext *ext, const rp_queue *queue, const rp_filter_place *place,
                                 uint64_t phy_offset_min, const uint8_t *units, uint32_t count);
/* Unmap all files and close removed ones, so that their disk space becomes free; call about once a second. */
void rp_cq_ext_release(rp_cq_ext *ext);

/* The one writer: dispatch. */
typedef struct rp_cq_ext_writer rp_cq_ext_writer;
rp_cq_ext_writer *rp_cq_ext_writer_open(rp_control_block *block, const char *consume_queue_directory,
                                        uint64_t consume_queue_file_size, uint64_t file_size);
void rp_cq_ext_writer_close(rp_cq_ext_writer *writer);
/* Write extensions for `count` units that are not yet written: append the tags code of each third field, with its
 * extension, to the extension files, and replace it by its address. Returns how many units, the last ones, keep their
 * tags code because their extensions cannot be written. */
uint32_t rp_cq_ext_extend(rp_cq_ext_writer *writer, const rp_queue *queue, uint32_t count, uint8_t *units,
                          const rp_cq_extension *extensions);
/* Extended units were not written to their queues: free the space of their extensions again. */
void rp_cq_ext_forget(rp_cq_ext_writer *writer);
/* Remove all files of the queue and its directory; the queue's generation must have been moved before. */
rp_status rp_cq_ext_remove(rp_cq_ext_writer *writer, const rp_queue *queue);
/* As rp_cq_ext_release. */
void rp_cq_ext_writer_release(rp_cq_ext_writer *writer);
/* Sync everything written before the call. The only call that another thread may make. */
rp_status rp_cq_ext_sync(rp_cq_ext_writer *writer);
#endif
