/* The load: epoll, one thread; memory is taken when it opens (and for larger frames and the list of acks, if kept).
 *
 * Closed loop: every connection keeps `in_flight` requests unanswered; an answer makes room for the next request, and
 * all answers of one read are followed by one write. Open loop (rate > 0): request k is due at start + k / rate and its
 * latency counts from then, whether or not the load got round to sending it: a broker that stalls is charged for
 * everything that should have been asked meanwhile (no coordinated omission).
 *
 * A request in flight occupies a slot of its connection. Its opaque names slot and generation, so that an answer that
 * comes after its request was given up is told from the answer of the next request in its slot.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "engine.h"

enum {
    EVENTS_MAX = 256,
    RECONNECT_NS = 2000000,
    TICK_NS = 50000000        /* timeouts and reconnects are looked at this often at least */
};
static const int64_t SECOND_NS = 1000000000;

/* --- the loop --------------------------------------------------------------------------------------------------- */

static void connected(load *l, connection *c, int64_t now, int drain) {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
        connection_lose(l, c);
        return;
    }
    c->connecting = 0;
    connection_watch(l, c, EPOLL_CTL_MOD, EPOLLIN);
    if (c->is_consumer && l->config.mode == LOAD_END_TO_END) hold_pulls(l, c, now);
    fill(l, c, now, drain);
}

/* Forget what was never answered; open again what was lost. */
static void tick(load *l, int64_t now, int drain) {
    if (now < l->tick_ns) return;
    l->tick_ns = now + (l->config.reconnect ? RECONNECT_NS : TICK_NS);
    for (uint32_t i = 0; i < l->connection_count; i++) {
        connection *c = &l->connections[i];
        if (c->fd < 0) {
            if (!l->config.reconnect || now - c->lost_ns < RECONNECT_NS) continue;
            if (connection_open(l, c, 1) != 0)
                c->lost_ns = now;
            else if (!c->connecting)
                connected(l, c, now, drain);
            continue;
        }
        if (c->is_consumer && l->config.mode == LOAD_END_TO_END) continue; /* held by the broker, for long */
        for (uint32_t k = 0; k < c->slot_count; k++) {
            slot *s = &c->slots[k];
            if (!s->busy || now - s->started_ns < l->config.timeout_ns) continue;
            count(&l->stats.timeouts, 1);
            slot_free(l, c, s);
        }
        fill(l, c, now, drain);
    }
}

/* How long to wait: to the next request that is due, the next tick, or the end. */
static int64_t wait_ns(const load *l, int64_t now, int64_t until_ns, int drain) {
    int64_t wake = l->tick_ns < until_ns ? l->tick_ns : until_ns;
    if (l->config.rate > 0 && !drain && may_start(l)) {
        const int64_t next_ns = due_ns(l);
        if (next_ns > now && next_ns < wake)
            wake = next_ns; /* overdue ones wait for a free slot, that is for an answer */
    }
    return wake > now ? wake - now : 0;
}

/* Held pulls do not count as unanswered. */
static int is_idle(const load *l) {
    uint32_t held = 0;
    if (l->config.mode == LOAD_END_TO_END)
        for (uint32_t i = l->config.producers; i < l->connection_count; i++)
            held += l->connections[i].slot_count - l->connections[i].free_count;
    return l->in_flight == held;
}

int load_run(load *l, int64_t until_ns, int drain) {
    struct epoll_event events[EVENTS_MAX];
    int64_t now = load_now_ns();
    prctl(PR_SET_TIMERSLACK, 1UL);
    if (l->config.rate > 0 && l->open_loop_ns == 0) l->open_loop_ns = now;
    for (uint32_t i = 0; i < l->connection_count; i++) fill(l, &l->connections[i], now, drain);
    while (!__atomic_load_n(&l->stop, __ATOMIC_RELAXED)) {
        now = load_now_ns();
        if (now >= until_ns) return LOAD_RUNNING;
        tick(l, now, drain);
        if (l->config.rate > 0 && !drain) fill_due(l, now);
        flush_dirty(l);
        if ((drain || !may_start(l)) && is_idle(l)) return LOAD_DONE;
        if (l->alive == 0 && !l->config.reconnect) return LOAD_DEAD;
        int64_t wait = wait_ns(l, now, until_ns, drain);
        struct timespec timeout = {.tv_sec = wait / SECOND_NS, .tv_nsec = wait % SECOND_NS};
        int ready = epoll_pwait2(l->epoll, events, EVENTS_MAX, &timeout, NULL);
        if (ready < 0 && errno != EINTR) return LOAD_FAULT;
        for (int i = 0; i < ready; i++) {
            connection *c = &l->connections[events[i].data.u32];
            if (c->fd < 0) continue;
            if (c->connecting)
                connected(l, c, load_now_ns(), drain);
            else if (events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP))
                receive(l, c, drain);
            if (c->fd >= 0 && c->waits_to_write && events[i].events & EPOLLOUT) flush(l, c);
            flush_dirty(l);
        }
    }
    return LOAD_STOPPED;
}

/* --- life ------------------------------------------------------------------------------------------------------- */

static int open_connection(load *l, uint32_t index) {
    connection *c = &l->connections[index];
    c->fd = -1;
    c->index = index;
    c->is_consumer = index >= l->config.producers;
    c->slot_count = c->is_consumer && l->config.mode == LOAD_END_TO_END ? l->config.queue_count : l->config.in_flight;
    c->slots = calloc(c->slot_count, sizeof *c->slots);
    c->free_slots = calloc(c->slot_count, sizeof *c->free_slots);
    c->in.capacity = IN_SIZE_FIRST;
    c->out.capacity = (uint64_t)c->slot_count * (l->template_size_max + l->config.end.size);
    c->in.bytes = malloc(c->in.capacity);
    c->out.bytes = malloc(c->out.capacity);
    if (!c->slots || !c->free_slots || !c->in.bytes || !c->out.bytes) return -1;
    for (uint32_t i = c->slot_count; i-- > 0;) c->free_slots[c->free_count++] = i;
    return connection_open(l, c, 0);
}

static uint32_t largest_template(const load_config *config) {
    uint32_t size = 0;
    for (uint32_t i = 0; config->send != NULL && i < config->queue_count; i++)
        if (config->send[i].size > size) size = config->send[i].size;
    for (uint32_t i = 0; config->pull != NULL && i < config->queue_count * LOAD_OFFSET_DIGITS_MAX; i++)
        if (config->pull[i].size > size) size = config->pull[i].size;
    return size;
}

load *load_open(const load_config *config) {
    load *l = calloc(1, sizeof *l);
    if (l == NULL) return NULL;
    l->config = *config;
    l->connection_count = config->producers + config->consumers;
    l->template_size_max = largest_template(config);
    l->next_key = config->key_first;
    l->address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)config->port)};
    l->connections = calloc(l->connection_count, sizeof *l->connections);
    l->dirty = calloc(l->connection_count, sizeof *l->dirty);
    l->cursors = calloc(config->queue_count, sizeof *l->cursors);
    l->asked = calloc(config->queue_count, sizeof *l->asked);
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (config->is_tls && (l->tls = tls_client_open()) == NULL) goto failed;
    if (!l->connections || !l->dirty || !l->cursors || !l->asked || l->epoll < 0) goto failed;
    if (inet_pton(AF_INET, config->host, &l->address.sin_addr) != 1) {
        errno = EINVAL;
        goto failed;
    }
    if (config->mode == LOAD_END_TO_END) memcpy(l->cursors, config->offsets, config->queue_count * sizeof *l->cursors);
    for (uint32_t i = 0; config->random_pages && i < config->queue_count; i++)
        l->cursors[i] = (uint64_t)load_now_ns() * (i + 1);
    for (uint32_t i = 0; i < l->connection_count; i++) l->connections[i].fd = -1;
    for (uint32_t i = 0; i < l->connection_count; i++)
        if (open_connection(l, i) != 0) goto failed;
    if (config->mode == LOAD_END_TO_END)
        for (uint32_t i = config->producers; i < l->connection_count; i++)
            hold_pulls(l, &l->connections[i], load_now_ns());
    return l;
failed:;
    int error = errno;
    load_close(l);
    errno = error;
    return NULL;
}

void load_close(load *l) {
    for (uint32_t i = 0; l->connections != NULL && i < l->connection_count; i++) {
        connection *c = &l->connections[i];
        if (c->fd >= 0) channel_close(&c->channel);
        free(c->slots);
        free(c->free_slots);
        free(c->in.bytes);
        free(c->out.bytes);
    }
    if (l->epoll >= 0) close(l->epoll);
    if (l->tls != NULL) tls_client_close(l->tls);
    free(l->connections);
    free(l->dirty);
    free(l->cursors);
    free(l->asked);
    free(l->acks);
    free(l);
}

void load_stop(load *l, uint32_t stop) { __atomic_store_n(&l->stop, stop, __ATOMIC_RELAXED); }
uint64_t load_messages(const load *l) { return __atomic_load_n(&l->stats.messages_ok, __ATOMIC_RELAXED); }
uint64_t load_errors(const load *l) { return __atomic_load_n(&l->stats.requests_failed, __ATOMIC_RELAXED); }
void load_stats_get(const load *l, load_stats *stats) { *stats = l->stats; }

void load_reset(load *l) {
    memset(&l->stats, 0, sizeof l->stats);
    memset(&l->latency, 0, sizeof l->latency);
    memset(&l->end_to_end, 0, sizeof l->end_to_end);
    for (uint32_t i = 0; i < l->connection_count; i++)
        memset(&l->connections[i].stats, 0, sizeof l->connections[i].stats);
}

void load_connection_stats_get(const load *l, uint32_t index, load_connection_stats *stats) {
    *stats = l->connections[index].stats;
}

const load_ack *load_acks(const load *l, uint64_t *count) {
    *count = l->ack_count;
    return l->acks;
}

uint32_t load_bucket_count(void) { return HISTOGRAM_BUCKETS; }
uint32_t load_bucket(uint64_t value_ns) { return histogram_bucket(value_ns); }
uint64_t load_bucket_low(uint32_t bucket) { return histogram_low(bucket); }
const uint64_t *load_histogram(const load *l, uint32_t which) {
    return which ? l->end_to_end.counts : l->latency.counts;
}
uint64_t load_histogram_max_ns(const load *l, uint32_t which) {
    return which ? l->end_to_end.max_ns : l->latency.max_ns;
}
