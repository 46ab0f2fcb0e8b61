/* The process of the pull worker: open, loop and close. pull_serve.c serves a pull. */
#include "workers/pull/pull.h"
#include <errno.h>
#include <stdlib.h>
#include "base/clock.h"
#include "wire/codes.h"
#include "wire/reply.h"
#include "ipc/serving.h"
#include "workers/pull/pull_private.h"

enum { BATCH_REQUESTS = 128, LOG_FILES_MAX = 4 };
/* Behind the memory a bulk answer has a quarter of its bytes: the selector waits for the disk while it writes it. */
enum { BULK_DISK_SHARE = 4 };
/* It also has few places of the log: where the records of a queue lie apart, the disk needs a seek for each. */
enum { BULK_DISK_SLICES = 16 };

static uint32_t larger(uint32_t left, uint32_t right) { return left > right ? left : right; }

static uint32_t smaller(uint32_t left, uint32_t right) { return left < right ? left : right; }

static void set_limits(rp_pull *pull, const rp_pull_config *config) {
    pull->limits = (rp_fetch_limits){.bytes_in_memory = config->bytes_in_memory,
                                     .count_in_memory = config->count_in_memory,
                                     .bytes_on_disk = config->bytes_on_disk,
                                     .count_on_disk = config->count_on_disk,
                                     .slices_on_disk = RP_SLICES_MAX,
                                     .memory_bytes = config->memory_bytes};
    pull->bulk_limits = pull->limits;
    if (config->bulk_count == 0) return;
    pull->bulk_limits.bytes_in_memory = larger(config->bulk_bytes, config->bytes_in_memory);
    pull->bulk_limits.count_in_memory = larger(config->bulk_count, config->count_in_memory);
    pull->bulk_limits.bytes_on_disk = larger(config->bulk_bytes / BULK_DISK_SHARE, config->bytes_on_disk);
    pull->bulk_limits.count_on_disk = larger(config->bulk_count, config->count_on_disk);
    pull->bulk_limits.slices_on_disk = smaller(larger(BULK_DISK_SLICES, config->count_on_disk), RP_SLICES_MAX);
}

/* 1; 0: no memory. */
static int make_tables(rp_pull *pull) {
    return rp_map_init(&pull->topics, 256) == 0 && rp_map_init(&pull->groups, 64) == 0 &&
           rp_map_init(&pull->subscriptions, 64) == 0 && rp_expressions_init(&pull->expressions) == 0 &&
           rp_suspended_pulls_init(&pull->suspended_pulls, pull->config.suspended) == 0 &&
           rp_commits_init(&pull->commits) == 0 && rp_traffic_init(&pull->traffic) == 0;
}

/* 1; 0 with errno. */
static int open_files(rp_pull *pull) {
    const rp_pull_config *config = &pull->config;
    pull->reader = rp_cq_reader_open(config->block, config->consume_queue_directory, config->consume_queue_file_size,
                                     config->files_max);
    pull->selection.marks = config->marks;
    if (!pull->reader) return 0;
    if (config->consume_queue_ext_file_size &&
        !(pull->selection.ext =
              rp_cq_ext_open(config->block, config->consume_queue_directory, config->consume_queue_ext_file_size)))
        return 0;
    if (!config->commitlog_directory) return 1;
    pull->selection.log =
        rp_log_view_open(config->commitlog_directory, pull->control->commitlog_file_size, LOG_FILES_MAX);
    return pull->selection.log != NULL;
}

/* 1; 0: no memory. */
static int open_rings(rp_pull *pull) {
    const rp_pull_config *config = &pull->config;
    pull->inputs = calloc(config->input_count + 2, sizeof *pull->inputs);
    pull->input_rings = calloc(config->input_count + 2, sizeof *pull->input_rings);
    pull->selectors = calloc(config->selector_count + 1, sizeof *pull->selectors);
    pull->selector_workers = calloc(config->selector_count + 1, sizeof *pull->selector_workers);
    if (!pull->inputs || !pull->input_rings || !pull->selectors || !pull->selector_workers) return 0;
    if (!(pull->manager = rp_ring_writer_open(config->to_manager)) ||
        rp_backlog_init(&pull->for_manager, pull->manager) != 0)
        return 0;
    for (uint32_t i = 0; i < config->input_count + 2; i++, pull->input_count++) {
        rp_ring *ring = i < config->input_count    ? config->inputs[i]
                        : i == config->input_count ? config->from_manager
                                                   : config->from_store;
        pull->input_rings[i] = ring;
        if (!(pull->inputs[i] = rp_ring_reader_open(ring))) return 0;
    }
    for (uint32_t i = 0; i < config->selector_count; i++, pull->selector_count++) {
        pull->selector_workers[i] = rp_ring_consumer(config->selectors[i]);
        if (!(pull->selectors[i] = rp_ring_writer_open(config->selectors[i]))) return 0;
    }
    return 1;
}

rp_pull *rp_pull_open(const rp_pull_config *config) {
    rp_pull *pull = calloc(1, sizeof *pull);
    if (!pull) return NULL;
    pull->config = *config;
    if (!pull->config.clock_ns) pull->config.clock_ns = rp_now_ns;
    pull->control = rp_control_header(config->block);
    pull->permission = RP_PERM_READ | RP_PERM_WRITE;
    set_limits(pull, config);
    if (make_tables(pull) && open_files(pull) && open_rings(pull)) {
        pull->request_log = (rp_request_log){.worker = config->worker,
                                             .manager = pull->manager,
                                             .ring = config->to_manager,
                                             .clock_ns = pull->config.clock_ns,
                                             .every = config->request_log_sample};
        return pull;
    }
    int error = errno;
    rp_pull_close(pull);
    errno = error ? error : ENOMEM;
    return NULL;
}

void rp_pull_close(rp_pull *pull) {
    if (!pull) return;
    for (uint32_t i = 0; i < pull->input_count; i++) rp_ring_reader_close(pull->inputs[i]);
    for (uint32_t i = 0; i < pull->selector_count; i++) rp_ring_writer_close(pull->selectors[i]);
    rp_backlog_destroy(&pull->for_manager);
    if (pull->manager) rp_ring_writer_close(pull->manager);
    if (pull->reader) rp_cq_close(pull->reader);
    rp_cq_ext_close(pull->selection.ext);
    if (pull->selection.log) rp_log_view_close(pull->selection.log);
    rp_map_destroy(&pull->topics, free);
    rp_map_destroy(&pull->groups, free);
    rp_map_destroy(&pull->subscriptions, rp_tags_free);
    if (pull->suspended_pulls.by_queue) rp_suspended_pulls_destroy(&pull->suspended_pulls);
    rp_expressions_destroy(&pull->expressions);
    rp_commits_destroy(&pull->commits);
    rp_traffic_destroy(&pull->traffic);
    free(pull->inputs);
    free(pull->input_rings);
    free(pull->selectors);
    free(pull->selector_workers);
    free(pull);
}

/* Answer the pulls that were suspended when the last pull worker died: their clients pull again from the same offset.
 */
static void answer_orphans(rp_pull *pull) {
    static const char REMARK[] = "the pull service was restarted; pull again";
    for (const rp_suspension_slot *suspended; (suspended = rp_suspended_pulls_orphan(&pull->suspended_pulls));
         rp_suspended_pulls_drop_orphan(&pull->suspended_pulls)) {
        rp_ring_writer *selector = pull_selector_of(pull, suspended->connection);
        if (!selector || suspended->flags & RP_REQUEST_ONEWAY) continue;
        rp_msg_pull_reply *record = (rp_msg_pull_reply *)rp_ring_reserve(selector, sizeof *record + PULL_HEAD_MAX);
        if (!record) return;
        const rp_queue *queue = rp_control_queue(pull->config.block, suspended->queue);
        rp_pull_reply reply = {.serialize_type = rp_serialize_type(suspended->flags),
                               .opaque = suspended->opaque,
                               .code = RP_RESPONSE_PULL_RETRY_IMMEDIATELY,
                               .version = pull->config.version,
                               .next_begin_offset = (uint64_t)suspended->queue_offset,
                               .min_offset = rp_load_acquire(&queue->min_offset),
                               .max_offset = rp_load_acquire(&queue->max_offset),
                               .remark = (const uint8_t *)REMARK,
                               .remark_size = sizeof REMARK - 1};
        *record = (rp_msg_pull_reply){.connection = suspended->connection};
        record->head_size = rp_pull_reply_encode(&reply, (uint8_t *)(record + 1), PULL_HEAD_MAX);
        rp_ring_commit(selector, (uint32_t)sizeof *record + record->head_size, RP_MSG_PULL_REPLY);
    }
}

/* ---- the loop ---- */

static rp_status take(rp_pull *pull, const uint8_t *data, uint32_t size, uint16_t type) {
    switch (type) {
        case RP_MSG_PULL: return rp_pull_take(pull, data, size);
        case RP_MSG_ARRIVAL:
            if (size >= sizeof(rp_msg_arrival))
                rp_suspended_pulls_arrived(&pull->suspended_pulls, ((const rp_msg_arrival *)data)->queue);
            return RP_OK;
        case RP_MSG_CLOSED:
            if (size >= sizeof(rp_origin))
                rp_suspended_pulls_drop_connection(&pull->suspended_pulls, ((const rp_origin *)data)->connection);
            return RP_OK;
        case RP_MSG_TOPIC: return rp_topics_apply(&pull->topics, pull->config.block, data, size, &pull->restrictions);
        case RP_MSG_GROUP: return rp_groups_apply(&pull->groups, data, size, &pull->restrictions);
        case RP_MSG_SUBSCRIPTION: return rp_subscriptions_apply(&pull->subscriptions, data, size);
        case RP_MSG_EXPRESSION: rp_expressions_add(&pull->expressions, data, size); return RP_OK;
        case RP_MSG_BROKER:
            if (size >= sizeof(rp_msg_broker)) pull->permission = ((const rp_msg_broker *)data)->permission;
            if (!(pull->permission & RP_PERM_READ)) pull->restrictions++;
            return RP_OK;
        case RP_MSG_TABLES_END: /* of another epoch: for the previous worker; ours will follow */
            if (size >= sizeof(rp_msg_tables_end) &&
                ((const rp_msg_tables_end *)data)->epoch == pull->config.worker->epoch && !pull->tables_ready) {
                pull->tables_ready = 1;
                pull->presence.since_ns = pull->now_ns;
            }
            return RP_OK;
        default: return RP_OK;
    }
}

/* A pull was served since `begun_ns`; returns the time now. */
static uint64_t count_time(rp_pull *pull, uint64_t begun_ns) {
    uint64_t now_ns = pull->config.clock_ns(), *longest = &pull->config.worker->counters[RP_COUNT_GET_TIME_MAX_US];
    if ((now_ns - begun_ns) / 1000 > *longest) __atomic_store_n(longest, (now_ns - begun_ns) / 1000, __ATOMIC_RELAXED);
    return now_ns;
}

static uint32_t drain(rp_pull *pull, uint32_t input) {
    rp_ring_reader *reader = pull->inputs[input];
    const uint8_t *data;
    uint32_t size, taken = 0;
    uint16_t type;
    uint64_t begun_ns = pull->config.clock_ns();
    pull->waiting_bytes = rp_ring_depth(pull->input_rings[input]);
    pull->units = 0;
    while (taken < BATCH_REQUESTS && pull->units < PULL_UNITS_MAX &&
           rp_ring_read(reader, &data, &size, &type) == RP_OK) {
        rp_serving_message(pull->config.worker, data, type == RP_MSG_PULL ? size : 0);
        rp_status status = take(pull, data, size, type);
        if (type == RP_MSG_PULL) begun_ns = count_time(pull, begun_ns);
        if (status == RP_FULL || status == RP_NO_MEMORY) {
            pull_count(pull, RP_COUNT_STALLS, 1);
            pull->is_blocked = 1;
            break;
        }
        rp_ring_release(reader);
        taken++;
    }
    rp_serving(pull->config.worker, 0);
    return taken;
}

static uint32_t pass(rp_pull *pull) {
    uint32_t codecs = pull->input_count - 2, taken = 0;
    pull->now_ns = pull->config.clock_ns();
    rp_presence_begin(&pull->presence, pull->now_ns);
    pull->is_unfinished = pull->is_blocked = 0;
    answer_orphans(pull);
    taken += drain(pull, codecs);
    taken += drain(pull, codecs + 1);
    rp_pull_look_at_arrived(pull);
    for (uint32_t i = 0; i < codecs && pull->tables_ready; i++) taken += drain(pull, i);
    rp_pull_sweep(pull, 0);
    __atomic_store_n(&pull->config.worker->counters[RP_COUNT_SUSPENDED], pull->suspended_pulls.count, __ATOMIC_RELAXED);
    __atomic_store_n(&pull->config.worker->counters[RP_COUNT_SUSPENDED_BYTES], pull->suspended_pulls.bytes,
                     __ATOMIC_RELAXED);
    if (pull->commits.first && pull->now_ns - pull->commits_flushed_ns > RP_COMMITS_INTERVAL_NS) {
        rp_commits_flush(&pull->commits, pull->manager, pull->config.to_manager, 0);
        pull->commits_flushed_ns = pull->now_ns;
    }
    rp_traffic_flush(&pull->traffic, pull->manager, pull->config.to_manager, pull->now_ns, 0);
    /* Once per turn: waking selectors within it, every 20 us, takes a fifth more CPU; every 50 us, it gains nothing. */
    for (uint32_t i = 0; i < pull->selector_count; i++) {
        rp_ring_pump(pull->selectors[i]);
        rp_ring_wake(pull->selectors[i]);
    }
    rp_ring_pump(pull->manager);
    rp_backlog_flush(&pull->for_manager);
    rp_ring_wake(pull->manager);
    return taken + (uint32_t)pull->is_unfinished;
}

/* Return the time until the next flush of commits or the next deadline: the loop may sleep so long. */
static int64_t nap(const rp_pull *pull, uint64_t end) {
    uint64_t until = end;
    if (pull->suspended_pulls.count && pull->now_ns + PULL_SWEEP_NS / 4 < until)
        until = pull->now_ns + PULL_SWEEP_NS / 4;
    if (pull->commits.first && pull->now_ns + RP_COMMITS_INTERVAL_NS < until)
        until = pull->now_ns + RP_COMMITS_INTERVAL_NS;
    return (int64_t)(until - pull->now_ns);
}

rp_status rp_pull_run(rp_pull *pull, int64_t timeout_ns) {
    rp_worker *worker = pull->config.worker;
    uint64_t end = pull->config.clock_ns() + (uint64_t)timeout_ns;
    for (;;) {
        uint32_t taken = pass(pull);
        worker->heartbeat_ns = pull->now_ns;
        pull_count(pull, RP_COUNT_LOOPS, 1);
        if (!taken) {
            if (rp_load_acquire32(&worker->stop)) {
                rp_pull_sweep(pull, 1);
                rp_commits_flush(&pull->commits, pull->manager, pull->config.to_manager, 1);
                rp_traffic_flush(&pull->traffic, pull->manager, pull->config.to_manager, pull->now_ns, 1);
                pass(pull);
                return RP_STOPPED;
            }
            rp_worker_prepare_sleep(worker);
            if (!pass(pull) && pull->now_ns < end) {
                pull_count(pull, RP_COUNT_SLEEPS, 1);
                pull->presence.has_slept = !pull->is_blocked;
                rp_worker_sleep(worker, nap(pull, end));
            } else {
                rp_worker_end_sleep(worker);
            }
        }
        if (pull->now_ns >= end) break;
    }
    rp_cq_release(pull->reader);
    if (pull->selection.ext) rp_cq_ext_release(pull->selection.ext);
    if (pull->selection.log) rp_log_view_trim(pull->selection.log, rp_load_acquire(&pull->control->min_phy_offset));
    return RP_OK;
}
