/* Selectors, one thread each, that open and close connections of few addresses in few rows, and spend from their
 * buckets: under the thread and address sanitizers. No two of them exceed a limit together, and no connection is left
 * in the counts. */
#include <pthread.h>
#include "ipc/limits.h"
#include "check.h"

enum { SELECTORS = 4, ROUNDS = 20000, HELD = 6, MAX = 5, ADDRESSES = 60000 };
#define NS_PER_S 1000000000ull

struct test {
    rp_limits *limits;
    uint32_t selector;
    int64_t *open; /* of the one address that all use */
};

static rp_host host_of(uint32_t number) {
    return (rp_host){.family = 4, .address = {10, (uint8_t)(number >> 16), (uint8_t)(number >> 8), (uint8_t)number}};
}

/* Connections of one address that all share, with its limit, and of many that push rows to and fro. */
static void *serve(void *context) {
    struct test *test = context;
    random_source source = {test->selector + 1};
    uint32_t held[HELD] = {0}, others[HELD] = {0};
    rp_host shared = host_of(ADDRESSES);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint64_t now_ns = NS_PER_S * 1000 + round * 1000000ull;
        uint32_t at = random_below(&source, HELD);
        if (held[at]) {
            __atomic_sub_fetch(test->open, 1, __ATOMIC_SEQ_CST);
            rp_limits_spend(test->limits, held[at], 1, 1, now_ns);
            rp_limits_leave(test->limits, test->selector, held[at]);
            held[at] = 0;
        } else if (rp_limits_join(test->limits, test->selector, &shared, now_ns, &held[at]) == RP_OK) {
            if (held[at]) CHECK(__atomic_add_fetch(test->open, 1, __ATOMIC_SEQ_CST) <= MAX);
        }
        if (others[at]) rp_limits_leave(test->limits, test->selector, others[at]);
        rp_host other = host_of(random_below(&source, ADDRESSES));
        if (rp_limits_join(test->limits, test->selector, &other, now_ns, &others[at]) != RP_OK) others[at] = 0;
        if (round % 64 == 0) (void)rp_limits_failed(test->limits, &other, now_ns);
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
    rp_limits *limits = rp_limits_create(&config, SELECTORS, 7);
    struct test tests[SELECTORS];
    pthread_t threads[SELECTORS];
    int64_t open = 0;
    CHECK(limits != NULL);
    for (uint32_t i = 0; i < SELECTORS; i++) {
        tests[i] = (struct test){limits, i, &open};
        CHECK(pthread_create(&threads[i], NULL, serve, &tests[i]) == 0);
    }
    for (uint32_t i = 0; i < SELECTORS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(open == 0);
    rp_host shared = host_of(ADDRESSES);
    uint32_t row;
    for (uint32_t i = 0; i < MAX; i++)
        CHECK(rp_limits_join(limits, 0, &shared, NS_PER_S * 5000, &row) == RP_OK && row != 0);
    CHECK(rp_limits_join(limits, 1, &shared, NS_PER_S * 5000, &row) == RP_FULL);
    return 0;
}
