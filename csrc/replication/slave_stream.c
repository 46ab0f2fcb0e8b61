/* One call of recvmsg brings the rest of a body and the header after it, so a stream of full frames costs one call a
 * frame. A full ring stops reading, and TCP stops the master.
 *
 * Of a 4.9 frame each part goes on at once. DATA of rocketpy is received into one message of the ring, which is
 * published when the CRC is right: the send worker sees nothing of a damaged frame. */
#define _GNU_SOURCE
#include "replication/slave_stream.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include "base/atomic.h"
#include "base/clock.h"
#include "base/crc32.h"
#include "base/endian.h"
#include "ipc/worker_messages.h"
#include "replication/frames.h"

enum {
    HEADER = RP_HA_SIZE_HEADER,
    DATA_HEADER = RP_HA_SIZE_FRAME_HEADER + RP_HA_SIZE_DATA_HEADER,
    BEAT_HEADER = RP_HA_SIZE_FRAME_HEADER + RP_HA_SIZE_HEARTBEAT,
    FENCED_SIZE = RP_HA_SIZE_FRAME_HEADER + RP_HA_SIZE_FENCED,
    ACK_SIZE = RP_HA_SIZE_FRAME_HEADER + RP_HA_SIZE_ACK,
    CHUNK_MIN = 4096, /* with less room in the ring, wait until it is emptier */
    REPORT_BYTES = 256 << 10, /* report at least this often while data is coming */
    RECEIVES_MAX = 64 /* between two looks at the clock */
};
static const int64_t ORDERS_NS = 20000000; /* between two looks at the orders: nobody wakes it when they change */

static void end_stream(rp_slave_stream *stream, int32_t reason) {
    if (!stream->end) stream->end = reason;
}

rp_slave_stream *rp_slave_stream_open(const rp_slave_stream_config *config) {
    rp_slave_stream *stream = calloc(1, sizeof *stream);
    if (!stream) return NULL;
    stream->config = *config;
    stream->phy_offset = config->phy_offset;
    stream->body_left = config->body_left;
    stream->reported = UINT64_MAX; /* report at once */
    stream->report_size = stream->report_sent = config->is_rocketpy ? ACK_SIZE : RP_HA_SIZE_REPORT;
    stream->heard_ns = rp_now_ns();
    stream->chunk_max = rp_ring_capacity(config->to_send) / 4 - 64;
    if (!(stream->ring = rp_ring_writer_open(config->to_send))) {
        free(stream);
        errno = ENOMEM;
        return NULL;
    }
    stream->number = config->master_link->stream + 1;
    rp_store_release(&config->master_link->stream, stream->number);
    if (config->adds_zero) {
        rp_msg_log head = {.stream = stream->number, .phy_offset = config->phy_offset - 1};
        const rp_span spans[2] = {{&head, sizeof head}, {"", 1}};
        if (rp_ring_write(stream->ring, RP_MSG_LOG, spans, 2) != RP_OK) end_stream(stream, RP_STREAM_END_FAILED);
    }
    return stream;
}

void rp_slave_stream_close(rp_slave_stream *stream) {
    if (!stream) return;
    rp_ring_writer_close(stream->ring);
    free(stream);
}

/* ---- reports ---- */

static uint64_t position_to_report(const rp_slave_stream *stream) {
    const rp_control *control = stream->config.control;
    uint64_t position = rp_load_acquire(&control->published_phy_offset);
    if (stream->config.is_durable) {
        uint64_t durable = rp_load_acquire(&control->durable_phy_offset);
        if (durable < position) position = durable;
    }
    return position < stream->config.report_least ? stream->config.report_least : position;
}

static void send_report(rp_slave_stream *stream) {
    while (stream->report_sent < stream->report_size && !stream->is_socket_full) {
        ssize_t sent = send(stream->config.socket, stream->report + stream->report_sent,
                            stream->report_size - stream->report_sent, MSG_NOSIGNAL);
        if (sent > 0)
            stream->report_sent += (uint32_t)sent;
        else if (errno == EAGAIN)
            stream->is_socket_full = 1;
        else if (errno != EINTR)
            return end_stream(stream, errno == EPIPE ? RP_STREAM_END_CLOSED : RP_STREAM_END_FAILED);
    }
}

/* Report if the log has grown by `least` bytes, or if it is time to. */
static void report(rp_slave_stream *stream, uint64_t least, uint64_t now_ns) {
    uint64_t position = position_to_report(stream);
    int is_due = now_ns - stream->reported_ns >= (uint64_t)stream->config.report_interval_ns;
    if (stream->report_sent < stream->report_size) return send_report(stream);
    if (stream->reported != UINT64_MAX && !is_due && position < stream->reported + least) return;
    if (stream->config.is_rocketpy) {
        rp_store32(stream->report, 1 + RP_HA_SIZE_ACK);
        stream->report[4] = RP_HA_TYPE_ACK;
        rp_store64(stream->report + RP_HA_SIZE_FRAME_HEADER, position);
        rp_store32(stream->report + RP_HA_SIZE_FRAME_HEADER + 8, (uint32_t)stream->config.epoch);
    } else {
        rp_store64(stream->report, position);
    }
    stream->reported = position;
    stream->reported_ns = now_ns;
    stream->report_sent = 0;
    send_report(stream);
}

/* ---- frames ---- */

static void take_header(rp_slave_stream *stream, uint64_t file_size) {
    int32_t size = (int32_t)rp_load32(stream->header + 8);
    stream->header_size = 0;
    if (rp_load64(stream->header) != stream->phy_offset || size < 0 || (uint64_t)size > file_size)
        return end_stream(stream, RP_STREAM_END_MISPLACED);
    stream->body_left = (uint64_t)size;
}

/* Bytes of the header that is being received, as far as that is known: it is DATA until its type has come. */
static uint32_t header_bytes(const rp_slave_stream *stream) {
    if (!stream->config.is_rocketpy) return HEADER;
    uint8_t type = stream->header_size >= RP_HA_SIZE_FRAME_HEADER ? stream->header[4] : RP_HA_TYPE_DATA;
    return type == RP_HA_TYPE_FENCED ? FENCED_SIZE : type == RP_HA_TYPE_HEARTBEAT ? BEAT_HEADER : DATA_HEADER;
}

/* With automatic failover: each byte is of the epoch that the master has named for its position, and the epoch file has
 * all epochs up to where the frame ends before the frame is received. */
static void take_epoch(rp_slave_stream *stream, uint64_t position, uint64_t size) {
    uint64_t end;
    int32_t epoch = rp_epochs_at(stream->config.epochs, stream->config.epoch_count, position, &end);
    if (size > end - position || (epoch >= 0 && epoch != (int32_t)rp_load32(stream->header + 21)))
        return end_stream(stream, RP_STREAM_END_MISPLACED);
    if (position + size >= stream->config.epochs_from) stream->needs_epochs_to = position + size;
}

static void take_confirmed(rp_slave_stream *stream) {
    uint64_t confirmed = rp_load64(stream->header + 13);
    if (stream->config.member && confirmed > stream->master_confirmed) stream->master_confirmed = confirmed;
}

static void take_data_header(rp_slave_stream *stream) {
    const uint8_t *header = stream->header;
    uint32_t size = rp_load32(header);
    uint64_t position = rp_load64(header + 5), file_size = stream->config.control->commitlog_file_size;
    stream->header_size = 0;
    if (position != stream->phy_offset || size <= 1 + RP_HA_SIZE_DATA_HEADER)
        return end_stream(stream, RP_STREAM_END_MISPLACED);
    size -= 1 + RP_HA_SIZE_DATA_HEADER;
    if (size > RP_HA_DATA_MAX || size > stream->chunk_max || size > file_size - position % file_size)
        return end_stream(stream, RP_STREAM_END_MISPLACED);
    if (stream->config.member) take_epoch(stream, position, size);
    if (stream->end) return;
    take_confirmed(stream);
    stream->master_end = stream->config.member ? position + size : rp_load64(header + 13);
    stream->data_crc = rp_load32(header + 25);
    stream->body_left = stream->data_size = size;
}

/* FENCED: there is a newer epoch. Without failover no master sends it. */
static void take_fenced(rp_slave_stream *stream) {
    int32_t epoch = (int32_t)rp_load32(stream->header + RP_HA_SIZE_FRAME_HEADER);
    if (!stream->config.member || rp_load32(stream->header) != 1 + RP_HA_SIZE_FENCED)
        return end_stream(stream, RP_STREAM_END_UNKNOWN);
    if (epoch > stream->config.epoch) rp_member_see_epoch(stream->config.member, epoch);
    end_stream(stream, RP_STREAM_END_FENCED);
}

/* The header of a frame of rocketpy, or a part of it, has come. */
static void take_rocketpy_header(rp_slave_stream *stream) {
    const uint8_t *header = stream->header;
    if (stream->header_size < RP_HA_SIZE_FRAME_HEADER) return;
    if (header[4] != RP_HA_TYPE_DATA && header[4] != RP_HA_TYPE_HEARTBEAT && header[4] != RP_HA_TYPE_FENCED)
        return end_stream(stream, RP_STREAM_END_UNKNOWN);
    if (stream->header_size < header_bytes(stream)) return;
    if (header[4] == RP_HA_TYPE_DATA) return take_data_header(stream);
    stream->header_size = 0;
    if (header[4] == RP_HA_TYPE_FENCED) return take_fenced(stream);
    if (rp_load32(header) != 1 + RP_HA_SIZE_HEARTBEAT) return end_stream(stream, RP_STREAM_END_UNKNOWN);
    if ((int32_t)rp_load32(header + 21) != stream->config.epoch) return end_stream(stream, RP_STREAM_END_MISPLACED);
    take_confirmed(stream);
    stream->master_end = rp_load64(header + 5);
}

/* Room for `size` bytes of the log in a message of the ring; NULL: it is full. */
static uint8_t *reserve(rp_slave_stream *stream, uint64_t size) {
    uint8_t *room = rp_ring_reserve(stream->ring, (uint32_t)(sizeof(rp_msg_log) + size));
    stream->is_ring_full = !room;
    return room;
}

/* Room for the next part of the body, of at most `*size` bytes; NULL: the ring is full. */
static uint8_t *room_for(rp_slave_stream *stream, uint64_t *size) {
    uint8_t *room;
    if (stream->config.is_rocketpy) {
        if (!stream->data) stream->data = reserve(stream, stream->data_size);
        return stream->data ? stream->data + sizeof(rp_msg_log) + (stream->data_size - *size) : NULL;
    }
    if (*size > stream->chunk_max) *size = stream->chunk_max;
    if (!(room = reserve(stream, *size)) && *size > CHUNK_MIN) room = reserve(stream, *size = CHUNK_MIN);
    return room ? room + sizeof(rp_msg_log) : NULL;
}

/* `size` bytes of the log that end at the position are in the ring's message, whose bytes of the log begin at `log`. */
static void pass_on(rp_slave_stream *stream, uint8_t *log, uint64_t size) {
    rp_msg_log head = {.stream = stream->number, .phy_offset = stream->phy_offset - size};
    memcpy(log - sizeof head, &head, sizeof head);
    rp_ring_commit(stream->ring, (uint32_t)(sizeof head + size), RP_MSG_LOG);
    rp_ring_wake(stream->ring);
}

static void take_body(rp_slave_stream *stream, uint8_t *room, uint64_t size) {
    stream->phy_offset += size;
    stream->body_left -= size;
    stream->received += size;
    rp_add(&stream->config.worker->counters[RP_COUNT_BYTES_IN], size);
    if (!stream->config.is_rocketpy) return pass_on(stream, room, size);
    if (stream->body_left) return;
    uint8_t *log = stream->data + sizeof(rp_msg_log);
    stream->data = NULL;
    if (rp_crc32(0, log, stream->data_size) != stream->data_crc) return end_stream(stream, RP_STREAM_END_DAMAGED);
    pass_on(stream, log, stream->data_size);
}

/* Receive once. 0: nothing more can be received now. */
static int receive(rp_slave_stream *stream) {
    struct iovec parts[2];
    struct msghdr message = {.msg_iov = parts};
    uint8_t *room = NULL;
    uint64_t body = stream->body_left, of_header = 0;
    if (stream->needs_epochs_to || !stream->is_readable) return 0;
    if (body) {
        if (!(room = room_for(stream, &body))) return 0;
        parts[message.msg_iovlen++] = (struct iovec){room, body};
    }
    if (body == stream->body_left) {
        of_header = header_bytes(stream) - stream->header_size;
        parts[message.msg_iovlen++] = (struct iovec){stream->header + stream->header_size, of_header};
    }
    ssize_t got = recvmsg(stream->config.socket, &message, 0);
    if (got < 0 && errno == EINTR) return 0;
    stream->is_readable = got == (ssize_t)(body + of_header); /* fewer: there were no more */
    if (got < 0 && errno == EAGAIN) return 0;
    if (got <= 0) {
        end_stream(stream, got ? RP_STREAM_END_FAILED : RP_STREAM_END_CLOSED);
        return 0;
    }
    uint64_t in_body = (uint64_t)got < body ? (uint64_t)got : body;
    if (in_body) take_body(stream, room, in_body);
    stream->header_size += (uint32_t)((uint64_t)got - in_body);
    if (stream->end) return 1;
    if (stream->config.is_rocketpy)
        take_rocketpy_header(stream);
    else if (stream->header_size == HEADER)
        take_header(stream, stream->config.control->commitlog_file_size);
    return 1;
}

/* Let consumers see the log up to the master's confirmed position, as far as it is here. */
static void confirm(rp_slave_stream *stream) {
    rp_control *control = stream->config.control;
    uint64_t confirmed = stream->master_confirmed, published = rp_load_acquire(&control->published_phy_offset);
    if (confirmed > published) confirmed = published;
    if (!stream->config.member || confirmed <= control->confirmed_phy_offset) return;
    rp_store_release(&control->confirmed_phy_offset, confirmed);
    rp_full_fence(); /* orders the store of confirmed_phy_offset before the load of `asleep` */
    if (stream->config.store) rp_worker_wake(stream->config.store, 0);
}

static int has_new_orders(const rp_slave_stream *stream) {
    const rp_member *member = stream->config.member;
    return member && rp_load_acquire(&member->version) != stream->config.orders_version;
}

static int is_refused(const rp_slave_stream *stream) {
    return rp_load_acquire(&stream->config.master_link->refused_stream) >= stream->number;
}

/* Receive what is there, and report. Returns whether anything was received. */
static int turn(rp_slave_stream *stream) {
    int any = 0;
    for (uint32_t i = 0; i < RECEIVES_MAX && !stream->end && receive(stream); i++) any = 1;
    uint64_t now_ns = rp_now_ns();
    if (any) stream->heard_ns = now_ns;
    if (is_refused(stream)) end_stream(stream, RP_STREAM_END_REFUSED);
    /* While the ring is full we do not read, so silence says nothing of the master. */
    if (!stream->is_ring_full && now_ns - stream->heard_ns >= (uint64_t)stream->config.silence_max_ns)
        end_stream(stream, RP_STREAM_END_SILENT);
    if (stream->is_ring_full) stream->heard_ns = now_ns;
    report(stream, any ? REPORT_BYTES : 1, now_ns);
    confirm(stream);
    stream->config.worker->heartbeat_ns = now_ns;
    return any;
}

static void sleep_until(rp_slave_stream *stream, uint64_t end_ns) {
    uint64_t now_ns = rp_now_ns(), report_ns = stream->reported_ns + (uint64_t)stream->config.report_interval_ns;
    if (report_ns < end_ns) end_ns = report_ns;
    if (stream->config.member && end_ns > now_ns + (uint64_t)ORDERS_NS) end_ns = now_ns + (uint64_t)ORDERS_NS;
    int64_t wait_ns = end_ns > now_ns ? (int64_t)(end_ns - now_ns) : 0;
    struct timespec timeout = {.tv_sec = wait_ns / 1000000000, .tv_nsec = wait_ns % 1000000000};
    struct pollfd fds[2] = {{.fd = stream->config.worker->doorbell, .events = POLLIN}, {.fd = stream->config.socket}};
    if (!stream->is_ring_full) fds[1].events |= POLLIN;
    if (stream->is_socket_full) fds[1].events |= POLLOUT;
    int ready = ppoll(fds, fds[1].events ? 2 : 1, &timeout, NULL);
    if (ready < 0 || fds[1].revents) stream->is_readable = 1;
    stream->is_socket_full = 0;
}

static int must_return(const rp_slave_stream *stream) {
    return stream->end || stream->needs_epochs_to || has_new_orders(stream) ||
           rp_load_acquire32(&stream->config.worker->stop) != 0;
}

rp_stream_event rp_slave_stream_run(rp_slave_stream *stream, int64_t timeout_ns) {
    rp_worker *worker = stream->config.worker;
    uint64_t end_ns = rp_now_ns() + (uint64_t)timeout_ns;
    stream->is_readable = 1;
    for (;;) {
        int any = turn(stream);
        if (!any && !must_return(stream)) {
            rp_worker_prepare_sleep(worker);
            if (!turn(stream) && !must_return(stream)) sleep_until(stream, end_ns);
            rp_worker_end_sleep(worker);
        }
        if (stream->end) return RP_STREAM_ENDED;
        if (rp_load_acquire32(&worker->stop)) return RP_STREAM_STOPPED;
        if (has_new_orders(stream)) return RP_STREAM_ORDERS;
        if (stream->needs_epochs_to) return RP_STREAM_NEEDS_EPOCH;
        if (rp_now_ns() >= end_ns) return RP_STREAM_IDLE;
    }
}
