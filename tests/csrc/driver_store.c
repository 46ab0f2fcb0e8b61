/* Exercises the store's C under sanitizers: append with rolls, a torn tail, dispatch with restart in between, units,
 * index, views that outlive their files, queues that are dropped, and a flush thread beside the dispatching one.
 * driver_store            the checks
 * driver_store N [SIZE [EXT]]  dispatch N records of SIZE body bytes and print the rate; EXT 1: with extension units */
#define _GNU_SOURCE
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/atomic.h"
#include "base/endian.h"
#include "store/control/control_block.h"
#include "store/dispatch/dispatch.h"
#include "store/log/commitlog.h"
#include "store/log/log_view.h"
#include "store/log/record.h"
#include "store/queues/consume_queue.h"
#include "store/queues/consume_queue_ext.h"
#include "check.h"
#include "directory.h"
#include "store.h"

static void dispatch_all(struct store *store) {
    rp_status status;
    while ((status = rp_dispatch_run(store->dispatch, 4096)) == RP_OK) {
    }
    CHECK(status == RP_EMPTY);
}

/* Every unit of the queue names a record that knows its own place. */
static void check_queue(struct store *store, const char *topic, uint32_t queue_id, uint64_t min, uint64_t max) {
    uint8_t units[64 * RP_CQ_UNIT_SIZE];
    rp_queue *queue = rp_control_find(store->block, (const uint8_t *)topic, (uint32_t)strlen(topic), queue_id);
    CHECK(queue && queue->min_offset == min && queue->max_offset == max);
    rp_cq_reader *reader = rp_cq_reader_open(store->block, store->queues, store->queue_file_size, 8);
    rp_cq_ext *ext = rp_cq_ext_open(store->block, store->queues, store->ext_file_size);
    rp_log_view *view = rp_log_view_open(store->log, store->file_size, 2);
    CHECK(reader && ext && view);
    for (uint64_t at = min; at < max;) {
        int32_t count = rp_cq_read(reader, queue, at, 64, units);
        CHECK(count > 0);
        for (int32_t i = 0; i < count; i++, at++) {
            uint64_t phy_offset = rp_load64(units + i * RP_CQ_UNIT_SIZE);
            uint32_t size = rp_load32(units + i * RP_CQ_UNIT_SIZE + 8);
            int64_t code = (int64_t)rp_load64(units + i * RP_CQ_UNIT_SIZE + 12);
            rp_cq_ext_unit unit;
            rp_record_view record;
            CHECK(rp_cq_ext_is_address(code) == (int)store->is_extended);
            CHECK(rp_cq_ext_read(ext, queue, code, &unit) == (store->is_extended ? RP_OK : RP_NOT_FOUND));
            CHECK(!store->is_extended || unit.store_timestamp_ms == 1700000000000);
            const uint8_t *image = rp_log_view_acquire(view, phy_offset, size);
            CHECK(image && rp_record_decode(image, size, 1, &record) == RP_OK);
            CHECK(record.queue_offset == at && record.phy_offset == phy_offset && record.size == size);
            rp_log_view_release(view, phy_offset);
        }
    }
    CHECK(rp_cq_read(reader, queue, max, 1, units) == 0);
    rp_log_view_close(view);
    rp_cq_ext_close(ext);
    rp_cq_close(reader);
}

static void *keep_syncing(void *argument) {
    struct store *store = argument;
    for (int i = 0; i < 5; i++) CHECK(rp_dispatch_sync(store->dispatch) == RP_OK);
    return NULL;
}

static void check_append_and_dispatch(uint32_t is_extended) {
    struct store store;
    pthread_t flusher;
    make_store(&store, "dispatch", 65536);
    store.is_extended = is_extended;
    open_store(&store);
    for (int i = 0; i < 300; i++) {
        put(&store, "TopicA", (uint32_t)i % 3, "KEYS\001a b  c\002UNIQ_KEY\001u\002TAGS\001TagA",
            (uint32_t)i * 7 % 900);
        if (i % 50 == 0) dispatch_all(&store);
    }
    CHECK(pthread_create(&flusher, NULL, keep_syncing, &store) == 0);
    for (int i = 0; i < 100; i++) put(&store, "TopicB", 0, "", 100);
    dispatch_all(&store);
    pthread_join(flusher, NULL);
    for (uint32_t i = 0; i < 3; i++) check_queue(&store, "TopicA", i, 0, 100);
    check_queue(&store, "TopicB", 0, 0, 100);
    CHECK(rp_dispatch_sync(store.dispatch) == RP_OK && rp_dispatch_sync_index(store.dispatch) == RP_OK);
    rp_control *control = rp_control_header(store.block);
    CHECK(control->units_durable_phy_offset == control->published_phy_offset);
    close_store(&store);

    open_store(&store); /* all again from the start: nothing may change */
    rp_control_header(store.block)->dispatched_phy_offset = 0;
    dispatch_all(&store);
    for (uint32_t i = 0; i < 3; i++) check_queue(&store, "TopicA", i, 0, 100);
    rp_dispatch_counts counts;
    rp_dispatch_read_counts(store.dispatch, &counts);
    CHECK(counts.units == 0 && counts.records == 400);
    close_store(&store);
    remove_store(&store);
}

static void check_torn_tail(void) {
    struct store store;
    uint8_t *at;
    uint64_t phy_offset;
    make_store(&store, "torn", 65536);
    open_store(&store);
    put(&store, "T", 0, "", 10);
    CHECK(rp_commitlog_reserve(store.writer, 60000, &at, &phy_offset) == RP_OK);
    memset(at, 0xAB, 60000); /* never published */
    CHECK(rp_commitlog_reserve(store.writer, 65536 - 7, &at, &phy_offset) == RP_TOO_LARGE);
    close_store(&store);
    open_store(&store);
    uint64_t published = rp_control_header(store.block)->published_phy_offset;
    rp_log_view *view = rp_log_view_open(store.log, store.file_size, 1);
    const uint8_t *tail = rp_log_view_acquire(view, published, 65536 - published);
    for (uint64_t i = 0; i < 65536 - published; i++) CHECK(tail[i] == 0);
    /* exactly filling: L + 8 fits, one more does not */
    uint32_t rest = (uint32_t)(65536 - published);
    CHECK(rp_commitlog_reserve(store.writer, rest - 8, &at, &phy_offset) == RP_OK && phy_offset == published);
    CHECK(rp_commitlog_reserve(store.writer, rest - 7, &at, &phy_offset) == RP_OK && phy_offset == 65536);
    CHECK(rp_load32(tail) == rest && rp_load32(tail + 4) == (uint32_t)RP_BLANK_MAGIC);
    CHECK(rp_control_header(store.block)->published_phy_offset == 65536);
    CHECK(rp_log_view_acquire(view, 0, 65537) == NULL && rp_log_view_acquire(view, 1 << 30, 1) == NULL);
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%020d", store.log, 0);
    CHECK(unlink(path) == 0);
    rp_log_view_trim(view, 65536);
    CHECK(rp_load32(tail) == rest); /* held: still there */
    rp_log_view_release(view, published);
    rp_log_view_trim(view, 65536);
    CHECK(rp_log_view_acquire(view, 0, 1) == NULL);
    rp_log_view_close(view);
    close_store(&store);
    remove_store(&store);
}

/* A queue whose units are lost or whose offsets start over. */
static void check_bridges(void) {
    struct store store;
    make_store(&store, "bridges", 65536);
    open_store(&store);
    rp_queue *queue = rp_control_add(store.block, (const uint8_t *)"T", 1, 7);
    queue->next_offset = 60; /* middle of the second file */
    put(&store, "T", 7, "", 1);
    dispatch_all(&store);
    check_queue(&store, "T", 7, 60, 61);
    char path[PATH_MAX + 64];
    struct stat info;
    snprintf(path, sizeof path, "%s/T/7/%020d", store.queues, 1000);
    CHECK(stat(path, &info) == 0 && info.st_size == 1000);
    queue->next_offset = 70; /* a hole in the file */
    put(&store, "T", 7, "", 1);
    dispatch_all(&store);
    CHECK(queue->min_offset == 60 && queue->max_offset == 71);
    queue->next_offset = 0; /* another life */
    for (int i = 0; i < 3; i++) put(&store, "T", 7, "", 1);
    dispatch_all(&store);
    check_queue(&store, "T", 7, 0, 3);
    CHECK(stat(path, &info) < 0);
    rp_dispatch_counts counts;
    rp_dispatch_read_counts(store.dispatch, &counts);
    CHECK(counts.resets == 1);
    CHECK(rp_dispatch_drop_queue(store.dispatch, queue) == RP_OK && queue->max_offset == 0);
    CHECK(rp_control_add(store.block, (const uint8_t *)"../x", 4, 0) == NULL);
    close_store(&store);
    remove_store(&store);
}

/* Messages that are lost where one queue file ends and another begins: the others stay. Afterwards a worker that dies
 * before it shows their units. */
static void check_gaps_between_files(void) {
    enum { FIRST = 45, LOST = 3 * 50 + 7 };
    struct store store;
    rp_dispatch_counts counts;
    make_store(&store, "gaps", 65536);
    open_store(&store);
    for (int i = 0; i < FIRST; i++) put(&store, "T", 0, "", 1);
    dispatch_all(&store);
    rp_queue *queue = rp_control_find(store.block, (const uint8_t *)"T", 1, 0);
    uint64_t before = rp_control_header(store.block)->dispatched_phy_offset, phy_end = queue->max_phy_offset;
    queue->next_offset += LOST;
    put(&store, "Other", 0, "", LOST * RP_RECORD_SIZE_MIN); /* the log had room for them */
    put(&store, "T", 0, "", 1);
    dispatch_all(&store);
    CHECK(queue->min_offset == 0 && queue->max_offset == FIRST + LOST + 1);
    rp_dispatch_read_counts(store.dispatch, &counts);
    CHECK(counts.resets == 0 && counts.units == FIRST + 2);
    rp_cq_reader *reader = rp_cq_reader_open(store.block, store.queues, store.queue_file_size, 8);
    uint32_t blanks = 0;
    for (uint64_t at = 0; at < queue->max_offset; at++) {
        uint8_t unit[RP_CQ_UNIT_SIZE];
        CHECK(rp_cq_read(reader, queue, at, 1, unit) == 1);
        CHECK((rp_load32(unit + 8) == INT32_MAX) == (at >= FIRST && at < FIRST + LOST));
        blanks += rp_load32(unit + 8) == INT32_MAX;
    }
    CHECK(blanks == LOST);
    rp_cq_close(reader);
    queue->max_offset = FIRST; /* written, but not shown */
    rp_control_header(store.block)->dispatched_phy_offset = before;
    dispatch_all(&store);
    CHECK(queue->max_offset == FIRST + LOST + 1);
    queue->max_offset = FIRST; /* neither */
    queue->max_phy_offset = phy_end;
    rp_control_header(store.block)->dispatched_phy_offset = before;
    dispatch_all(&store);
    CHECK(queue->max_offset == FIRST + LOST + 1 && queue->min_offset == 0);
    queue->next_offset = 100000; /* the log had no room for so many: an offset that no broker gives */
    put(&store, "T", 0, "", 1);
    dispatch_all(&store);
    check_queue(&store, "T", 0, 100000, 100001);
    close_store(&store);
    remove_store(&store);
}

static void measure(uint32_t records, uint32_t body_size, uint32_t is_extended) {
    struct store store;
    struct timespec t[3];
    char properties[128];
    make_store(&store, "rate", 1ull << 30);
    store.queue_file_size = 6000000;
    store.ext_file_size = 50331648;
    store.slot_num = 5000000;
    store.index_num = 20000000;
    store.is_extended = is_extended;
    open_store(&store);
    clock_gettime(CLOCK_MONOTONIC, &t[0]);
    for (uint32_t i = 0; i < records; i++) {
        snprintf(properties, sizeof properties,
                 "UNIQ_KEY\0010A00000100002A9F%016" PRIX64 "\002CLUSTER\001DefaultCluster\002TAGS\001TagA",
                 (uint64_t)i);
        put(&store, "TopicTest", i % 8, properties, body_size);
    }
    clock_gettime(CLOCK_MONOTONIC, &t[1]);
    while (rp_dispatch_run(store.dispatch, 1 << 20) == RP_OK) {
    }
    clock_gettime(CLOCK_MONOTONIC, &t[2]);
    for (int i = 0; i < 2; i++) {
        double s = (double)(t[i + 1].tv_sec - t[i].tv_sec) + (double)(t[i + 1].tv_nsec - t[i].tv_nsec) / 1e9;
        printf("%s: %.0f records/s\n", i ? "dispatch with index" : "append", records / s);
    }
    check_queue(&store, "TopicTest", 0, 0, (records + 7) / 8);
    close_store(&store);
    remove_store(&store);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        measure((uint32_t)strtoul(argv[1], NULL, 10), argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1024,
                argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0);
        return 0;
    }
    check_append_and_dispatch(0);
    check_append_and_dispatch(1);
    check_torn_tail();
    check_bridges();
    check_gaps_between_files();
    puts("driver_store: ok");
    return 0;
}
