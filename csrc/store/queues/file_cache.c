/* See file_cache.h: entries in one array, chained by hash and by use, all as indexes from 1 on. Memory of entries that
 * were never needed is never touched: most caches stay nearly empty. */
#define _GNU_SOURCE
#include "store/queues/file_cache.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NONE = 0 }; /* what fresh memory holds */

struct entry {
    rp_file_key key;
    int fd;
    uint32_t chain; /* next of the same bucket, or next free */
    uint32_t newer;
    uint32_t older;
};

struct rp_file_cache {
    struct entry *entries;
    uint32_t *buckets;
    uint32_t capacity;
    uint32_t mask;
    uint32_t used; /* entries from 1 to here have been in use */
    uint32_t free;
    uint32_t newest;
    uint32_t oldest;
    uint32_t looked_at; /* the last one, by rp_file_cache_release */
};

rp_file_cache *rp_file_cache_open(uint32_t files_max) {
    struct rlimit limit;
    rp_file_cache *cache = calloc(1, sizeof *cache);
    if (!cache) return NULL;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && files_max > limit.rlim_cur * 3 / 4)
        files_max = (uint32_t)(limit.rlim_cur * 3 / 4);
    cache->capacity = files_max < 4 ? 4 : files_max;
    cache->mask = 15;
    while (cache->mask < cache->capacity) cache->mask = cache->mask * 2 + 1;
    cache->entries = calloc(cache->capacity + 1ull, sizeof *cache->entries);
    cache->buckets = calloc(cache->mask + 1ull, sizeof *cache->buckets);
    if (!cache->entries || !cache->buckets) {
        rp_file_cache_close(cache);
        errno = ENOMEM;
        return NULL;
    }
    return cache;
}

void rp_file_cache_close(rp_file_cache *cache) {
    if (!cache) return;
    for (uint32_t i = 1; cache->entries && i <= cache->used; i++)
        if (cache->entries[i].fd >= 0) close(cache->entries[i].fd);
    free(cache->entries);
    free(cache->buckets);
    free(cache);
}

static uint32_t *bucket_of(const rp_file_cache *cache, rp_file_key key) {
    uint64_t hash =
        (key.queue + ((uint64_t)key.generation << 32)) * 0x9E3779B97F4A7C15ull + key.number * 0xD6E8FEB86659FD93ull;
    return &cache->buckets[(hash ^ hash >> 29) & cache->mask];
}

static int same(rp_file_key a, rp_file_key b) {
    return a.queue == b.queue && a.generation == b.generation && a.number == b.number;
}

/* The link to the entry of `key`, or to NONE. */
static uint32_t *link_to(const rp_file_cache *cache, rp_file_key key) {
    uint32_t *link = bucket_of(cache, key);
    while (*link != NONE && !same(cache->entries[*link].key, key)) link = &cache->entries[*link].chain;
    return link;
}

static void leave_order(rp_file_cache *cache, uint32_t at) {
    const struct entry *entry = &cache->entries[at];
    if (entry->newer != NONE)
        cache->entries[entry->newer].older = entry->older;
    else
        cache->newest = entry->older;
    if (entry->older != NONE)
        cache->entries[entry->older].newer = entry->newer;
    else
        cache->oldest = entry->newer;
}

static void become_newest(rp_file_cache *cache, uint32_t at) {
    struct entry *entry = &cache->entries[at];
    entry->newer = NONE;
    entry->older = cache->newest;
    if (cache->newest != NONE)
        cache->entries[cache->newest].newer = at;
    else
        cache->oldest = at;
    cache->newest = at;
}

int rp_file_cache_find(rp_file_cache *cache, rp_file_key key) {
    uint32_t at = *link_to(cache, key);
    if (at == NONE) return -1;
    if (cache->newest != at) {
        leave_order(cache, at);
        become_newest(cache, at);
    }
    return cache->entries[at].fd;
}

void rp_file_cache_drop(rp_file_cache *cache, rp_file_key key) {
    uint32_t *link = link_to(cache, key), at = *link;
    if (at == NONE) return;
    *link = cache->entries[at].chain;
    leave_order(cache, at);
    close(cache->entries[at].fd);
    cache->entries[at].fd = -1;
    cache->entries[at].chain = cache->free;
    cache->free = at;
}

void rp_file_cache_put(rp_file_cache *cache, rp_file_key key, int fd) {
    rp_file_cache_drop(cache, key);
    if (cache->free == NONE && cache->used == cache->capacity)
        rp_file_cache_drop(cache, cache->entries[cache->oldest].key);
    uint32_t at = cache->free, *bucket = bucket_of(cache, key);
    if (at == NONE)
        at = ++cache->used;
    else
        cache->free = cache->entries[at].chain;
    cache->entries[at].key = key;
    cache->entries[at].fd = fd;
    cache->entries[at].chain = *bucket;
    *bucket = at;
    become_newest(cache, at);
}

void rp_file_cache_release(rp_file_cache *cache, uint32_t count) {
    struct stat status;
    if (count > cache->used) count = cache->used;
    while (count--) {
        uint32_t at = cache->looked_at < cache->used ? ++cache->looked_at : (cache->looked_at = 1);
        const struct entry *entry = &cache->entries[at];
        if (entry->fd >= 0 && fstat(entry->fd, &status) == 0 && status.st_nlink == 0)
            rp_file_cache_drop(cache, entry->key);
    }
}
