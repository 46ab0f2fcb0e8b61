#define _GNU_SOURCE
#include "replication/transfer.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include "base/crc32.h"
#include "base/endian.h"

enum {
    FRAMES_MAX = 32,    /* in one sendmsg */
    ROCKETPY_FRAMES_MAX = 1, /* what the socket does not take would be read again for its CRC */
    DATA_HEADER = RP_HA_SIZE_FRAME_HEADER + RP_HA_SIZE_DATA_HEADER,
    BEAT_HEADER = RP_HA_SIZE_FRAME_HEADER + RP_HA_SIZE_HEARTBEAT
};

/* The frames of one sendmsg; the first may be the rest of one. */
struct plan {
    struct {
        uint64_t phy_offset;
        uint32_t size;
        uint32_t header_size;
        uint8_t header[RP_HA_HEADER_MAX];
    } frames[FRAMES_MAX];
    struct iovec parts[2 * FRAMES_MAX];
    uint32_t frame_count;
    uint32_t part_count;
    uint64_t bytes;
};

void rp_transfer_init(rp_transfer *transfer, int is_rocketpy, uint64_t start, uint32_t frame_max, uint64_t file_size) {
    *transfer = (rp_transfer){.is_rocketpy = is_rocketpy,
                              .next = start,
                              .frame_phy_offset = start,
                              .frame_max = frame_max,
                              .file_size = file_size};
}

int rp_transfer_is_inside(const rp_transfer *transfer) {
    return transfer->frame_sent < transfer->header_size + transfer->frame_size;
}

uint64_t rp_transfer_sent(const rp_transfer *transfer) {
    if (!rp_transfer_is_inside(transfer)) return transfer->next;
    uint32_t sent = transfer->frame_sent;
    return transfer->frame_phy_offset + (sent > transfer->header_size ? sent - transfer->header_size : 0);
}

static uint32_t make_header(uint8_t *header, uint64_t phy_offset, uint32_t size) {
    rp_store64(header, phy_offset);
    rp_store32(header + 8, size);
    return RP_HA_SIZE_HEADER;
}

static uint32_t make_data_header(const rp_transfer *transfer, uint8_t *header, uint64_t phy_offset,
                                 const uint8_t *bytes, uint32_t size) {
    uint64_t epoch_end;
    int32_t epoch =
        transfer->epochs ? rp_epochs_at(transfer->epochs, transfer->epoch_count, phy_offset, &epoch_end) : 0;
    rp_store32(header, 1 + RP_HA_SIZE_DATA_HEADER + size);
    header[4] = RP_HA_TYPE_DATA;
    rp_store64(header + 5, phy_offset);
    rp_store64(header + 13, transfer->confirmed);
    rp_store32(header + 21, (uint32_t)epoch);
    rp_store32(header + 25, rp_crc32(0, bytes, size));
    return DATA_HEADER;
}

void rp_transfer_heartbeat(rp_transfer *transfer, uint64_t end, uint64_t wall_clock_ms) {
    uint8_t *header = transfer->header;
    transfer->frame_phy_offset = transfer->next;
    transfer->frame_size = transfer->frame_sent = 0;
    if (!transfer->is_rocketpy) {
        transfer->header_size = make_header(header, transfer->next, 0);
        return;
    }
    rp_store32(header, 1 + RP_HA_SIZE_HEARTBEAT);
    header[4] = RP_HA_TYPE_HEARTBEAT;
    rp_store64(header + 5, end);
    rp_store64(header + 13, transfer->confirmed);
    rp_store32(header + 21, (uint32_t)transfer->epoch);
    rp_store64(header + 25, wall_clock_ms);
    transfer->header_size = BEAT_HEADER;
}

static void add_part(struct plan *plan, const uint8_t *at, uint64_t size) {
    if (!size) return;
    plan->parts[plan->part_count++] = (struct iovec){.iov_base = (void *)(uintptr_t)at, .iov_len = size};
    plan->bytes += size;
}

/* Bytes of the log for the next frame of the plan; NULL with RP_OK: none are needed. */
static rp_status map_bytes(rp_log_view *view, uint64_t phy_offset, uint32_t size, const uint8_t **bytes) {
    *bytes = NULL;
    if (!size || (*bytes = rp_log_view_acquire(view, phy_offset, size))) return RP_OK;
    return rp_log_view_is_missing(errno) ? RP_NOT_FOUND : RP_NO_MEMORY;
}

static void add_frame(struct plan *plan, uint64_t phy_offset, const uint8_t *bytes, uint32_t size, uint32_t skip) {
    const uint8_t *header = plan->frames[plan->frame_count].header;
    uint32_t header_size = plan->frames[plan->frame_count].header_size;
    uint32_t of_header = skip < header_size ? skip : header_size, of_bytes = skip - of_header;
    plan->frames[plan->frame_count].phy_offset = phy_offset;
    plan->frames[plan->frame_count++].size = size;
    add_part(plan, header + of_header, header_size - of_header);
    if (bytes) add_part(plan, bytes + of_bytes, size - of_bytes);
}

/* Add what is left of the frame that is being sent. RP_OK, or why the log cannot be read. */
static rp_status add_rest(struct plan *plan, const rp_transfer *transfer, rp_log_view *view) {
    const uint8_t *bytes;
    rp_status status = map_bytes(view, transfer->frame_phy_offset, transfer->frame_size, &bytes);
    if (status != RP_OK) return status;
    memcpy(plan->frames[0].header, transfer->header, transfer->header_size);
    plan->frames[0].header_size = transfer->header_size;
    add_frame(plan, transfer->frame_phy_offset, bytes, transfer->frame_size, transfer->frame_sent);
    return RP_OK;
}

/* Add a frame with `size` bytes of the log. RP_OK, or why they cannot be read. */
static rp_status add_new(struct plan *plan, const rp_transfer *transfer, rp_log_view *view, uint64_t phy_offset,
                         uint32_t size) {
    const uint8_t *bytes;
    uint8_t *header = plan->frames[plan->frame_count].header;
    rp_status status = map_bytes(view, phy_offset, size, &bytes);
    if (status != RP_OK) return status;
    plan->frames[plan->frame_count].header_size = transfer->is_rocketpy
                                                      ? make_data_header(transfer, header, phy_offset, bytes, size)
                                                      : make_header(header, phy_offset, size);
    add_frame(plan, phy_offset, bytes, size, 0);
    return RP_OK;
}

static void release(const struct plan *plan, rp_log_view *view) {
    for (uint32_t i = 0; i < plan->frame_count; i++)
        if (plan->frames[i].size) rp_log_view_release(view, plan->frames[i].phy_offset);
}

static rp_status make_plan(const rp_transfer *transfer, rp_log_view *view, uint64_t end, uint64_t limit,
                           struct plan *plan) {
    rp_status status = RP_OK;
    uint64_t next = transfer->next;
    uint32_t frames_max = transfer->is_rocketpy ? ROCKETPY_FRAMES_MAX : FRAMES_MAX;
    if (rp_transfer_is_inside(transfer)) status = add_rest(plan, transfer, view);
    while (status == RP_OK && next < end && plan->bytes < limit && plan->frame_count < frames_max) {
        uint64_t size = transfer->file_size - next % transfer->file_size;
        if (size > end - next) size = end - next;
        if (size > transfer->frame_max) size = transfer->frame_max;
        if (transfer->epochs) {
            uint64_t epoch_end;
            (void)rp_epochs_at(transfer->epochs, transfer->epoch_count, next, &epoch_end);
            if (size > epoch_end - next) size = epoch_end - next;
        }
        status = add_new(plan, transfer, view, next, (uint32_t)size);
        next += size;
    }
    return plan->frame_count ? RP_OK : status;
}

/* The kernel took `taken` bytes of the plan: find the frame in which they end. */
static void advance(rp_transfer *transfer, const struct plan *plan, uint64_t taken) {
    uint32_t skip = rp_transfer_is_inside(transfer) ? transfer->frame_sent : 0;
    for (uint32_t i = 0; i < plan->frame_count && taken; i++, skip = 0) {
        uint32_t header_size = plan->frames[i].header_size;
        uint64_t left = header_size + (uint64_t)plan->frames[i].size - skip, now = taken < left ? taken : left;
        transfer->frame_phy_offset = plan->frames[i].phy_offset;
        transfer->frame_size = plan->frames[i].size;
        transfer->header_size = header_size;
        memcpy(transfer->header, plan->frames[i].header, header_size);
        transfer->frame_sent = skip + (uint32_t)now;
        if (transfer->next < transfer->frame_phy_offset + transfer->frame_size)
            transfer->next = transfer->frame_phy_offset + transfer->frame_size;
        taken -= now;
    }
}

rp_status rp_transfer_send(rp_transfer *transfer, int fd, rp_log_view *view, uint64_t end, uint64_t limit,
                           uint64_t *sent) {
    struct plan plan;
    *sent = 0;
    for (;;) {
        plan.frame_count = plan.part_count = 0;
        plan.bytes = 0;
        rp_status status = make_plan(transfer, view, end, limit > *sent ? limit - *sent : 0, &plan);
        if (status != RP_OK || !plan.frame_count) return status;
        struct msghdr message = {.msg_iov = plan.parts, .msg_iovlen = plan.part_count};
        ssize_t taken = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        int error = errno;
        release(&plan, view);
        if (taken < 0) {
            if (error == EINTR) continue;
            errno = error;
            return error == EAGAIN || error == EWOULDBLOCK ? RP_FULL : RP_IO_ERROR;
        }
        advance(transfer, &plan, (uint64_t)taken);
        *sent += (uint64_t)taken;
        if ((uint64_t)taken < plan.bytes) return RP_FULL;
    }
}
