/* Dispatch over a damaged log: it comes to the end, every unit names its record, and doing it again changes nothing.
 * Input: HEAD, then the log.
 *
 *   0  1 index, 2 dispatch again from the start in the middle of it, 4 the index starts with what lies at 12
 *   1  files that are missing (bits)   2  published   4  budget   6  min phy offset   8  max offset of T/0   10  its
 * end
 *
 * Fault: A damaged queue offset of 2^58 or more reset a queue's next offset and wrapped file names. */
#define _GNU_SOURCE
#include "store/control/control_block.h"
#include "store/dispatch/dispatch.h"
#include "store/log/log_view.h"
#include "store/queues/consume_queue.h"
#include "fuzz_store.h"

enum { UNIT = RP_CQ_UNIT_SIZE, QUEUE_FILE_SIZE = 20 * UNIT, SLOTS = 504, UNITS = 102 };

static rp_dispatch *open_dispatch(rp_control_block *block, const fuzz_paths *here, const uint8_t *data) {
    static const int64_t delays[] = {1000, 5000, 10000};
    rp_dispatch_config config = {.commitlog_directory = here->log,
                                 .consume_queue_directory = here->queues,
                                 .index_directory = here->index,
                                 .consume_queue_file_size = QUEUE_FILE_SIZE,
                                 .consume_queue_files_max = 16,
                                 .index_enable = data[0] & 1,
                                 .hash_slot_num = SLOTS,
                                 .index_num = UNITS,
                                 .delay_level_count = 3,
                                 .delay_level_ms = delays};
    rp_dispatch *dispatch = rp_dispatch_open(block, &config);
    CHECK(dispatch);
    return dispatch;
}

static void run_to_end(rp_dispatch *dispatch, const rp_control *control, uint64_t budget) {
    uint64_t before = control->dispatched_phy_offset;
    for (;;) {
        rp_status status = rp_dispatch_run(dispatch, budget);
        if (status == RP_EMPTY) break;
        CHECK(status == RP_OK || status == RP_CORRUPT || status == RP_NOT_FOUND);
        if (status != RP_OK) CHECK(rp_dispatch_skip(dispatch) > 0);
        CHECK(control->dispatched_phy_offset > before);
        before = control->dispatched_phy_offset;
    }
}

static void check_unit(rp_control_block *block, rp_log_view *view, const rp_queue *queue, uint64_t offset,
                       const uint8_t *unit) {
    uint64_t phy_offset = rp_load64(unit);
    uint32_t size = rp_load32(unit + 8);
    const uint8_t *name;
    rp_record_view record;
    if (size == INT32_MAX) return;
    CHECK(phy_offset + size <= rp_control_header(block)->published_phy_offset &&
          phy_offset + size <= queue->max_phy_offset);
    const uint8_t *image = rp_log_view_acquire(view, phy_offset, size);
    CHECK(image && rp_record_decode(image, size, 0, &record) == RP_OK);
    CHECK(record.queue_offset == offset && (uint32_t)record.queue_id == queue->queue_id);
    CHECK(rp_control_topic(block, queue->topic, &name) == record.topic_size &&
          memcmp(name, record.topic, record.topic_size) == 0);
    rp_log_view_release(view, phy_offset);
}

static void check_queues(rp_control_block *block, const fuzz_paths *here, const rp_queue *but) {
    uint8_t unit[UNIT];
    rp_cq_reader *reader = rp_cq_reader_open(block, here->queues, QUEUE_FILE_SIZE, 4);
    rp_log_view *view = rp_log_view_open(here->log, LOG_FILE_SIZE, 2);
    CHECK(reader && view);
    for (uint32_t i = 0; i < rp_control_header(block)->queue_count; i++) {
        const rp_queue *queue = rp_control_queue(block, i);
        CHECK(queue->max_offset == 0 || queue->min_offset <= queue->max_offset);
        if (queue == but) continue; /* claims units that it never had */
        uint64_t from = queue->max_offset > 100 && queue->max_offset - 100 > queue->min_offset ? queue->max_offset - 100
                                                                                               : queue->min_offset;
        for (uint64_t at = from; at < queue->max_offset; at++) {
            CHECK(rp_cq_read(reader, queue, at, 1, unit) == 1);
            check_unit(block, view, queue, at, unit);
        }
    }
    rp_log_view_close(view);
    rp_cq_close(reader);
}

static void forget_queues(rp_control_block *block) {
    if (rp_control_header(block)->queue_count > 200) CHECK(rp_control_reset(block) == RP_OK);
    for (uint32_t i = 0; i < rp_control_header(block)->queue_count; i++) {
        rp_queue *queue = rp_control_queue(block, i);
        queue->max_offset = queue->min_offset = queue->max_phy_offset = queue->next_offset = 0;
    }
}

static void put_index(const fuzz_paths *here, const uint8_t *data) {
    remove_tree(here->index);
    CHECK(mkdir(here->index, 0755) == 0);
    if (!(data[0] & 4)) return;
    uint8_t header[40] = {0};
    memcpy(header + 24, data + 12, 2); /* end offset */
    memcpy(header + 38, data + 14, 2); /* count */
    char directory[PATH_MAX];
    snprintf(directory, sizeof directory, "%s/20200101000000000", here->index);
    int fd = open(directory, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    CHECK(fd >= 0 && write(fd, header, sizeof header) == sizeof header);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static rp_control_block *block;
    const fuzz_paths *here = fuzz_here();
    if (size < HEAD) return 0;
    if (!block) CHECK(block = rp_control_open(here->control, LOG_FILE_SIZE));
    rp_control *control = rp_control_header(block);
    forget_queues(block);
    remove_tree(here->queues);
    CHECK(mkdir(here->queues, 0755) == 0);
    put_index(here, data);
    uint64_t log_size = put_log(here->log, data + HEAD, size - HEAD, data[1] & 6);
    control->published_phy_offset = head16(data, 2) && head16(data, 2) < log_size ? head16(data, 2) : log_size;
    control->min_phy_offset = head16(data, 6) <= control->published_phy_offset ? head16(data, 6) : 0;
    control->dispatched_phy_offset = 0;
    uint64_t budget = head16(data, 4) ? head16(data, 4) : 1ull << 40;
    rp_queue *claims = NULL;
    if (head16(data, 8)) {
        CHECK(claims = rp_control_add(block, (const uint8_t *)"T", 1, 0));
        claims->max_offset = head16(data, 8);
        claims->max_phy_offset = head16(data, 10) < control->published_phy_offset ? head16(data, 10) : 0;
    }
    rp_dispatch *dispatch = open_dispatch(block, here, data);
    if (data[0] & 2) rp_dispatch_run(dispatch, 1);
    control->dispatched_phy_offset = 0;
    run_to_end(dispatch, control, budget);
    CHECK(control->dispatched_phy_offset >= control->published_phy_offset ||
          control->min_phy_offset == control->published_phy_offset);
    check_queues(block, here, claims);
    CHECK(rp_dispatch_sync(dispatch) == RP_OK && rp_dispatch_sync_index(dispatch) == RP_OK);
    rp_dispatch_close(dispatch);

    rp_queue before[8], *queues = rp_control_queue(block, 0);
    uint32_t count = control->queue_count < 8 ? control->queue_count : 8;
    memcpy(before, queues, count * sizeof *before);
    control->dispatched_phy_offset = 0;
    dispatch = open_dispatch(block, here, data);
    run_to_end(dispatch, control, 1ull << 40);
    for (uint32_t i = 0; i < count; i++)
        CHECK(before[i].max_offset == queues[i].max_offset && before[i].min_offset == queues[i].min_offset &&
              before[i].max_phy_offset == queues[i].max_phy_offset);
    rp_dispatch_close(dispatch);
    check_queues(block, here, claims);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    return mutate_log(data, size, max_size, seed, HEAD);
}
