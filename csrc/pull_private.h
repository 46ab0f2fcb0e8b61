#ifndef ROCKETPY_PULL_PRIVATE_H
#define ROCKETPY_PULL_PRIVATE_H
/* What the two halves of the pull processor share: pull.c opens it and turns its loop, pull_serve.c answers. */
#include "admission.h"
#include "atomic.h"
#include "backlog.h"
#include "commits.h"
#include "fetch.h"
#include "held.h"
#include "pull.h"
#include "tables.h"

enum {
    PULL_HEAD_MAX = 512,      /* bytes of the head of a pull reply */
    PULL_UNITS_MAX = 1 << 16, /* examined for one input before the others have their turn */
    PULL_UNITS_OF_A_LOOK = 32 /* what a look costs even where it examines nothing */
};
static const uint64_t PULL_SWEEP_NS = 500000000;

struct rp_pull {
    rp_pull_config config;
    rp_fetch_limits limits;
    rp_control *control;
    rp_cq_reader *reader;
    rp_cq_ext *ext; /* or NULL */
    rp_ring_reader **inputs; /* codecs, manager, store */
    rp_ring **input_rings;
    uint32_t input_count;
    uint64_t waiting_bytes; /* where the request at hand came from */
    rp_ring_writer *manager;
    rp_backlog waiting; /* pulls that the manager's ring has no room for */
    rp_ring_writer **selectors;
    const rp_worker **selector_workers;
    uint32_t selector_count;
    rp_map topics, groups, subscriptions;
    rp_helds helds;
    rp_commits commits;
    rp_tags parsed; /* the expression of the pull at hand */
    rp_fetch fetch; /* its result */
    int32_t permission;
    int tables_ready;
    int is_blocked; /* an input waits for room in a ring */
    rp_presence presence;
    uint64_t now_ns;
    uint64_t swept_ns;
    uint32_t sweep_chain;
    uint32_t units;       /* examined since this input's turn began */
    int is_unfinished;    /* a turn ended because of that: there is more to do at once */
    uint32_t arrival;     /* number of the one at hand, or of the last */
    int is_arriving;      /* one is at hand */
};

static inline void pull_count(rp_pull *pull, uint32_t counter, uint64_t n) {
    rp_add(&pull->config.worker->counters[counter], n);
}

static inline rp_ring_writer *pull_selector_of(const rp_pull *pull, uint64_t connection) {
    uint64_t index = connection >> 56;
    return index < pull->selector_count ? pull->selectors[index] : NULL;
}

/* 1: its selector has died since, and there is nobody to answer. */
static inline int pull_is_gone(const rp_pull *pull, uint64_t connection) {
    uint64_t index = connection >> 56;
    if (index >= pull->selector_count) return 0;
    uint32_t epoch = rp_load_acquire32(&pull->selector_workers[index]->epoch);
    return ((connection >> RP_GENERATION_BITS ^ epoch) & RP_EPOCH_MASK) != 0;
}

/* One PULL record. RP_FULL: not taken. */
rp_status rp_pull_take(rp_pull *pull, const uint8_t *data, uint32_t size);
/* Units have come into the queue. RP_FULL: not all whom it concerns have had a look at them, come again. */
rp_status rp_pull_arrived(rp_pull *pull, uint32_t queue_index);
/* Deadlines, the pulls of dead selectors, and whatever a lost notice might have left: a part of the chains per call, all of them twice a second. */
void rp_pull_sweep(rp_pull *pull, int stopping);
/* The pulls that our predecessor held: their clients are to ask again, from where they asked. */
void rp_pull_answer_orphans(rp_pull *pull);
#endif
