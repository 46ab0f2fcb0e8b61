/* Open addressing with linear probing; a deleted entry keeps its place until the next resize. */
#include "base/map.h"
#include <stdlib.h>
#include <string.h>

enum { RP_MAP_DELETED = UINT32_MAX, LARGE = 1 << 15 /* entries: 1 MiB */ };

static inline uint64_t mix(uint64_t a, uint64_t b) {
    __uint128_t product = (__uint128_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint64_t rp_hash_bytes(const void *data, uint32_t size, uint64_t seed) {
    const uint8_t *at = data;
    uint64_t hash = seed ^ (0x9E3779B97F4A7C15ull + size);
    uint64_t word;
    for (; size >= 8; at += 8, size -= 8) {
        memcpy(&word, at, 8);
        hash = mix(hash ^ word, 0xA0761D6478BD642Full);
    }
    word = 0;
    memcpy(&word, at, size);
    return mix(hash ^ word, 0xE7037ED1A0B428DBull);
}

int rp_map_init(rp_map *map, uint32_t capacity) {
    uint64_t size = 16;
    while (size < capacity) size *= 2;
    map->entries = calloc(size, sizeof *map->entries);
    map->mask = size - 1;
    map->used = map->live = 0;
    map->seed = rp_random_seed();
    return map->entries ? 0 : -1;
}

void rp_map_destroy(rp_map *map, void (*release)(void *value)) {
    if (!map->entries) return;
    for (uint64_t i = 0; i <= map->mask; i++) {
        rp_map_entry *entry = &map->entries[i];
        if (!entry->value) continue;
        if (release) release(entry->value);
        free((void *)entry->key);
    }
    free(map->entries);
    map->entries = NULL;
}

static rp_map_entry *find(const rp_map *map, uint64_t hash, const void *key, uint32_t key_size) {
    for (uint64_t i = hash & map->mask;; i = (i + 1) & map->mask) {
        rp_map_entry *entry = &map->entries[i];
        if (!entry->value && entry->key_size != RP_MAP_DELETED) return NULL;
        if (entry->value && entry->hash == hash && entry->key_size == key_size &&
            memcmp(entry->key, key, key_size) == 0)
            return entry;
    }
}

/* To four times the live entries. 0; -1: no memory. */
static int resize(rp_map *map) {
    rp_map resized;
    if (rp_map_init(&resized, (uint32_t)((map->live + 8) * 4)) != 0) return -1;
    resized.seed = map->seed;
    for (uint64_t i = 0; i <= map->mask; i++) {
        rp_map_entry *entry = &map->entries[i];
        if (!entry->value) continue;
        uint64_t at = entry->hash & resized.mask;
        while (resized.entries[at].value) at = (at + 1) & resized.mask;
        resized.entries[at] = *entry;
        resized.used++;
        resized.live++;
    }
    free(map->entries);
    *map = resized;
    return 0;
}

void *rp_map_get(const rp_map *map, const void *key, uint32_t key_size) {
    rp_map_entry *entry = find(map, rp_hash_bytes(key, key_size, map->seed), key, key_size);
    return entry ? entry->value : NULL;
}

void *rp_map_put(rp_map *map, const void *key, uint32_t key_size, void *value, int *failed) {
    uint64_t hash = rp_hash_bytes(key, key_size, map->seed);
    rp_map_entry *entry = find(map, hash, key, key_size);
    *failed = 0;
    if (entry) {
        void *before = entry->value;
        entry->value = value;
        return before;
    }
    uint8_t *copy = NULL;
    if ((map->used * 10 >= (map->mask + 1) * 7 && resize(map) != 0) || !(copy = malloc(key_size ? key_size : 1))) {
        *failed = 1;
        return NULL;
    }
    memcpy(copy, key, key_size);
    uint64_t at = hash & map->mask;
    while (map->entries[at].value) at = (at + 1) & map->mask;
    map->used += map->entries[at].key_size != RP_MAP_DELETED;
    map->entries[at] = (rp_map_entry){.hash = hash, .value = value, .key = copy, .key_size = key_size};
    map->live++;
    return NULL;
}

void *rp_map_remove(rp_map *map, const void *key, uint32_t key_size) {
    rp_map_entry *entry = find(map, rp_hash_bytes(key, key_size, map->seed), key, key_size);
    if (!entry) return NULL;
    void *value = entry->value;
    free((void *)entry->key);
    *entry = (rp_map_entry){.key_size = RP_MAP_DELETED};
    map->live--;
    return value;
}

void rp_map_shrink(rp_map *map) {
    if (map->mask >= LARGE && map->live < map->mask / 16) resize(map);
}

rp_status rp_number_set_init(rp_number_set *set, uint32_t count_max) {
    uint32_t slots = 16;
    while (slots < count_max * 2) slots *= 2;
    *set = (rp_number_set){.slots = calloc(slots, sizeof *set->slots), .mask = slots - 1};
    return set->slots ? RP_OK : RP_NO_MEMORY;
}

void rp_number_set_destroy(rp_number_set *set) {
    free(set->slots);
    *set = (rp_number_set){0};
}

/* Numbers that follow one another are neighbours, 32 at a time: a few of them use few pages of a large table. */
static uint32_t home_of(const rp_number_set *set, uint64_t number) {
    uint64_t hash = (number >> 5) * 0x9E3779B97F4A7C15ull;
    return (uint32_t)((hash ^ hash >> 32) << 5 | (number & 31)) & set->mask;
}

/* The slot that holds the number, or the free one where it belongs. */
static uint32_t slot_of(const rp_number_set *set, uint64_t number) {
    uint32_t at = home_of(set, number);
    while (set->slots[at] && set->slots[at] != number + 1) at = (at + 1) & set->mask;
    return at;
}

int rp_number_set_has(const rp_number_set *set, uint64_t number) { return set->slots[slot_of(set, number)] != 0; }

void rp_number_set_add(rp_number_set *set, uint64_t number) {
    uint32_t at = slot_of(set, number);
    set->slots[at] = number + 1;
}

void rp_number_set_remove(rp_number_set *set, uint64_t number) {
    uint32_t hole = slot_of(set, number);
    if (!set->slots[hole]) return;
    for (uint32_t at = (hole + 1) & set->mask; set->slots[at]; at = (at + 1) & set->mask) {
        uint32_t home = home_of(set, set->slots[at] - 1);
        if (((at - home) & set->mask) < ((at - hole) & set->mask)) continue; /* it is found without the hole */
        set->slots[hole] = set->slots[at];
        hole = at;
    }
    set->slots[hole] = 0;
}
