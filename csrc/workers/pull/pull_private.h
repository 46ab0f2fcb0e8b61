#ifndef ROCKETPY_PULL_PRIVATE_H
#define ROCKETPY_PULL_PRIVATE_H
/* Shared by the files of the pull worker: pull.c opens it and runs its loop, pull_serve.c checks pulls and
 * serves them. */
#include <stdint.h>
#include "base/atomic.h"
#include "base/map.h"
#include "ipc/backlog.h"
#include "ipc/ring.h"
#include "ipc/worker_messages.h"
#include "workers/pull/commits.h"
#include "workers/pull/fetch.h"
#include "workers/pull/pull.h"
#include "workers/pull/subscription.h"
#include "workers/pull/suspended_pulls.h"
#include "workers/shared/admission.h"
#include "workers/shared/replies.h"
#include "workers/shared/request_log.h"
#include "workers/shared/tables.h"
#include "workers/shared/traffic.h"

enum {
    PULL_HEAD_MAX = 512,      /* bytes of the head of a pull reply */
    PULL_UNITS_MAX = 1 << 16, /* examined for one input before the next input is served */
    PULL_UNITS_OF_A_CHAIN = 1 << 12, /* examined for the pulls of one chain before the next chain */
    PULL_UNITS_OF_A_LOOK = 32, /* counted for each examined pull, even if it reads fewer */
    PULL_UNITS_OF_A_TAG = 4,   /* counted for each tag of an expression that a pull brings */
    PULL_WORK_OF_A_UNIT = 64   /* bytes of work on SQL92 expressions that take as long as a unit */
};
/* Bits of the sysFlag of a pull. */
enum { PULL_FLAG_COMMIT_OFFSET = 1, PULL_FLAG_SUSPEND = 2, PULL_FLAG_SUBSCRIPTION = 4, PULL_FLAG_BULK = 1 << 16 };
static const uint64_t PULL_SWEEP_NS = 500000000;

struct rp_pull {
    rp_pull_config config;
    rp_fetch_limits limits;
    rp_fetch_limits bulk_limits; /* of pulls that say they are bulk pulls */
    rp_control *control;
    rp_cq_reader *reader;
    rp_selection selection;
    rp_ring_reader **inputs; /* codecs, manager, store */
    rp_ring **input_rings;
    uint32_t input_count;
    uint64_t waiting_bytes; /* bytes waiting in the ring that the current request came from */
    rp_ring_writer *manager;
    rp_backlog for_manager; /* pulls that wait for room in its ring */
    rp_ring_writer **selectors;
    const rp_worker **selector_workers;
    uint32_t selector_count;
    rp_map topics, groups, subscriptions;
    rp_expressions expressions; /* that pulls bring */
    rp_suspended_pulls suspended_pulls;
    rp_commits commits;
    uint64_t commits_flushed_ns;
    rp_traffic traffic;
    rp_request_log request_log;
    rp_tags parsed; /* the expression of the current pull */
    int32_t parsed_hashes[RP_TAGS_MAX];
    rp_fetch fetch; /* the messages found for the current pull */
    int32_t permission;
    uint32_t restrictions; /* changes of the tables that may end suspended pulls */
    int tables_ready;
    int is_blocked; /* an input waits for room in a ring */
    rp_presence presence;
    uint64_t now_ns;
    uint64_t swept_ns;
    uint32_t sweep_chain;
    uint32_t sweep_due;   /* chains that the sweep still has to visit */
    int is_in_chain;      /* the sweep continues in the middle of its chain, at suspended_pulls.sweep */
    uint32_t units;       /* examined since the turn of this input began */
    int is_unfinished;    /* suspended pulls are left to examine: do not sleep before the next turn */
};

/* A pull that the fast path can serve, with its table entries. */
typedef struct pull_checked {
    const rp_msg_pull *request;
    const uint8_t *names; /* group, topic */
    const rp_group *group;
    const rp_tags *tags;
    rp_queue *queue;
    const char *fault; /* why it cannot be served */
} pull_checked;

static inline void pull_count(rp_pull *pull, uint32_t counter, uint64_t n) {
    rp_add(&pull->config.worker->counters[counter], n);
}

static inline rp_ring_writer *pull_selector_of(const rp_pull *pull, uint64_t connection) {
    return rp_selector_of(pull->selectors, pull->selector_count, connection);
}

/* 1 if the selector of the connection has died: the response could not be delivered. */
static inline int pull_is_gone(const rp_pull *pull, uint64_t connection) {
    uint64_t index = connection >> 56;
    if (index >= pull->selector_count) return 0;
    uint32_t epoch = rp_load_acquire32(&pull->selector_workers[index]->epoch);
    return ((connection >> RP_GENERATION_BITS ^ epoch) & RP_EPOCH_MASK) != 0;
}

/* Serve one PULL message. RP_FULL: no room for the answer; the message stays in its ring. */
rp_status rp_pull_take(rp_pull *pull, const uint8_t *data, uint32_t size);
/* Serve the suspended pulls of queues that have new units. Each call examines PULL_UNITS_MAX units, chain by chain; the
 * next calls serve the rest. */
void rp_pull_look_at_arrived(rp_pull *pull);
/* End suspended pulls whose deadline has passed, whose selector has died, or whose topic, group or permission is gone,
 * and examine all others in case an ARRIVAL was lost. Each call visits the chains that are due, and examines at most
 * PULL_UNITS_MAX units. Every chain is visited twice a second if the load allows. */
void rp_pull_sweep(rp_pull *pull, int stopping);
#endif
