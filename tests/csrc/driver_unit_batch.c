/* Units gathered by queue: what is written is what was added, in its place; a batch is thin, full and empty when it
 * should be. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/endian.h"
#include "store/dispatch/unit_batch.h"
#include "check.h"
#include "directory.h"

enum { FILE_SIZE = 2000 };

static void fill(uint8_t *unit, uint32_t queue_id, uint64_t offset) {
    rp_store64(unit, queue_id);
    rp_store32(unit + 8, 77);
    rp_store64(unit + 12, offset);
}

static void add(rp_unit_batch *batch, rp_queue *queue, uint64_t offset) {
    uint8_t *unit = rp_unit_batch_add(batch, queue, offset, offset * 100 + 1, NULL);
    CHECK(unit);
    fill(unit, queue->queue_id, offset);
}

/* Write and show every run; the queue's end moves to behind it. */
static void write_all(rp_unit_batch *batch, rp_cq_writer *writer) {
    for (uint32_t i = 0; i < rp_unit_batch_runs(batch); i++) {
        const rp_unit_run *run = rp_unit_batch_run(batch, i);
        CHECK(rp_unit_batch_write(batch, i, writer, NULL, NULL) == RP_OK);
        CHECK(run->offset == run->queue->max_offset);
        run->queue->max_offset = run->offset + run->count;
    }
    rp_unit_batch_clear(batch);
    CHECK(rp_unit_batch_runs(batch) == 0 && !rp_unit_batch_is_thin(batch));
}

static void check_queue(rp_cq_reader *reader, const rp_queue *queue) {
    uint8_t unit[RP_CQ_UNIT_SIZE], expected[RP_CQ_UNIT_SIZE];
    for (uint64_t offset = 0; offset < queue->max_offset; offset++) {
        CHECK(rp_cq_read(reader, queue, offset, 1, unit) == 1);
        fill(expected, queue->queue_id, offset);
        CHECK(!memcmp(unit, expected, sizeof unit));
    }
}

/* Runs of every length, across files and across what is gathered for one write. */
static void check_lengths(rp_control_block *block, const char *directory) {
    static const uint32_t COUNTS[] = {1, 7, 8, 9, 16, 99, 100, 101, 1023, 1024, 1025, 2048, 5000};
    enum { LENGTHS = sizeof COUNTS / sizeof *COUNTS };
    rp_unit_batch *batch = rp_unit_batch_open(block, 0);
    rp_cq_writer *writer = rp_cq_writer_open(block, directory, FILE_SIZE, 8);
    rp_cq_reader *reader = rp_cq_reader_open(block, directory, FILE_SIZE, 8);
    rp_queue *queues[LENGTHS];
    CHECK(batch && writer && reader);
    for (uint32_t i = 0; i < LENGTHS; i++) CHECK(queues[i] = rp_control_add(block, (const uint8_t *)"L", 1, i));
    for (int round = 0; round < 2; round++) {
        for (uint32_t n = 0; n < COUNTS[LENGTHS - 1]; n++)
            for (uint32_t i = 0; i < LENGTHS; i++) {
                uint64_t offset, phy_offset;
                if (n >= COUNTS[i]) continue;
                CHECK(rp_unit_batch_end(batch, queues[i], &offset, &phy_offset) == (n > 0));
                CHECK(offset == queues[i]->max_offset + n && (!n || phy_offset == (offset - 1) * 100 + 1));
                add(batch, queues[i], offset);
            }
        CHECK(!rp_unit_batch_is_thin(batch)); /* few queues */
        write_all(batch, writer);
    }
    for (uint32_t i = 0; i < LENGTHS; i++) {
        CHECK(queues[i]->max_offset == 2ull * COUNTS[i]);
        check_queue(reader, queues[i]);
    }
    rp_unit_batch_close(batch);
    rp_cq_close(writer);
    rp_cq_close(reader);
}

/* As many queues as a batch takes; then as many units. Nothing is written. */
static void check_bounds(rp_control_block *block) {
    rp_unit_batch *batch = rp_unit_batch_open(block, 0);
    uint32_t queues = RP_UNIT_RUNS_MAX + 1, units = 0;
    CHECK(batch);
    for (uint32_t i = 0; i < queues; i++) CHECK(rp_control_add(block, (const uint8_t *)"M", 1, i));
    uint32_t first = rp_control_queue_index(block, rp_control_find(block, (const uint8_t *)"M", 1, 0));
    for (int life = 0; life < 2; life++) {
        for (uint32_t i = 0; i < RP_UNIT_RUNS_MAX; i++) {
            CHECK(rp_unit_batch_is_thin(batch) == (i > 1024));
            add(batch, rp_control_queue(block, first + i), 0);
        }
        CHECK(!rp_unit_batch_add(batch, rp_control_queue(block, first + RP_UNIT_RUNS_MAX), 0, 1, NULL));
        for (units = 1; rp_unit_batch_is_thin(batch); units++)
            for (uint32_t i = 0; i < RP_UNIT_RUNS_MAX; i++) add(batch, rp_control_queue(block, first + i), units);
        CHECK(units == 8);
        uint32_t more = 0;
        while (rp_unit_batch_add(batch, rp_control_queue(block, first + more % RP_UNIT_RUNS_MAX),
                                 units + more / RP_UNIT_RUNS_MAX, 1, 0))
            more++;
        CHECK(more == 8 * RP_UNIT_RUNS_MAX); /* two pieces each; the first that needed a third found none */
        CHECK(rp_unit_batch_run(batch, 0)->count == 16 && rp_unit_batch_runs(batch) == RP_UNIT_RUNS_MAX);
        rp_unit_batch_clear(batch);
    }
    rp_unit_batch_close(batch);
}

int main(void) {
    char root[DIRECTORY_SIZE], path[PATH_SIZE];
    make_directory(root, "unit-batch");
    path_in(path, root, "control");
    rp_control_block *block = rp_control_open(path, 1 << 20);
    CHECK(block);
    snprintf(path, sizeof path, "%s/queues", root);
    check_lengths(block, path);
    check_bounds(block);
    rp_control_close(block);
    remove_directory(root);
    return 0;
}
