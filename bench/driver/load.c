/* The load: epoll, one thread, no allocation while it runs.
 *
 * Closed loop: every connection keeps `in_flight` requests unanswered; an answer makes room for the next request, and
 * all answers of one read are followed by one write. Open loop (rate > 0): request k is due at start + k / rate and its
 * latency counts from then, whether or not the load got round to sending it: a broker that stalls is charged for
 * everything that should have been asked meanwhile (no coordinated omission).
 *
 * A request in flight occupies a slot of its connection. Its opaque names slot and generation, so that an answer that
 * comes after its request was given up is told from the answer of its successor.
 */
#define _GNU_SOURCE
#include "load.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "histogram.h"
#include "wire.h"

enum {
    IN_SIZE_FIRST = 262144,   /* grows up to one frame of the largest size */
    EVENTS_MAX = 256,
    ACKS_FIRST = 65536,
    RECONNECT_NS = 2000000,
    TICK_NS = 50000000        /* timeouts and reconnects are looked at this often at least */
};
static const int64_t SECOND_NS = 1000000000;

typedef struct buffer {
    uint8_t *bytes;
    uint64_t start, end, capacity;
} buffer;

typedef struct slot {
    int64_t started_ns; /* open loop: when it was due */
    uint64_t key;
    uint64_t offset;
    uint32_t queue;
    uint32_t opaque;
    uint32_t messages;
    uint32_t busy;
} slot;

typedef struct connection {
    int fd; /* -1: lost */
    uint32_t index;
    uint32_t is_consumer, connecting, waits_to_write, is_dirty;
    uint32_t slot_count, free_count, generation;
    slot *slots;
    uint32_t *free_slots; /* indices, a stack */
    buffer in, out;
    int64_t lost_ns, last_ok_ns;
    load_connection_stats stats;
} connection;

struct load {
    load_config config;
    struct sockaddr_in address;
    int epoll;
    uint32_t stop;
    uint32_t connection_count, alive, in_flight;
    uint32_t template_size_max;
    connection *connections;
    uint32_t *dirty; /* connections with bytes to flush, indices */
    uint32_t dirty_count;
    uint32_t next_queue, next_connection;
    uint64_t next_key, started, due; /* requests started ever; open loop: requests due so far */
    int64_t open_loop_ns, tick_ns, last_ok_ns;
    uint64_t *cursors; /* per queue: LOAD_PULL walks, LOAD_END_TO_END follows */
    load_stats stats;
    load_ack *acks;
    uint64_t ack_count, ack_capacity;
    histogram latency, end_to_end;
};

int64_t load_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * SECOND_NS + now.tv_nsec;
}

/* Counters have one writer; other threads may look at them. */
static void add(uint64_t *counter, uint64_t n) { __atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED); }

/* --- connections ------------------------------------------------------------------------------------------------ */

static int watch(load *l, connection *c, int operation, uint32_t events) {
    struct epoll_event event = {.events = events, .data.u32 = c->index};
    return epoll_ctl(l->epoll, operation, c->fd, &event);
}

/* Blocking for the first time, so that a run starts whole; without waiting when a connection is opened again. */
static int connect_one(load *l, connection *c, int again) {
    const int on = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | (again ? SOCK_NONBLOCK : 0), 0);
    if (c->fd < 0) return -1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    int rc = connect(c->fd, (struct sockaddr *)&l->address, sizeof l->address);
    c->connecting = rc != 0 && errno == EINPROGRESS;
    if ((rc != 0 && !c->connecting) || watch(l, c, EPOLL_CTL_ADD, EPOLLIN | (c->connecting ? EPOLLOUT : 0u)) != 0) {
        int error = errno;
        close(c->fd);
        c->fd = -1;
        errno = error;
        return -1;
    }
    l->alive++;
    return 0;
}

static void free_slot(load *l, connection *c, slot *s) {
    s->busy = 0;
    c->free_slots[c->free_count++] = (uint32_t)(s - c->slots);
    l->in_flight--;
}

static void lose(load *l, connection *c) {
    if (c->fd < 0) return;
    close(c->fd);
    c->fd = -1;
    c->in.start = c->in.end = c->out.start = c->out.end = 0;
    c->waits_to_write = 0;
    c->lost_ns = load_now_ns();
    l->alive--;
    if (!c->connecting) {
        add(&l->stats.connections_lost, 1);
        c->stats.lost++;
    }
    c->connecting = 0;
    for (uint32_t i = 0; i < c->slot_count; i++) {
        if (!c->slots[i].busy) continue;
        add(&l->stats.requests_lost, 1);
        free_slot(l, c, &c->slots[i]);
    }
}

/* --- sending ---------------------------------------------------------------------------------------------------- */

static int may_start(const load *l) { return l->config.requests_max == 0 || l->started < l->config.requests_max; }

/* Room at the end of the output, moving what is unsent to the front if need be; NULL: the peer reads too slowly. */
static uint8_t *room(buffer *b, uint32_t size) {
    if (b->capacity - b->end < size && b->start > 0) {
        memmove(b->bytes, b->bytes + b->start, b->end - b->start);
        b->end -= b->start;
        b->start = 0;
    }
    return b->capacity - b->end < size ? NULL : b->bytes + b->end;
}

static int start_request(load *l, connection *c, const load_template *t, uint32_t queue, uint64_t offset, int64_t now) {
    uint8_t *frame = c->free_count == 0 ? NULL : room(&c->out, t->size);
    if (frame == NULL) return -1;
    uint32_t index = c->free_slots[--c->free_count];
    slot *s = &c->slots[index];
    uint32_t generations = WIRE_OPAQUE_RANGE / c->slot_count;
    c->generation = (c->generation + 1) % generations;
    *s = (slot){.started_ns = now, .key = l->next_key, .offset = offset, .queue = queue, .busy = 1,
                .opaque = WIRE_OPAQUE_FIRST + c->generation * c->slot_count + index, .messages = t->messages};
    memcpy(frame, t->bytes, t->size);
    load_patch(t, frame, s->opaque, s->key, offset, now);
    c->out.end += t->size;
    l->next_key += t->key_count;
    l->in_flight++;
    add(&l->stats.requests_sent, 1);
    if (!c->is_dirty) {
        c->is_dirty = 1;
        l->dirty[l->dirty_count++] = c->index;
    }
    return 0;
}

static const load_template *pull_template(const load *l, uint32_t queue, uint64_t offset) {
    uint32_t digits = 1;
    for (uint64_t rest = offset; rest >= 10; rest /= 10) digits++;
    return &l->config.pull[queue * LOAD_OFFSET_DIGITS_MAX + (digits - 1)];
}

static int start_pull(load *l, connection *c, uint32_t queue, uint64_t offset, int64_t now) {
    return start_request(l, c, pull_template(l, queue, offset), queue, offset, now);
}

/* The next page of the next queue that has any; whole pages only, back to the first one at the end. */
static int start_walk(load *l, connection *c, int64_t now) {
    for (uint32_t tried = 0; tried < l->config.queue_count; tried++) {
        uint32_t queue = l->next_queue;
        l->next_queue = (queue + 1) % l->config.queue_count;
        if (l->config.offsets[queue] < l->config.pull_count) continue;
        if (l->cursors[queue] + l->config.pull_count > l->config.offsets[queue]) l->cursors[queue] = 0;
        if (start_pull(l, c, queue, l->cursors[queue], now) != 0) return -1;
        l->cursors[queue] += l->config.pull_count;
        return 0;
    }
    return -1;
}

static int start_next(load *l, connection *c, int64_t now) {
    if (l->config.mode == LOAD_PULL) {
        if (start_walk(l, c, now) != 0) return -1;
    } else {
        uint32_t queue = l->next_queue;
        if (start_request(l, c, &l->config.send[queue], queue, 0, now) != 0) return -1;
        l->next_queue = (queue + 1) % l->config.queue_count;
    }
    l->started++;
    return 0;
}

/* An end-to-end consumer holds one pull per queue; the queues are shared out among the consumers. */
static void hold_pulls(load *l, connection *c, int64_t now) {
    uint32_t first = c->index - l->config.producers;
    for (uint32_t queue = first; queue < l->config.queue_count; queue += l->config.consumers)
        start_pull(l, c, queue, l->cursors[queue], now);
}

/* Closed loop: fill up what is free. */
static void fill(load *l, connection *c, int64_t now, int drain) {
    if (c->fd < 0 || c->connecting || drain || l->config.rate > 0) return;
    if (c->is_consumer && l->config.mode == LOAD_END_TO_END) return;
    while (c->free_count > 0 && may_start(l) && start_next(l, c, now) == 0) continue;
}

/* Open loop: start all that is due, on the connections in turn; what finds no free slot stays due. */
static void fill_due(load *l, int64_t now) {
    while (may_start(l)) {
        int64_t due_ns = l->open_loop_ns + (int64_t)((double)l->due * 1e9 / l->config.rate);
        if (due_ns > now) return;
        uint32_t tried = 0;
        for (; tried < l->config.producers; tried++) {
            connection *c = &l->connections[l->next_connection];
            l->next_connection = (l->next_connection + 1) % l->config.producers;
            if (c->fd >= 0 && !c->connecting && start_next(l, c, due_ns) == 0) break;
        }
        if (tried == l->config.producers) return;
        l->due++;
    }
}

static void flush(load *l, connection *c) {
    while (c->fd >= 0 && c->out.start < c->out.end) {
        ssize_t sent = send(c->fd, c->out.bytes + c->out.start, c->out.end - c->out.start, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            c->out.start += (uint64_t)sent;
        } else if (errno == EAGAIN) {
            if (!c->waits_to_write) watch(l, c, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
            c->waits_to_write = 1;
            return;
        } else if (errno != EINTR) {
            lose(l, c);
            return;
        }
    }
    c->out.start = c->out.end = 0;
    if (c->waits_to_write && c->fd >= 0) watch(l, c, EPOLL_CTL_MOD, EPOLLIN);
    c->waits_to_write = 0;
}

static void flush_dirty(load *l) {
    for (uint32_t i = 0; i < l->dirty_count; i++) {
        connection *c = &l->connections[l->dirty[i]];
        c->is_dirty = 0;
        if (!c->connecting) flush(l, c);
    }
    l->dirty_count = 0;
}

/* --- receiving -------------------------------------------------------------------------------------------------- */

static void count_code(load_stats *stats, int32_t code) {
    uint32_t i = 0;
    while (i < stats->code_count && stats->codes[i] != code) i++;
    if (i == LOAD_CODES_MAX) i--; /* more kinds than this are one kind */
    if (i == stats->code_count) stats->codes[stats->code_count++] = code;
    stats->code_counts[i]++;
    add(&stats->requests_failed, 1);
}

static void succeed(load *l, connection *c, const slot *s, uint64_t messages, int64_t now) {
    if (l->last_ok_ns && (uint64_t)(now - l->last_ok_ns) > l->stats.gap_max_ns)
        l->stats.gap_max_ns = (uint64_t)(now - l->last_ok_ns);
    if (c->last_ok_ns && (uint64_t)(now - c->last_ok_ns) > c->stats.gap_max_ns)
        c->stats.gap_max_ns = (uint64_t)(now - c->last_ok_ns);
    l->last_ok_ns = c->last_ok_ns = now;
    c->stats.ok++;
    add(&l->stats.requests_ok, 1);
    add(&l->stats.messages_ok, messages);
    histogram_record(&l->latency, now - s->started_ns, 1);
}

/* Called with room for one more (reserve_acks). */
static void remember(load *l, const slot *s, const wire_head *head) {
    l->acks[l->ack_count++] = (load_ack){.key = s->key, .queue = s->queue,
                                         .queue_offset = (uint64_t)wire_json_field(head, "\"queueOffset\"")};
}

static int reserve_acks(load *l) {
    if (!l->config.record_acks || l->ack_count < l->ack_capacity) return 0;
    uint64_t capacity = l->ack_capacity ? l->ack_capacity * 2 : ACKS_FIRST;
    load_ack *grown = realloc(l->acks, capacity * sizeof *grown);
    if (grown == NULL) return -1;
    l->acks = grown;
    l->ack_capacity = capacity;
    return 0;
}

/* Walk the records of a pull reply: whole, in order, from the offset asked for. Returns how many, or -1. */
static int64_t read_records(load *l, const slot *s, const wire_head *head, int64_t now) {
    int64_t count = 0;
    uint32_t at = 0;
    for (; at < head->body_size; count++) {
        wire_record record;
        if (wire_record_read(head->body + at, head->body_size - at, &record) != 0) return -1;
        if (record.queue_offset != s->offset + (uint64_t)count) return -1;
        if (l->config.mode == LOAD_END_TO_END && record.body_size >= 8)
            histogram_record(&l->end_to_end, now - (int64_t)wire_load64(record.body), 1);
        at += record.size;
    }
    add(&l->stats.bytes_received, at);
    return count > (int64_t)l->config.pull_count || count == 0 ? -1 : count;
}

static void finish_pull(load *l, connection *c, slot *s, const wire_head *head, int64_t now) {
    const int follows = l->config.mode == LOAD_END_TO_END;
    int64_t count = 0;
    if (head->code == 0) {
        count = read_records(l, s, head, now);
        if (count < 0) {
            add(&l->stats.bad_replies, 1);
            count = 0;
        } else if (follows) {
            add(&l->stats.messages_received, (uint64_t)count);
        } else {
            if (count < (int64_t)l->config.pull_count) add(&l->stats.short_replies, 1);
            succeed(l, c, s, (uint64_t)count, now);
        }
    } else if (follows && (head->code == 19 || head->code == 20)) {
        add(&l->stats.empty_replies, 1);
    } else {
        count_code(&l->stats, head->code);
    }
    uint32_t queue = s->queue;
    free_slot(l, c, s);
    if (follows) {
        l->cursors[queue] += (uint64_t)count;
        start_pull(l, c, queue, l->cursors[queue], now);
    }
}

static int finish(load *l, connection *c, const uint8_t *frame, uint32_t size, int64_t now) {
    wire_head head;
    if (wire_read(frame, size, &head) != 0) return -1;
    slot *s = &c->slots[(head.opaque - WIRE_OPAQUE_FIRST) % c->slot_count];
    if (!s->busy || s->opaque != head.opaque) {
        add(&l->stats.unmatched, 1);
        return 0;
    }
    if (c->is_consumer) {
        finish_pull(l, c, s, &head, now);
        return 0;
    }
    if (head.code == 0) {
        if (reserve_acks(l) != 0) return -1;
        if (l->config.record_acks) remember(l, s, &head);
        succeed(l, c, s, s->messages, now);
    } else {
        count_code(&l->stats, head.code);
    }
    free_slot(l, c, s);
    return 0;
}

/* Make room for the rest of a frame of `size` bytes (or for more of anything). */
static int make_room(buffer *b, uint32_t size) {
    if (b->start == b->end) b->start = b->end = 0;
    if (b->capacity - b->end >= IN_SIZE_FIRST / 2 && b->capacity - b->start >= size) return 0;
    memmove(b->bytes, b->bytes + b->start, b->end - b->start);
    b->end -= b->start;
    b->start = 0;
    if (b->capacity >= size + IN_SIZE_FIRST / 2) return 0;
    uint8_t *grown = realloc(b->bytes, size + IN_SIZE_FIRST);
    if (grown == NULL) return -1;
    b->bytes = grown;
    b->capacity = size + IN_SIZE_FIRST;
    return 0;
}

static void receive(load *l, connection *c, int drain) {
    ssize_t got = recv(c->fd, c->in.bytes + c->in.end, c->in.capacity - c->in.end, MSG_DONTWAIT);
    if (got <= 0) {
        if (got == 0 || (errno != EAGAIN && errno != EINTR)) lose(l, c);
        return;
    }
    const int64_t now = load_now_ns();
    c->in.end += (uint64_t)got;
    uint32_t size = 0;
    while ((size = wire_frame_size(c->in.bytes + c->in.start, c->in.end - c->in.start)) != 0) {
        if (size == UINT32_MAX) {
            lose(l, c);
            return;
        }
        if (size > c->in.end - c->in.start) break;
        if (finish(l, c, c->in.bytes + c->in.start, size, now) != 0) {
            lose(l, c);
            return;
        }
        c->in.start += size;
    }
    if (make_room(&c->in, size) != 0) {
        lose(l, c);
        return;
    }
    fill(l, c, now, drain);
}

/* --- the loop --------------------------------------------------------------------------------------------------- */

static void connected(load *l, connection *c, int64_t now, int drain) {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
        lose(l, c);
        return;
    }
    c->connecting = 0;
    watch(l, c, EPOLL_CTL_MOD, EPOLLIN);
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
            if (connect_one(l, c, 1) != 0) c->lost_ns = now;
            else if (!c->connecting) connected(l, c, now, drain);
            continue;
        }
        if (c->is_consumer && l->config.mode == LOAD_END_TO_END) continue; /* held by the broker, for long */
        for (uint32_t k = 0; k < c->slot_count; k++) {
            slot *s = &c->slots[k];
            if (!s->busy || now - s->started_ns < l->config.timeout_ns) continue;
            add(&l->stats.timeouts, 1);
            free_slot(l, c, s);
        }
        fill(l, c, now, drain);
    }
}

/* How long to wait: to the next request that is due, the next tick, or the end. */
static int64_t wait_ns(const load *l, int64_t now, int64_t until_ns, int drain) {
    int64_t wake = l->tick_ns < until_ns ? l->tick_ns : until_ns;
    if (l->config.rate > 0 && !drain && may_start(l)) {
        int64_t due_ns = l->open_loop_ns + (int64_t)((double)l->due * 1e9 / l->config.rate);
        if (due_ns > now && due_ns < wake) wake = due_ns; /* overdue ones wait for a free slot, that is for an answer */
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
        int count = epoll_pwait2(l->epoll, events, EVENTS_MAX, &timeout, NULL);
        if (count < 0 && errno != EINTR) return LOAD_FAULT;
        for (int i = 0; i < count; i++) {
            connection *c = &l->connections[events[i].data.u32];
            if (c->fd < 0) continue;
            if (c->connecting) connected(l, c, load_now_ns(), drain);
            else if (events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP)) receive(l, c, drain);
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
    c->out.capacity = (uint64_t)c->slot_count * l->template_size_max;
    c->in.bytes = malloc(c->in.capacity);
    c->out.bytes = malloc(c->out.capacity);
    if (!c->slots || !c->free_slots || !c->in.bytes || !c->out.bytes) return -1;
    for (uint32_t i = c->slot_count; i-- > 0;) c->free_slots[c->free_count++] = i;
    return connect_one(l, c, 0);
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
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!l->connections || !l->dirty || !l->cursors || l->epoll < 0) goto failed;
    if (inet_pton(AF_INET, config->host, &l->address.sin_addr) != 1) {
        errno = EINVAL;
        goto failed;
    }
    if (config->mode == LOAD_END_TO_END) memcpy(l->cursors, config->offsets, config->queue_count * sizeof *l->cursors);
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
        if (c->fd >= 0) close(c->fd);
        free(c->slots);
        free(c->free_slots);
        free(c->in.bytes);
        free(c->out.bytes);
    }
    if (l->epoll >= 0) close(l->epoll);
    free(l->connections);
    free(l->dirty);
    free(l->cursors);
    free(l->acks);
    free(l);
}

void load_stop(load *l) { __atomic_store_n(&l->stop, 1, __ATOMIC_RELAXED); }
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

void load_connection_stats_get(const load *l, uint32_t connection, load_connection_stats *stats) {
    *stats = l->connections[connection].stats;
}

const load_ack *load_acks(const load *l, uint64_t *count) {
    *count = l->ack_count;
    return l->acks;
}

uint32_t load_bucket_count(void) { return HISTOGRAM_BUCKETS; }
uint32_t load_bucket(uint64_t value_ns) { return histogram_bucket(value_ns); }
uint64_t load_bucket_low(uint32_t bucket) { return histogram_low(bucket); }
const uint64_t *load_histogram(const load *l, uint32_t which) { return which ? l->end_to_end.counts : l->latency.counts; }
uint64_t load_histogram_max_ns(const load *l, uint32_t which) { return which ? l->end_to_end.max_ns : l->latency.max_ns; }
