/* Starting requests: connections, slots, and the bytes on their way out. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "engine.h"
#include "wire.h"

int connection_watch(load *l, connection *c, int operation, uint32_t events) {
    struct epoll_event event = {.events = events, .data.u32 = c->index};
    return epoll_ctl(l->epoll, operation, c->fd, &event);
}

int connection_open(load *l, connection *c, int again) {
    const int on = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | (again ? SOCK_NONBLOCK : 0), 0);
    if (c->fd < 0) return -1;
    c->channel = (channel){.fd = c->fd};
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    int rc = connect(c->fd, (struct sockaddr *)&l->address, sizeof l->address);
    c->connecting = rc != 0 && errno == EINPROGRESS;
    if ((rc != 0 && !c->connecting) || channel_open(&c->channel, l->tls) != 0 ||
        connection_watch(l, c, EPOLL_CTL_ADD, EPOLLIN | (c->connecting ? EPOLLOUT : 0u)) != 0) {
        int error = errno;
        channel_close(&c->channel);
        c->fd = -1;
        errno = error;
        return -1;
    }
    l->alive++;
    return 0;
}

void slot_free(load *l, connection *c, slot *s) {
    s->busy = 0;
    if (l->config.mode == LOAD_FILTERED) l->asked[s->queue] = 0;
    c->free_slots[c->free_count++] = (uint32_t)(s - c->slots);
    l->in_flight--;
}

void connection_lose(load *l, connection *c) {
    if (c->fd < 0) return;
    channel_close(&c->channel);
    c->fd = -1;
    c->in.start = c->in.end = c->out.start = c->out.end = 0;
    c->waits_to_write = 0;
    c->lost_ns = load_now_ns();
    l->alive--;
    if (!c->connecting) {
        count(&l->stats.connections_lost, 1);
        c->stats.lost++;
    }
    c->connecting = 0;
    for (uint32_t i = 0; i < c->slot_count; i++) {
        if (!c->slots[i].busy) continue;
        count(&l->stats.requests_lost, 1);
        slot_free(l, c, &c->slots[i]);
    }
}

int may_start(const load *l) { return l->config.requests_max == 0 || l->started < l->config.requests_max; }

/* Room at the end of the output, moving what is unsent to the front if need be; NULL: the peer reads too slowly. */
static uint8_t *room(buffer *b, uint32_t size) {
    if (b->capacity - b->end < size && b->start > 0) {
        memmove(b->bytes, b->bytes + b->start, b->end - b->start);
        b->end -= b->start;
        b->start = 0;
    }
    return b->capacity - b->end < size ? NULL : b->bytes + b->end;
}

static void mark_dirty(load *l, connection *c) {
    if (c->is_dirty) return;
    c->is_dirty = 1;
    l->dirty[l->dirty_count++] = c->index;
}

static int start_request(load *l, connection *c, const load_template *t, uint32_t queue, uint64_t offset, int64_t now) {
    uint8_t *frame = c->free_count == 0 ? NULL : room(&c->out, t->size);
    if (frame == NULL) return -1;
    uint32_t index = c->free_slots[--c->free_count];
    slot *s = &c->slots[index];
    uint32_t generations = WIRE_OPAQUE_RANGE / c->slot_count;
    c->generation = (c->generation + 1) % generations;
    *s = (slot){.started_ns = now,
                .key = l->next_key,
                .offset = offset,
                .queue = queue,
                .busy = 1,
                .opaque = WIRE_OPAQUE_FIRST + c->generation * c->slot_count + index,
                .messages = t->messages};
    memcpy(frame, t->bytes, t->size);
    load_patch(t, frame, s->opaque, s->key, offset, now + l->config.stamp_shift_ns);
    c->out.end += t->size;
    l->next_key += t->key_count;
    l->in_flight++;
    count(&l->stats.requests_sent, 1);
    mark_dirty(l, c);
    return 0;
}

static void put_digits(uint8_t *at, uint64_t value) {
    for (uint32_t i = LOAD_END_DIGITS; i-- > 0; value /= 10) at[i] = (uint8_t)('0' + value % 10);
}

int send_end(load *l, connection *c, uint64_t queue_offset, uint64_t phy_offset) {
    const load_end *end = &l->config.end;
    uint8_t *frame = room(&c->out, end->size);
    if (frame == NULL) return -1;
    memcpy(frame, end->bytes, end->size);
    put_digits(frame + end->queue_offset_at, queue_offset);
    put_digits(frame + end->phy_offset_at, phy_offset);
    c->out.end += end->size;
    mark_dirty(l, c);
    return 0;
}

static const load_template *pull_template(const load *l, uint32_t queue, uint64_t offset) {
    uint32_t digits = 1;
    for (uint64_t rest = offset; rest >= 10; rest /= 10) digits++;
    return &l->config.pull[queue * LOAD_OFFSET_DIGITS_MAX + (digits - 1)];
}

int start_pull(load *l, connection *c, uint32_t queue, uint64_t offset, int64_t now) {
    return start_request(l, c, pull_template(l, queue, offset), queue, offset, now);
}

/* The next of `pages` numbers in random order: a generator of full period (Knuth's MMIX) over the next power of two, so
 * that each page comes once before any comes again. What was read once is in the page cache. */
static uint64_t random_page(uint64_t *state, uint64_t pages) {
    const uint64_t mask = ~(uint64_t)0 >> __builtin_clzll((pages - 1) | 1);
    do *state = (*state * 6364136223846793005u + 1442695040888963407u) & mask;
    while (*state >= pages);
    return *state;
}

/* A page of the next queue that has any; whole pages only: at random, or in order and again from the first. */
static int start_walk(load *l, connection *c, int64_t now) {
    const uint32_t count = l->config.pull_count;
    for (uint32_t tried = 0; tried < l->config.queue_count; tried++) {
        uint32_t queue = l->next_queue;
        uint64_t *cursor = &l->cursors[queue], end = l->config.offsets[queue];
        l->next_queue = (queue + 1) % l->config.queue_count;
        if (end < count) continue;
        if (l->config.random_pages) return start_pull(l, c, queue, random_page(cursor, end / count) * count, now);
        if (*cursor + count > end) *cursor = 0;
        if (start_pull(l, c, queue, *cursor, now) != 0) return -1;
        *cursor += count;
        return 0;
    }
    return -1;
}

/* The next pull of the next queue that has none in flight. */
static int start_filtered(load *l, connection *c, int64_t now) {
    for (uint32_t tried = 0; tried < l->config.queue_count; tried++) {
        uint32_t queue = l->next_queue;
        l->next_queue = (queue + 1) % l->config.queue_count;
        if (l->asked[queue] || !l->config.offsets[queue]) continue;
        if (start_pull(l, c, queue, l->cursors[queue], now) != 0) return -1;
        l->asked[queue] = 1;
        return 0;
    }
    return -1;
}

static int start_next(load *l, connection *c, int64_t now) {
    if (l->config.mode == LOAD_PULL) {
        if (start_walk(l, c, now) != 0) return -1;
    } else if (l->config.mode == LOAD_FILTERED) {
        if (start_filtered(l, c, now) != 0) return -1;
    } else {
        uint32_t queue = l->next_queue;
        if (start_request(l, c, &l->config.send[queue], queue, 0, now) != 0) return -1;
        l->next_queue = (queue + 1) % l->config.queue_count;
    }
    l->started++;
    return 0;
}

void hold_pulls(load *l, connection *c, int64_t now) {
    uint32_t first = c->index - l->config.producers;
    for (uint32_t queue = first; queue < l->config.queue_count; queue += l->config.consumers)
        start_pull(l, c, queue, l->cursors[queue], now);
}

void fill(load *l, connection *c, int64_t now, int drain) {
    if (c->fd < 0 || c->connecting || drain || l->config.rate > 0) return;
    if (c->is_consumer && l->config.mode == LOAD_END_TO_END) return;
    while (c->free_count > 0 && may_start(l) && start_next(l, c, now) == 0) continue;
}

int64_t due_ns(const load *l) { return l->open_loop_ns + (int64_t)((double)l->due * 1e9 / l->config.rate); }

void fill_due(load *l, int64_t now) {
    while (may_start(l)) {
        const int64_t started_ns = due_ns(l);
        if (started_ns > now) return;
        uint32_t tried = 0;
        for (; tried < l->config.producers; tried++) {
            connection *c = &l->connections[l->next_connection];
            l->next_connection = (l->next_connection + 1) % l->config.producers;
            if (c->fd >= 0 && !c->connecting && start_next(l, c, started_ns) == 0) break;
        }
        if (tried == l->config.producers) return;
        l->due++;
    }
}

void flush(load *l, connection *c) {
    while (c->fd >= 0 && c->out.start < c->out.end) {
        ssize_t sent = channel_send(&c->channel, c->out.bytes + c->out.start, c->out.end - c->out.start);
        if (sent > 0) {
            c->out.start += (uint64_t)sent;
        } else if (errno == EAGAIN) {
            if (!c->waits_to_write) connection_watch(l, c, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
            c->waits_to_write = 1;
            return;
        } else if (errno != EINTR) {
            connection_lose(l, c);
            return;
        }
    }
    c->out.start = c->out.end = 0;
    if (c->waits_to_write && c->fd >= 0) connection_watch(l, c, EPOLL_CTL_MOD, EPOLLIN);
    c->waits_to_write = 0;
}

void flush_dirty(load *l) {
    for (uint32_t i = 0; i < l->dirty_count; i++) {
        connection *c = &l->connections[l->dirty[i]];
        c->is_dirty = 0;
        if (!c->connecting) flush(l, c);
    }
    l->dirty_count = 0;
}
