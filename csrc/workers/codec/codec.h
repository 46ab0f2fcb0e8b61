#ifndef ROCKETPY_CODEC_H
#define ROCKETPY_CODEC_H
/* The codec worker: reads the header of each frame and passes the request to the worker that serves its code.
 *
 * Sends and pulls become the structs of worker_messages.h. Everything else, and requests whose header the fast reader
 * does not support, go to the manager as unchanged frames. Runs as a process of its own, or inside the selector when
 * codecWorkers = 0. */
#include <stdint.h>
#include "base/status.h"
#include "ipc/access.h"
#include "ipc/limits.h"
#include "ipc/ring.h"
#include "ipc/worker_messages.h"

/* The kinds of workers that serve requests. A pull goes to the worker that owns its queue (ipc/worker.h), queries go
 * to the query workers in turn. */
enum { RP_TO_SEND = 0, RP_TO_PULL = 1, RP_TO_MANAGER = 2, RP_TO_QUERY = 3 };

typedef struct rp_route {
    int32_t code;
    uint32_t destination; /* RP_TO_* */
} rp_route;

typedef struct rp_codec_config {
    rp_worker *worker;   /* the process it runs in */
    uint32_t input_count;/* rings from selectors; 0 when inline */
    uint32_t pull_count;  /* 1 .. RP_PULL_WORKERS_MAX */
    uint32_t query_count; /* 0: the manager serves queries */
    uint32_t selector_count;
    uint32_t route_count;
    rp_ring **inputs;
    rp_ring *send;
    rp_ring *manager;
    rp_ring **pulls;   /* by number of the owner */
    rp_ring **queries;
    rp_ring **selectors; /* reply rings, for requests that the codec refuses */
    const rp_route *routes; /* codes without a route go to the manager */
    int32_t version;     /* ours, for those replies */
    int64_t send_stall_ms; /* sends are refused while the send worker has been busy with one operation for longer; 0:
                              never */
    const rp_access *access; /* NULL: every request is allowed */
    rp_limits *limits;       /* of accounts; NULL: none */
    uint64_t (*clock_ns)(void); /* of `limits`, the opening and stalls of send; NULL: CLOCK_MONOTONIC */
} rp_codec_config;

typedef struct rp_codec rp_codec;

/* The config is read during the call only (rings and worker stay borrowed). NULL without memory. */
rp_codec *rp_codec_open(const rp_codec_config *config);
void rp_codec_close(rp_codec *codec);

/* Process one frame (without its length bytes). RP_OK: done; RP_FULL: no room, call again when woken; RP_INVALID: not a
 * frame, close the connection; RP_NO_MEMORY. */
rp_status rp_codec_frame(rp_codec *codec, const rp_origin *origin, const uint8_t *frame, uint32_t size);
/* Process frames of one connection in their order; their signatures are checked together. `*taken`: how many are done.
 * Not RP_OK: the status of the next one, which is to come again with all behind it. */
rp_status rp_codec_frames(rp_codec *codec, const rp_origin *origin, const rp_frame *frames, uint32_t count,
                          uint32_t *taken);
/* The connection was closed: send CLOSED to all workers that may hold state of it. RP_OK; RP_FULL: nothing was sent. */
rp_status rp_codec_closed(rp_codec *codec, const rp_origin *origin);
/* Continue large records and wake consumers; once per batch. */
void rp_codec_wake(rp_codec *codec);

/* The loop of a codec process: RP_OK after `timeout_ns`, RP_STOPPED once stopped and drained. GIL released. */
rp_status rp_codec_run(rp_codec *codec, int64_t timeout_ns);
#endif
