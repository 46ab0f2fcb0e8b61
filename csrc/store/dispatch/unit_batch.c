/* See unit_batch.h. Units are in pieces of a pool, with a list of pieces for each queue of the batch:
 *
 *   run_of[queue] -> run {queue, offset, count} -> piece (8 units) -> piece -> ...
 *
 * If there are more queues than descriptors, each queue's file is opened once per batch, and an open costs several
 * times a write. So a batch with many queues and few units of each is called thin, and dispatch goes on collecting
 * while more of the log is published. A batch never waits for messages.
 *
 * The pool is reserved at open, and its pages are touched only as far as batches need; the pages of a large batch are
 * released. */
#define _GNU_SOURCE
#include "store/dispatch/unit_batch.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "base/shared.h"

enum {
    PIECE_UNITS = 8,
    PIECES = 2 * RP_UNIT_RUNS_MAX, /* 43 MB when all are in use: 2 million units */
    THIN_RUNS = 1024,              /* with fewer queues, files stay open and each write takes many units */
    THIN_UNITS = PIECE_UNITS,      /* per queue */
    GATHER_UNITS = 1024,
    KEEP_PIECES = 8192,            /* 1.3 MB */
    NONE = 0
};

struct piece {
    uint32_t next; /* + 1 */
    uint8_t units[PIECE_UNITS * RP_CQ_UNIT_SIZE];
};

struct extensions {
    rp_cq_extension of[PIECE_UNITS];
};

struct rp_unit_batch {
    rp_control_block *block;
    uint32_t *run_of; /* by queue: its run + 1 */
    rp_unit_run *runs;
    struct piece *pieces;
    struct extensions *extensions; /* of each piece's units; NULL unless extended */
    uint32_t run_count;
    uint32_t piece_count;
    uint64_t unit_count;
    uint8_t gathered[GATHER_UNITS * RP_CQ_UNIT_SIZE];
    rp_cq_extension *gathered_extensions; /* GATHER_UNITS; NULL unless extended */
};

rp_unit_batch *rp_unit_batch_open(rp_control_block *block, int is_extended) {
    rp_unit_batch *batch = calloc(1, sizeof *batch);
    if (!batch) return NULL;
    batch->block = block;
    batch->run_of = rp_private_create(RP_CONTROL_QUEUES_MAX * sizeof *batch->run_of);
    batch->runs = rp_private_create(RP_UNIT_RUNS_MAX * sizeof *batch->runs);
    batch->pieces = rp_private_create(PIECES * sizeof *batch->pieces);
    if (is_extended) {
        batch->extensions = rp_private_create(PIECES * sizeof *batch->extensions);
        batch->gathered_extensions = malloc(GATHER_UNITS * sizeof *batch->gathered_extensions);
    }
    if (batch->run_of && batch->runs && batch->pieces &&
        (!is_extended || (batch->extensions && batch->gathered_extensions)))
        return batch;
    rp_unit_batch_close(batch);
    errno = ENOMEM;
    return NULL;
}

void rp_unit_batch_close(rp_unit_batch *batch) {
    if (!batch) return;
    if (batch->run_of) munmap(batch->run_of, RP_CONTROL_QUEUES_MAX * sizeof *batch->run_of);
    if (batch->runs) munmap(batch->runs, RP_UNIT_RUNS_MAX * sizeof *batch->runs);
    if (batch->pieces) munmap(batch->pieces, PIECES * sizeof *batch->pieces);
    if (batch->extensions) munmap(batch->extensions, PIECES * sizeof *batch->extensions);
    free(batch->gathered_extensions);
    free(batch);
}

int rp_unit_batch_end(const rp_unit_batch *batch, const rp_queue *queue, uint64_t *offset, uint64_t *phy_offset) {
    uint32_t at = batch->run_of[rp_control_queue_index(batch->block, queue)];
    const rp_unit_run *run = &batch->runs[at ? at - 1 : 0];
    *offset = at ? run->offset + run->count : queue->max_offset;
    *phy_offset = at ? run->max_phy_offset : queue->max_phy_offset;
    return at != NONE;
}

uint8_t *rp_unit_batch_add(rp_unit_batch *batch, rp_queue *queue, uint64_t offset, uint64_t max_phy_offset,
                           const rp_cq_extension *extension) {
    uint32_t *at = &batch->run_of[rp_control_queue_index(batch->block, queue)];
    rp_unit_run *run = &batch->runs[*at ? *at - 1 : batch->run_count];
    uint32_t place = *at ? run->count % PIECE_UNITS : 0;
    if (place == 0 && batch->piece_count == PIECES) return NULL;
    if (*at == NONE) {
        if (batch->run_count == RP_UNIT_RUNS_MAX) return NULL;
        *run = (rp_unit_run){.queue = queue, .offset = offset};
        *at = ++batch->run_count;
    }
    if (place == 0) {
        uint32_t piece = batch->piece_count++;
        batch->pieces[piece].next = NONE;
        if (run->count)
            batch->pieces[run->last].next = piece + 1;
        else
            run->first = piece;
        run->last = piece;
    }
    run->count++;
    run->max_phy_offset = max_phy_offset;
    batch->unit_count++;
    if (batch->extensions) batch->extensions[run->last].of[place] = *extension;
    return batch->pieces[run->last].units + place * RP_CQ_UNIT_SIZE;
}

uint32_t rp_unit_batch_runs(const rp_unit_batch *batch) { return batch->run_count; }
const rp_unit_run *rp_unit_batch_run(const rp_unit_batch *batch, uint32_t run) { return &batch->runs[run]; }

int rp_unit_batch_is_thin(const rp_unit_batch *batch) {
    return batch->run_count > THIN_RUNS && batch->unit_count < (uint64_t)batch->run_count * THIN_UNITS;
}

rp_status rp_unit_batch_write(rp_unit_batch *batch, uint32_t number, rp_cq_writer *writer, rp_cq_ext_writer *ext,
                              uint64_t *plain) {
    const rp_unit_run *run = &batch->runs[number];
    uint32_t done = 0, gathered = 0, at = run->first;
    rp_status status = RP_OK;
    while (done + gathered < run->count && status == RP_OK) {
        uint32_t left = run->count - done - gathered, count = left < PIECE_UNITS ? left : PIECE_UNITS;
        memcpy(batch->gathered + gathered * RP_CQ_UNIT_SIZE, batch->pieces[at].units, count * RP_CQ_UNIT_SIZE);
        if (batch->extensions)
            memcpy(batch->gathered_extensions + gathered, &batch->extensions[at],
                   count * sizeof *batch->gathered_extensions);
        at = batch->pieces[at].next - 1;
        gathered += count;
        if (gathered < GATHER_UNITS && count < left) continue;
        if (batch->extensions && ext)
            *plain += rp_cq_ext_extend(ext, run->queue, gathered, batch->gathered, batch->gathered_extensions);
        status = rp_cq_write(writer, run->queue, run->offset + done, gathered, batch->gathered);
        done += gathered;
        gathered = 0;
    }
    return status;
}

void rp_unit_batch_clear(rp_unit_batch *batch) {
    for (uint32_t i = 0; i < batch->run_count; i++)
        batch->run_of[rp_control_queue_index(batch->block, batch->runs[i].queue)] = NONE;
    if (batch->piece_count > KEEP_PIECES) {
        madvise(batch->runs, RP_UNIT_RUNS_MAX * sizeof *batch->runs, MADV_DONTNEED);
        madvise(batch->pieces, PIECES * sizeof *batch->pieces, MADV_DONTNEED);
        if (batch->extensions) madvise(batch->extensions, PIECES * sizeof *batch->extensions, MADV_DONTNEED);
    }
    batch->run_count = batch->piece_count = 0;
    batch->unit_count = 0;
}
