/* Selectors, one thread each, that open and close connections of addresses that all share few rows, and spend from
 * their buckets: under the thread and address sanitizers. No two of them exceed a limit together, and no connection is
 * left in the counts. */
#include <pthread.h>
#include "base/map.h"
#include "ipc/limits.h"
#include "check.h"

enum { SELECTORS = 4, ROUNDS = 20000, HELD = 2, MAX = 3, OTHERS = 40, SETS = RP_LIMITS_ADDRESSES / 8, SEED = 7 };
#define NS_PER_S 1000000000ull

struct test {
    rp_limits *limits;
    uint32_t selector;
    int64_t *open;       /* of the one address that all use */
    uint64_t *clock_ms;  /* of all selectors */
    const rp_host *hosts; /* the address that all use, then OTHERS in its rows */
};

static rp_host host_of(uint32_t number) {
    return (rp_host){.family = 4, .address = {10, (uint8_t)(number >> 16), (uint8_t)(number >> 8), (uint8_t)number}};
}

/* The set of rows of an address, as csrc/ipc/limits.c chooses it. */
static uint64_t set_of(uint32_t number) {
    uint64_t key = 1ull << 32 | 10u << 24 | number;
    return rp_hash_bytes(&key, sizeof key, SEED) % SETS;
}

static void choose(rp_host *hosts) {
    for (uint32_t number = 0, chosen = 0; chosen <= OTHERS; number++)
        if (set_of(number) == set_of(0)) hosts[chosen++] = host_of(number);
}

/* Connections of one address that all share, with its limit, and of many that take its row when it is idle. */
static void *serve(void *context) {
    struct test *test = context;
    random_source source = {test->selector + 1};
    uint32_t held[HELD] = {0}, others[HELD] = {0};
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint64_t now_ns = NS_PER_S * 1000 + __atomic_add_fetch(test->clock_ms, 1, __ATOMIC_RELAXED) * 1000000;
        uint32_t at = random_below(&source, HELD);
        if (held[at]) {
            __atomic_sub_fetch(test->open, 1, __ATOMIC_SEQ_CST);
            rp_limits_spend(test->limits, held[at], 1, 1, now_ns);
            rp_limits_leave(test->limits, test->selector, held[at]);
            held[at] = 0;
        } else if (round / 16 % 2 &&
                   rp_limits_join(test->limits, test->selector, &test->hosts[0], now_ns, &held[at]) == RP_OK) {
            if (held[at]) CHECK(__atomic_add_fetch(test->open, 1, __ATOMIC_SEQ_CST) <= MAX);
        }
        if (others[at]) rp_limits_leave(test->limits, test->selector, others[at]);
        rp_host other = test->hosts[1 + random_below(&source, OTHERS)];
        if (rp_limits_join(test->limits, test->selector, &other, now_ns, &others[at]) != RP_OK) others[at] = 0;
        rp_host guesser = host_of(1 << 23 | round);
        if (round % 64 == 0) (void)rp_limits_failed(test->limits, &guesser, now_ns);
        uint32_t account;
        if (!rp_limits_busy(test->limits, (const uint8_t *)&other, sizeof other, now_ns, &account))
            rp_limits_take(test->limits, account, 10, now_ns);
    }
    for (uint32_t at = 0; at < HELD; at++) {
        if (held[at]) __atomic_sub_fetch(test->open, 1, __ATOMIC_SEQ_CST);
        if (held[at]) rp_limits_leave(test->limits, test->selector, held[at]);
        if (others[at]) rp_limits_leave(test->limits, test->selector, others[at]);
    }
    return NULL;
}

int main(void) {
    rp_limits_config config = {.address_connections = MAX,
                               .address_requests = 1000000,
                               .address_bytes = 1000000,
                               .account_requests = 100,
                               .account_bytes = 1000,
                               .failures = 1000};
    rp_limits *limits = rp_limits_create(&config, SELECTORS, SEED);
    struct test tests[SELECTORS];
    pthread_t threads[SELECTORS];
    rp_host hosts[1 + OTHERS];
    uint64_t clock_ms = 0;
    int64_t open = 0;
    CHECK(limits != NULL);
    choose(hosts);
    for (uint32_t i = 0; i < SELECTORS; i++) {
        tests[i] = (struct test){limits, i, &open, &clock_ms, hosts};
        CHECK(pthread_create(&threads[i], NULL, serve, &tests[i]) == 0);
    }
    for (uint32_t i = 0; i < SELECTORS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(open == 0);
    uint32_t row;
    for (uint32_t i = 0; i < MAX; i++)
        CHECK(rp_limits_join(limits, 0, &hosts[0], NS_PER_S * 5000, &row) == RP_OK && row != 0);
    CHECK(rp_limits_join(limits, 1, &hosts[0], NS_PER_S * 5000, &row) == RP_FULL);
    return 0;
}
