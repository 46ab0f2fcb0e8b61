#ifndef ROCKETPY_SLAVE_STREAM_H
#define ROCKETPY_SLAVE_STREAM_H
/* A slave's end of the HA stream, of 4.9 or of rocketpy: the log that a master sends, and what acknowledges it.
 *
 * Runs in the replicator, GIL released, once Python has connected and has compared the ends of both logs. Bytes go from
 * the socket into the ring to the send worker, which writes them (received_log.h). What is reported is published, or on
 * the disk: always the end of a record. */
#include <stdint.h>
#include "base/status.h"
#include "ipc/replica.h"
#include "ipc/ring.h"
#include "store/control_block.h"

typedef struct rp_slave_stream_config {
    rp_worker *worker; /* the replicator */
    const rp_control *control;
    rp_replica *replica;
    rp_ring *to_send;
    int32_t socket;         /* connected, non-blocking; stays the caller's */
    uint32_t is_own;        /* 1: frames of rocketpy, from the first one behind WELCOME on (frames.h) */
    uint32_t is_durable;    /* report what is on the disk (SYNC_FLUSH) */
    uint64_t phy_offset;    /* of the next byte from the master */
    uint64_t body_left;     /* bytes that the current frame still has, before the next header */
    uint64_t report_least;  /* what was reported first; later reports are not below it */
    uint32_t adds_zero;     /* 1: the byte before phy_offset is a zero, which the master does not send */
    int64_t report_interval_ns; /* haSendHeartbeatInterval */
    int64_t silence_max_ns;     /* haHousekeepingInterval */
} rp_slave_stream_config;

enum { /* why a stream has ended */
       RP_STREAM_CLOSED = 1,    /* by the master */
       RP_STREAM_FAILED = 2,    /* error of the socket; errno */
       RP_STREAM_SILENT = 3,    /* nothing came for silence_max_ns */
       RP_STREAM_MISPLACED = 4, /* a frame has another position than the next one */
       RP_STREAM_REFUSED = 5,   /* by the send worker; replica.h says why */
       RP_STREAM_DAMAGED = 6,   /* DATA has another CRC than it says */
       RP_STREAM_UNKNOWN = 7    /* a frame that no master sends now */
};

typedef struct rp_slave_stream rp_slave_stream;

/* Begin the stream with this configuration, as the next one of the replica. NULL with errno. */
rp_slave_stream *rp_slave_stream_open(const rp_slave_stream_config *config);
void rp_slave_stream_close(rp_slave_stream *stream);
/* Receive and report. RP_OK after `timeout_ns`; RP_STOPPED: the worker is to leave; RP_END_OF_FILE: the stream has
 * ended, rp_slave_stream_end says why. */
rp_status rp_slave_stream_run(rp_slave_stream *stream, int64_t timeout_ns);
/* RP_STREAM_*; 0: it has not ended. */
int32_t rp_slave_stream_end(const rp_slave_stream *stream);
/* Bytes of the log received so far; the position that the master named last as its next one; the last report. */
uint64_t rp_slave_stream_received(const rp_slave_stream *stream);
uint64_t rp_slave_stream_position(const rp_slave_stream *stream);
uint64_t rp_slave_stream_reported(const rp_slave_stream *stream);
#endif
