/* The loop of the send worker: one pass takes up to BATCH_REQUESTS of each input; send_request.c serves each.
 *
 * A restarted send worker does not know which sends are with the manager. It reads nothing from codecs before
 * TABLES_END, which the manager sends when all of those are completed. */
#include "workers/send/send.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "wire/codes.h"
#include "ipc/resume.h"
#include "ipc/serving.h"
#include "store/recovery/recovery.h"
#include "workers/send/send_delay.h"
#include "workers/send/send_private.h"
#include "workers/send/send_timer.h"

enum {
    BATCH_REQUESTS = 256,
    NAP_NS = 50000000, /* at the most, while sends wait for the manager's ring: they grow old */
    ORDERS_NAP_NS = 20000000 /* at the most, where a coordinator gives orders: it cannot wake this worker */
};

static uint64_t reached(void *context, uint32_t output) {
    const rp_send *send = context;
    if (output == RESUME_AT_LOG) return rp_load_acquire(&send->control->published_phy_offset);
    return output == RESUME_AT_MANAGER ? rp_ring_tail(send->config.to_manager) : 0;
}

/* 1; 0: no memory. */
static int open_rings(rp_send *send) {
    const rp_send_config *config = &send->config;
    send->inputs = calloc(config->input_count + 2, sizeof *send->inputs);
    send->input_rings = calloc(config->input_count + 2, sizeof *send->input_rings);
    send->selectors = calloc(config->selector_count + 1, sizeof *send->selectors);
    if (!send->inputs || !send->input_rings || !send->selectors) return 0;
    for (uint32_t i = 0; i < config->input_count; i++) send->input_rings[i] = config->inputs[i];
    rp_ring *last = config->is_slave ? config->from_replicator : config->from_store;
    send->input_rings[config->input_count] = config->from_manager;
    send->input_rings[config->input_count + 1] = last;
    for (uint32_t i = 0; i < config->input_count + 1 + (last != NULL); i++, send->input_count++)
        if (!(send->inputs[i] = rp_ring_reader_open(send->input_rings[i]))) return 0;
    for (uint32_t i = 0; i < config->selector_count; i++, send->selector_count++)
        if (!(send->selectors[i] = rp_ring_writer_open(config->selectors[i]))) return 0;
    return (send->manager = rp_ring_writer_open(config->to_manager)) &&
           rp_diverted_init(&send->diverted, send->manager) == 0 && rp_backlog_init(&send->results, send->manager) == 0;
}

/* Open the log, and the marks that have to agree with its end. 1; 0 with errno. */
static int open_log(rp_send *send) {
    const rp_send_config *config = &send->config;
    if (!(send->log = rp_commitlog_open(config->commitlog_directory, send->control))) return 0;
    if (rp_recovery_next_offsets(config->block, config->commitlog_directory) != RP_OK) return 0;
    rp_broker_clock_open(&send->clock, send->control, config->wall_ms(), config->boot_ms());
    if (config->marks)
        rp_delivery_marks_open(config->marks, send->control->published_phy_offset, config->worker->has_crashed != 0);
    if (rp_send_halves_open(send) != RP_OK) return 0;
    if (!config->is_slave && config->from_store && rp_send_timer_open(send) != RP_OK) return 0;
    if (!config->is_slave && config->marks && rp_send_delay_open(send) != RP_OK) return 0;
    rp_received_log_init(&send->received, send->log, send->control, (int)config->check_crc, config->max_message_size);
    return 1;
}

rp_send *rp_send_open(const rp_send_config *config) {
    rp_send *send = calloc(1, sizeof *send);
    if (!send) return NULL;
    send->config = *config;
    if (!config->wall_ms) send->config.wall_ms = rp_wall_ms;
    if (!config->boot_ms) send->config.boot_ms = rp_boot_ms;
    if (!config->in_memory) send->config.in_memory = rp_half_reads_in_memory;
    send->control = rp_control_header(config->block);
    send->permission = RP_PERM_READ | RP_PERM_WRITE;
    send->random = rp_now_ns() | 1;
    rp_admission_init(&send->admission, config->worker, config->clock_ns, config->wait_time_in_queue_ms,
                      config->page_cache_busy_ms);
    send->admission.control = send->control;
    send->admission.lag_max = config->dispatch_lag_max;
    send->region_size = (uint32_t)strlen(config->region);
    send->cluster_size = config->cluster_property ? (uint32_t)strlen(config->cluster_property) : 0;
    if (rp_map_init(&send->topics, 256) == 0 && rp_traffic_init(&send->traffic) == 0 && open_rings(send) &&
        open_log(send)) {
        rp_resume(send->config.worker, send->inputs, config->input_count + 1, reached, send);
        send->request_log = (rp_request_log){.worker = config->worker,
                                             .manager = send->manager,
                                             .ring = config->to_manager,
                                             .clock_ns = send->admission.clock_ns,
                                             .every = config->request_log_sample};
        return send;
    }
    int error = errno;
    rp_send_close(send);
    errno = error ? error : ENOMEM;
    return NULL;
}

void rp_send_close(rp_send *send) {
    if (!send) return;
    for (uint32_t i = 0; i < send->input_count; i++) rp_ring_reader_close(send->inputs[i]);
    for (uint32_t i = 0; i < send->selector_count; i++) rp_ring_writer_close(send->selectors[i]);
    if (send->manager) rp_ring_writer_close(send->manager);
    if (send->log) rp_commitlog_close(send->log);
    rp_send_halves_close(send);
    rp_send_timer_close(send);
    rp_send_delay_close(send);
    rp_map_destroy(&send->topics, free);
    rp_diverted_destroy(&send->diverted);
    rp_backlog_destroy(&send->results);
    rp_waits_destroy(&send->waits);
    rp_waits_destroy(&send->replica_waits);
    rp_traffic_destroy(&send->traffic);
    free(send->inputs);
    free(send->input_rings);
    free(send->selectors);
    free(send->ids);
    free(send);
}

/* A restarted manager reads from `sends_from` on: sends before, which the previous one had read, are not completed. */
static void end_tables(rp_send *send, const rp_msg_tables_end *end) {
    rp_diverted_forget(&send->diverted, end->sends_from);
    if (send->tables_ready || end->epoch != send->config.worker->epoch) return; /* it was for the previous worker */
    send->tables_ready = 1;
    send->admission.presence.since_ns = send->admission.clock_ns();
}

static void set_broker(rp_send *send, const rp_msg_broker *broker) {
    send->permission = broker->permission;
    if (broker->max_message_size) send->config.max_message_size = broker->max_message_size;
    send->rejects_transactions = broker->reject_transactions;
}

/* Table entries sent before are valid from the position that this message names. */
static rp_status tell_position(rp_send *send, uint64_t token) {
    return rp_send_put_result(send, &(rp_wait){.token = token, .phy_offset = send->control->published_phy_offset},
                              RP_RESPONSE_SUCCESS);
}

static rp_status set_topic(rp_send *send, const uint8_t *data, uint32_t size) {
    uint32_t restrictions = 0; /* of reading */
    rp_status status = rp_topics_apply(&send->topics, send->config.block, data, size, &restrictions);
    rp_send_find_half_queues(send);
    if (send->half_records) rp_send_store_missing_ops(send); /* the op topic may have come back */
    return status;
}

/* The sends of a connection are completed: it is read again, and takes the fast path. */
static rp_status complete(rp_send *send, const uint8_t *data, uint32_t size) {
    const rp_msg_completed *completed = (const rp_msg_completed *)data;
    if (size >= sizeof *completed && rp_diverted_complete(&send->diverted, completed))
        rp_send_steer(send, completed->origin.connection, RP_REPLY_RESUME);
    return RP_OK;
}

static rp_status take(rp_send *send, const uint8_t *data, uint32_t size, uint16_t type) {
    switch (type) {
        case RP_MSG_POSITION:
            return size >= sizeof(rp_msg_position) ? tell_position(send, ((const rp_msg_position *)data)->token)
                                                   : RP_OK;
        case RP_MSG_SEND: return rp_send_take(send, data, size);
        case RP_MSG_TIMER:
            return size >= sizeof(rp_msg_timer) ? rp_send_timer_serve(send, (const rp_msg_timer *)data) : RP_OK;
        case RP_MSG_LOG: return size >= sizeof(rp_msg_log) ? rp_send_take_log(send, data, size) : RP_OK;
        case RP_MSG_DELIVER: return rp_send_deliver(send, data, size);
        case RP_MSG_END_TRANSACTION: return rp_send_end_transaction(send, data, size);
        case RP_MSG_TOPIC: return set_topic(send, data, size);
        case RP_MSG_COMPLETED: return complete(send, data, size);
        case RP_MSG_BROKER:
            if (size >= sizeof(rp_msg_broker)) set_broker(send, (const rp_msg_broker *)data);
            return RP_OK;
        case RP_MSG_TABLES_END:
            if (size >= sizeof(rp_msg_tables_end)) end_tables(send, (const rp_msg_tables_end *)data);
            return RP_OK;
        default: return RP_OK;
    }
}

static uint32_t drain(rp_send *send, uint32_t input) {
    rp_ring_reader *reader = send->inputs[input];
    const uint8_t *data;
    uint32_t size, taken = 0;
    uint16_t type;
    send->current_input = input;
    while (taken < BATCH_REQUESTS && rp_ring_read(reader, &data, &size, &type) == RP_OK) {
        if (rp_admission_look(&send->admission)) rp_send_look_at_clock(send);
        if (type == RP_MSG_DELIVER) /* the manager's own, as internal puts are */
            rp_serving(send->config.worker, RP_CONNECTION_INTERNAL);
        else if (type == RP_MSG_TIMER)
            rp_serving(send->config.worker, RP_CONNECTION_TIMER);
        else
            rp_serving_message(send->config.worker, data,
                               type == RP_MSG_SEND || type == RP_MSG_END_TRANSACTION ? size : 0);
        rp_status status = take(send, data, size, type);
        if (status == RP_FULL || status == RP_NO_MEMORY) {
            count(send, RP_COUNT_STALLS, 1);
            send->is_blocked = 1;
            break;
        }
        rp_ring_release(reader);
        taken++;
    }
    rp_serving(send->config.worker, 0);
    return taken;
}

static void flush_to_manager(rp_send *send) {
    rp_ring_pump(send->manager);
    rp_backlog_flush(&send->results);
    rp_diverted_flush(&send->diverted);
    rp_send_refuse_waiting(send, 0);
}

static uint32_t pass(rp_send *send) {
    rp_admission_begin(&send->admission);
    rp_send_look_at_clock(send);
    rp_send_read_orders(send);
    send->appended = 0;
    send->is_awaited = send->is_blocked = 0;
    /* Before the inputs, so that an input that waits for a large message to be written is served in this pass. */
    for (uint32_t i = 0; i < send->selector_count; i++) rp_ring_pump(send->selectors[i]);
    flush_to_manager(send);
    if (send->half_records) rp_send_store_missing_ops(send);
    uint32_t manager = send->config.input_count;
    uint32_t taken = drain(send, manager);
    uint32_t from_clients = 0;
    for (uint32_t i = 0; i < manager && send->tables_ready; i++) from_clients += drain(send, i);
    rp_send_finish_intake(send, from_clients);
    taken += from_clients;
    int takes_timers = send->tables_ready && !rp_load_acquire32(&send->config.worker->stop);
    if (manager + 1 < send->input_count && (send->config.is_slave || takes_timers)) taken += drain(send, manager + 1);
    rp_admission_end(&send->admission, taken);
    if (send->half_records) taken += rp_send_serve_read_ends(send);
    taken += rp_send_release_waits(send);
    for (uint32_t i = 0; i < send->selector_count; i++) rp_ring_wake(send->selectors[i]);
    flush_to_manager(send);
    rp_traffic_flush(&send->traffic, send->manager, send->config.to_manager, send->admission.now_ns,
                     (int)rp_load_acquire32(&send->config.worker->stop));
    rp_ring_wake(send->manager);
    if (rp_diverted_first(&send->diverted)) send->is_blocked = 1;
    if (send->appended) {
        rp_full_fence(); /* orders the store of the published position before the loads of `asleep` */
        rp_worker_wake(send->config.store, send->is_awaited);
        if (send->config.replicator) rp_worker_wake(send->config.replicator, 0);
    }
    return taken;
}

/* 1 if nothing waits outside of the rings. */
static int is_done(rp_send *send) {
    if (send->half_reads && rp_half_reads_are_waiting(send->half_reads)) return 0;
    return !rp_send_has_waits(send) && !rp_diverted_first(&send->diverted);
}

static int64_t nap_ns(rp_send *send, uint64_t end_ns) {
    uint64_t nap_ns = rp_send_wait_due_ns(send, end_ns) - send->admission.now_ns;
    if (rp_diverted_first(&send->diverted) && nap_ns > NAP_NS) nap_ns = NAP_NS;
    if (send->config.member && nap_ns > ORDERS_NAP_NS) nap_ns = ORDERS_NAP_NS;
    return (int64_t)nap_ns;
}

rp_status rp_send_run(rp_send *send, int64_t timeout_ns) {
    rp_worker *worker = send->config.worker;
    uint64_t end = send->admission.clock_ns() + (uint64_t)timeout_ns;
    rp_send_halves_release(send);
    uint64_t min_phy_offset = rp_load_acquire(&send->control->min_phy_offset);
    if (send->timer_records) rp_log_view_trim(send->timer_records, min_phy_offset);
    if (send->delayed_records) rp_log_view_trim(send->delayed_records, min_phy_offset);
    for (;;) {
        uint32_t taken = pass(send);
        worker->heartbeat_ns = send->admission.now_ns;
        count(send, RP_COUNT_LOOPS, 1);
        count(send, RP_COUNT_ROLLS, rp_commitlog_take_rolls(send->log));
        if (!taken) {
            if (rp_load_acquire32(&worker->stop)) {
                rp_send_refuse_waiting(send, 1);
                if (is_done(send)) return RP_STOPPED;
            }
            rp_worker_prepare_sleep(worker);
            if (!pass(send) && send->admission.now_ns < end) {
                count(send, RP_COUNT_SLEEPS, 1);
                send->admission.presence.has_slept = !send->is_blocked;
                rp_worker_sleep(worker, nap_ns(send, end));
            } else {
                rp_worker_end_sleep(worker);
            }
        }
        if (send->admission.now_ns >= end) return RP_OK;
    }
}
