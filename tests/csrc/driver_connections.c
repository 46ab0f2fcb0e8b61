/* The numbers of connections: none is given twice before every slot has used up its generations, whatever the order of
 * coming and going, and none meets those of another epoch. Invariants (abort). driver_connections [SEED]
 *
 * Fault: After a million connections on one slot, a reply for an old connection could reach a later one. */
#include "workers/selector/connection.h"
#include "check.h"

enum { SLOTS = 3, GENERATIONS = 1 << 20, EPOCHS = 1 << 12 };

/* Take and give back until every number of the epoch was given once. */
static void use_up(uint32_t epoch, random_source *source) {
    rp_connections all;
    uint32_t open[SLOTS], open_count = 0;
    uint8_t *given = calloc(SLOTS, GENERATIONS);
    CHECK(given && rp_connections_open(&all, SLOTS, epoch, NULL) == RP_OK);
    for (uint32_t n = 0; n < SLOTS * GENERATIONS;) {
        if (open_count > 0 && random_below(source, SLOTS + 1) < open_count + 1) {
            uint32_t which = random_below(source, open_count);
            rp_connections_give_back(&all, open[which]);
            open[which] = open[--open_count];
            continue;
        }
        uint32_t slot = rp_connections_take(&all);
        CHECK(slot < SLOTS);
        uint32_t generation = all.slots[slot].generation;
        CHECK(generation >> 20 == epoch % EPOCHS);
        uint8_t *seen = &given[slot * GENERATIONS + generation % GENERATIONS];
        /* The last slots may have some left while all others wait: then those go round again. */
        if (*seen) {
            for (uint32_t other = 0; other < SLOTS; other++) {
                int is_open = 0;
                for (uint32_t i = 0; i < open_count; i++) is_open |= open[i] == other;
                CHECK(is_open || other == slot || given[other * GENERATIONS + GENERATIONS - 1]);
            }
            break;
        }
        *seen = 1;
        open[open_count++] = slot;
        n++;
    }
    rp_connections_close(&all);
    free(given);
}

/* Slots that went round go on, oldest first. */
static void go_round(void) {
    rp_connections all;
    CHECK(rp_connections_open(&all, 2, 7, NULL) == RP_OK);
    uint32_t first = rp_connections_take(&all), second = rp_connections_take(&all);
    CHECK(first == 0 && second == 1 && rp_connections_take(&all) == NO_SLOT);
    all.slots[first].generation |= GENERATIONS - 1;
    all.slots[second].generation |= GENERATIONS - 1;
    rp_connections_give_back(&all, second);
    rp_connections_give_back(&all, first);
    CHECK(rp_connections_take(&all) == second && all.slots[second].generation == 7u << 20);
    rp_connections_give_back(&all, second);
    CHECK(rp_connections_take(&all) == second && all.slots[second].generation == (7u << 20) + 1);
    CHECK(rp_connections_take(&all) == first && all.slots[first].generation == 7u << 20);
    CHECK(rp_connections_take(&all) == NO_SLOT);
    rp_connections_close(&all);
}

int main(int argc, char **argv) {
    random_source source = {argc > 1 ? strtoull(argv[1], NULL, 10) * 2 + 1 : 1};
    static const uint32_t epochs[] = {1, EPOCHS - 1, EPOCHS + 5};
    for (size_t i = 0; i < sizeof epochs / sizeof *epochs; i++) use_up(epochs[i], &source);
    go_round();
    printf("connections: ok\n");
    return 0;
}
