/* Pending timers that are stored again while their log files are deleted, under sanitizers, against a plain model: the
 * timer thread, the send worker, dispatch and a played cleaner in one thread, in random order, with restarts of each in
 * between. Every timer is delivered once, none is early, and nothing that is pending is deleted.
 * driver_timer_renewal */
#define _GNU_SOURCE
#include <sys/stat.h>
#include <unistd.h>
#include "base/atomic.h"
#include "base/endian.h"
#include "ipc/worker_messages.h"
#include "store/dispatch/dispatch.h"
#include "store/log/log_view.h"
#include "store/log/mapped_file.h"
#include "store/log/timer_properties.h"
#include "store/queues/consume_queue.h"
#include "store/timers/timers.h"
#include "workers/send/send.h"
#include "check.h"
#include "directory.h"
#include "shared_memory.h"

enum { LOG_FILE = 16384, QUEUE_FILE = 64 * 20, ROUNDS = 12, STEPS = 6000, TIMERS_MAX = STEPS, FILL_MAX = 3000 };
enum { START_S = 1700000000, FAR_MS = 400000 };
static const char TARGET[] = "T", FILLER[] = "F";

static random_source source = {31};
static uint32_t below(uint32_t limit) { return random_below(&source, limit); }

static int64_t now_ms;
static int64_t clock_ms(void) { return now_ms; }
static int64_t boot_ms(void) { return now_ms - (int64_t)START_S * 1000 + 1000; }

static struct {
    char directory[DIRECTORY_SIZE], log[PATH_SIZE], queues[PATH_SIZE], index[PATH_SIZE], runs[PATH_SIZE];
    char control[PATH_SIZE], marks_path[PATH_SIZE];
    rp_control_block *block;
    rp_control *control_header;
    rp_worker *send_worker, *store_worker, *manager_worker;
    rp_ring *from_manager, *to_manager, *to_send;
    rp_ring_writer *manager;
    rp_ring_reader *results;
    rp_timer_marks *marks;
    rp_timer_header *header;
    rp_timers *timers;
    rp_send *send;
    rp_dispatch *dispatch;
    rp_log_view *view;
    uint64_t read; /* the model has seen the log below it */
} broker;

static struct {
    int64_t due_ms;
    uint32_t delivered;
} model[TIMERS_MAX];
static uint32_t timer_count, delivered_count;
static struct {
    uint64_t renewed, deleted_files, delivered, restarts;
} seen;

static void tell(uint16_t type, const void *head, size_t head_size, const void *tail, size_t tail_size) {
    const rp_span spans[2] = {{head, (uint32_t)head_size}, {tail, (uint32_t)tail_size}};
    CHECK(rp_ring_write(broker.manager, type, spans, 2) == RP_OK);
}

static void run_send(void) {
    const uint8_t *data;
    uint32_t size;
    uint16_t type;
    CHECK(rp_send_run(broker.send, 0) == RP_OK);
    while (rp_ring_read(broker.results, &data, &size, &type) == RP_OK) rp_ring_release(broker.results);
}

static void add_topic(const char *name) {
    uint32_t size = (uint32_t)strlen(name);
    CHECK(rp_control_add(broker.block, (const uint8_t *)name, size, 0));
    rp_msg_topic topic = {.perm = 6, .read_queue_nums = 1, .write_queue_nums = 1, .topic_size = size};
    tell(RP_MSG_TOPIC, &topic, sizeof topic, name, size);
}

static void open_send(void) {
    rp_send_config config = {.worker = broker.send_worker,
                             .store = broker.store_worker,
                             .block = broker.block,
                             .commitlog_directory = broker.log,
                             .from_manager = broker.from_manager,
                             .to_manager = broker.to_manager,
                             .from_store = broker.to_send,
                             .timers = broker.marks,
                             .timer_max_delay_ms = 86400000,
                             .store_host = {.family = 4},
                             .region = "region",
                             .max_message_size = 1 << 20,
                             .wait_time_in_queue_ms = 200,
                             .wall_ms = clock_ms,
                             .boot_ms = boot_ms};
    CHECK(broker.send = rp_send_open(&config));
    add_topic(TARGET), add_topic(FILLER), add_topic(RP_TIMER_TOPIC), add_topic(RP_TIMER_DEAD_LETTERS);
    rp_msg_tables_end end = {.epoch = broker.send_worker->epoch};
    tell(RP_MSG_TABLES_END, &end, sizeof end, "", 0);
    run_send();
}

static void open_timers(void) {
    rp_timers_config config = {.block = broker.block,
                               .marks = broker.marks,
                               .worker = broker.store_worker,
                               .directory = broker.runs,
                               .commitlog_directory = broker.log,
                               .consume_queue_directory = broker.queues,
                               .consume_queue_file_size = QUEUE_FILE,
                               .to_send = broker.to_send,
                               .heap_max = 50,
                               .wall_ms = clock_ms,
                               .boot_ms = boot_ms};
    CHECK(broker.timers = rp_timers_open(&config));
}

static void open_dispatch(void) {
    rp_dispatch_config config = {.commitlog_directory = broker.log,
                                 .consume_queue_directory = broker.queues,
                                 .index_directory = broker.index,
                                 .consume_queue_file_size = QUEUE_FILE,
                                 .consume_queue_files_max = 8};
    CHECK(broker.dispatch = rp_dispatch_open(broker.block, &config));
}

static void open_broker(void) {
    make_directory(broker.directory, "timer-renewal");
    path_in(broker.log, broker.directory, "commitlog");
    path_in(broker.queues, broker.directory, "consumequeue");
    path_in(broker.index, broker.directory, "index");
    path_in(broker.runs, broker.directory, "runs");
    path_in(broker.control, broker.directory, "control");
    path_in(broker.marks_path, broker.directory, "delivered");
    CHECK(broker.block = rp_control_open(broker.control, LOG_FILE));
    broker.control_header = rp_control_header(broker.block);
    rp_control_mark_boot(broker.block);
    CHECK(broker.marks = rp_timer_marks_open(broker.marks_path, broker.control_header));
    broker.header = rp_timer_marks_header(broker.marks);
    broker.send_worker = create_worker(0), broker.store_worker = create_worker(1);
    broker.manager_worker = create_worker(2);
    broker.from_manager = rp_ring_create(65536, broker.manager_worker, broker.send_worker);
    broker.to_manager = rp_ring_create(65536, broker.send_worker, broker.manager_worker);
    broker.to_send = rp_ring_create(65536, broker.store_worker, broker.send_worker);
    CHECK(broker.from_manager && broker.to_manager && broker.to_send);
    CHECK(broker.manager = rp_ring_writer_open(broker.from_manager));
    CHECK(broker.results = rp_ring_reader_open(broker.to_manager));
    open_send();
    open_dispatch();
    open_timers();
    CHECK(broker.view = rp_log_view_open(broker.log, LOG_FILE, 2));
    broker.read = 0;
    timer_count = delivered_count = 0;
}

static void close_broker(void) {
    rp_timers_close(broker.timers);
    rp_dispatch_close(broker.dispatch);
    rp_send_close(broker.send);
    rp_log_view_close(broker.view);
    rp_ring_writer_close(broker.manager);
    rp_ring_reader_close(broker.results);
    rp_timer_marks_close(broker.marks);
    rp_control_close(broker.block);
    remove_directory(broker.directory);
}

static void put(const char *topic, const char *properties, const uint8_t *body, uint32_t body_size) {
    static uint8_t tail[FILL_MAX + 300];
    uint32_t topic_size = (uint32_t)strlen(topic), properties_size = (uint32_t)strlen(properties);
    rp_msg_send head = {.origin = {.connection = RP_CONNECTION_INTERNAL, .peer = {.family = 4}},
                        .flags = RP_REQUEST_RESOLVED | RP_REQUEST_NO_WAIT,
                        .born_timestamp_ms = now_ms,
                        .topic_size = topic_size,
                        .properties_size = properties_size,
                        .body_size = body_size};
    memcpy(tail, topic, topic_size);
    memcpy(tail + topic_size, properties, properties_size);
    memcpy(tail + topic_size + properties_size, body, body_size);
    tell(RP_MSG_SEND, &head, sizeof head, tail, topic_size + properties_size + body_size);
    run_send();
}

/* As the send worker stores it for a client. The body is its number in the model. */
static void put_timer(void) {
    char properties[200];
    uint8_t body[200] = {0};
    if (timer_count == TIMERS_MAX) return;
    int64_t due_ms = now_ms + 1 + (below(4) ? FAR_MS / 2 + below(FAR_MS / 2) : below(2000));
    snprintf(properties, sizeof properties, "REAL_TOPIC\001%s\002REAL_QID\0010\002TIMER_OUT_MS\001%lld", TARGET,
             (long long)due_ms);
    model[timer_count].due_ms = due_ms;
    model[timer_count].delivered = 0;
    rp_store32(body, timer_count++);
    put(RP_TIMER_TOPIC, properties, body, 4 + below(sizeof body - 4));
}

static void fill(void) {
    static uint8_t body[FILL_MAX];
    for (uint32_t n = 1 + below(4); n > 0; n--) put(FILLER, "", body, below(FILL_MAX));
}

/* What has been delivered since the last call. */
static void look(void) {
    uint64_t end = broker.control_header->published_phy_offset;
    while (broker.read < end) {
        rp_record_view record;
        uint64_t size = LOG_FILE - broker.read % LOG_FILE;
        if (size > end - broker.read) size = end - broker.read;
        const uint8_t *at = rp_log_view_acquire(broker.view, broker.read, size);
        CHECK(at);
        rp_status status = rp_record_decode(at, size, 1, &record);
        CHECK(status == RP_OK || status == RP_END_OF_FILE);
        if (status == RP_OK && record.topic_size == 1 && record.topic[0] == TARGET[0]) {
            uint32_t number = rp_load32(record.body);
            CHECK(number < timer_count && model[number].delivered++ == 0);
            CHECK(record.store_timestamp_ms >= model[number].due_ms);
            delivered_count++;
        }
        rp_log_view_release(broker.view, broker.read);
        broker.read += record.size;
    }
}

static void dispatch(void) {
    rp_status status;
    while ((status = rp_dispatch_run(broker.dispatch, 1 << 20)) == RP_OK) {
    }
    CHECK(status == RP_EMPTY);
}

static void flush(void) { broker.control_header->durable_phy_offset = broker.control_header->published_phy_offset; }

static rp_status step(void) {
    rp_status status = rp_timers_step(broker.timers);
    CHECK(status == RP_OK || status == RP_EMPTY);
    return status;
}

/* The cleaner: it wants the first files to go, and deletes those that nobody holds. */
static void ask(void) {
    uint64_t whole = broker.control_header->published_phy_offset / LOG_FILE * LOG_FILE;
    uint64_t to = broker.control_header->min_phy_offset + (1 + below(8)) * LOG_FILE;
    rp_store_release(&broker.header->renew_to, to < whole ? to : whole);
    rp_store_release(&broker.header->renew_requests, broker.header->renew_requests + 1);
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static void trim_queue(void) {
    rp_queue *queue = rp_control_find(broker.block, (const uint8_t *)RP_TIMER_TOPIC, sizeof RP_TIMER_TOPIC - 1, 0);
    rp_cq_reader *units = rp_cq_reader_open(broker.block, broker.queues, QUEUE_FILE, 2);
    uint8_t unit[RP_CQ_UNIT_SIZE];
    CHECK(queue && units);
    while (rp_cq_read(units, queue, queue->min_offset, 1, unit) == 1 &&
           rp_load64(unit) < broker.control_header->min_phy_offset)
        rp_store_release(&queue->min_offset, queue->min_offset + 1);
    rp_cq_close(units);
}

static void delete_files(void) {
    rp_control *control = broker.control_header;
    uint64_t held = broker.header->held_phy_offset;
    uint64_t end = least(least(control->durable_phy_offset, control->dispatched_phy_offset), broker.read);
    end = held ? least(end, held - 1) : 0;
    char path[200];
    if (least(end, broker.header->renew_to) < control->min_phy_offset + LOG_FILE) return;
    CHECK(rp_mapped_file_path(path, sizeof path, broker.log, control->min_phy_offset) == 0 && unlink(path) == 0);
    rp_store_release(&control->min_phy_offset, control->min_phy_offset + LOG_FILE);
    trim_queue();
    seen.deleted_files++;
}

static void restart(uint32_t which) {
    seen.restarts++;
    if (which == 0) {
        rp_timers_close(broker.timers);
        open_timers();
    } else if (which == 1) {
        rp_send_close(broker.send);
        open_send();
    } else {
        rp_dispatch_close(broker.dispatch);
        open_dispatch();
    }
}

static void act(void) {
    switch (below(16)) {
        case 0:
        case 1: put_timer(); break;
        case 2:
        case 3: fill(); break;
        case 4:
        case 5:
        case 6: run_send(); break;
        case 7:
        case 8: dispatch(); break;
        case 9: flush(); break;
        case 10: now_ms += below(20) ? below(200) : below(20000); break;
        case 11: ask(); break;
        case 12: delete_files(); break;
        case 13:
            if (below(20) == 0) restart(below(3));
            break;
        default: step();
    }
}

/* Everything becomes due, and all have their turns. */
static void finish(void) {
    uint32_t turns = 0;
    now_ms += FAR_MS + 1;
    while (delivered_count < timer_count && turns++ < 20 * TIMERS_MAX) {
        run_send();
        dispatch();
        flush();
        step();
        look();
        now_ms++;
    }
    CHECK(delivered_count == timer_count);
    for (uint32_t i = 0; i < timer_count; i++) CHECK(model[i].delivered == 1);
    for (turns = 0; broker.header->pending && turns < 10000; turns++) {
        flush();
        step();
    }
    CHECK(broker.header->pending == 0);
}

int main(void) {
    for (uint32_t round = 0; round < ROUNDS; round++) {
        now_ms = (int64_t)START_S * 1000;
        open_broker();
        uint64_t before = broker.send_worker->counters[RP_COUNT_TIMERS_RENEWED];
        for (uint32_t i = 0; i < STEPS; i++) {
            act();
            look();
        }
        finish();
        seen.renewed += broker.send_worker->counters[RP_COUNT_TIMERS_RENEWED] - before;
        seen.delivered += delivered_count;
        close_broker();
    }
    CHECK(seen.renewed > 100 && seen.deleted_files > 100);
    printf("renewal: %llu timers delivered, %llu stored again, %llu files deleted, %llu restarts\n",
           (unsigned long long)seen.delivered, (unsigned long long)seen.renewed, (unsigned long long)seen.deleted_files,
           (unsigned long long)seen.restarts);
    return 0;
}
