/* A key has WAYS places, one after another; it takes the first of them that is idle. A process that enters a key claims
 * the place, and then looks whether the key has come to another place, or one is claimed, perhaps for it: so no key has
 * two places. A claim that is older than CLAIM_S is taken for that of a killed process. */
#include "ipc/limits.h"

#include "base/atomic.h"
#include "base/map.h"
#include "base/shared.h"

enum { WAYS = 8, TRIES = 1000, CLAIM_S = 2, LINE_WORDS = 8, REQUESTS = 0, BYTES = 1, RATES = 2 };
#define NS_PER_S 1000000000ull
/* Keys of addresses: the upper half of an IPv6 address. These lie in 0000::/15, which has no networks. */
#define FREE 0ull
#define V6_NONE 1ull /* 0000::/15, with the loopback address */
#define V4 (1ull << 32)
#define CLAIM (1ull << 48) /* | second: a process is about to enter its key */
#define KEYS (2ull << 48) /* other keys begin here */

typedef struct row {
    uint64_t key;
    uint64_t full_ns[RATES]; /* when the bucket will be full again */
    uint64_t failures; /* second of the first << 32 | number */
    uint64_t connections[]; /* by selector: epoch << 32 | number; addresses only */
} row;

typedef struct table {
    uint64_t at; /* its place in `words` */
    uint32_t rows;
    uint32_t row_words;
    uint32_t columns; /* of connections */
} table;

struct rp_limits {
    rp_limits_config config;
    uint64_t seed;
    table addresses;
    table accounts;
    uint64_t counters[RP_LIMITS_COUNTERS];
    uint32_t epochs[RP_LIMITS_SELECTORS_MAX];
    _Alignas(64) uint64_t words[];
};

static table table_at(uint64_t at, uint32_t rows, uint32_t columns) {
    uint32_t words = (uint32_t)sizeof(row) / 8 + columns;
    return (table){at, rows, (words + LINE_WORDS - 1) / LINE_WORDS * LINE_WORDS, columns};
}

rp_limits *rp_limits_create(const rp_limits_config *config, uint32_t selector_count, uint64_t seed) {
    if (selector_count > RP_LIMITS_SELECTORS_MAX) return NULL;
    table addresses = table_at(0, RP_LIMITS_ADDRESSES, selector_count);
    table accounts = table_at((uint64_t)addresses.rows * addresses.row_words, RP_LIMITS_ACCOUNTS, 0);
    uint64_t words = accounts.at + (uint64_t)accounts.rows * accounts.row_words;
    rp_limits *limits = rp_shared_create(sizeof *limits + words * 8);
    if (!limits) return NULL;
    limits->config = *config;
    limits->seed = seed;
    limits->addresses = addresses;
    limits->accounts = accounts;
    return limits;
}

static void count(rp_limits *limits, uint32_t counter) {
    __atomic_add_fetch(&limits->counters[counter], 1, __ATOMIC_RELAXED);
}

uint64_t rp_limits_counter(const rp_limits *limits, uint32_t counter) {
    return counter < RP_LIMITS_COUNTERS ? __atomic_load_n(&limits->counters[counter], __ATOMIC_RELAXED) : 0;
}

static uint64_t relaxed(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_RELAXED); }

/* ---- rows ---- */

static row *row_at(const rp_limits *limits, const table *of, uint32_t index) {
    return (row *)(uintptr_t)&limits->words[of->at + (uint64_t)index * of->row_words];
}

static row *of_connection(const rp_limits *limits, uint32_t number) {
    return row_at(limits, &limits->addresses, number - 1);
}

static uint64_t open_connections(const rp_limits *limits, const table *of, const row *at) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < of->columns; i++) {
        uint64_t word = relaxed(&at->connections[i]);
        if (word >> 32 == rp_load_acquire32(&limits->epochs[i])) sum += (uint32_t)word;
    }
    return sum;
}

static int failures_count(uint64_t failures, uint64_t now_ns) {
    return (int64_t)(now_ns / NS_PER_S - (failures >> 32)) < RP_LIMITS_FAILURES_S && failures != 0;
}

static int is_idle(const rp_limits *limits, const table *of, const row *at, uint64_t now_ns) {
    return relaxed(&at->full_ns[REQUESTS]) <= now_ns && relaxed(&at->full_ns[BYTES]) <= now_ns &&
           !failures_count(relaxed(&at->failures), now_ns) && open_connections(limits, of, at) == 0;
}

/* An attacker who does not know the seed cannot choose addresses that share rows. */
static uint32_t first_row(const rp_limits *limits, const table *of, uint64_t key) {
    return (uint32_t)(rp_hash_bytes(&key, sizeof key, limits->seed) % (of->rows / WAYS)) * WAYS;
}

static int is_claimed(uint64_t key, uint64_t now_ns) {
    return key >= CLAIM && key < KEYS && (int64_t)(now_ns / NS_PER_S - (key & (CLAIM - 1))) <= CLAIM_S;
}

/* Enter a key at an idle place, where `old` was found. Returns 0 if it has to be looked for again. */
static int enter(rp_limits *limits, const table *of, uint64_t key, uint64_t now_ns, row *idle, uint64_t old) {
    uint64_t claim = CLAIM | now_ns / NS_PER_S;
    if (!__atomic_compare_exchange_n(&idle->key, &old, claim, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return 0;
    rp_full_fence(); /* orders the claim before the loads of the connections, and of other claims: see rp_limits_join */
    int is_ours = is_idle(limits, of, idle, now_ns);
    uint32_t first = first_row(limits, of, key);
    for (uint32_t index = first; index < first + WAYS; index++) {
        const row *at = row_at(limits, of, index);
        uint64_t found = rp_load_acquire(&at->key);
        if (at != idle && (found == key || is_claimed(found, now_ns))) is_ours = 0;
    }
    uint64_t before = old >= CLAIM && old < KEYS ? FREE : old;
    return __atomic_compare_exchange_n(&idle->key, &claim, is_ours ? key : before, 0, __ATOMIC_RELEASE,
                                       __ATOMIC_RELAXED) &&
           is_ours;
}

/* The row of a key, entered if it is new; NULL: all its places are taken, or one is claimed for long. */
static row *find(rp_limits *limits, const table *of, uint64_t key, uint64_t now_ns, uint32_t *index) {
    uint32_t first = first_row(limits, of, key);
    for (int tries = 0; tries < TRIES; tries++) {
        row *idle = NULL;
        uint64_t old = FREE;
        uint32_t idle_index = 0;
        int is_waiting = 0; /* for a claim, perhaps for this key */
        for (*index = first; *index < first + WAYS; ++*index) {
            row *at = row_at(limits, of, *index);
            uint64_t found = rp_load_acquire(&at->key);
            if (found == key) return at;
            is_waiting |= is_claimed(found, now_ns);
            if (idle || is_waiting || !is_idle(limits, of, at, now_ns)) continue;
            idle = at;
            idle_index = *index;
            old = found;
        }
        if (is_waiting) continue;
        if (!idle) break;
        *index = idle_index;
        if (enter(limits, of, key, now_ns, idle, old)) return idle;
    }
    count(limits, RP_LIMITS_UNTRACKED);
    return NULL;
}

static uint64_t key_of(const rp_host *peer) {
    uint64_t key = 0;
    for (uint32_t i = 0; i < (peer->family == 4 ? 4 : 8); i++) key = key << 8 | peer->address[i];
    if (peer->family == 4) return key ? key | V4 : FREE; /* 0.0.0.0: a unix socket, or a proxy that does not know */
    return key < KEYS ? V6_NONE : key;
}

/* ---- buckets ---- */

static void spend(uint64_t *full_ns, uint64_t n, uint64_t rate, uint64_t now_ns) {
    if (rate == 0 || n == 0) return;
    uint64_t before = relaxed(full_ns), after;
    do after = (before > now_ns ? before : now_ns) + n * NS_PER_S / rate;
    while (!__atomic_compare_exchange_n(full_ns, &before, after, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

static int is_empty(const uint64_t *full_ns, uint64_t rate, uint64_t now_ns) {
    return rate != 0 && relaxed(full_ns) > now_ns + NS_PER_S;
}

uint64_t rp_limits_wait(const rp_limits *limits, uint32_t number, uint64_t now_ns) {
    const row *at = of_connection(limits, number);
    const uint64_t *requests = &at->full_ns[REQUESTS], *bytes = &at->full_ns[BYTES];
    uint64_t until_ns = is_empty(requests, limits->config.address_requests, now_ns) ? relaxed(requests) : 0;
    if (is_empty(bytes, limits->config.address_bytes, now_ns) && relaxed(bytes) > until_ns) until_ns = relaxed(bytes);
    return until_ns;
}

void rp_limits_spend(rp_limits *limits, uint32_t number, uint64_t requests, uint64_t bytes, uint64_t now_ns) {
    row *at = of_connection(limits, number);
    spend(&at->full_ns[REQUESTS], requests, limits->config.address_requests, now_ns);
    spend(&at->full_ns[BYTES], bytes, limits->config.address_bytes, now_ns);
}

const char *rp_limits_busy(rp_limits *limits, const uint8_t *key, uint32_t key_size, uint64_t now_ns,
                           uint32_t *number) {
    const rp_limits_config *config = &limits->config;
    *number = 0;
    if (config->account_requests == 0 && config->account_bytes == 0) return NULL;
    uint64_t hash = rp_hash_bytes(key, key_size, limits->seed);
    uint32_t index;
    const row *at = find(limits, &limits->accounts, hash | KEYS, now_ns, &index);
    const char *text = NULL;
    if (!at) return NULL;
    if (is_empty(&at->full_ns[REQUESTS], config->account_requests, now_ns))
        text = "[LIMIT]system busy, the account has reached accountRequestsPerSecond";
    else if (is_empty(&at->full_ns[BYTES], config->account_bytes, now_ns))
        text = "[LIMIT]system busy, the account has reached accountBytesPerSecond";
    if (text)
        count(limits, RP_LIMITS_BUSY);
    else
        *number = index + 1;
    return text;
}

void rp_limits_take(rp_limits *limits, uint32_t number, uint64_t bytes, uint64_t now_ns) {
    if (number == 0) return;
    row *at = row_at(limits, &limits->accounts, number - 1);
    spend(&at->full_ns[REQUESTS], 1, limits->config.account_requests, now_ns);
    spend(&at->full_ns[BYTES], bytes, limits->config.account_bytes, now_ns);
}

/* ---- refused identities ---- */

static int is_blocked(const rp_limits *limits, const row *at, uint64_t now_ns) {
    uint64_t failures = relaxed(&at->failures);
    return limits->config.failures != 0 && (uint32_t)failures >= limits->config.failures &&
           failures_count(failures, now_ns);
}

int rp_limits_is_blocked(const rp_limits *limits, uint32_t number, uint64_t now_ns) {
    return is_blocked(limits, of_connection(limits, number), now_ns);
}

uint32_t rp_limits_failed(rp_limits *limits, const rp_host *peer, uint64_t now_ns) {
    uint64_t key = key_of(peer);
    uint32_t index;
    row *at = limits->config.failures && key ? find(limits, &limits->addresses, key, now_ns, &index) : NULL;
    if (!at) return 0;
    uint64_t before = relaxed(&at->failures), after;
    do after = failures_count(before, now_ns) ? before + 1 : now_ns / NS_PER_S << 32 | 1;
    while (!__atomic_compare_exchange_n(&at->failures, &before, after, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    if ((uint32_t)after == limits->config.failures) count(limits, RP_LIMITS_BLOCKED);
    return (uint32_t)after;
}

/* ---- connections ---- */

void rp_limits_begin(rp_limits *limits, uint32_t selector, uint32_t epoch) {
    rp_store_release32(&limits->epochs[selector], epoch);
}

/* First the connection is counted, then the limit and the key are looked at: so no two selectors exceed the limit
 * together, and a process that has claimed the row sees the connection, or this one sees the claim. */
rp_status rp_limits_join(rp_limits *limits, uint32_t selector, const rp_host *peer, uint64_t now_ns, uint32_t *number) {
    uint64_t key = key_of(peer), epoch = limits->epochs[selector];
    *number = 0;
    for (int tries = 0; key && tries < TRIES; tries++) {
        uint32_t index;
        row *at = find(limits, &limits->addresses, key, now_ns, &index);
        if (!at) return RP_OK;
        uint64_t *own = &at->connections[selector];
        uint64_t before = *own >> 32 == epoch ? *own : epoch << 32;
        rp_store_release(own, before + 1);
        rp_full_fence(); /* orders the store of the count before the loads of the key and of other counts */
        int is_ours = rp_load_acquire(&at->key) == key;
        uint64_t max = limits->config.address_connections;
        if (is_ours && !is_blocked(limits, at, now_ns) &&
            (max == 0 || open_connections(limits, &limits->addresses, at) <= max)) {
            *number = index + 1;
            return RP_OK;
        }
        rp_store_release(own, before);
        if (is_ours) return RP_FULL;
    }
    return RP_OK;
}

void rp_limits_leave(rp_limits *limits, uint32_t selector, uint32_t number) {
    uint64_t *own = &of_connection(limits, number)->connections[selector];
    rp_store_release(own, *own - 1);
}
