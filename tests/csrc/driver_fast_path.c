/* Exercises codec, send, dispatch and pull together under sanitizers: good sends and pulls in both serialisations, and
 * the same with bytes changed at random. Whatever comes in, every stage goes on, and what was acknowledged is in its
 * queue. Then the same under a coordinator that changes its orders all the time: nothing is stored while sends are
 * reported as refused.   driver_fast_path [ROUNDS [SEED]] */
#define _GNU_SOURCE
#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/endian.h"
#include "ipc/worker_messages.h"
#include "store/dispatch/dispatch.h"
#include "workers/codec/codec.h"
#include "workers/pull/pull.h"
#include "workers/send/send.h"
#include "check.h"
#include "directory.h"
#include "shared_memory.h"

enum { RING = 1 << 18, FILE_SIZE = 4 << 20, QUEUES = 4 };

static uint64_t random_state = 88172645463325252ull;
static uint32_t random32(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 16);
}

struct rig {
    rp_worker *selector, *send_worker, *pull_worker, *manager, *store;
    rp_control_block *block;
    rp_ring *to_send, *to_pull, *to_manager, *send_out, *pull_out, *codec_out;
    rp_ring *send_manager, *manager_send, *pull_manager, *manager_pull, *store_pull;
    rp_codec *codec;
    rp_send *send;
    rp_pull *pull;
    rp_dispatch *dispatch;
    rp_ring_writer *tell_send, *tell_pull, *arrivals;
    rp_ring_reader *answers[3], *left[3];
    rp_member *member; /* NULL: no coordinator */
    uint64_t answered;
};

static void tell(struct rig *rig, uint16_t type, const void *data, uint32_t size) {
    rp_span span = {data, size};
    CHECK(rp_ring_write(rig->tell_send, type, &span, 1) == RP_OK);
    CHECK(rp_ring_write(rig->tell_pull, type, &span, 1) == RP_OK);
}

static void add_tables(struct rig *rig) {
    struct {
        rp_msg_topic topic;
        char name[8];
    } topic = {{.perm = 6, .read_queue_nums = QUEUES, .write_queue_nums = QUEUES, .topic_size = 1}, "T"};
    struct {
        rp_msg_group group;
        char name[8];
    } group = {{.flags = RP_GROUP_CONSUME_ENABLE | RP_GROUP_ONLINE, .group_size = 1}, "G"};
    struct {
        rp_msg_subscription subscription;
        char names[8];
    } subscription = {{.sub_version = 1, .flags = RP_SUBSCRIPTION_ALL, .group_size = 1, .topic_size = 1}, "GT"};
    for (uint32_t id = 0; id < QUEUES; id++) CHECK(rp_control_add(rig->block, (const uint8_t *)"T", 1, id));
    tell(rig, RP_MSG_TOPIC, &topic, sizeof topic);
    tell(rig, RP_MSG_GROUP, &group, sizeof group);
    tell(rig, RP_MSG_SUBSCRIPTION, &subscription, sizeof subscription);
    tell(rig, RP_MSG_TABLES_END, &(rp_msg_tables_end){0}, sizeof(rp_msg_tables_end));
}

static void open_rig(struct rig *rig, const char *root) {
    rp_suspension_slots *slots = rp_shared_create(sizeof *slots + 50 * sizeof(rp_suspension_slot));
    char log[PATH_MAX], queues[PATH_MAX], index[PATH_MAX], control[PATH_MAX];
    snprintf(log, sizeof log, "%s/commitlog", root);
    snprintf(queues, sizeof queues, "%s/consumequeue", root);
    snprintf(index, sizeof index, "%s/index", root);
    snprintf(control, sizeof control, "%s/control", root);
    CHECK(mkdir(log, 0700) == 0 && mkdir(queues, 0700) == 0 && mkdir(index, 0700) == 0);
    rp_worker **workers[] = {&rig->selector, &rig->send_worker, &rig->pull_worker, &rig->manager, &rig->store};
    for (uint32_t i = 0; i < 5; i++) CHECK(*workers[i] = create_worker(i));
    CHECK(slots);
    slots->capacity = 50;
    CHECK(rig->block = rp_control_open(control, FILE_SIZE));
    struct {
        rp_ring **ring;
        rp_worker *producer, *consumer;
    } rings[] = {
        {&rig->to_send, rig->selector, rig->send_worker},     {&rig->to_pull, rig->selector, rig->pull_worker},
        {&rig->to_manager, rig->selector, rig->manager},      {&rig->send_out, rig->send_worker, rig->selector},
        {&rig->pull_out, rig->pull_worker, rig->selector},    {&rig->codec_out, rig->selector, rig->selector},
        {&rig->send_manager, rig->send_worker, rig->manager}, {&rig->manager_send, rig->manager, rig->send_worker},
        {&rig->pull_manager, rig->pull_worker, rig->manager}, {&rig->manager_pull, rig->manager, rig->pull_worker},
        {&rig->store_pull, rig->store, rig->pull_worker}};
    for (uint32_t i = 0; i < sizeof rings / sizeof rings[0]; i++)
        CHECK(*rings[i].ring = rp_ring_create(RING, rings[i].producer, rings[i].consumer));
    rp_route routes[] = {{10, RP_TO_SEND}, {310, RP_TO_SEND}, {320, RP_TO_SEND}, {11, RP_TO_PULL}};
    CHECK(rig->codec = rp_codec_open(&(rp_codec_config){.worker = rig->selector,
                                                        .pull_count = 1,
                                                        .selector_count = 1,
                                                        .route_count = 4,
                                                        .send = rig->to_send,
                                                        .manager = rig->to_manager,
                                                        .pulls = &rig->to_pull,
                                                        .selectors = &rig->codec_out,
                                                        .routes = routes,
                                                        .version = 409}));
    CHECK(rig->send =
              rp_send_open(&(rp_send_config){.worker = rig->send_worker,
                                             .store = rig->store,
                                             .block = rig->block,
                                             .commitlog_directory = log,
                                             .input_count = 1,
                                             .selector_count = 1,
                                             .inputs = &rig->to_send,
                                             .from_manager = rig->manager_send,
                                             .to_manager = rig->send_manager,
                                             .selectors = &rig->send_out,
                                             .store_host = {.address = {127, 0, 0, 1}, .port = 10911, .family = 4},
                                             .cluster_property = "CLUSTER\x01"
                                                                 "C",
                                             .region = "R",
                                             .version = 409,
                                             .trace_on = 1,
                                             .request_log_sample = 2,
                                             .member = rig->member,
                                             .waits_for_confirmed = rig->member != NULL,
                                             .slave_timeout_ms = 1,
                                             .max_message_size = 1 << 20}));
    CHECK(rig->pull = rp_pull_open(&(rp_pull_config){.worker = rig->pull_worker,
                                                     .block = rig->block,
                                                     .consume_queue_directory = queues,
                                                     .consume_queue_file_size = 2000,
                                                     .files_max = 16,
                                                     .suspended = slots,
                                                     .input_count = 1,
                                                     .selector_count = 1,
                                                     .inputs = &rig->to_pull,
                                                     .from_manager = rig->manager_pull,
                                                     .from_store = rig->store_pull,
                                                     .to_manager = rig->pull_manager,
                                                     .selectors = &rig->pull_out,
                                                     .version = 409,
                                                     .long_polling = 1,
                                                     .request_log_sample = 2,
                                                     .bytes_in_memory = 262144,
                                                     .count_in_memory = 32,
                                                     .bytes_on_disk = 65536,
                                                     .count_on_disk = 8,
                                                     .memory_bytes = 1ull << 40}));
    CHECK(rig->dispatch = rp_dispatch_open(rig->block, &(rp_dispatch_config){.commitlog_directory = log,
                                                                             .consume_queue_directory = queues,
                                                                             .index_directory = index,
                                                                             .consume_queue_file_size = 2000,
                                                                             .consume_queue_files_max = 16,
                                                                             .index_enable = 1,
                                                                             .hash_slot_num = 100,
                                                                             .index_num = 1000}));
    CHECK(rig->arrivals = rp_ring_writer_open(rig->store_pull));
    rp_dispatch_set_pulls(rig->dispatch, &rig->arrivals, 1);
    CHECK(rig->tell_send = rp_ring_writer_open(rig->manager_send));
    CHECK(rig->tell_pull = rp_ring_writer_open(rig->manager_pull));
    rp_ring *outs[] = {rig->send_out, rig->pull_out, rig->codec_out};
    rp_ring *lefts[] = {rig->to_manager, rig->send_manager, rig->pull_manager};
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(rig->answers[i] = rp_ring_reader_open(outs[i]));
        CHECK(rig->left[i] = rp_ring_reader_open(lefts[i]));
    }
    add_tables(rig);
}

static void close_rig(struct rig *rig) {
    rp_codec_close(rig->codec);
    rp_send_close(rig->send);
    rp_pull_close(rig->pull);
    rp_dispatch_close(rig->dispatch);
    rp_ring_writer_close(rig->tell_send);
    rp_ring_writer_close(rig->tell_pull);
    rp_ring_writer_close(rig->arrivals);
    for (uint32_t i = 0; i < 3; i++) {
        rp_ring_reader_close(rig->answers[i]);
        rp_ring_reader_close(rig->left[i]);
    }
    rp_ring *rings[] = {rig->to_send,      rig->to_pull,      rig->to_manager,   rig->send_out,
                        rig->pull_out,     rig->codec_out,    rig->send_manager, rig->manager_send,
                        rig->pull_manager, rig->manager_pull, rig->store_pull};
    for (uint32_t i = 0; i < sizeof rings / sizeof rings[0]; i++) remove_ring(rings[i]);
    rp_control_close(rig->block);
}

/* Read everything; sends that were left to the manager are completed through `complete` (or NULL), as if refused. */
static uint32_t empty(rp_ring_reader *reader, rp_ring_writer *complete) {
    const uint8_t *data;
    uint32_t size, count = 0;
    uint16_t type;
    volatile uint8_t touched = 0;
    for (; rp_ring_read(reader, &data, &size, &type) == RP_OK; count++) {
        for (uint32_t i = 0; i < size; i++) touched ^= data[i]; /* every byte that was published must be there */
        rp_span spans[2] = {{data, sizeof(rp_origin)}, {data + offsetof(rp_msg_send, token), sizeof(uint64_t)}};
        if (complete && type == RP_MSG_SEND) CHECK(rp_ring_write(complete, RP_MSG_COMPLETED, spans, 2) == RP_OK);
        rp_ring_release(reader);
    }
    (void)touched;
    return count;
}

static void turn(struct rig *rig) {
    rp_codec_wake(rig->codec);
    rp_send_run(rig->send, 0);
    while (rp_dispatch_run(rig->dispatch, 1 << 30) == RP_OK) {
    }
    rp_pull_run(rig->pull, 0);
    for (uint32_t i = 0; i < 3; i++) {
        rig->answered += empty(rig->answers[i], NULL);
        empty(rig->left[i], rig->tell_send);
    }
}

static uint32_t make_send(uint8_t *out) {
    char header[1024];
    int batch = random32() % 4 == 0;
    int size =
        snprintf(header, sizeof header,
                 "{\"code\":%d,\"extFields\":{\"a\":\"P\",\"b\":\"%s\",\"c\":\"TBW102\",\"d\":\"4\",\"e\":\"%d\","
                 "\"f\":\"0\",\"g\":\"1\",\"h\":\"0\",\"i\":\"TAGS\\u0001a\\u0002WAIT\\u0001%s\\u0002\",\"m\":\"%s\"},"
                 "\"flag\":%d,\"language\":\"JAVA\",\"opaque\":%u,\"version\":409}",
                 random32() % 2 ? 310 : 320, random32() % 8 ? "T" : "other", (int)(random32() % 6) - 1,
                 random32() % 2 ? "true" : "false", batch ? "true" : "false", random32() % 4 ? 0 : 2, random32());
    rp_store32(out, (uint32_t)size);
    memcpy(out + 4, header, (uint32_t)size);
    uint8_t *at = out + 4 + size;
    uint32_t bodies = batch ? 1 + random32() % 5 : 1;
    for (uint32_t i = 0; i < bodies; i++) {
        uint32_t body = random32() % 300;
        if (batch) {
            memset(at, 0, 22);
            rp_store32(at, 22 + body);
            rp_store32(at + 16, body);
            memset(at + 20, 'b', body);
            rp_store16(at + 20 + body, 0);
            at += 22 + body;
        } else {
            memset(at, 'x', body);
            at += body;
        }
    }
    return (uint32_t)(at - out);
}

static uint32_t make_pull(uint8_t *out) {
    char header[1024];
    int size = snprintf(header, sizeof header,
                        "{\"code\":11,\"extFields\":{\"consumerGroup\":\"G\",\"topic\":\"T\",\"queueId\":\"%d\","
                        "\"queueOffset\":\"%u\",\"maxMsgNums\":\"%d\",\"sysFlag\":\"%u\",\"commitOffset\":\"%u\","
                        "\"suspendTimeoutMillis\":\"%d\",\"subscription\":\"%s\",\"subVersion\":\"0\"},\"flag\":0,"
                        "\"language\":\"GO\",\"opaque\":%u,\"version\":317}",
                        (int)(random32() % 5), random32() % 40, (int)(random32() % 40), random32() % 8, random32() % 9,
                        (int)(random32() % 50), random32() % 2 ? "a || b" : "*", random32());
    rp_store32(out, (uint32_t)size);
    memcpy(out + 4, header, (uint32_t)size);
    return 4 + (uint32_t)size;
}

/* New orders, a new deadline, or a position that is confirmed. */
static void govern(struct rig *rig) {
    rp_control *control = rp_control_header(rig->block);
    rp_member_orders orders = {.epoch = 1,
                               .takes_sends = random32() % 4 != 0,
                               .answers_waits = random32() % 4 != 0,
                               .counting_count = 1 + random32() % 2};
    uint64_t version = rp_member_order(rig->member, &orders);
    rp_member_set_deadline(rig->member, random32() % 4 ? UINT64_MAX : 0);
    if (random32() % 2) control->confirmed_phy_offset = control->published_phy_offset;
    if (random32() % 4 == 0) rig->member->alone_phy_offset = control->confirmed_phy_offset;
    if (orders.takes_sends) return;
    turn(rig);
    CHECK(rig->member->sends_refused == version);
    uint64_t end = control->published_phy_offset;
    turn(rig);
    CHECK(control->published_phy_offset == end);
}

static void exercise(struct rig *rig, uint32_t rounds) {
    uint8_t *frame = malloc(4096);
    CHECK(frame);
    for (uint32_t i = 0; i < rounds; i++) {
        uint32_t size = random32() % 3 ? make_send(frame) : make_pull(frame);
        if (random32() % 3 == 0)
            for (uint32_t n = 1 + random32() % 4; n; n--) frame[random32() % size] = (uint8_t)random32();
        if (random32() % 10 == 0) size = random32() % (size + 1);
        uint8_t *exact = malloc(size ? size : 1); /* so that a read past the end is seen */
        memcpy(exact, frame, size);
        rp_origin origin = {.connection = random32() % 20, .peer = {.address = {127, 0, 0, 1}, .port = 1, .family = 4}};
        rp_codec_frame(rig->codec, &origin, exact, size);
        free(exact);
        if (random32() % 50 == 0) rp_codec_closed(rig->codec, &origin);
        if (random32() % 8 == 0) turn(rig);
        if (rig->member && random32() % 30 == 0) govern(rig);
    }
    turn(rig);
    free(frame);
}

static void run(uint32_t rounds, rp_member *member) {
    char root[DIRECTORY_SIZE];
    make_directory(root, "fast-path");
    struct rig rig = {.member = member};
    open_rig(&rig, root);
    exercise(&rig, rounds);
    rp_control *control = rp_control_header(rig.block);
    CHECK(control->published_phy_offset == control->dispatched_phy_offset);
    CHECK(rig.answered > rounds / 8);
    for (uint32_t id = 0; id < QUEUES; id++) {
        rp_queue *queue = rp_control_find(rig.block, (const uint8_t *)"T", 1, id);
        CHECK(queue && queue->next_offset == queue->max_offset && queue->max_offset > 0);
    }
    printf("fast path: %u frames, %" PRIu64 " answers, %" PRIu64 " bytes of log\n", rounds, rig.answered,
           control->published_phy_offset);
    close_rig(&rig);
    remove_directory(root);
}

int main(int argc, char **argv) {
    uint32_t rounds = argc > 1 ? (uint32_t)atoi(argv[1]) : 20000;
    if (argc > 2) random_state = strtoull(argv[2], NULL, 10) * 2 + 1;
    rp_member *member = create_member();
    CHECK(member);
    run(rounds, NULL);
    run(rounds, member);
    return 0;
}
