#ifndef ROCKETPY_SEND_PRIVATE_H
#define ROCKETPY_SEND_PRIVATE_H
/* The state of the send worker, shared by its files. send.c calls send_request.c, never the other way round. */
#include <stdint.h>
#include "base/atomic.h"
#include "base/map.h"
#include "base/status.h"
#include "base/utf8.h"
#include "wire/reply.h"
#include "ipc/ring.h"
#include "store/log/broker_clock.h"
#include "store/log/commitlog.h"
#include "store/log/log_view.h"
#include "store/log/received_log.h"
#include "store/timers/timer_marks.h"
#include "store/transactions/half_states.h"
#include "workers/send/diverted.h"
#include "workers/send/half_reads.h"
#include "workers/send/send.h"
#include "workers/send/send_store.h"
#include "workers/shared/admission.h"
#include "workers/shared/replies.h"
#include "workers/shared/request_log.h"
#include "workers/shared/tables.h"
#include "workers/shared/traffic.h"

/* Replies that wait until their message is on the disk (SYNC_FLUSH) or on a slave (SYNC_MASTER): a bounded queue in log
 * order. One fdatasync, or one report of a slave, completes all replies that it covers (group commit). */

enum { RP_WAITING_MAX = 65536, RP_WAITING_BYTES_MAX = 16777216 };

/* The reasons why a reply waits. */
enum { RP_WAIT_FLUSH = 1, RP_WAIT_REPLICA = 2 };

/* The fields of a reply to be sent later. `ids` and `served` belong to the caller; waits_push (send_confirm.c) copies
 * them. */
typedef struct rp_wait {
    uint64_t need_phy_offset; /* the position that it waits for */
    uint64_t flush_deadline_ns, replica_deadline_ns;
    uint64_t received_ns;
    uint64_t connection;
    uint64_t token;
    uint64_t phy_offset;
    uint64_t queue_offset;
    int64_t store_timestamp_ms;
    int32_t opaque;
    int32_t queue_id;
    uint32_t flags; /* RP_REQUEST_* */
    uint32_t needs; /* RP_WAIT_* */
    int32_t code; /* if all that it waits for comes about: 0, or what is known already */
    uint32_t size;
    uint8_t *ids;
    uint32_t ids_size;
    uint32_t timer_state; /* of an internal put that was to end a timer: RP_TIMER_STATE_* */
    rp_served *served; /* its line of the request log; NULL: it has none, or no room */
} rp_wait;

typedef struct rp_waits {
    rp_wait *entries; /* a ring buffer of RP_WAITING_MAX, allocated at first use */
    uint64_t head, tail;
    uint64_t bytes; /* of ids and lines held */
} rp_waits;

void rp_waits_destroy(rp_waits *waits);

/* The fields of a request that its refusal needs. */
typedef struct rp_refused {
    const rp_origin *origin;
    uint64_t token;
    int32_t opaque;
    int32_t queue_id;
    uint32_t flags; /* RP_REQUEST_* */
} rp_refused;

enum { RESUME_AT_LOG = UINT32_MAX, RESUME_AT_MANAGER = UINT32_MAX - 1 }; /* outputs of resume points */

enum { HALF_TAIL_MAX = 512 }; /* bytes that the broker adds to the properties of a half message, without CLUSTER */

/* The coordinator's orders, as they were read last; zeros: nothing. */
typedef struct rp_send_orders {
    uint64_t version_plus_1; /* 0: not read yet */
    uint32_t takes_sends;
    uint32_t keeps_sends;
    uint32_t role; /* RP_ROLE_* of the process tree that is wanted */
    uint32_t answers_waits;
    uint32_t is_alone; /* nobody else has to acknowledge */
} rp_send_orders;

struct rp_send {
    rp_send_config config;
    rp_control *control;
    rp_commitlog *log;
    rp_log_view *timer_records; /* where timers are read; NULL without timers */
    rp_log_view *delayed_records; /* where delayed messages are read; NULL on a slave, and without marks */
    rp_number_set ended_timers; /* those in the journal from ended_from on */
    uint64_t ended_from;
    rp_timer_end_index timer_ends; /* how the latest timers ended */
    rp_received_log received; /* on a slave */
    rp_ring_reader **inputs; /* codecs, then the manager, then the timers of the store worker or a slave's replicator */
    rp_ring **input_rings;
    uint32_t input_count; /* codecs + 1, + 1 with timers or a replicator */
    rp_ring_writer *manager;
    rp_ring_writer **selectors;
    uint32_t selector_count;
    rp_map topics;
    rp_diverted diverted;
    rp_backlog results; /* of the manager's own puts */
    rp_waits waits; /* replies that wait for the disk alone */
    rp_waits replica_waits; /* replies that wait for a slave, and perhaps for the disk as well */
    rp_send_orders orders;
    uint64_t finish_by_ns; /* a master that hands over takes what was read before; until then at most. 0: it does not */
    uint64_t finish_quiet_ns; /* when it last took something */
    uint64_t finish_paused_ns; /* since when selectors are to read no more; 0: they may */
    uint64_t intake_pause_ns; /* since when a change of roles wants that they read nothing; 0: it does not */
    rp_traffic traffic;
    rp_request_log request_log;
    rp_log_view *half_records; /* half messages are read through it; NULL: there are no transactions */
    rp_half_places half_places;
    rp_half_reads *half_reads; /* NULL: there are no transactions */
    rp_queue *half_queue, *op_queue; /* NULL: there is no such topic yet */
    uint8_t *half_tail; /* scratch of HALF_TAIL_MAX + cluster_size */
    uint32_t cluster_size;
    uint32_t rejects_transactions; /* rejectTransactionMessage */
    uint8_t *ids; /* scratch for message ids */
    uint32_t ids_capacity;
    uint32_t region_size;
    uint32_t current_input;
    uint32_t appended; /* in this pass */
    int is_awaited; /* 1: a suspended pull waits for a queue appended to in this pass */
    int is_blocked; /* an input waits for room in a ring */
    int32_t permission;
    int tables_ready;
    uint64_t random;
    rp_admission admission;
    rp_broker_clock clock;
    int64_t now_ms; /* of the broker's clock */
};

static inline void count(rp_send *send, uint32_t counter, uint64_t n) {
    rp_add(&send->config.worker->counters[counter], n);
}

/* Count messages that are stored in a queue, for metrics and for the statistics of the topic: there are none of its
 * queues, except of those that are delay levels. `bytes`: of their records. */
static inline void rp_send_count_stored(rp_send *send, uint32_t messages, uint64_t bytes, int32_t queue_id,
                                        const uint8_t *topic, uint32_t topic_size) {
    rp_msg_traffic stored = {.messages = messages,
                             .bytes = bytes,
                             .requests = 1,
                             .queue_id = rp_text_is(topic, topic_size, RP_SCHEDULE_TOPIC) ? queue_id : 0,
                             .topic_size = topic_size};
    count(send, RP_COUNT_MESSAGES_PUT, messages);
    count(send, RP_COUNT_BYTES_PUT, bytes);
    rp_traffic_add(&send->traffic, &stored, topic, send->admission.now_ns);
}

/* Count a put, of which this pass has to tell the store worker. */
static inline void rp_send_count_put(rp_send *send, const rp_put *put, uint32_t messages, uint64_t bytes) {
    send->appended++;
    send->is_awaited |= __atomic_load_n(&put->queue->watched, __ATOMIC_RELAXED) != 0;
    rp_send_count_stored(send, messages, bytes, put->queue_id, put->topic, put->topic_size);
}

/* Look at the broker's clock. */
static inline void rp_send_look_at_clock(rp_send *send) {
    send->now_ms = rp_broker_clock_tick(&send->clock, send->config.wall_ms(), send->config.boot_ms());
}

/* Serve one SEND message. RP_FULL: no room, it stays in the ring. */
rp_status rp_send_take(rp_send *send, const uint8_t *data, uint32_t size);
/* Append a chunk of the master's log. RP_FULL: the disk has no room now, it stays in the ring. */
rp_status rp_send_take_log(rp_send *send, const uint8_t *data, uint32_t size);
/* Refuse sends that have waited for room too long; `all`: every one, because the manager has stopped. */
void rp_send_refuse_waiting(rp_send *send, int all);
/* Refuse a send or END_TRANSACTION that arrived from `origin`. RP_FULL: no room for the reply. */
rp_status rp_send_refuse(rp_send *send, const rp_refused *request, int32_t code, const char *remark);
/* send_confirm.c: when stored messages are answered. */
/* Before `size` bytes are stored: what their reply will wait for, if the client waits for anything (`wants_wait`). */
void rp_send_plan_wait(const rp_send *send, rp_wait *wait, int wants_wait, uint64_t size);
/* 1 if there is room for the reply; checked before anything is stored. */
int rp_send_has_room(rp_send *send, const rp_wait *wait);
/* The message is stored: answer it, or let the reply wait. */
rp_status rp_send_answer_or_wait(rp_send *send, const rp_wait *wait);
/* Send replies whose messages are where they have to be, or which have waited too long. Returns their number. */
uint32_t rp_send_release_waits(rp_send *send);
/* 1 if a reply waits. */
int rp_send_has_waits(rp_send *send);
/* `until_ns`, or an earlier deadline of a reply that waits. */
uint64_t rp_send_wait_due_ns(rp_send *send, uint64_t until_ns);
/* Answer with `code` a request whose records are stored. */
rp_status rp_send_answer(rp_send *send, const rp_wait *wait, int32_t code);
/* Answer such a request with SERVICE_NOT_AVAILABLE: its records may or may not stay, because this broker may not be the
 * master any more. */
rp_status rp_send_answer_fenced(rp_send *send, const rp_wait *wait);
/* With automatic failover: tell the coordinator that the log cannot be made longer, if that is not the message's fault.
 */
void rp_send_tell_fault(rp_send *send, rp_status status);
/* Tell it, and choose the refusal: the remark, and *code. `status` is that of rp_commitlog_reserve. */
const char *rp_send_append_fault(rp_send *send, rp_status status, int32_t *code);
/* The ring back to a connection; NULL: it has none. */
rp_ring_writer *rp_send_ring_to(const rp_send *send, uint64_t connection);
/* Tell the selector of a connection to pause or to resume reading it (`flag`: RP_REPLY_*). Without room in the ring it
 * is not told: a pause ends by itself, and the next send of the connection asks for another one. */
void rp_send_steer(const rp_send *send, uint64_t connection, uint32_t flag);
/* Before the output is published that proves the current input done. */
void rp_send_set_resume_point(rp_send *send, uint32_t output, uint64_t position);
/* send_orders.c: what the coordinator allows. Read its orders if they have changed; before anything else of a pass. */
void rp_send_read_orders(rp_send *send);
/* After the inputs of a pass, of which `taken` requests came from clients: whether all that was read before is taken.
 */
void rp_send_finish_intake(rp_send *send, uint32_t taken);
/* Return the reason why nothing may be stored now: the remark of SERVICE_NOT_AVAILABLE, or NULL. */
const char *rp_send_refusal(const rp_send *send);
/* 1 if an answer may leave now that says that a message is stored. */
int rp_send_may_answer(const rp_send *send);
/* The position below which every in-sync member has acknowledged the log; without automatic failover, a slave. *alone:
 * below it perhaps only this broker has it; a send there that waits is answered SLAVE_NOT_AVAILABLE. */
uint64_t rp_send_confirmed(const rp_send *send, uint64_t *alone);
/* send_end.c: half messages and their ends. */
rp_status rp_send_halves_open(rp_send *send); /* RP_OK, RP_NO_MEMORY */
void rp_send_halves_close(rp_send *send);
void rp_send_halves_release(rp_send *send); /* deleted files; about once a second */
void rp_send_find_half_queues(rp_send *send); /* after each change of a topic */
/* 1 if the send worker can store a half message without the manager. */
int rp_send_takes_halves(const rp_send *send);
/* Direct `put`, a half message for put->queue_id of its topic, to the half queue. */
void rp_send_redirect_half(rp_send *send, rp_put *put);
/* Store the op messages of committed messages that a power failure has separated from theirs; those that cannot be
 * stored now are for the next call. */
void rp_send_store_missing_ops(rp_send *send);
/* Serve one END_TRANSACTION. RP_FULL: no room, it stays in the ring. */
rp_status rp_send_end_transaction(rp_send *send, const uint8_t *data, uint32_t size);
/* Serve the ends whose half messages have been read from the disk; returns their number. */
uint32_t rp_send_serve_read_ends(rp_send *send);
/* Answer a put of the manager's own. RP_FULL: its ring and backlog have no room. */
rp_status rp_send_put_result(rp_send *send, const rp_wait *wait, int32_t code);

/* Upper bound of the size in the ring of the response to a stored send. */
uint32_t rp_send_reply_bound(uint32_t region_size, uint32_t message_ids_size);
#endif
