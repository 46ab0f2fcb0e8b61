#ifndef ROCKETPY_MAP_H
#define ROCKETPY_MAP_H
/* A hash map from byte strings to pointers, for the private tables of the send and pull workers (topics, groups,
 * subscriptions, connections); a set of numbers; a random seed, because clients may choose keys. The map grows by
 * doubling at load 0.7, and copies keys. Single-threaded. */
#include <stdint.h>
#include <sys/random.h>
#include "base/clock.h"
#include "base/status.h"

typedef struct rp_map_entry {
    uint64_t hash;
    void *value; /* NULL: free, or deleted if key_size is RP_MAP_DELETED */
    const uint8_t *key;
    uint32_t key_size;
} rp_map_entry;

typedef struct rp_map {
    rp_map_entry *entries;
    uint64_t mask;
    uint64_t used; /* live and deleted */
    uint64_t live;
    uint64_t seed; /* of the hashes: random */
} rp_map;

uint64_t rp_hash_bytes(const void *data, uint32_t size, uint64_t seed);
int rp_map_init(rp_map *map, uint32_t capacity); /* 0, or -1 without memory */
/* Free the map; `release` (or NULL) is called for every value. */
void rp_map_destroy(rp_map *map, void (*release)(void *value));
void *rp_map_get(const rp_map *map, const void *key, uint32_t key_size);
/* Set, returning the value that stood there before (NULL if none); `value` must not be NULL. *failed is set to 1
 * without memory (nothing has changed then). */
void *rp_map_put(rp_map *map, const void *key, uint32_t key_size, void *value, int *failed);
void *rp_map_remove(rp_map *map, const void *key, uint32_t key_size);
/* Give memory back if the map is large and nearly empty. Without memory for the smaller one nothing changes. */
void rp_map_shrink(rp_map *map);

/* A set of numbers below 2^64 - 1: open addressing, sized when it is made. */

typedef struct rp_number_set {
    uint64_t *slots; /* owned; number + 1, 0 is free */
    uint32_t mask;
} rp_number_set;

/* For up to `count_max` numbers. RP_OK, RP_NO_MEMORY. */
rp_status rp_number_set_init(rp_number_set *set, uint32_t count_max);
void rp_number_set_destroy(rp_number_set *set);
int rp_number_set_has(const rp_number_set *set, uint64_t number);
void rp_number_set_add(rp_number_set *set, uint64_t number);
void rp_number_set_remove(rp_number_set *set, uint64_t number);

/* A secret random seed for hash tables whose keys clients choose. Without it clients could choose colliding keys and
 * make each lookup go through all of them. */

static inline uint64_t rp_random_seed(void) {
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed)
        seed = rp_now_ns(); /* the machine has just booted */
    return seed;
}
#endif
