#ifndef ROCKETPY_SLAVE_STREAM_H
#define ROCKETPY_SLAVE_STREAM_H
/* A slave's end of the HA stream, of 4.9 or of rocketpy: the log that a master sends, and what acknowledges it.
 *
 * Runs in the replicator, GIL released, once Python has connected and has compared the ends of both logs. Bytes go from
 * the socket into the ring to the send worker, which writes them (received_log.h). What is reported is published, or on
 * the disk: always the end of a record. */
#include <stdint.h>
#include "base/status.h"
#include "ipc/master_link.h"
#include "ipc/member.h"
#include "ipc/ring.h"
#include "store/control/control_block.h"
#include "replication/frames.h"

typedef struct rp_slave_stream_config {
    rp_worker *worker; /* the replicator */
    rp_control *control;
    rp_master_link *master_link;
    rp_ring *to_send;
    int32_t socket;         /* connected, non-blocking; stays the caller's */
    uint32_t is_rocketpy;        /* 1: frames of rocketpy, from the first one after WELCOME on (frames.h) */
    uint32_t is_durable;    /* report what is on the disk (SYNC_FLUSH) */
    uint64_t phy_offset;    /* of the next byte from the master */
    uint64_t body_left;     /* bytes that the current frame still has, before the next header */
    uint64_t report_least;  /* what was reported first; later reports are not below it */
    uint32_t adds_zero;     /* 1: the byte before phy_offset is a zero, which the master does not send */
    rp_member *member;        /* automatic failover; NULL: none. All that follows is for it */
    rp_worker *store;         /* woken when more is confirmed */
    uint64_t orders_version;  /* under which this stream was begun */
    int32_t epoch;            /* the master's */
    uint32_t epoch_count;
    const rp_epoch *epochs;   /* of the master's log, borrowed as long as the stream is open */
    uint64_t epochs_from;     /* the start of the first epoch that is not in this member's epoch file; ~0: all are */
    int64_t report_interval_ns; /* haSendHeartbeatInterval */
    int64_t silence_max_ns;     /* haHousekeepingInterval */
} rp_slave_stream_config;

enum { /* RP_COUNT_FOLLOWING; the states of rocketpy_ha_following in their order */
       RP_FOLLOWING_SEARCHING = 0, /* no master is known, or it does not answer */
       RP_FOLLOWING = 1,
       RP_FOLLOWING_HALTED = 2 /* the logs differ, or the master's cannot be used */
};

enum { /* why a stream has ended */
       RP_STREAM_END_CLOSED = 1,    /* by the master */
       RP_STREAM_END_FAILED = 2,    /* error of the socket; errno */
       RP_STREAM_END_SILENT = 3,    /* nothing came for silence_max_ns */
       RP_STREAM_END_MISPLACED = 4, /* a frame has another position than the next one */
       RP_STREAM_END_REFUSED = 5,   /* by the send worker; master_link.h says why */
       RP_STREAM_END_DAMAGED = 6,   /* DATA has another CRC than it says */
       RP_STREAM_END_UNKNOWN = 7,   /* a frame that no master sends now */
       RP_STREAM_END_FENCED = 8     /* the master is none any more: it knows a newer epoch */
};

/* Why rp_slave_stream_run has returned. The last two come with automatic failover. */
typedef enum rp_stream_event {
    RP_STREAM_IDLE = 0,       /* its time is over */
    RP_STREAM_ENDED = 1,      /* `end` says why */
    RP_STREAM_STOPPED = 2,    /* the worker is to stop */
    RP_STREAM_ORDERS = 3,     /* there are new orders, of another version than config.orders_version */
    RP_STREAM_NEEDS_EPOCH = 4 /* before more is received: the epochs up to needs_epochs_to have to be in the epoch file,
                                 on the disk. Then set config.epochs_from, and needs_epochs_to to 0 */
} rp_stream_event;

/* Python reads fields between two runs, and changes those that rp_stream_event names. */
typedef struct rp_slave_stream {
    rp_slave_stream_config config;
    rp_ring_writer *ring;
    uint64_t number;
    uint64_t phy_offset; /* of the next byte */
    uint64_t body_left;
    uint64_t master_end; /* as the master said last; rocketpy's frames only */
    uint64_t master_confirmed; /* the same, with automatic failover */
    uint64_t needs_epochs_to; /* 0, or where the frame ends that waits for the epoch file */
    uint64_t received; /* bytes of the log */
    uint64_t reported; /* ~0: nothing yet */
    uint64_t reported_ns;
    uint64_t heard_ns;
    uint32_t chunk_max;
    uint32_t header_size; /* bytes of `header` that have come */
    uint32_t report_size;
    uint32_t report_sent; /* bytes of `report` that have left; report_size: all */
    uint8_t *data; /* in the ring: room for the DATA that is being received; NULL: not reserved yet */
    uint32_t data_size;
    uint32_t data_crc; /* as its header says */
    int is_ring_full;
    int is_socket_full;
    int is_readable; /* the socket may have bytes: it is not asked again before ppoll says so */
    int32_t end; /* RP_STREAM_END_*; 0: it has not ended */
    uint8_t header[RP_HA_HEADER_MAX];
    uint8_t report[RP_HA_SIZE_FRAME_HEADER + RP_HA_SIZE_ACK];
} rp_slave_stream;

/* Begin the stream with this configuration, with the next number of the link to the master. NULL with errno. */
rp_slave_stream *rp_slave_stream_open(const rp_slave_stream_config *config);
void rp_slave_stream_close(rp_slave_stream *stream);
/* Receive and report until something has to be decided, at most `timeout_ns`. */
rp_stream_event rp_slave_stream_run(rp_slave_stream *stream, int64_t timeout_ns);
#endif
