#ifndef ROCKETPY_SEND_PRIVATE_H
#define ROCKETPY_SEND_PRIVATE_H
/* What the files of the send worker share: its state. send.c calls send_request.c, never the other way round. */
#include "base/atomic.h"
#include "store/broker_clock.h"
#include "workers/admission.h"
#include "workers/diverted.h"
#include "workers/send.h"
#include "workers/send_wait.h"
#include "workers/tables.h"
#include "workers/traffic.h"

enum { RESUME_AT_LOG = UINT32_MAX, RESUME_AT_MANAGER = UINT32_MAX - 1 }; /* outputs of resume points */

struct rp_send {
    rp_send_config config;
    rp_control *control;
    rp_commitlog *log;
    rp_ring_reader **inputs; /* codecs, then the manager */
    rp_ring **input_rings;
    uint32_t input_count;    /* codecs + 1 */
    rp_ring_writer *manager;
    rp_ring_writer **selectors;
    uint32_t selector_count;
    rp_map topics;
    rp_diverted diverted;
    rp_backlog results; /* of the manager's own puts */
    rp_waits waits;
    rp_traffic traffic;
    uint8_t *ids; /* scratch for message ids */
    uint32_t ids_capacity;
    uint32_t region_size;
    uint32_t current_input;
    uint32_t appended; /* in this pass */
    int is_awaited;    /* some of it by a suspended pull */
    int is_blocked;    /* an input waits for room in a ring */
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

/* Serve one SEND message. RP_FULL: no room, it stays in the ring. */
rp_status rp_send_take(rp_send *send, const uint8_t *data, uint32_t size);
/* Send replies whose messages are on the disk, or which have waited too long for it. Returns their number. */
uint32_t rp_send_release_waits(rp_send *send);
/* Refuse sends that have waited for room too long; `all`: every one, because the manager has stopped. */
void rp_send_refuse_waiting(rp_send *send, int all);
/* Answer a put of the manager's own. RP_FULL: its ring and backlog have no room. */
rp_status rp_send_put_result(rp_send *send, const rp_wait *wait, int32_t code);
#endif
