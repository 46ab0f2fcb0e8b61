/* Output: from the reply rings to the sockets; the design is at the top of selector.c. */
#define _GNU_SOURCE
#include "workers/selector/selector_private.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum {
    VECTORS_MAX = 256,
    SENDS_PER_TURN = 8,            /* of one connection, before the others have their turn */
    REPLIES_PER_TURN = 2048,       /* of one ring */
    FLUSH_AT_BYTES = 256 * 1024,   /* queued by one connection within a turn */
    OUTPUT_MEMORY_MAX = 64 * 1024 * 1024 /* of replies that a peer does not fetch; beyond it the connection is closed */
};

/* Bytes to write, or the memory that they take, whichever is more. */
static uint64_t output_of(const rp_connection *connection) {
    return connection->queued_bytes > connection->output_memory ? connection->queued_bytes : connection->output_memory;
}

static void set_choked(rp_selector *selector, rp_connection *connection) {
    if (output_of(connection) > selector->config.high_water_bytes)
        connection->flags |= CONNECTION_CHOKED;
    else if (output_of(connection) <= selector->config.high_water_bytes / 2)
        connection->flags &= (uint16_t)~CONNECTION_CHOKED;
}

void rp_selector_flush(rp_selector *selector, rp_connection *connection) {
    struct iovec vectors[VECTORS_MAX];
    int blocked = 0;
    for (int turn = 0; connection->first != NULL && !blocked; turn++) {
        struct msghdr message = {.msg_iov = vectors};
        message.msg_iovlen = rp_connection_gather(connection, vectors, VECTORS_MAX);
        ssize_t sent = turn < SENDS_PER_TURN ? sendmsg(connection->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) : -1;
        if (sent > 0) {
            count(selector, RP_COUNT_BYTES_OUT, (uint64_t)sent);
            rp_connection_written(&selector->connections, connection, (uint64_t)sent);
            rp_connection_touch(&selector->connections, slot_of(selector, connection), selector->now_s);
        } else if (turn >= SENDS_PER_TURN || errno == EAGAIN) {
            blocked = 1;
        } else if (errno != EINTR) {
            rp_selector_end_output(selector, connection);
            return;
        }
    }
    if (blocked)
        connection->flags |= CONNECTION_BLOCKED;
    else
        connection->flags &= (uint16_t)~CONNECTION_BLOCKED;
    if (connection->first == NULL && (connection->flags & CONNECTION_CLOSE_AFTER)) {
        rp_selector_close_connection(selector, connection);
        return;
    }
    set_choked(selector, connection);
    rp_selector_update_interest(selector, connection);
}

static void mark_dirty(rp_selector *selector, rp_connection *connection) {
    if (connection->flags & (CONNECTION_DIRTY | CONNECTION_BLOCKED)) return; /* EPOLLOUT takes care of the blocked */
    connection->flags |= CONNECTION_DIRTY;
    connection->next_dirty = selector->first_dirty;
    selector->first_dirty = slot_of(selector, connection);
}

static void flush_dirty(rp_selector *selector) {
    while (selector->first_dirty != NO_SLOT) {
        rp_connection *connection = at_slot(selector, selector->first_dirty);
        selector->first_dirty = connection->next_dirty;
        connection->flags &= (uint16_t)~CONNECTION_DIRTY;
        if (connection->flags & CONNECTION_OPEN) rp_selector_flush(selector, connection);
    }
}

static rp_status queue_reply(rp_selector *selector, const uint8_t *data, uint32_t size, rp_connection **connection) {
    rp_msg_reply reply;
    if (size < sizeof reply) return RP_INVALID;
    memcpy(&reply, data, sizeof reply);
    *connection = rp_selector_find(selector, reply.connection);
    if (*connection == NULL) return RP_NOT_FOUND;
    if (reply.size > size - sizeof reply) return RP_INVALID;
    uint32_t wanted = (*connection)->flags & CONNECTION_NO_OUTPUT ? 0 : reply.size;
    rp_status status = rp_connection_queue(&selector->connections, *connection, data + sizeof reply, wanted);
    if (status == RP_OK && (reply.flags & RP_REPLY_CLOSE_AFTER)) {
        (*connection)->flags |= CONNECTION_CLOSE_AFTER;
        rp_selector_update_interest(selector, *connection);
        if (reply.size == 0) count(selector, RP_COUNT_FRAMES_BAD, 1);
    }
    if (reply.flags & (RP_REPLY_PAUSE | RP_REPLY_RESUME)) {
        rp_selector_pause(selector, *connection, reply.flags & RP_REPLY_PAUSE);
        rp_selector_update_interest(selector, *connection);
    }
    if (status == RP_OK && reply.size > 0) count(selector, RP_COUNT_FRAMES_OUT, 1);
    return status;
}

static rp_status queue_pull_reply(rp_selector *selector, const uint8_t *data, uint32_t size,
                                  rp_connection **connection) {
    rp_msg_pull_reply reply;
    rp_slice slice;
    if (size < sizeof reply) return RP_INVALID;
    memcpy(&reply, data, sizeof reply);
    *connection = rp_selector_find(selector, reply.connection);
    if (*connection == NULL) return RP_NOT_FOUND;
    if ((*connection)->flags & CONNECTION_NO_OUTPUT) return RP_OK;
    uint64_t slices_size = reply.slice_count * (uint64_t)sizeof slice;
    if (sizeof reply + slices_size + reply.head_size > size) return RP_INVALID;
    rp_status status =
        rp_connection_queue(&selector->connections, *connection, data + sizeof reply + slices_size, reply.head_size);
    for (uint32_t i = 0; i < reply.slice_count && status == RP_OK; i++) {
        memcpy(&slice, data + sizeof reply + i * sizeof slice, sizeof slice);
        status = rp_connection_queue_slice(&selector->connections, *connection, &slice);
    }
    if (status == RP_OK) count(selector, RP_COUNT_FRAMES_OUT, 1);
    return status;
}

static void take_reply(rp_selector *selector, uint16_t type, const uint8_t *data, uint32_t size) {
    rp_connection *connection = NULL;
    rp_status status = type == RP_MSG_REPLY        ? queue_reply(selector, data, size, &connection)
                       : type == RP_MSG_PULL_REPLY ? queue_pull_reply(selector, data, size, &connection)
                                                   : RP_INVALID;
    if (connection == NULL) return;
    /* A partly queued frame (its part of the log was deleted, or no memory) cannot be undone: close the connection. */
    if (status != RP_OK || connection->output_memory > OUTPUT_MEMORY_MAX) {
        rp_selector_close_connection(selector, connection);
        return;
    }
    mark_dirty(selector, connection);
    if (connection->queued_bytes > FLUSH_AT_BYTES && !(connection->flags & CONNECTION_BLOCKED))
        rp_selector_flush(selector, connection);
    else if (output_of(connection) > selector->config.high_water_bytes && !(connection->flags & CONNECTION_CHOKED)) {
        set_choked(selector, connection);
        rp_selector_update_interest(selector, connection);
    }
}

/* Returns 1 if a ring still has more. */
int rp_selector_drain_replies(rp_selector *selector) {
    int more = 0;
    selector->replies_taken = 0;
    for (uint32_t i = 0; i < selector->reply_count; i++) {
        const uint8_t *data;
        uint32_t size;
        uint16_t type;
        uint32_t taken = 0;
        while (taken < REPLIES_PER_TURN && rp_ring_read(selector->replies[i], &data, &size, &type) == RP_OK) {
            take_reply(selector, type, data, size);
            rp_ring_release(selector->replies[i]);
            taken++;
        }
        more |= taken == REPLIES_PER_TURN;
        selector->replies_taken += taken;
    }
    flush_dirty(selector);
    return more;
}
