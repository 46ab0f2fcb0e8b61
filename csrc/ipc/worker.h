#ifndef ROCKETPY_WORKER_H
#define ROCKETPY_WORKER_H
/* The worker block, the doorbell that wakes a worker, and the pull worker that owns a queue.
 *
 * A worker has one doorbell (an eventfd) for everything it waits for; it is rung only when the worker has declared
 * itself asleep. Waiting is race-free (tests/unit/reactor/test_ring_wake_model.py checks every order of these steps):
 *
 *   consumer: asleep = 1; full fence; look at every ring once more; block on the doorbell only if all are empty
 *   producer: publish the tail; full fence; if the consumer's asleep was not 0, swap it to 0 and write the doorbell
 * Not in that model: after its fence a consumer may make RP_NAPPING of 1. Unhurried messages do not ring it then. */
#include <stdint.h>

enum { RP_COUNTERS_MAX = 128, RP_RESUME_POINTS_MAX = 16 };
/* Values of rp_worker.stop. LEAVE: finish what is in the rings, then leave. A selector receives INTAKE first: it reads
 * no more, but can still send the responses of other workers; LEAVE comes when those have ended. */
enum { RP_STOP_LEAVE = 1, RP_STOP_INTAKE = 2 };
enum { RP_ASLEEP = 1, RP_NAPPING = 2 /* it looks again within milliseconds, rung or not */ };

/* The worker block: the state of a worker that all processes can read. 64-byte aligned pieces. A (re)start of the
 * worker zeroes it, except for suspect, has_crashed, and resume points and counters, which only grow. */
typedef struct rp_worker {
    uint32_t asleep;       /* RP_ASLEEP: ring the doorbell after publishing; RP_NAPPING: unless that is unhurried */
    uint32_t stop;         /* RP_STOP_*; 0: go on */
    uint32_t ready;        /* 1: serving */
    int32_t doorbell;      /* non-blocking eventfd, the same number in every process */
    uint32_t index;        /* in the supervisor's list of workers */
    uint32_t epoch;        /* number of starts of this worker */
    uint64_t heartbeat_ns; /* CLOCK_MONOTONIC of the last turn of its loop */
    uint64_t busy_since_ns; /* start of the current pass, 0 between passes; send only: shows a stalled append */
    uint64_t serving; /* connection whose request is being served; 0: none */
    uint64_t suspect; /* set by the supervisor: connection whose request the last worker crashed on; 0: none */
    uint64_t has_crashed; /* set by the supervisor: 1: the last worker crashed or looped; 0: it was killed */
    uint64_t counters[RP_COUNTERS_MAX]; /* RP_COUNT_* of worker_counters.h; plain stores by the worker alone */
    /* Per input ring, so that a restarted worker neither repeats nor drops a message: the input up to `source_head` is
     * processed once the ring `output` has reached `output_position`. */
    struct {
        uint64_t source_head;
        uint64_t output_position;
        uint32_t output;
        uint32_t reserved;
    } resume_points[RP_RESUME_POINTS_MAX];
} rp_worker;

/* Ring the doorbell if the worker is asleep (or `force`). */
void rp_worker_wake(rp_worker *worker, int force);
/* Prepare to sleep: asleep = 1 and a full fence. Check all inputs again before you block. */
void rp_worker_prepare_sleep(rp_worker *worker);
/* Block on the doorbell until rung or `timeout_ns` passed (for loops that wait for nothing else), then awake. */
void rp_worker_sleep(rp_worker *worker, int64_t timeout_ns);
/* asleep = 0 and drain the doorbell; after any other way of waiting on it. */
void rp_worker_end_sleep(rp_worker *worker);

enum { RP_PULL_WORKERS_MAX = 64 };

/* The pull worker that owns a queue, 0 .. owners - 1; the queues of a topic are spread evenly. 0 < owners. Everybody
 * computes it alike: the codec for a pull, the store worker for an ARRIVAL, the manager for a pull that it hands back.
 * So the suspended pulls of a queue are in one process, and are served in the order in which they came. */
uint32_t rp_queue_owner(const uint8_t *topic, uint32_t topic_size, int32_t queue_id, uint32_t owners);
#endif
