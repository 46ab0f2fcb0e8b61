/* Finishing requests: answers are cut, matched with their slots, checked and counted. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "engine.h"
#include "wire.h"

enum { ACKS_FIRST = 65536 };

static void count_code(load_stats *stats, int32_t code) {
    uint32_t i = 0;
    while (i < stats->code_count && stats->codes[i] != code) i++;
    if (i == LOAD_CODES_MAX) i--; /* more kinds than this are one kind */
    if (i == stats->code_count) stats->codes[stats->code_count++] = code;
    stats->code_counts[i]++;
    count(&stats->requests_failed, 1);
}

static void succeed(load *l, connection *c, const slot *s, uint64_t messages, int64_t now) {
    if (l->last_ok_ns && (uint64_t)(now - l->last_ok_ns) > l->stats.gap_max_ns)
        l->stats.gap_max_ns = (uint64_t)(now - l->last_ok_ns);
    if (c->last_ok_ns && (uint64_t)(now - c->last_ok_ns) > c->stats.gap_max_ns)
        c->stats.gap_max_ns = (uint64_t)(now - c->last_ok_ns);
    l->last_ok_ns = c->last_ok_ns = now;
    c->stats.ok++;
    count(&l->stats.requests_ok, 1);
    count(&l->stats.messages_ok, messages);
    histogram_record(&l->latency, now - s->started_ns, 1);
}

/* Called with room for one more (reserve_acks). */
static void remember(load *l, const slot *s, const wire_head *head) {
    l->acks[l->ack_count++] = (load_ack){
        .key = s->key, .queue = s->queue, .queue_offset = (uint64_t)wire_json_field(head, "\"queueOffset\"")};
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
    int64_t records = 0;
    uint32_t at = 0;
    for (; at < head->body_size; records++) {
        wire_record record;
        if (wire_record_read(head->body + at, head->body_size - at, &record) != 0) return -1;
        if (record.queue_offset != s->offset + (uint64_t)records) return -1;
        if (l->config.mode == LOAD_END_TO_END && record.body_size >= 8)
            histogram_record(&l->end_to_end, now - (int64_t)wire_load64(record.body), 1);
        at += record.size;
    }
    count(&l->stats.bytes_received, at);
    return records > (int64_t)l->config.pull_count || records == 0 ? -1 : records;
}

/* The records of a filtered pull: in order, between the offset asked for and the next one. Returns how many, or -1. */
static int64_t read_filtered(load *l, const slot *s, const wire_head *head, uint64_t next_offset, int64_t now) {
    int64_t records = 0;
    uint64_t least = s->offset;
    uint32_t at = 0;
    for (; at < head->body_size; records++) {
        wire_record record;
        if (wire_record_read(head->body + at, head->body_size - at, &record) != 0) return -1;
        if (record.queue_offset < least || record.queue_offset >= next_offset) return -1;
        least = record.queue_offset + 1;
        if (l->config.mode == LOAD_END_TO_END && record.body_size >= 8)
            histogram_record(&l->end_to_end, now - (int64_t)wire_load64(record.body), 1);
        at += record.size;
    }
    count(&l->stats.bytes_received, at);
    return (records == 0) == (head->code == 0) ? -1 : records;
}

static void finish_filtered(load *l, connection *c, slot *s, const wire_head *head, int64_t now) {
    enum { FOUND = 0, NONE_MATCHED = 20 };
    if (head->code == FOUND || head->code == NONE_MATCHED) {
        int64_t next = wire_json_field(head, "\"nextBeginOffset\"");
        int64_t records = next > (int64_t)s->offset ? read_filtered(l, s, head, (uint64_t)next, now) : -1;
        if (records < 0) {
            count(&l->stats.bad_replies, 1);
        } else {
            count(&l->stats.units_passed, (uint64_t)next - s->offset);
            l->cursors[s->queue] = (uint64_t)next < l->config.offsets[s->queue] ? (uint64_t)next : 0;
            succeed(l, c, s, (uint64_t)records, now);
        }
    } else {
        count_code(&l->stats, head->code);
    }
    slot_free(l, c, s);
}

/* A suspended pull of a subscription to a part of the messages: the next one begins where the answer says. */
static void follow_filtered(load *l, connection *c, slot *s, const wire_head *head, int64_t now) {
    enum { FOUND = 0, NONE_YET = 19, NONE_MATCHED = 20 };
    uint32_t queue = s->queue;
    if (head->code == FOUND || head->code == NONE_YET || head->code == NONE_MATCHED) {
        int64_t next = wire_json_field(head, "\"nextBeginOffset\"");
        int64_t records = next >= (int64_t)s->offset ? read_filtered(l, s, head, (uint64_t)next, now) : -1;
        if (records < 0) {
            count(&l->stats.bad_replies, 1);
        } else {
            if (records == 0) count(&l->stats.empty_replies, 1);
            count(&l->stats.messages_received, (uint64_t)records);
            count(&l->stats.units_passed, (uint64_t)next - s->offset);
            l->cursors[queue] = (uint64_t)next;
        }
    } else {
        count_code(&l->stats, head->code);
    }
    slot_free(l, c, s);
    start_pull(l, c, queue, l->cursors[queue], now);
}

static void finish_pull(load *l, connection *c, slot *s, const wire_head *head, int64_t now) {
    const int follows = l->config.mode == LOAD_END_TO_END;
    int64_t records = 0;
    if (head->code == 0) {
        records = read_records(l, s, head, now);
        if (records < 0) {
            count(&l->stats.bad_replies, 1);
            records = 0;
        } else if (follows) {
            count(&l->stats.messages_received, (uint64_t)records);
            count(&l->stats.units_passed, (uint64_t)records);
        } else {
            if (records < (int64_t)l->config.pull_count) count(&l->stats.short_replies, 1);
            succeed(l, c, s, (uint64_t)records, now);
        }
    } else if (follows && (head->code == 19 || head->code == 20)) {
        count(&l->stats.empty_replies, 1);
    } else {
        count_code(&l->stats, head->code);
    }
    uint32_t queue = s->queue;
    slot_free(l, c, s);
    if (follows) {
        l->cursors[queue] += (uint64_t)records;
        start_pull(l, c, queue, l->cursors[queue], now);
    }
}

/* The half message's place in the log is the second half of its message id. */
static int end_half(load *l, connection *c, const wire_head *head) {
    int64_t queue_offset = wire_json_field(head, "\"queueOffset\"");
    uint64_t phy_offset = 0;
    if (queue_offset < 0 || wire_json_message_id(head, &phy_offset) != 0) return -1;
    return send_end(l, c, (uint64_t)queue_offset, phy_offset);
}

static int finish(load *l, connection *c, const uint8_t *frame, uint32_t size, int64_t now) {
    wire_head head;
    if (wire_read(frame, size, &head) != 0) return -1;
    slot *s = &c->slots[(head.opaque - WIRE_OPAQUE_FIRST) % c->slot_count];
    if (!s->busy || s->opaque != head.opaque) {
        count(&l->stats.unmatched, 1);
        return 0;
    }
    if (l->config.mode == LOAD_FILTERED) {
        finish_filtered(l, c, s, &head, now);
        return 0;
    }
    if (c->is_consumer) {
        (l->config.is_filtered ? follow_filtered : finish_pull)(l, c, s, &head, now);
        return 0;
    }
    if (head.code == 0) {
        if (reserve_acks(l) != 0) return -1;
        if (l->config.record_acks) remember(l, s, &head);
        if (l->config.end.size && end_half(l, c, &head) != 0) return -1;
        succeed(l, c, s, s->messages, now);
    } else {
        count_code(&l->stats, head.code);
    }
    slot_free(l, c, s);
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

void receive(load *l, connection *c, int drain) {
    ssize_t got = channel_receive(&c->channel, c->in.bytes + c->in.end, c->in.capacity - c->in.end);
    if (got <= 0) {
        if (got == 0 || (errno != EAGAIN && errno != EINTR)) connection_lose(l, c);
        return;
    }
    const int64_t now = load_now_ns();
    c->in.end += (uint64_t)got;
    uint32_t size = 0;
    while ((size = wire_frame_size(c->in.bytes + c->in.start, c->in.end - c->in.start)) != 0) {
        if (size == UINT32_MAX) {
            connection_lose(l, c);
            return;
        }
        if (size > c->in.end - c->in.start) break;
        if (finish(l, c, c->in.bytes + c->in.start, size, now) != 0) {
            connection_lose(l, c);
            return;
        }
        c->in.start += size;
    }
    if (make_room(&c->in, size) != 0) {
        connection_lose(l, c);
        return;
    }
    fill(l, c, now, drain);
}
