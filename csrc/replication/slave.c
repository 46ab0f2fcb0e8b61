/* See slave.h. */
#define _GNU_SOURCE
#include "replication/slave.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include "base/atomic.h"
#include "base/endian.h"

enum { READ_BYTES = 4096, BYTES_PER_TURN = 4 << 20 };
static const uint64_t WINDOW_NS = 100000000; /* the bytes of a second are given out in tenths of one */
static const uint64_t PAUSE_NS = 100000000; /* after a lack of memory or descriptors */

void rp_slave_open(rp_slave *slave, int fd, rp_slave_row *row, uint64_t now_ns) {
    *slave = (rp_slave){.fd = fd, .row = row, .read_ns = now_ns, .written_ns = now_ns, .window_ns = now_ns};
    rp_store_release(&row->connected_ns, now_ns);
    rp_store_release32(&row->state, RP_SLAVE_CONNECTED);
}

static rp_status refuse(uint32_t reason, uint32_t *why) {
    *why = reason;
    return RP_STOPPED;
}

/* A slave with an empty log (0) gets everything that there is. The reference would begin with its last file, so that
 * what is older would be lost with the master. */
static rp_status begin(rp_slave *slave, const rp_slave_rules *rules, uint64_t report, uint64_t min, uint64_t end,
                       uint32_t *why) {
    uint64_t first = min - min % rules->file_size, start = report ? report : first;
    if (report > end) return refuse(RP_SLAVE_LONGER, why);
    if (start < first) return refuse(RP_SLAVE_BEHIND, why);
    rp_transfer_init(&slave->transfer, start, rules->frame_max, rules->file_size);
    slave->has_reported = 1;
    slave->acked = report;
    return RP_OK;
}

static rp_status take(rp_slave *slave, const rp_slave_rules *rules, uint64_t min, uint64_t end, uint64_t now_ns,
                      uint32_t *why) {
    uint64_t report = rp_load64(slave->report);
    slave->reported = report;
    if (report > INT64_MAX) return refuse(RP_SLAVE_IMPLAUSIBLE, why);
    if (!slave->has_reported) return begin(slave, rules, report, min, end, why);
    if (report < slave->acked || report > rp_transfer_sent(&slave->transfer))
        return refuse(report > end ? RP_SLAVE_LONGER : RP_SLAVE_IMPLAUSIBLE, why);
    if (report > slave->acked) slave->behind_since_ns = now_ns;
    slave->acked = report;
    return RP_OK;
}

rp_status rp_slave_read(rp_slave *slave, const rp_slave_rules *rules, uint64_t min, uint64_t end, uint64_t now_ns,
                        uint32_t *why) {
    uint8_t bytes[READ_BYTES];
    ssize_t size = recv(slave->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return RP_OK;
    if (size <= 0) return refuse(RP_SLAVE_LEFT, why);
    slave->read_ns = now_ns;
    for (ssize_t i = 0; i < size; i++) {
        slave->report[slave->report_size++] = bytes[i];
        if (slave->report_size < RP_HA_REPORT) continue;
        slave->report_size = 0;
        rp_status status = take(slave, rules, min, end, now_ns, why);
        if (status != RP_OK) return status;
    }
    return RP_OK;
}

/* Bytes that may be sent now. Frames are sent whole; what is beyond the limit is taken off the windows that follow. */
static uint64_t allowance(rp_slave *slave, const rp_slave_rules *rules, uint64_t now_ns) {
    if (!rules->bytes_per_second) return BYTES_PER_TURN;
    uint64_t limit = rules->bytes_per_second < 10 ? 1 : rules->bytes_per_second / 10;
    uint64_t windows = (now_ns - slave->window_ns) / WINDOW_NS;
    slave->window_ns += windows * WINDOW_NS;
    slave->window_bytes -= windows > slave->window_bytes / limit ? slave->window_bytes : windows * limit;
    return slave->window_bytes < limit ? limit - slave->window_bytes : 0;
}

static int is_heartbeat_due(const rp_slave *slave, const rp_slave_rules *rules, uint64_t now_ns) {
    return now_ns - slave->written_ns >= (uint64_t)rules->heartbeat_ns && !rp_transfer_is_inside(&slave->transfer);
}

rp_status rp_slave_write(rp_slave *slave, const rp_slave_rules *rules, rp_log_view *view, uint64_t end, uint64_t now_ns,
                         uint32_t *why) {
    if (!slave->has_reported || slave->is_blocked || now_ns < slave->paused_until_ns) return RP_OK;
    if (is_heartbeat_due(slave, rules, now_ns)) rp_transfer_heartbeat(&slave->transfer);
    uint64_t limit = allowance(slave, rules, now_ns), before = rp_transfer_sent(&slave->transfer), sent;
    if (!limit && !rp_transfer_is_inside(&slave->transfer)) return RP_OK;
    rp_status status = rp_transfer_send(&slave->transfer, slave->fd, view, end, limit, &sent);
    uint64_t after = rp_transfer_sent(&slave->transfer);
    if (sent) slave->written_ns = now_ns;
    slave->window_bytes += after - before;
    slave->row->sent_bytes += after - before;
    rp_log_view_drop_pages(view, before, after);
    if (status == RP_FULL) slave->is_blocked = 1;
    slave->paused_until_ns = status == RP_NO_MEMORY ? now_ns + PAUSE_NS : 0;
    if (status == RP_NOT_FOUND) return refuse(RP_SLAVE_BEHIND, why);
    if (status == RP_IO_ERROR)
        return refuse(errno == EPIPE || errno == ECONNRESET ? RP_SLAVE_LEFT : RP_SLAVE_FAILED, why);
    return status == RP_OK && after < end && !rules->bytes_per_second ? RP_INCOMPLETE : RP_OK;
}

int rp_slave_judge(rp_slave *slave, const rp_slave_rules *rules, uint64_t end, uint64_t now_ns) {
    rp_slave_row *row = slave->row;
    if (slave->acked >= end)
        slave->behind_since_ns = 0;
    else if (!slave->behind_since_ns)
        slave->behind_since_ns = now_ns;
    int is_stalled = slave->behind_since_ns && now_ns - slave->behind_since_ns >= (uint64_t)rules->stall_ns;
    rp_store_release(&row->acked_phy_offset, slave->acked);
    rp_store_release(&row->sent_phy_offset, slave->has_reported ? rp_transfer_sent(&slave->transfer) : 0);
    rp_store_release(&row->behind_since_ns, slave->behind_since_ns);
    rp_store_release32(&row->state, !slave->has_reported ? RP_SLAVE_CONNECTED
                                    : is_stalled         ? RP_SLAVE_STALLED
                                                         : RP_SLAVE_REPORTED);
    return slave->has_reported && !is_stalled;
}

int rp_slave_is_silent(const rp_slave *slave, const rp_slave_rules *rules, uint64_t now_ns) {
    return now_ns - slave->read_ns >= (uint64_t)rules->housekeeping_ns;
}

static uint64_t earlier(uint64_t a, uint64_t b) { return a < b ? a : b; }

uint64_t rp_slave_due_ns(const rp_slave *slave, const rp_slave_rules *rules, uint64_t end) {
    uint64_t due = slave->read_ns + (uint64_t)rules->housekeeping_ns;
    if (!slave->has_reported) return due;
    if (slave->paused_until_ns)
        due = earlier(due, slave->paused_until_ns); /* a heartbeat may be due before: the loop must not wait for it */
    else if (!slave->is_blocked)
        due = earlier(due, slave->written_ns + (uint64_t)rules->heartbeat_ns);
    if (slave->behind_since_ns && slave->row->state != RP_SLAVE_STALLED)
        due = earlier(due, slave->behind_since_ns + (uint64_t)rules->stall_ns);
    if (rules->bytes_per_second && !slave->is_blocked && !slave->paused_until_ns && slave->transfer.next < end)
        due = earlier(due, slave->window_ns + WINDOW_NS);
    return due;
}
