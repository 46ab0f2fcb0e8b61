/* One connection of a selector: lookup, epoll events, waiting for the codec, TLS, and close.
 *
 * CLOSED goes to the codec after all frames of the connection. A connection that finds no room is in its codec's list
 * until it has passed on everything (selector_input.c resumes it). */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "workers/codec/codec.h"
#include "workers/selector/selector_private.h"

rp_connection *rp_selector_find(rp_selector *selector, uint64_t number) {
    uint32_t slot = (uint32_t)(number >> 32) & (CONNECTIONS_LIMIT - 1);
    if (number >> 56 != selector->config.index || slot >= selector->connections.slots_used) return NULL;
    rp_connection *connection = at_slot(selector, slot);
    if (connection->generation != (uint32_t)number || !(connection->flags & CONNECTION_OPEN)) return NULL;
    return connection;
}

void rp_selector_update_interest(rp_selector *selector, rp_connection *connection) {
    uint32_t unread = CONNECTION_STALLED | CONNECTION_CHOKED | CONNECTION_CLOSE_AFTER | CONNECTION_THROTTLED;
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

/* The socket is closed now, the slot freed when CLOSED is written: until then its number must not be used again. */
void rp_selector_close_connection(rp_selector *selector, rp_connection *connection) {
    if (!(connection->flags & CONNECTION_OPEN)) return;
    /* Removed from epoll explicitly: while the acceptor still has a copy, closing ours would leave it registered. */
    (void)epoll_ctl(selector->epoll, EPOLL_CTL_DEL, connection->fd, NULL);
    rp_selector_close_socket(connection->fd, connection->first == NULL);
    connection->fd = -1;
    rp_selector_pause(selector, connection, 0);
    rp_selector_leave_limits(selector, connection);
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

/* ---- TLS ---- */

enum { TLS_HANDSHAKE = 0x16 /* content type of the first record; a frame begins with 0 */ };

/* Give the client's socket to a TLS worker, and go on with one end of a socket pair in its place: the worker has the
 * other end, and passes plain bytes. RP_OK; RP_FULL: the worker is behind, or there are no descriptors. */
static rp_status pass_to_tls(rp_selector *selector, rp_connection *connection) {
    int worker = selector->config.tls[slot_of(selector, connection) % selector->config.tls_count];
    union {
        struct cmsghdr align;
        uint8_t bytes[CMSG_SPACE(2 * sizeof(int))];
    } control = {.bytes = {0}};
    struct iovec vector = {&connection->peer, sizeof connection->peer};
    struct msghdr message = {
        .msg_iov = &vector, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct epoll_event event = {.events = connection->interest, .data.u64 = number_of(selector, connection)};
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) return RP_FULL;
    int passed[2] = {connection->fd, pair[1]};
    struct cmsghdr *part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof passed);
    memcpy(CMSG_DATA(part), passed, sizeof passed);
    if (epoll_ctl(selector->epoll, EPOLL_CTL_ADD, pair[0], &event) != 0 ||
        sendmsg(worker, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
        close(pair[0]);
        close(pair[1]);
        return RP_FULL;
    }
    (void)epoll_ctl(selector->epoll, EPOLL_CTL_DEL, connection->fd, NULL);
    close(connection->fd);
    close(pair[1]);
    connection->fd = pair[0];
    connection->flags |= CONNECTION_TLS;
    return RP_OK;
}

int rp_selector_settle_first_byte(rp_selector *selector, rp_connection *connection) {
    uint8_t first;
    ssize_t got = recv(connection->fd, &first, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    connection->flags &= (uint16_t)~CONNECTION_NEW;
    if (got <= 0) return 1; /* the reader learns the same */
    int is_tls = first == TLS_HANDSHAKE;
    if (!is_tls && !selector->config.is_tls_required) return 1;
    if (is_tls && pass_to_tls(selector, connection) == RP_OK) return 0;
    count(selector, is_tls ? RP_COUNT_TLS_REFUSED : RP_COUNT_PLAIN_REFUSED, 1);
    rp_selector_close_connection(selector, connection);
    return 0;
}
