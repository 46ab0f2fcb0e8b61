/* A queue that grows while it is read: whatever moment a look falls on, each message is found, and none passed over.
 * driver_fetch_threads [MESSAGES]
 *
 * Fault: A pull that read a growing queue in steps took the newest messages for damaged units and skipped them. */
#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>
#include "base/atomic.h"
#include "base/endian.h"
#include "store/control/control_block.h"
#include "store/queues/consume_queue.h"
#include "workers/pull/fetch.h"
#include "check.h"
#include "directory.h"

enum {
    UNIT = RP_CQ_UNIT_SIZE,
    UNITS_PER_FILE = 1 << 20,
    LOG_FILE_SIZE = 1 << 30,
    SIZE = 100,
    MAX = 1000,
    PAUSE_US = 60 /* what comes meanwhile takes several reads */
};
static const uint8_t T[] = "T";

struct test {
    rp_control *control;
    rp_queue *queue;
    rp_cq_writer *writer;
    uint64_t messages;
};

/* As the send and store workers do, one message at a time. */
static void *grow(void *argument) {
    struct test *test = argument;
    for (uint64_t i = 0; i < test->messages; i++) {
        uint8_t unit[UNIT] = {0};
        rp_store64(unit, i * SIZE);
        rp_store32(unit + 8, SIZE);
        rp_store64(unit + 12, T[0]); /* the hash of its tag */
        rp_store_release(&test->control->published_phy_offset, (i + 1) * SIZE);
        CHECK(rp_cq_write(test->writer, test->queue, i, 1, unit) == RP_OK);
        rp_store_release(&test->queue->max_offset, i + 1);
    }
    return NULL;
}

int main(int argc, char **argv) {
    char root[DIRECTORY_SIZE], path[PATH_SIZE], queues[PATH_SIZE];
    struct test test = {.messages = argc > 1 ? strtoull(argv[1], NULL, 10) : 500000};
    rp_fetch_limits limits = {.bytes_in_memory = 1 << 20,
                              .count_in_memory = MAX,
                              .slices_on_disk = RP_SLICES_MAX,
                              .memory_bytes = LOG_FILE_SIZE};
    rp_tags tags;
    int32_t hashes[RP_TAGS_MAX];
    pthread_t grower;
    make_directory(root, "fetch-threads");
    path_in(path, root, "control");
    path_in(queues, root, "queues");
    rp_control_block *block = rp_control_open(path, LOG_FILE_SIZE);
    CHECK(block && rp_tags_parse(T, 1, hashes, &tags) == RP_OK && test.messages < UNITS_PER_FILE);
    test.control = rp_control_header(block);
    test.queue = rp_control_add(block, T, 1, 0);
    test.writer = rp_cq_writer_open(block, queues, UNITS_PER_FILE * UNIT, 4);
    rp_cq_reader *reader = rp_cq_reader_open(block, queues, UNITS_PER_FILE * UNIT, 4);
    CHECK(test.queue && test.writer && reader);
    CHECK(pthread_create(&grower, NULL, grow, &test) == 0);
    for (uint64_t offset = 0; offset < test.messages;) {
        rp_fetch fetch;
        rp_fetch_messages(reader, &(rp_selection){0}, test.control, test.queue, (int64_t)offset, MAX, &tags, &limits,
                          &fetch);
        if (fetch.status != RP_FOUND && fetch.next_begin_offset == offset) continue; /* its end, for the moment */
        usleep(PAUSE_US);
        CHECK(fetch.status == RP_FOUND && fetch.next_begin_offset == offset + fetch.message_count);
        offset = fetch.next_begin_offset;
    }
    CHECK(pthread_join(grower, NULL) == 0);
    rp_cq_close(reader);
    rp_cq_close(test.writer);
    rp_control_close(block);
    remove_directory(root);
    return 0;
}
