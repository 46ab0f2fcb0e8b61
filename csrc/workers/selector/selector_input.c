/* Input: from the sockets to the codecs; the design is at the top of selector.c.
 *
 * The frames of a connection keep their order: they are taken from its rest before anything new is read, and CLOSED
 * comes after them. A stalled connection stays in its codec's list until all its frames are passed on. */
#define _GNU_SOURCE
#include "workers/selector/selector_private.h"

#include <errno.h>
#include <string.h>

#include "wire/header.h"
#include "wire/peer.h"
#include "ipc/serving.h"
#include "workers/codec/codec.h"

enum {
    FRAMES_MAX = 16, /* passed on together, */
    TOGETHER_MAX = 65536, /* unless they have more bytes: if the ring is full, signatures are checked once more */
    REST_MIN = 512   /* smallest buffer for an unfinished frame; it doubles with what has arrived */
};

/* ---- to the codec ---- */

/* Frames in their order; `*passed` of them. Not RP_OK: the status of the next one. */
static rp_status pass_frames(rp_selector *selector, rp_connection *connection, const rp_frame *frames,
                             uint32_t frame_count, uint32_t *passed) {
    rp_ring_writer *writer = codec_input_of(selector, connection)->writer;
    rp_origin origin = origin_of(selector, connection, connection->received_ns);
    rp_status status = RP_OK;
    *passed = 0;
    if (writer == NULL) status = rp_codec_frames(selector->codec, &origin, frames, frame_count, passed);
    while (*passed < frame_count && status == RP_OK) {
        const rp_frame *frame = &frames[*passed];
        rp_span spans[2] = {{&origin, sizeof origin},
                            {frame->header - RP_DESCRIPTOR_SIZE, frame->size - RP_LENGTH_SIZE}};
        status = rp_ring_write(writer, RP_MSG_FRAME, spans, 2);
        if (status == RP_OK) ++*passed;
    }
    if (*passed > 0) connection->flags |= CONNECTION_GREETED;
    count(selector, RP_COUNT_FRAMES_IN, *passed);
    return status;
}

/* ---- input ---- */

/* Room for the rest of a frame of `frame_size` bytes: twice the bytes that have arrived, so that a large length field
 * alone costs no memory. */
static uint32_t rest_capacity(uint32_t have, uint32_t frame_size) {
    uint32_t capacity = have < REST_MIN / 2 ? REST_MIN : 2 * have;
    return frame_size != 0 && frame_size < capacity ? frame_size : capacity;
}

/* Read the PROXY header that begins a connection; the client that it names becomes the peer. RP_OK with *used. */
static rp_status take_proxy_header(rp_selector *selector, rp_connection *connection, const uint8_t *data, uint32_t size,
                                   uint32_t *used) {
    rp_proxy_header header;
    rp_status status = rp_proxy_header_cut(data, size, &header);
    if (status == RP_INVALID || status == RP_TOO_LARGE) count(selector, RP_COUNT_PROXY_BAD, 1);
    if (status != RP_OK) return status;
    *used = header.size;
    if (header.kind != RP_PROXY_LOCAL) connection->peer = header.peer;
    connection->flags &= (uint16_t)~CONNECTION_PROXIED;
    if (selector->config.limits && !rp_selector_join_limits(selector, connection)) {
        count(selector, RP_COUNT_ADDRESS_CLOSED, 1);
        return RP_NO_MEMORY;
    }
    rp_connection_touch(&selector->connections, slot_of(selector, connection), selector->now_s);
    return RP_OK;
}

/* Cut frames from `data` and pass them on; keep what is left. RP_OK: go on reading; RP_FULL: stalled; else closed. */
static rp_status take_bytes(rp_selector *selector, rp_connection *connection, const uint8_t *data, uint32_t size) {
    rp_status status = RP_OK;
    rp_frame frames[FRAMES_MAX];
    uint32_t frame_count = 0, passed, is_any_passed = 0;
    frames[0].size = 0; /* not known yet, also of what a PROXY header precedes */
    if (size > 0 && connection->flags & CONNECTION_PROXIED) {
        uint32_t used = 0;
        status = take_proxy_header(selector, connection, data, size, &used);
        data += used;
        size -= used;
    }
    while (size > 0 && status == RP_OK) {
        frame_count = 0;
        for (uint32_t at = 0; frame_count < FRAMES_MAX && at < size && at < TOGETHER_MAX; frame_count++) {
            frames[frame_count].size = 0;
            /* The first byte of a length is zero. TLS, HTTP and others begin otherwise and are refused at once. */
            status = data[at] != 0
                         ? RP_INVALID
                         : rp_frame_cut(data + at, size - at, selector->config.frame_size_max, &frames[frame_count]);
            if (status != RP_OK) break;
            at += frames[frame_count].size;
        }
        rp_status next = pass_frames(selector, connection, frames, frame_count, &passed);
        for (uint32_t i = 0; i < passed; i++) {
            data += frames[i].size;
            size -= frames[i].size;
        }
        if (passed > 0) is_any_passed = 1;
        if (next != RP_OK) status = next; /* it is of a frame before the one that could not be cut */
    }
    if (status == RP_INVALID || status == RP_TOO_LARGE) {
        count(selector, RP_COUNT_FRAMES_BAD, 1);
        rp_selector_close_connection(selector, connection);
        return RP_INVALID;
    }
    uint32_t capacity = status == RP_INCOMPLETE ? rest_capacity(size, frames[frame_count].size) : size;
    if (status == RP_NO_MEMORY ||
        rp_connection_keep(&selector->connections, connection, data, size, capacity) != RP_OK) {
        rp_selector_close_connection(selector, connection);
        return RP_NO_MEMORY;
    }
    if (is_any_passed) rp_connection_renew_rest(&selector->connections, connection);
    if (status == RP_FULL) rp_selector_stall(selector, connection);
    return status == RP_FULL ? RP_FULL : RP_OK;
}

/* The incomplete frame has grown by `size` bytes in place. RP_INCOMPLETE: it is still incomplete. */
static rp_status grow_rest(rp_selector *selector, rp_connection *connection, uint32_t size) {
    rp_frame frame = {0};
    connection->rest_size += size;
    rp_status status = rp_frame_cut(connection->rest, connection->rest_size, selector->config.frame_size_max, &frame);
    if (status != RP_INCOMPLETE) return status;
    if (connection->rest_size < connection->rest_capacity) return status;
    uint32_t capacity = rest_capacity(connection->rest_size, frame.size);
    rp_status grown = rp_connection_grow_rest(&selector->connections, connection, capacity);
    return grown == RP_OK ? status : grown;
}

/* `size` bytes are in the buffer, after what went to the end of the rest (`into_rest`). */
static void take_read(rp_selector *selector, rp_connection *connection, uint32_t into_rest, uint32_t size) {
    if (into_rest > 0) {
        rp_status status = grow_rest(selector, connection, into_rest);
        if (status == RP_INCOMPLETE) return; /* and nothing can have come after it */
        if (status == RP_NO_MEMORY) {
            rp_selector_close_connection(selector, connection);
            return;
        }
        status = take_bytes(selector, connection, connection->rest, connection->rest_size);
        if (status == RP_FULL && size > 0) { /* what came after it waits with it */
            uint32_t have = connection->rest_size;
            if (rp_connection_grow_rest(&selector->connections, connection, have + size) != RP_OK) {
                rp_selector_close_connection(selector, connection);
                return;
            }
            memcpy(connection->rest + have, selector->buffer, size);
            connection->rest_size = have + size;
        }
        if (status != RP_OK) return;
    }
    if (size > 0) (void)take_bytes(selector, connection, selector->buffer, size);
}

void rp_selector_read(rp_selector *selector, rp_connection *connection) {
    struct iovec vectors[2];
    int vector_count = 0;
    rp_serving(selector->config.worker, number_of(selector, connection));
    if ((connection->flags & (CONNECTION_NEW | CONNECTION_PROXIED)) == CONNECTION_NEW &&
        !rp_selector_settle_first_byte(selector, connection))
        return;
    uint32_t into_rest = 0;
    uint32_t front = 0;
    rp_frame frame = {0};
    int is_more_wanted = !selector->is_paused; /* than the request that has begun */

    if (!(connection->flags & CONNECTION_PROXIED) && connection->rest_size >= RP_LENGTH_SIZE) {
        /* The size is known: the rest is read where it belongs. */
        (void)rp_frame_cut(connection->rest, connection->rest_size, selector->config.frame_size_max, &frame);
        into_rest = connection->rest_capacity - connection->rest_size;
        vectors[vector_count++] = (struct iovec){connection->rest + connection->rest_size, into_rest};
    } else if (connection->rest_size > 0) {
        front = connection->rest_size;
        memcpy(selector->buffer, connection->rest, front);
    }
    if (vector_count == 0 || (connection->rest_capacity == frame.size && is_more_wanted)) {
        uint32_t room = is_more_wanted ? SELECTOR_BUFFER_SIZE - front : RP_LENGTH_SIZE - front;
        /* A TLS handshake may follow the PROXY header: it is the TLS worker's. */
        if (connection->flags & CONNECTION_PROXIED) room = rp_proxy_header_missing(selector->buffer, front);
        vectors[vector_count++] = (struct iovec){selector->buffer + front, room};
    }
    ssize_t got = readv(connection->fd, vectors, vector_count);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) { /* the peer has finished, or the connection is broken */
        rp_selector_close_connection(selector, connection);
        return;
    }
    count(selector, RP_COUNT_BYTES_IN, (uint64_t)got);
    connection->received_ns = selector->now_ns;
    /* An incomplete PROXY header is no traffic: the peer has the idle time for all of it. */
    if (!(connection->flags & CONNECTION_PROXIED))
        rp_connection_touch(&selector->connections, slot_of(selector, connection), selector->now_s);
    if (into_rest > (uint64_t)got) into_rest = (uint32_t)got;
    take_read(selector, connection, into_rest, (uint32_t)got - into_rest + front);
    if (!is_more_wanted && connection->flags & CONNECTION_OPEN) rp_selector_update_interest(selector, connection);
}

void rp_selector_read_limited(rp_selector *selector, rp_connection *connection) {
    uint64_t frames = selector->config.worker->counters[RP_COUNT_FRAMES_IN];
    uint64_t bytes = selector->config.worker->counters[RP_COUNT_BYTES_IN];
    uint32_t row = connection->limits_row;
    if (row && rp_limits_is_blocked(selector->config.limits, row, selector->now_ns)) {
        count(selector, RP_COUNT_ADDRESS_CLOSED, 1);
        rp_selector_close_connection(selector, connection);
        return;
    }
    uint64_t until_ns = row ? rp_limits_wait(selector->config.limits, row, selector->now_ns) : 0;
    if (until_ns != 0) {
        rp_selector_throttle(selector, connection, until_ns);
        count(selector, RP_COUNT_THROTTLED, 1);
        rp_selector_update_interest(selector, connection);
        return;
    }
    rp_selector_read(selector, connection); /* which may close it, or learn whose it is */
    if (row == 0) row = connection->limits_row;
    if (row) rp_selector_spend(selector, row, frames, bytes);
}

/* ---- connections that waited for their codec ---- */

static rp_status resume(rp_selector *selector, rp_connection *connection) {
    if (!(connection->flags & CONNECTION_OPEN)) {
        if ((connection->flags & CONNECTION_GREETED) && rp_selector_pass_closed(selector, connection) == RP_FULL)
            return RP_FULL;
        rp_connections_give_back(&selector->connections, slot_of(selector, connection));
        return RP_OK;
    }
    uint64_t frames = selector->config.worker->counters[RP_COUNT_FRAMES_IN];
    uint32_t row = connection->limits_row;
    rp_status status = take_bytes(selector, connection, connection->rest, connection->rest_size);
    if (row) rp_selector_spend(selector, row, frames, selector->config.worker->counters[RP_COUNT_BYTES_IN]);
    if (status == RP_FULL) return RP_FULL;
    connection->flags &= (uint16_t)~CONNECTION_STALLED;
    if (status == RP_OK) rp_selector_update_interest(selector, connection);
    return RP_OK;
}

/* In the order in which they stalled, while there is room. A connection that take_bytes closes here is still marked
 * STALLED, so its CLOSED is sent when the head of the list is handled next. */
void rp_selector_resume_stalled(rp_selector *selector) {
    for (uint32_t i = 0; i < selector->codec_input_count; i++) {
        codec_input *input = &selector->codec_inputs[i];
        while (input->first_stalled != NO_SLOT) {
            rp_connection *connection = at_slot(selector, input->first_stalled);
            uint32_t next = connection->next_stalled;
            int was_open = connection->flags & CONNECTION_OPEN;
            if (resume(selector, connection) == RP_FULL) break;
            if (was_open && !(connection->flags & CONNECTION_OPEN)) continue;
            input->first_stalled = next;
            if (next == NO_SLOT) input->last_stalled = NO_SLOT;
        }
    }
}
