/* When a stored message is answered: at once, when it is on the disk, when a slave has it, or when that takes too long.
 *
 * Two queues in log order, because a reply that waits for the disk alone must not stand behind one that waits for a
 * slave. The position of a queue's head decides for all behind it. A slave is waited for only if there is one to expect
 * it from: otherwise the answer is known before (SLAVE_NOT_AVAILABLE), and waits for the disk at the most.
 *
 * With automatic failover a synchronous group waits for all that have to acknowledge. Below the position
 * `alone` only this broker acknowledged: such a send is answered SLAVE_NOT_AVAILABLE, even if the set has grown since.
 * No reply waits beyond the time until which the orders let answers leave. */
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "wire/codes.h"
#include "workers/send/send_private.h"

/* 1 if another reply with `ids_size` bytes of ids fits. */
static int waits_have_room(const rp_waits *waits, uint32_t ids_size) {
    return waits->tail - waits->head < RP_WAITING_MAX &&
           (waits->bytes + ids_size <= RP_WAITING_BYTES_MAX || waits->head == waits->tail);
}

/* The copy of a line that waits with its reply. Beyond half of the bytes a line is dropped: replies need the rest. */
static rp_served *keep_line(rp_send *send, rp_waits *waits, const rp_served *line) {
    if (!line) return NULL;
    int has_room = waits->bytes + sizeof *line <= RP_WAITING_BYTES_MAX / 2;
    rp_served *copy = has_room ? malloc(sizeof *copy) : NULL;
    if (!copy) {
        rp_request_log_drop(&send->request_log);
        return NULL;
    }
    waits->bytes += sizeof *copy;
    *copy = *line;
    return copy;
}

/* RP_OK, RP_FULL, RP_NO_MEMORY */
static rp_status waits_push(rp_send *send, rp_waits *waits, const rp_wait *wait) {
    if (!waits_have_room(waits, wait->ids_size)) return RP_FULL;
    if (!waits->entries && !(waits->entries = calloc(RP_WAITING_MAX, sizeof *waits->entries))) return RP_NO_MEMORY;
    uint8_t *ids = malloc(wait->ids_size ? wait->ids_size : 1);
    if (!ids) return RP_NO_MEMORY;
    rp_wait *entry = &waits->entries[waits->tail % RP_WAITING_MAX];
    *entry = *wait;
    entry->ids = memcpy(ids, wait->ids, wait->ids_size);
    waits->bytes += wait->ids_size;
    entry->served = keep_line(send, waits, wait->served);
    waits->tail++;
    return RP_OK;
}

/* NULL if none waits */
static rp_wait *waits_first(rp_waits *waits) {
    return waits->head == waits->tail ? NULL : &waits->entries[waits->head % RP_WAITING_MAX];
}

static void waits_pop(rp_waits *waits) {
    rp_wait *entry = &waits->entries[waits->head % RP_WAITING_MAX];
    waits->bytes -= entry->ids_size + (entry->served ? sizeof *entry->served : 0);
    free(entry->ids);
    free(entry->served);
    entry->ids = NULL;
    waits->head++;
}

void rp_waits_destroy(rp_waits *waits) {
    while (waits_first(waits)) waits_pop(waits);
    free(waits->entries);
    waits->entries = NULL;
}

enum { FENCED_REPLY = sizeof(rp_msg_reply) + RP_ERROR_REPLY_MAX };

void rp_send_plan_wait(const rp_send *send, rp_wait *wait, int wants_wait, uint64_t size) {
    const rp_send_config *config = &send->config;
    wait->needs = 0;
    wait->code = RP_RESPONSE_SUCCESS;
    if (!wants_wait) return;
    if (config->sync_flush) {
        wait->needs |= RP_WAIT_FLUSH;
        wait->flush_deadline_ns = send->admission.now_ns + (uint64_t)config->sync_flush_timeout_ms * 1000000u;
    }
    if (!config->slaves && !config->waits_for_confirmed) return;
    if (config->waits_for_confirmed
            ? send->orders.is_alone
            : !rp_slave_table_can_wait(config->slaves, send->control->published_phy_offset + size,
                                       config->fall_behind_max)) {
        wait->code = RP_RESPONSE_SLAVE_NOT_AVAILABLE;
        return;
    }
    wait->needs |= RP_WAIT_REPLICA;
    wait->replica_deadline_ns = send->admission.now_ns + (uint64_t)config->slave_timeout_ms * 1000000u;
}

static rp_waits *queue_of(rp_send *send, const rp_wait *wait) {
    return wait->needs & RP_WAIT_REPLICA ? &send->replica_waits : &send->waits;
}

static int can_answer(rp_send *send, const rp_wait *wait) {
    if (rp_is_internal(wait->connection)) return rp_backlog_has_room(&send->results, sizeof(rp_msg_put_result));
    rp_ring_writer *selector = rp_send_ring_to(send, wait->connection);
    if (!selector || wait->flags & RP_REQUEST_ONEWAY) return 1;
    uint32_t bound = rp_send_reply_bound(send->region_size, wait->ids_size);
    if (send->config.member && bound < FENCED_REPLY) bound = FENCED_REPLY;
    return rp_ring_can_take(selector, bound);
}

int rp_send_has_room(rp_send *send, const rp_wait *wait) {
    return wait->needs ? waits_have_room(queue_of(send, wait), wait->ids_size) : can_answer(send, wait);
}

rp_status rp_send_answer_or_wait(rp_send *send, const rp_wait *wait) {
    return wait->needs ? waits_push(send, queue_of(send, wait), wait) : rp_send_answer(send, wait, wait->code);
}

/* How far messages are, at one moment. */
struct positions {
    uint64_t durable, replicated;
    uint64_t alone; /* below it replicated is not: this broker alone has confirmed it */
    int is_fenced; /* no answer may say that a message is stored */
};

/* RP_OK: *code is the answer, unless answers are fenced. RP_EMPTY: it has to wait longer. What a slave says hides what
 * the disk says. */
static rp_status outcome(const rp_send *send, const rp_wait *wait, const struct positions *reached, int32_t *code) {
    uint64_t now = send->admission.now_ns, need = wait->need_phy_offset;
    *code = wait->code;
    if (reached->is_fenced) return RP_OK;
    if (wait->needs & RP_WAIT_REPLICA && need > reached->replicated) {
        if (now < wait->replica_deadline_ns) return RP_EMPTY;
        *code = RP_RESPONSE_FLUSH_SLAVE_TIMEOUT;
    } else if (wait->needs & RP_WAIT_REPLICA && need <= reached->alone) {
        *code = RP_RESPONSE_SLAVE_NOT_AVAILABLE;
    }
    if (wait->needs & RP_WAIT_FLUSH && need > reached->durable) {
        if (now < wait->flush_deadline_ns) return RP_EMPTY;
        if (*code == RP_RESPONSE_SUCCESS) *code = RP_RESPONSE_FLUSH_DISK_TIMEOUT;
    }
    return RP_OK;
}

/* The deadline may have moved since `reached` was read. A reply that was released because it had passed is refused all
 * the same: nobody has looked whether its message is confirmed. */
static rp_status answer(rp_send *send, const rp_wait *wait, const struct positions *reached, int32_t code) {
    return reached->is_fenced ? rp_send_answer_fenced(send, wait) : rp_send_answer(send, wait, code);
}

static uint32_t release(rp_send *send, rp_waits *waits, const struct positions *reached) {
    uint32_t released = 0;
    int32_t code;
    for (rp_wait *wait; (wait = waits_first(waits)); released++) {
        if (outcome(send, wait, reached, &code) != RP_OK) break;
        if (!can_answer(send, wait) || answer(send, wait, reached, code) != RP_OK) break;
        waits_pop(waits);
    }
    return released;
}

uint32_t rp_send_release_waits(rp_send *send) {
    struct positions reached = {.is_fenced = !rp_send_may_answer(send)};
    reached.durable = rp_load_acquire(&send->control->durable_phy_offset);
    reached.replicated = rp_send_confirmed(send, &reached.alone);
    return release(send, &send->replica_waits, &reached) + release(send, &send->waits, &reached);
}

int rp_send_has_waits(rp_send *send) { return waits_first(&send->waits) || waits_first(&send->replica_waits); }

uint64_t rp_send_wait_due_ns(rp_send *send, uint64_t until_ns) {
    uint64_t now = send->admission.now_ns, due;
    rp_waits *queues[] = {&send->waits, &send->replica_waits};
    for (uint32_t i = 0; i < 2; i++) {
        const rp_wait *wait = waits_first(queues[i]);
        if (!wait) continue;
        if (wait->needs & RP_WAIT_REPLICA && (due = wait->replica_deadline_ns) > now)
            until_ns = rp_earlier(until_ns, due);
        if (wait->needs & RP_WAIT_FLUSH && (due = wait->flush_deadline_ns) > now) until_ns = rp_earlier(until_ns, due);
    }
    return until_ns;
}
