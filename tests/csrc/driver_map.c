/* The table of the send and pull workers: what is put is found until it is removed, through growth and removals; and
 * keys that are chosen by somebody who knows the code do not meet. */
#include "base/map.h"

#include "check.h"

enum { KEYS = 20000, CHOSEN = 2000, NEAR = 64 /* slots */ };

static uint64_t values[KEYS];

static uint64_t slot_distance(const rp_map *map, uint64_t key) {
    for (uint64_t at = 0; at <= map->mask; at++)
        if (map->entries[at].value == &values[key]) return (at - map->entries[at].hash) & map->mask;
    return map->mask;
}

static void put(rp_map *map, uint64_t key, uint64_t number) {
    int failed;
    CHECK(rp_map_put(map, &key, sizeof key, &values[number], &failed) == NULL && !failed);
}

static void check_life(void) {
    rp_map map;
    int failed;
    CHECK(rp_map_init(&map, 16) == 0);
    for (uint64_t round = 0; round < 3; round++) {
        for (uint64_t key = 0; key < KEYS; key++) put(&map, key, key);
        CHECK(map.live == KEYS);
        for (uint64_t key = 0; key < KEYS; key++) {
            CHECK(rp_map_get(&map, &key, sizeof key) == &values[key]);
            CHECK(rp_map_put(&map, &key, sizeof key, &values[0], &failed) == &values[key] && !failed);
            CHECK(rp_map_remove(&map, &key, sizeof key) == &values[0]);
            CHECK(rp_map_get(&map, &key, sizeof key) == NULL && rp_map_remove(&map, &key, sizeof key) == NULL);
        }
        CHECK(map.live == 0);
    }
    rp_map_destroy(&map, NULL);
}

/* Keys that all look for the first slots of a table whose hash is known.
 * Fault: Topic names chosen to collide took 130 s to create, and as long again at every start. */
static void check_chosen_keys(void) {
    rp_map map;
    uint64_t far = 0, chosen = 0;
    CHECK(rp_map_init(&map, 4 * CHOSEN) == 0);
    for (uint64_t key = 0; chosen < CHOSEN; key++)
        if ((rp_hash_bytes(&key, sizeof key, 0) & map.mask) < NEAR) put(&map, key, chosen++);
    for (uint64_t number = 0; number < CHOSEN; number++) far += slot_distance(&map, number) > NEAR;
    printf("%llu of %d chosen keys are far from their slot\n", (unsigned long long)far, CHOSEN);
    CHECK(far < CHOSEN / 10);
    rp_map_destroy(&map, NULL);
}

int main(void) {
    check_life();
    check_chosen_keys();
    return 0;
}
