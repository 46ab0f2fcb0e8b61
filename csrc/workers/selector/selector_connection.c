/* One connection of a selector: lookup, epoll events, waiting for the codec, and close.
 *
 * CLOSED goes to the codec after all frames of the connection. A connection that finds no room is in its codec's list
 * until it has passed on everything (selector_input.c resumes it). */
#define _GNU_SOURCE
#include "workers/selector/selector_private.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "workers/codec/codec.h"

rp_connection *rp_selector_find(rp_selector *selector, uint64_t number) {
    uint32_t slot = (uint32_t)(number >> 32) & (CONNECTIONS_LIMIT - 1);

    if (number >> 56 != selector->index || slot >= selector->connections.slots_used) return NULL;
    rp_connection *connection = at_slot(selector, slot);
    if (connection->generation != (uint32_t)number || !(connection->flags & CONNECTION_OPEN)) return NULL;
    return connection;
}

void rp_selector_update_interest(rp_selector *selector, rp_connection *connection) {
    uint32_t unread = CONNECTION_STALLED | CONNECTION_CHOKED | CONNECTION_CLOSE_AFTER;
    /* A connection with half a request would close when the process tree ends: in a pause the rest of it is read. Go's
     * client writes each request in four parts. */
    int is_in_request = connection->rest_size && !(connection->flags & CONNECTION_PROXIED);
    int is_paused = selector->is_paused && !is_in_request;
    uint32_t interest = (connection->flags & unread) || selector->stop_ns || is_paused ? 0 : EPOLLIN;

    if (connection->flags & CONNECTION_BLOCKED) interest |= EPOLLOUT;
    if (interest == connection->interest) return;
    /* The kernel reports HUP and ERR unasked; of a connection that is not read, once. */
    uint32_t events = interest ? interest : (uint32_t)EPOLLONESHOT;
    struct epoll_event event = {.events = events, .data.u64 = number_of(selector, connection)};
    (void)epoll_ctl(selector->epoll, EPOLL_CTL_MOD, connection->fd, &event); /* a registered fd: cannot fail */
    connection->interest = interest;
}

void rp_selector_stall(rp_selector *selector, rp_connection *connection) {
    codec_input *input = codec_input_of(selector, connection);
    uint32_t slot = slot_of(selector, connection);

    if (connection->flags & CONNECTION_STALLED) return;
    connection->flags |= CONNECTION_STALLED;
    connection->next_stalled = NO_SLOT;
    if (input->last_stalled != NO_SLOT)
        at_slot(selector, input->last_stalled)->next_stalled = slot;
    else
        input->first_stalled = slot;
    input->last_stalled = slot;
    count(selector, RP_COUNT_STALLS, 1);
    if (connection->flags & CONNECTION_OPEN) rp_selector_update_interest(selector, connection);
}

int rp_selector_codec_is_full(rp_selector *selector, const rp_connection *connection) {
    return codec_input_of(selector, connection)->first_stalled != NO_SLOT;
}

/* ---- the end of a connection ---- */

static void set_linger(int fd, int resets) {
    const struct linger linger = {.l_onoff = resets, .l_linger = 0};

    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
}

void rp_selector_reset_at_death(int fd) { set_linger(fd, 1); }

void rp_selector_close_socket(int fd, int is_orderly) {
    if (is_orderly) {
        set_linger(fd, 0);
        (void)shutdown(fd, SHUT_RDWR); /* now, even while the acceptor still has its copy */
    }
    close(fd);
}

rp_status rp_selector_pass_closed(rp_selector *selector, const rp_connection *connection) {
    rp_ring_writer *writer = codec_input_of(selector, connection)->writer;
    rp_origin origin = origin_of(selector, connection, selector->now_ns);
    rp_span span = {&origin, sizeof origin};

    if (writer == NULL) return rp_codec_closed(selector->codec, &origin);
    return rp_ring_write(writer, RP_MSG_CLOSED, &span, 1);
}

/* The socket is closed at once, the slot is freed when CLOSED is written: until then its number must not be used again.
 * */
void rp_selector_close_connection(rp_selector *selector, rp_connection *connection) {
    if (!(connection->flags & CONNECTION_OPEN)) return;
    /* Removed from epoll explicitly: while the acceptor still has a copy, closing ours would leave it registered. */
    (void)epoll_ctl(selector->epoll, EPOLL_CTL_DEL, connection->fd, NULL);
    rp_selector_close_socket(connection->fd, connection->first == NULL);
    connection->fd = -1;
    connection->flags &= (uint16_t)~(CONNECTION_OPEN | CONNECTION_BLOCKED);
    selector->connections.open_count--;
    rp_connection_drop_rest(&selector->connections, connection);
    rp_connection_drop_output(&selector->connections, connection);
    rp_connection_untrack(&selector->connections, slot_of(selector, connection));
    count(selector, RP_COUNT_CONNECTIONS_CLOSED, 1);
    if (connection->flags & CONNECTION_STALLED) return; /* finished where the stalled are */
    if ((connection->flags & CONNECTION_GREETED) && rp_selector_pass_closed(selector, connection) == RP_FULL)
        rp_selector_stall(selector, connection);
    else
        rp_connections_give_back(&selector->connections, slot_of(selector, connection));
}

void rp_selector_end_output(rp_selector *selector, rp_connection *connection) {
    if (connection->flags & CONNECTION_CLOSE_AFTER || selector->stop_ns) { /* it is not read any more */
        rp_selector_close_connection(selector, connection);
        return;
    }
    connection->flags |= CONNECTION_NO_OUTPUT;
    connection->flags &= (uint16_t)~(CONNECTION_BLOCKED | CONNECTION_CHOKED);
    rp_connection_drop_output(&selector->connections, connection);
    rp_selector_update_interest(selector, connection);
}
