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

/* The sums of the queue and names of `counts`, made if there is none; NULL: it is not counted. */
static rp_msg_traffic *sums_of(rp_traffic *traffic, const rp_msg_traffic *counts, const uint8_t *names) {
    uint8_t key[KEY_MAX];
    if ((uint64_t)counts->group_size + counts->topic_size + 8 > KEY_MAX) return NULL;
    memcpy(key, &counts->queue_id, 4);
    memcpy(key + 4, &counts->group_size, 4);
    memcpy(key + 8, names, (size_t)counts->group_size + counts->topic_size);
    uint32_t key_size = 8 + counts->group_size + counts->topic_size;
    rp_msg_traffic *sums = rp_map_get(&traffic->sums, key, key_size);
    if (sums || traffic->sums.live >= RP_TRAFFIC_KEYS_MAX || !(sums = malloc(size_of(counts)))) return sums;
    *sums = (rp_msg_traffic){
        .queue_id = counts->queue_id, .group_size = counts->group_size, .topic_size = counts->topic_size};
    memcpy(sums + 1, names, (size_t)counts->group_size + counts->topic_size);
    int failed;
    rp_map_put(&traffic->sums, key, key_size, sums, &failed);
    if (!failed) return sums;
    free(sums);
    return NULL;
}

void rp_traffic_add(rp_traffic *traffic, const rp_msg_traffic *counts, const uint8_t *names, uint64_t now_ns) {
    if (!traffic->sums.live) traffic->begun_ns = now_ns;
    rp_msg_traffic **last = &traffic->last[(uint32_t)counts->queue_id % RP_TRAFFIC_LAST];
    if (!*last || !is_of(*last, counts, names)) *last = sums_of(traffic, counts, names);
    if (!*last) return;
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
