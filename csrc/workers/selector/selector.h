#ifndef ROCKETPY_SELECTOR_H
#define ROCKETPY_SELECTOR_H
/* The loop of one selector worker: it reads sockets, passes frames to the codecs, and writes responses. */
#include <stdint.h>
#include "base/status.h"
#include "wire/peer.h"
#include "ipc/limits.h"
#include "ipc/ring.h"
#include "ipc/worker_messages.h"

typedef struct rp_selector_config {
    rp_worker *worker;
    uint32_t index;             /* top byte of its connections' numbers; below 255 */
    int32_t handoff;            /* unix socket: n bytes (listener numbers) with n descriptors, n <= RP_HANDOFF_MAX */
    uint32_t reply_count;
    uint32_t codec_count;       /* connections are bound to codec (slot mod count) */
    rp_ring **replies;
    rp_ring **codecs;
    struct rp_codec *inline_codec; /* decodes in this process when codec_count is 0 */
    struct rp_log_view *log;    /* for PULL_REPLY; may be NULL where no worker sends any */
    uint32_t connections_max;   /* 0: 20 000; never more than RLIMIT_NOFILE allows */
    uint32_t frame_size_max;    /* 0: RP_FRAME_SIZE_MAX */
    uint32_t idle_s;            /* close after this time without traffic; 0: never */
    uint32_t high_water_bytes;  /* queued output above which a connection is not read; 0: 1 MiB */
    uint32_t deleted_grace_ms;  /* how long a connection may keep a deleted log file open; 0: 30 s */
    uint32_t spin_us;           /* how long to look for work before sleeping (spin.h); 0: not at all */
    uint64_t unfinished_bytes_max; /* of unfinished frames of all connections; 0: 256 MiB */
    uint64_t unsent_bytes_max; /* of memory for unsent output of all connections; 0: 256 MiB */
    uint32_t proxy_count;
    const rp_network *proxies;  /* connections from these begin with a PROXY header, which names the client */
    const uint32_t *intake_paused; /* while it is not 0 only the rest of half requests is read; NULL: never */
    rp_limits *limits;          /* of addresses; NULL: none */
    uint32_t tls_count;         /* 0: no TLS, whose first byte is refused as that of a bad frame */
    uint32_t is_tls_required;   /* connections without TLS are closed */
    const int32_t *tls; /* unix sockets to the TLS workers: an rp_host with two descriptors, the client's and the
                           one to serve it by; connections go to worker (slot mod count) */
} rp_selector_config;

enum { RP_HANDOFF_MAX = 32, RP_SELECTOR_CONNECTION_SIZE = 128 };

typedef struct rp_selector rp_selector;

/* All that the config points to is borrowed until close. NULL with errno. */
rp_selector *rp_selector_open(const rp_selector_config *config);
/* Closes every connection; the handoff socket stays the caller's. */
void rp_selector_close(rp_selector *selector);
/* Serve for `timeout_ns` (< 0: until stopped). RP_OK when the time is over; RP_STOPPED after the order to leave, when
 * all responses are sent (or 5 s have passed); RP_IO_ERROR (errno) if epoll itself fails. */
rp_status rp_selector_run(rp_selector *selector, int64_t timeout_ns);
/* After RP_STOPPED: give connections to the caller, which passes them to another selector. Only those with nothing in
 * this process: no part of a request, no response. Returns their number, at most `max`; 0: there are no more. */
uint32_t rp_selector_give_up(rp_selector *selector, int32_t *fds, uint8_t *listeners, uint32_t max);
/* Connections open now; for metrics and tests. */
uint32_t rp_selector_connection_count(const rp_selector *selector);
#endif
