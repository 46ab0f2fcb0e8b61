/* A damaged control block: whatever its bytes, opening it ends, and nothing leads out of the mapping afterwards. A
 * block that is trusted (same boot, or clean) finds each of its entries by its name; another is as good as new.
 *
 * Input: HEAD (0: 1 other boot, 2 clean), then changes of 8 bytes each: kind, which, at, more, value (4).
 *
 * Fault: A damaged slot, topic index or name of the control block led lookups out of the mapping or round for ever. */
#define _GNU_SOURCE
#include "store/control/control_block.h"
#include "fuzz_store.h"

enum { QUEUES = 6, CHANGE = 8, TAKEN_MAX = 16 };
#define QUEUES_AT 4096ull
#define TOPICS_AT (QUEUES_AT + RP_CONTROL_QUEUES_MAX * sizeof(rp_queue))
#define SLOTS_AT (TOPICS_AT + RP_CONTROL_TOPICS_MAX * 128ull)
#define NAMES_AT (SLOTS_AT + RP_CONTROL_QUEUES_MAX * 8ull)
#define BLOCK_SIZE (NAMES_AT + RP_CONTROL_TOPICS_MAX * 8ull)

static const char *const topics[] = {"T", "a topic of more than eight bytes", "U"};

/* Where the base block has taken slots; found once, the hash never changes. */
static uint64_t taken[TAKEN_MAX];
static uint32_t taken_count;

static void find_taken(int fd) {
    for (uint64_t at = SLOTS_AT; at < BLOCK_SIZE; at += PAGE_SIZE) {
        uint32_t page[PAGE_SIZE / 4];
        off_t data = lseek(fd, (off_t)at, SEEK_DATA);
        if (data < 0) break;
        if ((uint64_t)data > at) at = (uint64_t)data / PAGE_SIZE * PAGE_SIZE;
        CHECK(pread(fd, page, sizeof page, (off_t)at) == sizeof page);
        for (uint32_t i = 0; i < PAGE_SIZE / 4; i++)
            if (page[i] && taken_count < TAKEN_MAX) taken[taken_count++] = at + i * 4ull;
    }
    CHECK(taken_count == QUEUES + 3);
}

static void make_base(const char *path, uint8_t flags) {
    unlink(path);
    rp_control_block *block = rp_control_open(path, LOG_FILE_SIZE);
    CHECK(block);
    for (uint32_t i = 0; i < QUEUES; i++)
        CHECK(rp_control_add(block, (const uint8_t *)topics[i % 3], (uint32_t)strlen(topics[i % 3]), i));
    rp_control_mark_boot(block);
    if (flags & 1) rp_control_header(block)->boot_id[0] ^= 1;
    rp_control_header(block)->clean = flags >> 1 & 1;
    rp_control_header(block)->published_phy_offset = 12345;
    rp_control_close(block);
}

static void write_at(int fd, uint64_t at, const void *bytes, size_t size) {
    if (at < BLOCK_SIZE && size <= BLOCK_SIZE - at) CHECK(pwrite(fd, bytes, size, (off_t)at) == (ssize_t)size);
}

static void fill_slots(int fd, uint64_t at, uint64_t end, uint32_t value) {
    uint32_t slots[4096];
    for (uint32_t i = 0; i < 4096; i++) slots[i] = value;
    for (; at < end; at += sizeof slots) write_at(fd, at, slots, end - at < sizeof slots ? end - at : sizeof slots);
}

/* One change of the file. `value` is of the machine's byte order, as the block is. */
static void apply(int fd, const uint8_t *change) {
    uint32_t which = change[1], at = change[2], value;
    memcpy(&value, change + 4, 4);
    switch (change[0] & 7) {
        case 0: write_at(fd, (which << 8 | at) % sizeof(rp_control), &value, change[3] & 1 ? 4 : 1); break;
        case 1: write_at(fd, QUEUES_AT + (which & 15) * sizeof(rp_queue) + at % 61, &value, 4); break;
        case 2: write_at(fd, TOPICS_AT + (which & 7) * 128ull + at % 125, &value, change[3] & 1 ? 4 : 1); break;
        case 3: write_at(fd, taken[which % taken_count], &value, 4); break;
        case 4: write_at(fd, SLOTS_AT + (uint64_t)(which << 16 | at << 8 | change[3]) * 4, &value, 4); break;
        case 5:
            if (which == 0xEE) fill_slots(fd, NAMES_AT, BLOCK_SIZE, value);
            break;
        case 6:
            if (which == 0xEE)
                CHECK(ftruncate(fd, (off_t)value) == 0 && ftruncate(fd, at ? (off_t)BLOCK_SIZE : (off_t)value) == 0);
            break;
        default: fill_slots(fd, taken[which % taken_count], taken[which % taken_count] + at * 4ull, value);
    }
}

static int is_named(rp_control_block *block, const rp_queue *queue, const uint8_t *name, uint32_t size,
                    uint32_t queue_id) {
    const uint8_t *found;
    return queue->queue_id == queue_id && rp_control_topic(block, queue->topic, &found) == size &&
           memcmp(found, name, size) == 0;
}

static void check_lookups(rp_control_block *block, int is_trusted) {
    const rp_control *control = rp_control_header(block);
    CHECK(control->queue_count <= RP_CONTROL_QUEUES_MAX && control->topic_count <= RP_CONTROL_TOPICS_MAX);
    for (uint32_t i = 0; i < control->queue_count && i < 64; i++) {
        const rp_queue *queue = rp_control_queue(block, i);
        const uint8_t *name;
        CHECK(rp_control_queue_index(block, queue) == i && queue->topic < RP_CONTROL_TOPICS_MAX);
        uint32_t size = rp_control_topic(block, queue->topic, &name);
        const rp_queue *found = rp_control_find(block, name, size, queue->queue_id);
        CHECK(is_trusted ? found == queue : !found || is_named(block, found, name, size, queue->queue_id));
        if (is_trusted) CHECK(rp_control_next_of_topic(block, name, size, i) == i);
    }
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t size = (uint32_t)strlen(topics[i]), at = 0;
        const rp_queue *found = rp_control_find(block, (const uint8_t *)topics[i], size, i);
        CHECK(!found || is_named(block, found, (const uint8_t *)topics[i], size, i));
        while ((at = rp_control_next_of_topic(block, (const uint8_t *)topics[i], size, at)) < control->queue_count)
            at++;
    }
    CHECK(!rp_control_find(block, (const uint8_t *)"nobody", 6, 1 << 20));
}

static void check_adds(rp_control_block *block) {
    static const uint8_t name[] = "added";
    uint32_t count = rp_control_header(block)->queue_count;
    for (uint32_t i = 0; i < 3; i++) {
        const rp_queue *queue = rp_control_add(block, name, sizeof name - 1, 1000 + i);
        CHECK(queue ? rp_control_find(block, name, sizeof name - 1, 1000 + i) == queue : errno == EOVERFLOW);
        if (queue) CHECK(is_named(block, queue, name, sizeof name - 1, 1000 + i) && queue->state == RP_QUEUE_LIVE);
    }
    CHECK(rp_control_header(block)->queue_count <= count + 3);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *path = fuzz_here()->control;
    if (size < HEAD) return 0;
    make_base(path, data[0]);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0);
    if (!taken_count) find_taken(fd);
    for (size_t at = HEAD; at + CHANGE <= size && at < HEAD + 32 * CHANGE; at += CHANGE) apply(fd, data + at);
    close(fd);
    rp_control_block *block = rp_control_open(path, LOG_FILE_SIZE);
    CHECK(block);
    int is_trusted = rp_control_header(block)->clean == 1 || rp_control_is_same_boot(block);
    if (size < HEAD + CHANGE)
        CHECK(rp_control_header(block)->queue_count == QUEUES &&
              rp_control_header(block)->published_phy_offset == 12345);
    check_lookups(block, is_trusted);
    check_adds(block);
    CHECK(rp_control_sync(block) == RP_OK && rp_control_reset(block) == RP_OK);
    CHECK(rp_control_header(block)->queue_count == 0 && !rp_control_is_same_boot(block));
    check_adds(block);
    rp_control_close(block);
    return 0;
}

/* A telling value in one change, or another change. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    static const uint32_t values[] = {0,
                                      1,
                                      2,
                                      3,
                                      5,
                                      6,
                                      7,
                                      127,
                                      128,
                                      255,
                                      RP_CONTROL_QUEUES_MAX,
                                      RP_CONTROL_QUEUES_MAX + 1,
                                      RP_CONTROL_TOPICS_MAX - 1,
                                      RP_CONTROL_TOPICS_MAX,
                                      INT32_MAX,
                                      UINT32_MAX};
    random_source source = {seed * 0x9E3779B97F4A7C15ull + 1};
    if (size < HEAD + CHANGE || random_below(&source, 3) == 0) {
        if (size < HEAD || size + CHANGE > max_size) return LLVMFuzzerMutate(data, size, max_size);
        size += CHANGE - (size - HEAD) % CHANGE;
        for (size_t i = size - CHANGE; i < size; i++) data[i] = (uint8_t)random_next(&source);
    }
    uint32_t changes = (uint32_t)(size - HEAD) / CHANGE;
    uint8_t *change = data + HEAD + random_below(&source, changes) * CHANGE;
    uint32_t value = values[random_below(&source, sizeof values / sizeof *values)];
    switch (random_below(&source, 4)) {
        case 0: return LLVMFuzzerMutate(data, size, max_size);
        case 1: change[0] = (uint8_t)random_below(&source, 8), change[1] = 0xEE; break;
        case 2: change[2] = (uint8_t)(random_below(&source, 16) * 4); break;
        default: memcpy(change + 4, &value, 4);
    }
    return size;
}
