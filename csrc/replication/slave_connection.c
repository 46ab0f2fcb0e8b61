#define _GNU_SOURCE
#include "replication/slave_connection.h"
#include <errno.h>
#include <sys/socket.h>
#include "base/atomic.h"
#include "base/clock.h"
#include "base/endian.h"

enum {
    READ_BYTES = 4096,
    ACK_BYTES = RP_HA_SIZE_FRAME_HEADER + RP_HA_SIZE_ACK,
    FENCED_BYTES = RP_HA_SIZE_FRAME_HEADER + RP_HA_SIZE_FENCED
};
static const uint64_t WINDOW_NS = 100000000; /* the bytes of a second are given out in tenths of one */
static const uint64_t PAUSE_NS = 100000000; /* after a lack of memory or descriptors */
static const uint64_t CONFIRM_NS = 10000000; /* after which a slave is told what was confirmed, if it gets no DATA */

void rp_slave_connection_open(rp_slave_connection *slave, const rp_slave_rules *rules, int fd, rp_slave_row *row,
                              int is_rocketpy, uint64_t start, uint64_t acked, uint64_t written_ns, uint64_t now_ns) {
    *slave = (rp_slave_connection){.fd = fd,
                                   .row = row,
                                   .is_rocketpy = is_rocketpy,
                                   .acked = acked,
                                   .reported = acked,
                                   .read_ns = now_ns,
                                   .written_ns = written_ns,
                                   .window_ns = now_ns};
    rp_transfer_init(&slave->transfer, is_rocketpy, start, is_rocketpy ? RP_HA_DATA_MAX : rules->config->frame_max,
                     rules->file_size);
    slave->transfer.epochs = rules->epochs;
    slave->transfer.epoch_count = rules->epoch_count;
    slave->transfer.epoch = rules->epoch;
}

static rp_status refuse(uint32_t reason, uint32_t *why) {
    *why = reason;
    return RP_STOPPED;
}

/* A slave acknowledges `report`, which must be true. */
static rp_status acknowledge(rp_slave_connection *slave, uint64_t report, uint64_t end, uint64_t now_ns,
                             uint32_t *why) {
    if (report < slave->acked || report > rp_transfer_sent(&slave->transfer))
        return refuse(report > end && report <= INT64_MAX ? RP_SLAVE_LONGER : RP_SLAVE_IMPLAUSIBLE, why);
    if (report > slave->acked) slave->behind_since_ns = now_ns;
    slave->acked = report;
    return RP_OK;
}

/* The slave knows a newer epoch: this broker is not the master any more. */
static rp_status take_fenced(const rp_slave_connection *slave, const rp_slave_rules *rules, uint32_t *why) {
    int32_t epoch = (int32_t)rp_load32(slave->report + RP_HA_SIZE_FRAME_HEADER);
    if (!rules->config->member || rp_load32(slave->report) != 1 + RP_HA_SIZE_FENCED || epoch <= rules->epoch)
        return refuse(RP_SLAVE_IMPLAUSIBLE, why);
    rp_member_see_epoch(rules->config->member, epoch);
    return refuse(RP_SLAVE_FENCED, why);
}

/* The epoch of an ACK is that of the stream, which the slave has joined. */
static rp_status take_epoch(rp_slave_connection *slave, const rp_slave_rules *rules, uint32_t *why) {
    int32_t epoch = (int32_t)rp_load32(slave->report + RP_HA_SIZE_FRAME_HEADER + 8);
    if (epoch != rules->epoch) return refuse(RP_SLAVE_IMPLAUSIBLE, why);
    if (rules->config->member) __atomic_store_n(&slave->row->epoch, epoch, __ATOMIC_RELEASE); /* before the position */
    return RP_OK;
}

/* A position, ACK or FENCED has come whole. */
static rp_status take(rp_slave_connection *slave, const rp_slave_rules *rules, uint64_t end, uint64_t now_ns,
                      uint32_t *why) {
    uint64_t report = rp_load64(slave->report + (slave->is_rocketpy ? RP_HA_SIZE_FRAME_HEADER : 0));
    if (slave->is_rocketpy && slave->report[4] == RP_HA_TYPE_FENCED) return take_fenced(slave, rules, why);
    if (slave->is_rocketpy && (rp_load32(slave->report) != 1 + RP_HA_SIZE_ACK || slave->report[4] != RP_HA_TYPE_ACK))
        return refuse(RP_SLAVE_IMPLAUSIBLE, why);
    if (slave->is_rocketpy && take_epoch(slave, rules, why) != RP_OK) return RP_STOPPED;
    slave->reported = report;
    if (report > INT64_MAX) return refuse(RP_SLAVE_IMPLAUSIBLE, why);
    return acknowledge(slave, report, end, now_ns, why);
}

/* Bytes of what is being received, as far as its type is known. */
static uint32_t report_bytes(const rp_slave_connection *slave) {
    if (!slave->is_rocketpy) return RP_HA_SIZE_REPORT;
    int is_fenced = slave->report_size >= RP_HA_SIZE_FRAME_HEADER && slave->report[4] == RP_HA_TYPE_FENCED;
    return is_fenced ? FENCED_BYTES : ACK_BYTES;
}

rp_status rp_slave_connection_read(rp_slave_connection *slave, const rp_slave_rules *rules, uint64_t end,
                                   uint64_t now_ns, uint32_t *why) {
    uint8_t bytes[READ_BYTES];
    ssize_t size = recv(slave->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return RP_OK;
    if (size <= 0) return refuse(RP_SLAVE_LEFT, why);
    for (ssize_t i = 0; i < size; i++) {
        slave->report[slave->report_size++] = bytes[i];
        if (slave->report_size < report_bytes(slave)) continue;
        slave->report_size = 0;
        if (take(slave, rules, end, now_ns, why) != RP_OK) return RP_STOPPED;
    }
    slave->read_ns = now_ns;
    return RP_OK;
}

/* Bytes that may be sent now, at most `most`. Frames are sent whole; what is beyond the limit is taken off the windows
 * that follow. */
static uint64_t allowance(rp_slave_connection *slave, const rp_slave_rules *rules, uint64_t most, uint64_t now_ns) {
    if (!rules->config->bytes_per_second) return most;
    uint64_t limit = rules->config->bytes_per_second < 10 ? 1 : rules->config->bytes_per_second / 10;
    uint64_t windows = (now_ns - slave->window_ns) / WINDOW_NS;
    slave->window_ns += windows * WINDOW_NS;
    slave->window_bytes -= windows > slave->window_bytes / limit ? slave->window_bytes : windows * limit;
    uint64_t left = slave->window_bytes < limit ? limit - slave->window_bytes : 0;
    return left < most ? left : most;
}

/* When the next heartbeat is due: sooner if the slave has to be told of a confirmed position. */
static uint64_t heartbeat_due_ns(const rp_slave_connection *slave, const rp_slave_rules *rules) {
    int is_news = rules->config->member && slave->told_confirmed < rules->confirmed;
    return slave->written_ns + (is_news ? CONFIRM_NS : (uint64_t)rules->config->heartbeat_ns);
}

static int is_heartbeat_due(const rp_slave_connection *slave, const rp_slave_rules *rules, uint64_t now_ns) {
    return now_ns >= heartbeat_due_ns(slave, rules) && !rp_transfer_is_inside(&slave->transfer);
}

rp_status rp_slave_connection_write(rp_slave_connection *slave, const rp_slave_rules *rules, rp_log_view *view,
                                    uint64_t end, uint64_t most, uint64_t now_ns, uint32_t *why) {
    if (slave->is_blocked || now_ns < slave->paused_until_ns) return RP_OK;
    slave->transfer.confirmed = rules->confirmed;
    int is_beat = is_heartbeat_due(slave, rules, now_ns);
    if (is_beat) rp_transfer_heartbeat(&slave->transfer, end, (uint64_t)rp_wall_ms());
    uint64_t limit = allowance(slave, rules, most, now_ns), before = rp_transfer_sent(&slave->transfer), sent;
    if (!limit && !rp_transfer_is_inside(&slave->transfer)) return RP_OK;
    rp_status status = rp_transfer_send(&slave->transfer, slave->fd, view, end, limit, &sent);
    uint64_t after = rp_transfer_sent(&slave->transfer);
    if (sent) slave->written_ns = now_ns;
    if (is_beat || after > before) slave->told_confirmed = rules->confirmed;
    slave->window_bytes += after - before;
    slave->row->sent_bytes += after - before;
    rp_log_view_drop_pages(view, before, after);
    if (status == RP_FULL) slave->is_blocked = 1;
    slave->paused_until_ns = status == RP_NO_MEMORY ? now_ns + PAUSE_NS : 0;
    if (status == RP_NOT_FOUND) return refuse(RP_SLAVE_BEHIND, why);
    if (status == RP_IO_ERROR)
        return refuse(errno == EPIPE || errno == ECONNRESET ? RP_SLAVE_LEFT : RP_SLAVE_FAILED, why);
    return status == RP_OK && after < end && !rules->config->bytes_per_second ? RP_INCOMPLETE : RP_OK;
}

/* 1 if it lacks what the log had stall_ns ago: sends that waited for that have given up. Until it has got there nothing
 * waits for it, however often it acknowledges less. */
static int is_catching_up(rp_slave_connection *slave, const rp_slave_rules *rules, uint64_t end, uint64_t now_ns) {
    if (slave->acked >= slave->awaited) {
        slave->awaited = end;
        slave->awaited_since_ns = now_ns;
    }
    return slave->acked < slave->awaited && now_ns - slave->awaited_since_ns >= (uint64_t)rules->config->stall_ns;
}

int rp_slave_connection_publish(rp_slave_connection *slave, const rp_slave_rules *rules, uint64_t end,
                                uint64_t now_ns) {
    rp_slave_row *row = slave->row;
    if (slave->acked >= end)
        slave->behind_since_ns = 0;
    else if (!slave->behind_since_ns)
        slave->behind_since_ns = now_ns;
    int is_stalled = slave->behind_since_ns && now_ns - slave->behind_since_ns >= (uint64_t)rules->config->stall_ns;
    int is_late = is_catching_up(slave, rules, end, now_ns);
    uint32_t state = is_stalled ? RP_SLAVE_STALLED : is_late ? RP_SLAVE_CATCHING_UP : RP_SLAVE_REPLICATING;
    rp_store_release(&row->acked_phy_offset, slave->acked);
    rp_store_release(&row->sent_phy_offset, rp_transfer_sent(&slave->transfer));
    rp_store_release(&row->behind_since_ns, slave->behind_since_ns);
    rp_store_release32(&row->state, state);
    return state == RP_SLAVE_REPLICATING;
}

uint64_t rp_slave_connection_due_ns(const rp_slave_connection *slave, const rp_slave_rules *rules, uint64_t end) {
    uint64_t due = slave->read_ns + (uint64_t)rules->config->housekeeping_ns;
    if (slave->paused_until_ns)
        due =
            rp_earlier(due, slave->paused_until_ns); /* a heartbeat may be due before: the loop must not wait for it */
    else if (!slave->is_blocked)
        due = rp_earlier(due, heartbeat_due_ns(slave, rules));
    if (slave->behind_since_ns && slave->row->state != RP_SLAVE_STALLED)
        due = rp_earlier(due, slave->behind_since_ns + (uint64_t)rules->config->stall_ns);
    if (slave->acked < slave->awaited && slave->row->state == RP_SLAVE_REPLICATING)
        due = rp_earlier(due, slave->awaited_since_ns + (uint64_t)rules->config->stall_ns);
    if (rules->config->bytes_per_second && !slave->is_blocked && !slave->paused_until_ns && slave->transfer.next < end)
        due = rp_earlier(due, slave->window_ns + WINDOW_NS);
    return due;
}
