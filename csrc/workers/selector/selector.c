/* One selector: everything that is ready, in one call, until the deadline.
 *
 *   turn:  sockets (read, cut, pass to codecs; write where blocked) -> reply rings -> flush what they filled
 *          -> connections that waited for a codec -> wake the codecs
 *          -> close connections that are idle or take too much memory (selector_connection.c)
 *          -> sleep if nothing moved
 *
 * Input. One readv per ready socket and turn: first the missing bytes of an incomplete frame, directly after its
 * beginning, then the big buffer, from which frames are cut and copied once, into the codec's ring. The rest is kept in
 * a buffer of the connection. When the ring is full, frames stay there and the connection is not read until there is
 * room (back-pressure reaches the client through TCP).
 *
 * Output. All replies of a turn are queued per connection and leave in one sendmsg each. Reply bytes are copied out of
 * the ring, so a slow client only uses its own memory; slices of the log are written from the mapping. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/clock.h"
#include "wire/header.h"
#include "ipc/serving.h"
#include "workers/codec/codec.h"
#include "workers/selector/selector_private.h"

/* Waiting for sockets, replies and the doorbell: looking again for a moment where that pays (spin.h), then asleep.
 *
 * While it looks, the selector is not asleep: who writes a reply need not ring. */

#define LOOK_AGAIN_NS 5000000ull /* acknowledgements wake nobody */

/* 1 if a reply ring has something. */
static int has_replies(const rp_selector *selector) {
    for (uint32_t i = 0; i < selector->reply_count; i++)
        if (!rp_ring_is_empty(selector->replies[i])) return 1;
    return 0;
}

/* Time until the next deadline in milliseconds, rounded up; -1: none. */
static int timeout_ms(const rp_selector *selector, uint64_t deadline_ns) {
    uint64_t due_ns = deadline_ns;
    if (selector->config.idle_s != 0 && selector->connections.oldest[IDLE] != NO_SLOT) {
        uint64_t idle_ns = (selector->connections.slots[selector->connections.oldest[IDLE]].active_s +
                            (uint64_t)selector->config.idle_s) *
                           NS_PER_S;
        if (idle_ns < due_ns) due_ns = idle_ns;
    }
    due_ns = rp_earlier(due_ns, rp_wheel_due_ns(&selector->wheel));
    if (selector->leave_ns != 0 && selector->leave_ns + STOP_S * NS_PER_S < due_ns)
        due_ns = selector->leave_ns + STOP_S * NS_PER_S;
    if (selector->leave_ns != 0 && selector->now_ns + LOOK_AGAIN_NS < due_ns) due_ns = selector->now_ns + LOOK_AGAIN_NS;
    if (due_ns == UINT64_MAX) return -1;
    if (due_ns <= selector->now_ns) return 0;
    uint64_t ms = (due_ns - selector->now_ns + 999999) / 1000000;
    return ms > 60000 ? 60000 : (int)ms;
}

/* Look for events and replies until `until_ns` without sleeping. Returns the number of events, or -1. */
static int spin(rp_selector *selector, struct epoll_event *events, int events_max, uint64_t until_ns) {
    int ready;
    do {
        ready = epoll_wait(selector->epoll, events, events_max, 0);
    } while (ready == 0 && !has_replies(selector) && rp_now_ns() < until_ns);
    return ready;
}

static int sleep_for_events(rp_selector *selector, struct epoll_event *events, int events_max, uint64_t deadline_ns) {
    int timeout = timeout_ms(selector, deadline_ns);
    rp_worker_prepare_sleep(selector->config.worker);
    if (has_replies(selector))
        timeout = 0;
    else if (timeout != 0)
        count(selector, RP_COUNT_SLEEPS, 1);
    int ready = epoll_wait(selector->epoll, events, events_max, timeout);
    rp_store_release32(&selector->config.worker->asleep,
                       0); /* the doorbell is drained when epoll says that it was rung */
    return ready;
}

/* Wait until an event is ready, a reply has come or something is due, or until the deadline. Returns the number of
 * events, 0 where it is something else; -1 with errno. */
static int wait_for_events(rp_selector *selector, struct epoll_event *events, int events_max, uint64_t deadline_ns) {
    rp_wait_kind kind = selector->wait_kind;
    uint64_t began_ns = rp_now_ns(), spun_ns = 0;
    uint64_t spin_ns = selector->is_lone ? rp_spin_allowed(&selector->spin, kind, began_ns) : 0;
    int ready = 0, is_over = 0;
    if (spin_ns != 0) {
        ready = spin(selector, events, events_max, began_ns + spin_ns);
        spun_ns = rp_now_ns() - began_ns;
        is_over = ready != 0 || has_replies(selector);
    }
    if (!is_over) ready = sleep_for_events(selector, events, events_max, deadline_ns);
    rp_spin_waited(&selector->spin, kind, rp_now_ns() - began_ns, spun_ns);
    return ready;
}

enum {
    EVENTS_MAX = 256,
    CONNECTIONS_DEFAULT = 20000,
    DESCRIPTORS_KEPT = 64, /* of the limit, for everything that is not a connection */
    HIGH_WATER_DEFAULT = 1024 * 1024,
    UNFINISHED_DEFAULT = 256 * 1024 * 1024,
    UNSENT_DEFAULT = 256 * 1024 * 1024,
    DELETED_GRACE_DEFAULT_MS = 30000,
    LONE = 1 /* events or replies in a turn, after which a wait may spin: under load, sleeping makes larger batches */
};
#define ACKNOWLEDGE_NS 500000000ull /* a peer that is gone acknowledges nothing */
#define PAUSE_LOOK_NS 10000000ull /* the end of a pause wakes nobody */
#define EVENT_DOORBELL UINT64_MAX
#define EVENT_HANDOFF (UINT64_MAX - 1)

static void tick(rp_selector *selector) {
    selector->now_ns = rp_now_ns();
    selector->now_s = (uint32_t)(selector->now_ns / NS_PER_S);
}

/* ---- new connections ---- */

static int watch(rp_selector *selector, int fd, uint64_t name) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = name};
    return epoll_ctl(selector->epoll, EPOLL_CTL_ADD, fd, &event);
}

static void open_connection(rp_selector *selector, int fd, uint8_t listener) {
    const int on = 1;
    uint32_t slot = selector->stop_ns ? (uint32_t)NO_SLOT : rp_connections_take(&selector->connections);
    if (slot == NO_SLOT) {
        count(selector, RP_COUNT_CONNECTIONS_REFUSED, 1);
        close(fd);
        return;
    }
    rp_connection *connection = at_slot(selector, slot);
    connection->fd = fd;
    connection->listener = listener;
    connection->peer = rp_peer_of_socket(fd);
    connection->interest = EPOLLIN;
    int proxied = rp_peer_is_in(&connection->peer, selector->config.proxies, selector->config.proxy_count)
                      ? CONNECTION_PROXIED
                      : 0;
    /* Behind a proxy the limits are those of the client that the header names. */
    if (selector->config.limits && !proxied && !rp_selector_join_limits(selector, connection)) {
        count(selector, RP_COUNT_ADDRESS_REFUSED, 1);
        close(fd);
        rp_connections_give_back(&selector->connections, slot);
        return;
    }
    rp_selector_reset_at_death(fd);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* not of a unix socket */
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0 ||
        watch(selector, fd, number_of(selector, connection)) != 0) {
        close(fd);
        rp_selector_leave_limits(selector, connection);
        rp_connections_give_back(&selector->connections, slot);
        count(selector, RP_COUNT_CONNECTIONS_REFUSED, 1);
        return;
    }
    connection->flags = selector->config.tls_count ? CONNECTION_OPEN | CONNECTION_NEW : CONNECTION_OPEN;
    connection->flags |= (uint16_t)proxied;
    selector->connections.open_count++;
    rp_connection_touch(&selector->connections, slot, selector->now_s);
    rp_selector_update_interest(selector, connection);
    count(selector, RP_COUNT_CONNECTIONS_OPENED, 1);
}

/* Receive one message of the acceptor. Returns 0 if there is none. */
static int take_handoff(rp_selector *selector) {
    uint8_t listeners[RP_HANDOFF_MAX] = {0};
    struct iovec vector = {listeners, sizeof listeners};
    union {
        struct cmsghdr align;
        uint8_t bytes[CMSG_SPACE(RP_HANDOFF_MAX * sizeof(int))];
    } control;
    struct msghdr message = {
        .msg_iov = &vector, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg(selector->config.handoff, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    int fds[RP_HANDOFF_MAX];
    size_t fd_count = 0;
    if (got < 0) return errno == EINTR;
    if (got == 0) { /* nobody holds the other end any more */
        (void)epoll_ctl(selector->epoll, EPOLL_CTL_DEL, selector->config.handoff, NULL);
        return 0;
    }
    for (struct cmsghdr *part = CMSG_FIRSTHDR(&message); part != NULL; part = CMSG_NXTHDR(&message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
        fd_count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(fds, CMSG_DATA(part), fd_count * sizeof(int));
    }
    for (size_t i = 0; i < fd_count; i++) open_connection(selector, fds[i], listeners[i]);
    /* Out of descriptors: the kernel has closed those that it could not pass. */
    if ((size_t)got > fd_count) count(selector, RP_COUNT_CONNECTIONS_REFUSED, (uint64_t)got - fd_count);
    return 1;
}

/* ---- the loop ---- */

static void handle_socket(rp_selector *selector, const struct epoll_event *event) {
    rp_connection *connection = rp_selector_find(selector, event->data.u64);
    if (connection == NULL) return; /* closed earlier in this batch */
    uint32_t asked = connection->interest;
    if (event->events & EPOLLOUT) rp_selector_flush(selector, connection);
    if (!(connection->flags & CONNECTION_OPEN)) return;
    if (event->events & EPOLLIN && connection->interest & EPOLLIN) {
        /* Other connections of this codec are stalled too: do not read. */
        if (rp_selector_codec_is_full(selector, connection))
            rp_selector_stall(selector, connection);
        else if (selector->config.limits == NULL)
            rp_selector_read(selector, connection);
        else
            rp_selector_read_limited(selector, connection);
    } else if (event->events & (EPOLLHUP | EPOLLERR)) {
        if (asked & EPOLLIN)
            rp_selector_close_connection(selector, connection);
        else
            rp_selector_end_output(selector, connection);
    }
}

static void resume_throttled(rp_selector *selector) {
    rp_connection *connection;
    while (selector->wheel.count > 0 && (connection = rp_selector_next_due(selector)) != NULL)
        rp_selector_update_interest(selector, connection);
}

static void wake_codecs(rp_selector *selector) {
    if (selector->codec != NULL) rp_codec_wake(selector->codec);
    for (uint32_t i = 0; i < selector->codec_input_count; i++) {
        if (selector->codec_inputs[i].writer == NULL) continue;
        (void)rp_ring_pump(selector->codec_inputs[i].writer);
        rp_ring_wake(selector->codec_inputs[i].writer);
    }
}

static int output_waiting(const rp_selector *selector) {
    for (uint32_t slot = 0; slot < selector->connections.slots_used; slot++)
        if (selector->connections.slots[slot].first != NULL) return 1;
    return 0;
}

static void update_interests(rp_selector *selector) {
    for (uint32_t slot = 0; slot < selector->connections.slots_used; slot++)
        if (at_slot(selector, slot)->flags & CONNECTION_OPEN)
            rp_selector_update_interest(selector, at_slot(selector, slot));
}

static void begin_stop(rp_selector *selector) {
    selector->stop_ns = selector->now_ns;
    (void)epoll_ctl(selector->epoll, EPOLL_CTL_DEL, selector->config.handoff, NULL);
    update_interests(selector);
}

/* Before sockets are read. */
static void look_at_pause(rp_selector *selector) {
    int is_paused = selector->config.intake_paused != NULL && rp_load_acquire32(selector->config.intake_paused) != 0;
    if (is_paused == selector->is_paused) return;
    selector->is_paused = is_paused;
    update_interests(selector);
}

/* 1: the peer has not acknowledged all bytes of an answer. A reset would overtake them. */
static int is_unacknowledged(const rp_connection *connection) {
    int bytes = 0;
    return ioctl(connection->fd, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

/* 1: some peer has not. Those found to be done are not asked again; the caller bounds the time. */
static int unacknowledged(rp_selector *selector) {
    for (; selector->acknowledged_slots < selector->connections.slots_used; selector->acknowledged_slots++) {
        const rp_connection *connection = at_slot(selector, selector->acknowledged_slots);
        if (connection->flags & CONNECTION_OPEN && is_unacknowledged(connection)) return 1;
    }
    return 0;
}

/* 1: all responses are sent, or it has taken too long. */
static int has_stopped(rp_selector *selector) {
    uint32_t stop = rp_load_acquire32(&selector->config.worker->stop);
    if (stop == 0) return 0;
    if (selector->stop_ns == 0) begin_stop(selector);
    if (stop != RP_STOP_LEAVE) return 0;
    if (selector->leave_ns == 0) selector->leave_ns = selector->now_ns;
    if (selector->now_ns - selector->leave_ns >= STOP_S * NS_PER_S) return 1;
    if (has_replies(selector) || output_waiting(selector)) return 0;
    return selector->now_ns - selector->leave_ns >= ACKNOWLEDGE_NS || !unacknowledged(selector);
}

/* Wait (if `may_sleep`) and handle all events. Returns their number, or -1. */
static int poll_once(rp_selector *selector, int may_sleep, uint64_t deadline_ns) {
    struct epoll_event events[EVENTS_MAX];
    if (selector->is_paused && deadline_ns > selector->now_ns + PAUSE_LOOK_NS)
        deadline_ns = selector->now_ns + PAUSE_LOOK_NS;
    int ready = may_sleep ? wait_for_events(selector, events, EVENTS_MAX, deadline_ns)
                          : epoll_wait(selector->epoll, events, EVENTS_MAX, 0);
    if (ready < 0 && errno == EINTR) ready = 0; /* a signal, a debugger: nothing is ready, nothing is wrong */
    tick(selector);
    look_at_pause(selector);
    for (int i = 0; i < ready; i++) {
        if (events[i].data.u64 == EVENT_DOORBELL)
            rp_worker_end_sleep(selector->config.worker);
        else if (events[i].data.u64 == EVENT_HANDOFF)
            while (take_handoff(selector)) {
            }
        else
            handle_socket(selector, &events[i]);
    }
    return ready;
}

/* What the next wait is for. A turn that moved nothing changes nothing. */
static void note_turn(rp_selector *selector, int ready) {
    if (ready <= 0 && selector->replies_taken == 0) return;
    selector->wait_kind = selector->replies_taken > 0 ? RP_WAIT_FOR_REQUEST : RP_WAIT_FOR_REPLY;
    selector->is_lone = ready <= LONE && selector->replies_taken <= LONE;
}

rp_status rp_selector_run(rp_selector *selector, int64_t timeout_ns) {
    tick(selector);
    rp_selector_close_pinning(selector);
    uint64_t deadline_ns = timeout_ns < 0 ? UINT64_MAX : selector->now_ns + (uint64_t)timeout_ns;
    int may_sleep = 0;
    for (;;) {
        int ready = poll_once(selector, may_sleep, deadline_ns);
        if (ready < 0) return RP_IO_ERROR;
        int more = rp_selector_drain_replies(selector);
        rp_selector_resume_stalled(selector);
        resume_throttled(selector);
        rp_serving(selector->config.worker, 0);
        wake_codecs(selector);
        rp_selector_close_costly(selector);
        __atomic_store_n(&selector->config.worker->heartbeat_ns, selector->now_ns, __ATOMIC_RELAXED);
        count(selector, RP_COUNT_LOOPS, 1);
        if (has_stopped(selector)) return RP_STOPPED;
        if (selector->now_ns >= deadline_ns) return RP_OK;
        note_turn(selector, ready);
        may_sleep = ready <= 0 && !more;
    }
}

/* ---- open and close ---- */

static uint32_t connections_allowed(uint32_t wanted) {
    struct rlimit limit;
    uint64_t allowed = wanted == 0 ? CONNECTIONS_DEFAULT : wanted;
    if (allowed > CONNECTIONS_LIMIT) allowed = CONNECTIONS_LIMIT;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < allowed + DESCRIPTORS_KEPT)
        allowed = limit.rlim_cur > DESCRIPTORS_KEPT ? limit.rlim_cur - DESCRIPTORS_KEPT : 1;
    return (uint32_t)allowed;
}

static int open_rings(rp_selector *selector, const rp_selector_config *config) {
    uint32_t inputs = config->codec_count == 0 ? 1 : config->codec_count;
    selector->replies = calloc(config->reply_count + 1, sizeof *selector->replies);
    selector->codec_inputs = calloc(inputs, sizeof *selector->codec_inputs);
    if (selector->replies == NULL || selector->codec_inputs == NULL) return 0;
    for (; selector->reply_count < config->reply_count; selector->reply_count++) {
        rp_ring_reader *reader = rp_ring_reader_open(config->replies[selector->reply_count]);
        if (reader == NULL) return 0;
        selector->replies[selector->reply_count] = reader;
    }
    for (; selector->codec_input_count < inputs; selector->codec_input_count++) {
        codec_input *input = &selector->codec_inputs[selector->codec_input_count];
        input->first_stalled = input->last_stalled = NO_SLOT;
        if (config->codec_count == 0) continue;
        input->writer = rp_ring_writer_open(config->codecs[selector->codec_input_count]);
        if (input->writer == NULL) return 0;
    }
    return 1;
}

static void set_default(uint32_t *value, uint32_t otherwise) {
    if (*value == 0) *value = otherwise;
}

rp_selector *rp_selector_open(const rp_selector_config *config) {
    rp_selector *selector = calloc(1, sizeof *selector);
    if (selector == NULL) return NULL;
    selector->config = *config;
    rp_wheel_open(&selector->wheel);
    if (config->limits) rp_limits_begin(config->limits, config->index, config->worker->epoch);
    selector->codec = config->codec_count == 0 ? config->inline_codec : NULL;
    set_default(&selector->config.frame_size_max, RP_FRAME_SIZE_MAX);
    set_default(&selector->config.high_water_bytes, HIGH_WATER_DEFAULT);
    set_default(&selector->config.deleted_grace_ms, DELETED_GRACE_DEFAULT_MS);
    if (config->unfinished_bytes_max == 0) selector->config.unfinished_bytes_max = UNFINISHED_DEFAULT;
    if (config->unsent_bytes_max == 0) selector->config.unsent_bytes_max = UNSENT_DEFAULT;
    selector->first_dirty = NO_SLOT;
    rp_spin_open(&selector->spin, config->spin_us);
    selector->epoll = epoll_create1(EPOLL_CLOEXEC);
    selector->buffer = malloc(SELECTOR_BUFFER_SIZE);
    if (config->codec_count == 0 && config->inline_codec == NULL)
        errno = EINVAL;
    else if (selector->epoll >= 0 && selector->buffer != NULL && open_rings(selector, config) &&
             rp_connections_open(&selector->connections, connections_allowed(config->connections_max),
                                 config->worker->epoch, config->log) == RP_OK &&
             watch(selector, selector->config.worker->doorbell, EVENT_DOORBELL) == 0 &&
             watch(selector, selector->config.handoff, EVENT_HANDOFF) == 0) {
        /* The connections of the previous process were closed when it died. */
        uint64_t *counters = selector->config.worker->counters;
        counters[RP_COUNT_CONNECTIONS_CLOSED] = counters[RP_COUNT_CONNECTIONS_OPENED];
        return selector;
    }
    int reason = errno;
    rp_selector_close(selector);
    errno = reason;
    return NULL;
}

uint32_t rp_selector_give_up(rp_selector *selector, int32_t *fds, uint8_t *listeners, uint32_t max) {
    uint32_t given = 0;
    for (uint32_t slot = 0; slot < selector->connections.slots_used && given < max; slot++) {
        rp_connection *connection = at_slot(selector, slot);
        uint32_t harmless = CONNECTION_GREETED | CONNECTION_NEW | CONNECTION_THROTTLED;
        int is_at_rest = (connection->flags & ~harmless) == CONNECTION_OPEN; /* and plain */
        if (!is_at_rest || connection->rest_size || connection->first || selector->config.proxy_count) continue;
        (void)epoll_ctl(selector->epoll, EPOLL_CTL_DEL, connection->fd, NULL);
        fds[given] = connection->fd;
        listeners[given++] = (uint8_t)connection->listener;
        rp_selector_pause(selector, connection, 0);
        rp_selector_leave_limits(selector, connection);
        connection->fd = -1;
        connection->flags = 0;
        selector->connections.open_count--;
        count(selector, RP_COUNT_CONNECTIONS_CLOSED, 1);
    }
    return given;
}

void rp_selector_close(rp_selector *selector) {
    if (selector == NULL) return;
    for (uint32_t slot = 0; slot < selector->connections.slots_used; slot++) {
        rp_connection *connection = at_slot(selector, slot);
        if (!(connection->flags & CONNECTION_OPEN)) continue;
        /* A reset, unless it overtakes an answer: after a FIN a Java client waits out the timeout of a lost request. */
        rp_selector_close_socket(connection->fd, connection->first == NULL && is_unacknowledged(connection));
        rp_connection_drop_rest(&selector->connections, connection);
        rp_connection_drop_output(&selector->connections, connection);
    }
    rp_connections_close(&selector->connections);
    for (uint32_t i = 0; i < selector->reply_count; i++) rp_ring_reader_close(selector->replies[i]);
    for (uint32_t i = 0; i < selector->codec_input_count; i++) rp_ring_writer_close(selector->codec_inputs[i].writer);
    free(selector->replies);
    free(selector->codec_inputs);
    free(selector->buffer);
    if (selector->epoll >= 0) close(selector->epoll);
    rp_spin_close(&selector->spin);
    free(selector);
}

uint32_t rp_selector_connection_count(const rp_selector *selector) { return selector->connections.open_count; }
