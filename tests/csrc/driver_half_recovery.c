/* What a start finds of transactions, under sanitizers: random stores against a plain model, some of them cut before an
 * op message; then the same stores with damaged bytes in log, queues and control block.   driver_half_recovery */
#define _GNU_SOURCE
#include <sys/mman.h>
#include "base/shared.h"
#include "store/control/control_block.h"
#include "store/dispatch/dispatch.h"
#include "store/log/commitlog.h"
#include "store/queues/consume_queue.h"
#include "store/recovery/recovery.h"
#include "store/transactions/half_recovery.h"
#include "store/transactions/half_states.h"
#include "fuzz_store.h"

enum { ROUNDS = 300, STEPS_MAX = 120, DAMAGES = 8, QUEUE_FILE_SIZE = 20 * RP_CQ_UNIT_SIZE, TEXT = 64 };
static const char TOPIC[] = "T", MAX_TIME[] = "1700000000000";
static random_source source = {.state = 100};
static uint32_t below(uint32_t limit) { return random_below(&source, limit); }

struct half {
    uint64_t phy_offset;
    uint32_t body_size;
    int is_open;
};

struct store {
    const fuzz_paths *here;
    rp_control_block *block;
    rp_control *control;
    rp_commitlog *log;
    rp_dispatch *dispatch;
    struct half halves[STEPS_MAX];
    uint64_t half_count, lone_commit; /* lone_commit: 1 if the log ends before an op message */
};

static rp_queue *queue(struct store *store, const char *topic) {
    rp_queue *queue = rp_control_add(store->block, (const uint8_t *)topic, (uint32_t)strlen(topic), 0);
    CHECK(queue);
    return queue;
}

static void open_store(struct store *store) {
    const fuzz_paths *here = store->here;
    remove_tree(here->log), remove_tree(here->queues), remove_tree(here->index), unlink(here->control);
    CHECK(mkdir(here->queues, 0755) == 0 && (store->block = rp_control_open(here->control, LOG_FILE_SIZE)));
    store->control = rp_control_header(store->block);
    rp_control_mark_boot(store->block);
    CHECK(store->log = rp_commitlog_open(here->log, store->control));
    rp_dispatch_config config = {.commitlog_directory = here->log,
                                 .consume_queue_directory = here->queues,
                                 .index_directory = here->index,
                                 .consume_queue_file_size = QUEUE_FILE_SIZE,
                                 .consume_queue_files_max = 16};
    CHECK(store->dispatch = rp_dispatch_open(store->block, &config));
    queue(store, RP_HALF_TOPIC), queue(store, RP_OP_TOPIC);
}

static void close_store(struct store *store) {
    rp_dispatch_close(store->dispatch);
    rp_commitlog_close(store->log);
    rp_control_close(store->block);
}

/* Publish `count` records in one step; the queue offsets are given here. */
static void append(struct store *store, rp_record *records, uint32_t count) {
    uint8_t *at;
    uint64_t phy_offset;
    uint32_t size = 0;
    for (uint32_t i = 0; i < count; i++) size += rp_record_size(&records[i]);
    CHECK(rp_commitlog_reserve(store->log, size, &at, &phy_offset) == RP_OK);
    for (uint32_t i = 0; i < count; i++) {
        rp_queue *target = queue(store, (const char *)records[i].topic);
        records[i].queue_offset = target->next_offset++;
        records[i].phy_offset = phy_offset;
        uint32_t record_size = rp_record_encode(&records[i], at);
        at += record_size, phy_offset += record_size;
    }
    rp_commitlog_publish(store->log, size, 1700000000000);
}

static rp_record record_of(const char *topic, const uint8_t *body, uint32_t body_size, const char *properties) {
    return (rp_record){.topic = (const uint8_t *)topic,
                       .topic_size = (uint32_t)strlen(topic),
                       .body = body,
                       .body_size = body_size,
                       .properties = (const uint8_t *)properties,
                       .properties_size = (uint32_t)strlen(properties),
                       .born_timestamp_ms = 1700000000000,
                       .store_timestamp_ms = 1700000000000,
                       .born_host = {.family = 4},
                       .store_host = {.family = 4}};
}

static void describe(uint64_t offset, char *properties) {
    snprintf(properties, TEXT, "UNIQ_KEY\001%" PRIu64 "\002REAL_TOPIC\001T\002REAL_QID\0010", offset);
}

static void put_half(struct store *store) {
    uint8_t body[100];
    char properties[TEXT];
    struct half *half = &store->halves[store->half_count];
    *half = (struct half){.body_size = below(sizeof body), .is_open = 1};
    memset(body, (int)store->half_count, sizeof body);
    describe(store->half_count++, properties);
    rp_record record = record_of(RP_HALF_TOPIC, body, half->body_size, properties);
    append(store, &record, 1);
    half->phy_offset = record.phy_offset;
}

static void put_end(struct store *store, uint64_t offset) {
    uint8_t body[100];
    char properties[TEXT], op[TEXT];
    struct half *half = &store->halves[offset];
    memset(body, (int)offset, sizeof body);
    describe(offset, properties);
    snprintf(op, sizeof op, "%" PRIu64, offset);
    rp_record records[2] = {record_of(TOPIC, body, half->body_size, properties),
                            record_of(RP_OP_TOPIC, (const uint8_t *)op, (uint32_t)strlen(op), MAX_TIME)};
    records[0].sys_flag = RP_SYS_FLAG_TRANSACTION_COMMIT;
    records[0].prepared_transaction_offset = (int64_t)half->phy_offset;
    uint32_t way = below(3); /* committed, rolled back, committed before the power failed */
    store->lone_commit = way == 2;
    append(store, way == 1 ? &records[1] : records, way == 0 ? 2 : 1);
    half->is_open = 0;
}

static void fill(struct store *store) {
    store->half_count = store->lone_commit = 0;
    for (uint32_t step = below(STEPS_MAX); step > 0 && !store->lone_commit; step--) {
        uint64_t offset = store->half_count ? below((uint32_t)store->half_count) : 0;
        if (below(4) == 0)
            CHECK(rp_dispatch_run(store->dispatch, below(1000)) >= 0);
        else if (store->half_count && store->halves[offset].is_open && below(2))
            put_end(store, offset);
        else
            put_half(store);
    }
    if (below(2)) CHECK(rp_dispatch_run(store->dispatch, 1 << 20) == RP_EMPTY);
}

static rp_status recover(struct store *store, rp_half_states *states, uint64_t progress, rp_half_recovery *found) {
    return rp_half_recover(states, progress, store->block, store->here->log, store->here->queues, QUEUE_FILE_SIZE,
                           found);
}

static void check_states(struct store *store) {
    rp_half_recovery found;
    rp_half_states *states = rp_shared_create(sizeof *states);
    uint64_t first_open = 0, offset;
    while (first_open < store->half_count && !store->halves[first_open].is_open) first_open++;
    CHECK(rp_recovery_next_offsets(store->block, store->here->log) == RP_OK);
    CHECK(states && recover(store, states, below((uint32_t)first_open + 1), &found) == RP_OK);
    for (uint64_t i = 0; i < store->half_count; i++)
        CHECK((rp_half_states_of(states, i) == RP_HALF_OPEN) == store->halves[i].is_open);
    CHECK(found.copies == 0 && found.ops_missing <= store->lone_commit);
    CHECK(rp_half_states_missing_op(states, &offset) == (int)found.ops_missing);
    if (found.ops_missing) CHECK(!store->halves[offset].is_open);
    munmap(states, sizeof *states);
}

static void damage_file(const char *directory, const char *name) {
    char path[PATH_MAX];
    uint8_t bytes[8];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    for (uint32_t i = 0; i < 8; i++) bytes[i] = below(3) ? (uint8_t)(below(2) * 255) : (uint8_t)below(256);
    CHECK(pwrite(fd, bytes, 1 + below(8), (off_t)below(below(2) ? 400 : 4000)) > 0);
    close(fd);
    if (below(8) == 0) unlink(path);
}

/* Whatever the bytes say, it ends, reads nothing that is not there, and returns a status. */
static void check_damage(struct store *store) {
    char half_queue[PATH_MAX], op_queue[PATH_MAX];
    snprintf(half_queue, sizeof half_queue, "%s/%s/0", store->here->queues, RP_HALF_TOPIC);
    snprintf(op_queue, sizeof op_queue, "%s/%s/0", store->here->queues, RP_OP_TOPIC);
    for (uint32_t i = 0; i < DAMAGES; i++) {
        rp_half_recovery found;
        rp_half_states *states = rp_shared_create(sizeof *states);
        CHECK(states);
        damage_file(store->here->log, below(2) ? "00000000000000000000" : "00000000000000004096");
        damage_file(below(2) ? half_queue : op_queue, "00000000000000000000");
        rp_queue *spoiled = queue(store, below(2) ? RP_HALF_TOPIC : RP_OP_TOPIC);
        uint64_t *fields[] = {&spoiled->max_offset, &spoiled->min_offset, &spoiled->max_phy_offset};
        if (below(4) == 0) *fields[below(3)] = below(200);
        rp_status status = recover(store, states, below(100), &found);
        CHECK(status == RP_OK || status == RP_IO_ERROR || status == RP_NO_MEMORY);
        munmap(states, sizeof *states);
    }
}

int main(void) {
    static struct store store;
    uint32_t lone_commits = 0;
    store.here = fuzz_here();
    for (uint32_t round = 0; round < ROUNDS; round++) {
        open_store(&store);
        fill(&store);
        check_states(&store);
        lone_commits += store.lone_commit != 0;
        check_damage(&store);
        close_store(&store);
    }
    CHECK(lone_commits > ROUNDS / 10);
    puts("driver_half_recovery: ok");
    return 0;
}
