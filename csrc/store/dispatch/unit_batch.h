#ifndef ROCKETPY_UNIT_BATCH_H
#define ROCKETPY_UNIT_BATCH_H
/* The units of one batch of dispatch, collected by queue, so that each queue's file is opened and written once. C only.
 * Not thread-safe. */
#include <stdint.h>
#include "base/status.h"
#include "store/control/control_block.h"
#include "store/queues/consume_queue.h"
#include "store/queues/consume_queue_ext.h"

enum { RP_UNIT_RUNS_MAX = 131072 /* queues in one batch */ };

/* Consecutive units of one queue. */
typedef struct rp_unit_run {
    rp_queue *queue;
    uint64_t offset; /* of the first */
    uint64_t max_phy_offset; /* end of the last one's record */
    uint32_t count;
    uint32_t first; /* pieces, a list */
    uint32_t last;
    uint32_t reserved;
} rp_unit_run;

typedef struct rp_unit_batch rp_unit_batch;

/* `is_extended`: the units get extensions (consume_queue_ext.h). NULL with errno. */
rp_unit_batch *rp_unit_batch_open(rp_control_block *block, int is_extended);
void rp_unit_batch_close(rp_unit_batch *batch);
/* The end of the queue's units, including those of this batch: *offset after the last unit, *phy_offset after its
 * record. Returns 1 if the batch holds some. */
int rp_unit_batch_end(const rp_unit_batch *batch, const rp_queue *queue, uint64_t *offset, uint64_t *phy_offset);
/* Room for the queue's unit at `offset`, which must follow the queue's last unit in the batch, if any; its record ends
 * at `max_phy_offset`. `extension` is copied if the batch is extended. NULL: the batch is full. */
uint8_t *rp_unit_batch_add(rp_unit_batch *batch, rp_queue *queue, uint64_t offset, uint64_t max_phy_offset,
                           const rp_cq_extension *extension);
uint32_t rp_unit_batch_runs(const rp_unit_batch *batch);
/* 1 while the queues have so few units each that collecting more is worthwhile. */
int rp_unit_batch_is_thin(const rp_unit_batch *batch);
/* Write the units of one run (below rp_unit_batch_runs), with extensions if the batch is extended; *plain is increased
 * by the units whose extensions cannot be written. Returns as rp_cq_write. */
rp_status rp_unit_batch_write(rp_unit_batch *batch, uint32_t run, rp_cq_writer *writer, rp_cq_ext_writer *ext,
                              uint64_t *plain);
const rp_unit_run *rp_unit_batch_run(const rp_unit_batch *batch, uint32_t run);
/* Begin the next batch. */
void rp_unit_batch_clear(rp_unit_batch *batch);
#endif
