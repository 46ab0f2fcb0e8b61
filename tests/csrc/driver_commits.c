/* Offsets that pulls carry: however little of them the manager reads, each queue has one message with its latest
 * offset, queues keep the order in which they began to wait, and a flush writes no more than it may. After a flood the
 * table gives its memory back (before it kept 8 MiB). */
#include "workers/pull/commits.h"
#include "check.h"
#include "shared_memory.h"

enum { QUEUES = 500, ROUNDS = 20000, RING = 1 << 16, MESSAGE_MAX = 128 /* bytes, with its head in the ring */ };

static uint32_t queues[ROUNDS];  /* in the order in which they began to wait */
static int64_t offsets[ROUNDS];  /* that the manager must get for them */
static uint32_t arrived, written, taken;
static int64_t latest[QUEUES]; /* the offset that waits for a queue; 0: none */

static void add(rp_commits *commits, uint32_t queue, int64_t position) {
    rp_msg_commit_offset offset = {
        .offset = position, .queue_id = (int32_t)queue, .group_size = 1 + queue % 7, .topic_size = 3};
    uint8_t *names = exact_copy(&"GGGGGGGTTT"[7 - offset.group_size], offset.group_size + 3);
    CHECK(rp_commits_add(commits, &offset, names));
    free(names);
    if (!latest[queue]) queues[arrived++] = queue;
    latest[queue] = position;
    CHECK(commits->by_queue.live == arrived - written);
}

static void flush(rp_commits *commits, rp_ring_writer *writer, const rp_ring *ring, int all) {
    uint32_t before = written;
    rp_commits_flush(commits, writer, ring, all);
    CHECK(commits->by_queue.live <= arrived - written);
    for (; commits->by_queue.live < arrived - written; written++) {
        offsets[written] = latest[queues[written]];
        latest[queues[written]] = 0;
    }
    CHECK(all || written - before <= RP_COMMITS_LEAST || rp_ring_depth(ring) < RP_TRAFFIC_DEPTH_MAX + MESSAGE_MAX);
    CHECK(written == arrived || written > before || rp_ring_depth(ring) > RING / 2);
}

static void take(rp_ring_reader *reader, uint32_t count) {
    const uint8_t *data;
    uint32_t size;
    uint16_t type;
    for (; count && rp_ring_read(reader, &data, &size, &type) == RP_OK; count--, taken++) {
        const rp_msg_commit_offset *message = (const rp_msg_commit_offset *)data;
        CHECK(type == RP_MSG_COMMIT_OFFSET && size == sizeof *message + message->group_size + 3 && taken < written);
        CHECK(message->queue_id == (int32_t)queues[taken] && message->offset == offsets[taken]);
        CHECK(!memcmp((const uint8_t *)(message + 1) + message->group_size, "TTT", 3));
        rp_ring_release(reader);
    }
}

/* Nothing waits: as many queues as may wait come at once, and the manager reads. */
static void flood(rp_commits *commits, rp_ring_writer *writer, rp_ring *ring) {
    rp_msg_commit_offset offset = {.group_size = 1, .topic_size = 1};
    rp_ring_reader *reader = rp_ring_reader_open(ring);
    const uint8_t *data;
    uint32_t size, count = 0;
    uint16_t type;
    CHECK(reader && !commits->first);
    for (; offset.queue_id < RP_COMMITS_MAX; offset.queue_id++)
        CHECK(rp_commits_add(commits, &offset, (const uint8_t *)"GT"));
    CHECK(commits->by_queue.live == RP_COMMITS_MAX && commits->by_queue.mask >= RP_COMMITS_MAX);
    while (commits->first) {
        rp_commits_flush(commits, writer, ring, 1);
        for (; rp_ring_read(reader, &data, &size, &type) == RP_OK; count++) rp_ring_release(reader);
    }
    CHECK(count == RP_COMMITS_MAX && commits->by_queue.live == 0);
    CHECK(commits->by_queue.mask < 1 << 15);
    rp_ring_reader_close(reader);
}

int main(void) {
    random_source random = {.state = 20261201};
    rp_worker *workers[] = {create_worker(0), create_worker(1)};
    rp_ring *ring = rp_ring_create(RING, workers[0], workers[1]);
    rp_commits commits;
    CHECK(ring && rp_commits_init(&commits) == 0);
    rp_ring_writer *writer = rp_ring_writer_open(ring);
    rp_ring_reader *reader = rp_ring_reader_open(ring);
    CHECK(writer && reader);
    for (int64_t round = 1; round <= ROUNDS; round++) {
        add(&commits, random_below(&random, QUEUES), round);
        if (random_below(&random, 40) == 0) flush(&commits, writer, ring, random_below(&random, 8) == 0);
        if (random_below(&random, 200) == 0) take(reader, random_below(&random, 300));
    }
    rp_commits flooded;
    rp_ring *empty = rp_ring_create(RING, workers[0], workers[1]);
    CHECK(empty && rp_commits_init(&flooded) == 0);
    rp_ring_writer *to_empty = rp_ring_writer_open(empty);
    flood(&flooded, to_empty, empty);
    rp_commits_destroy(&flooded);
    rp_ring_writer_close(to_empty);
    remove_ring(empty);
    CHECK(arrived > written && written > taken); /* what waits is freed */
    printf("offsets of pulls: %d, %u messages, %u of them read\n", ROUNDS, written, taken);
    rp_commits_destroy(&commits);
    rp_ring_writer_close(writer);
    rp_ring_reader_close(reader);
    remove_ring(ring);
    for (uint32_t i = 0; i < 2; i++) remove_worker(workers[i]);
    return 0;
}
