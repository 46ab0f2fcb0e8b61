#ifndef ROCKETPY_TRANSFER_H
#define ROCKETPY_TRANSFER_H
/* Sends the log to one slave: cut into frames, headers and bytes of the mapped files in one sendmsg. Nothing is copied
 * in user space. Once a byte of a header is sent, the whole frame must follow; so the rest of one frame is all the
 * state there is. */
#include <stdint.h>
#include "base/status.h"
#include "ipc/member.h"
#include "store/log/log_view.h"
#include "replication/frames.h"

typedef struct rp_transfer {
    int is_rocketpy;                /* frames of rocketpy; otherwise those of 4.9 */
    uint8_t header[RP_HA_HEADER_MAX]; /* of the frame that is being sent: it must not change on the way */
    uint64_t next;             /* the first byte of the log that is in no frame yet */
    uint64_t frame_phy_offset; /* of the frame that is being sent */
    uint32_t frame_size;       /* bytes of the log in it */
    uint32_t header_size;
    uint32_t frame_sent;       /* bytes of header and log that the kernel has; all of them: no frame is being sent */
    uint32_t frame_max;        /* most bytes of the log in one frame */
    uint64_t file_size;
    const rp_epoch *epochs; /* of the log, borrowed: no frame has bytes of two; NULL: all are of epoch 0 */
    uint32_t epoch_count;
    int32_t epoch;          /* the master's */
    uint64_t confirmed;     /* what the frames made next say of it */
} rp_transfer;

void rp_transfer_init(rp_transfer *transfer, int is_rocketpy, uint64_t start, uint32_t frame_max, uint64_t file_size);
/* 1 if a frame has begun and has not ended. */
int rp_transfer_is_inside(const rp_transfer *transfer);
/* Position below which the kernel has the log. */
uint64_t rp_transfer_sent(const rp_transfer *transfer);
/* Begin a heartbeat; only between frames. It leaves with the next rp_transfer_send. `end`: of the master's log. */
void rp_transfer_heartbeat(rp_transfer *transfer, uint64_t end, uint64_t wall_clock_ms);
/* Send what is left of the current frame, then frames up to `end`, about `limit` bytes of the log. `*sent`: bytes of
 * the log and of headers that the kernel took. RP_OK all of it; RP_FULL the socket takes no more now; RP_NOT_FOUND a
 * log file is gone; RP_NO_MEMORY try again later; RP_IO_ERROR with errno: the connection has ended. */
rp_status rp_transfer_send(rp_transfer *transfer, int fd, rp_log_view *view, uint64_t end, uint64_t limit,
                           uint64_t *sent);
#endif
