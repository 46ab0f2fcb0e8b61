#include "workers/shared/traffic.h"

#include <stdlib.h>
#include <string.h>

enum { KEY_MAX = 1024 };

static uint32_t size_of(const rp_msg_traffic *sums) {
    return (uint32_t)sizeof *sums + sums->group_size + sums->topic_size;
}

int rp_traffic_init(rp_traffic *traffic) {
    *traffic = (rp_traffic){0};
    return rp_map_init(&traffic->sums, 64);
}

void rp_traffic_destroy(rp_traffic *traffic) { rp_map_destroy(&traffic->sums, free); }

static int is_of(const rp_msg_traffic *sums, const rp_msg_traffic *counts, const uint8_t *names) {
    return sums->queue_id == counts->queue_id && sums->group_size == counts->group_size &&
           sums->topic_size == counts->topic_size &&
           memcmp(sums + 1, names, (size_t)sums->group_size + sums->topic_size) == 0;
}

/* The size of the key; 0: the names are too long. */
static uint32_t make_key(const rp_queue_names *of, uint8_t *key) {
    uint64_t names_size = (uint64_t)of->group_size + of->topic_size;
    if (names_size + 8 > KEY_MAX) return 0;
    memcpy(key, &of->queue_id, 4);
    memcpy(key + 4, &of->group_size, 4);
    memcpy(key + 8, of->names, names_size);
    return 8 + (uint32_t)names_size;
}

void *rp_message_of(rp_map *messages, const rp_queue_names *of, uint32_t head_size, uint32_t count_max) {
    uint8_t key[KEY_MAX];
    uint32_t key_size = make_key(of, key), names_size = key_size - 8;
    int failed;
    if (!key_size) return NULL;
    uint8_t *message = rp_map_get(messages, key, key_size);
    if (message || messages->live >= count_max || !(message = calloc(1, (size_t)head_size + names_size)))
        return message;
    memcpy(message + head_size, of->names, names_size);
    rp_map_put(messages, key, key_size, message, &failed);
    if (!failed) return message;
    free(message);
    return NULL;
}

void *rp_message_remove(rp_map *messages, const rp_queue_names *of) {
    uint8_t key[KEY_MAX];
    uint32_t key_size = make_key(of, key);
    return rp_map_remove(messages, key, key_size);
}

void rp_traffic_add(rp_traffic *traffic, const rp_msg_traffic *counts, const uint8_t *names, uint64_t now_ns) {
    if (!traffic->sums.live) traffic->begun_ns = now_ns;
    uint32_t size = counts->group_size + counts->topic_size;
    uint32_t place = (uint32_t)counts->queue_id + (size ? names[size - 1] : 0);
    rp_msg_traffic **last = &traffic->last[place % RP_TRAFFIC_LAST];
    if (!*last || !is_of(*last, counts, names)) {
        rp_queue_names of = {counts->queue_id, counts->group_size, counts->topic_size, names};
        if (!(*last = rp_message_of(&traffic->sums, &of, sizeof **last, RP_TRAFFIC_KEYS_MAX))) return;
        (*last)->queue_id = counts->queue_id;
        (*last)->group_size = counts->group_size;
        (*last)->topic_size = counts->topic_size;
    }
    (*last)->messages += counts->messages;
    (*last)->bytes += counts->bytes;
    (*last)->requests += counts->requests;
    (*last)->wait_us += counts->wait_us;
    (*last)->behind_bytes = counts->behind_bytes;
}

void rp_traffic_flush(rp_traffic *traffic, rp_ring_writer *manager, const rp_ring *ring, uint64_t now_ns, int all) {
    if (!traffic->sums.live) return;
    if (!traffic->at && !all && now_ns - traffic->begun_ns < RP_TRAFFIC_INTERVAL_NS) return;
    memset(traffic->last, 0, sizeof traffic->last);
    for (; traffic->at <= traffic->sums.mask; traffic->at++) {
        rp_map_entry *entry = &traffic->sums.entries[traffic->at];
        if (!entry->value) continue;
        if (rp_ring_depth(ring) > RP_TRAFFIC_DEPTH_MAX) return;
        rp_span span = {entry->value, size_of(entry->value)};
        if (rp_ring_write(manager, RP_MSG_TRAFFIC, &span, 1) != RP_OK) return;
        free(rp_map_remove(&traffic->sums, entry->key, entry->key_size));
    }
    traffic->at = 0;
    traffic->begun_ns = now_ns; /* of what came between the parts of this flush */
}
