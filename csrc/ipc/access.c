/* Accounts are in an open-addressing table that is never more than half full. Readers may see it while it is changed:
 * every index is masked and every size is checked, and the version says whether what was copied is valid. */
#include "ipc/access.h"

#include <string.h>

#include "base/atomic.h"
#include "base/map.h"
#include "wire/signature.h"

enum { SLOTS = 2 * RP_ACCESS_ACCOUNTS_MAX, PROBES = 64, WAYS = 4 };
_Static_assert(SLOTS <= UINT16_MAX + 1, "rp_access.used has their numbers");
typedef rp_access_account account;

/* The slot of a key, or the free one where it would be; NULL: there is none within PROBES. */
static const account *find(const rp_access *access, const uint8_t *key, uint32_t size) {
    uint64_t start = rp_hash_bytes(key, size, 0);
    for (uint32_t i = 0; i < PROBES; i++) {
        const account *slot = &access->accounts[(start + i) % SLOTS];
        if (slot->key_size == 0 || (slot->key_size == size && memcmp(slot->key, key, size) == 0)) return slot;
    }
    return NULL;
}

void rp_access_begin(rp_access *access) {
    rp_sequence_begin(&access->version);
    for (uint32_t i = 0; i < access->count; i++) memset(&access->accounts[access->used[i]], 0, sizeof(account));
    access->count = 0;
}

int rp_access_add(rp_access *access, const uint8_t *key, uint32_t key_size, const uint8_t *secret, uint32_t secret_size,
                  int is_broker) {
    if (key_size == 0 || key_size > RP_ACCESS_KEY_MAX || access->count >= RP_ACCESS_ACCOUNTS_MAX) return 0;
    account *slot = (account *)find(access, key, key_size);
    if (!slot || slot->key_size > 0) return 0;
    access->used[access->count] = (uint16_t)(slot - access->accounts);
    rp_store_release32(&access->count, access->count + 1); /* first: the next process clears what a killed one began */
    memcpy(slot->key, key, key_size);
    rp_hmac_key_make(&slot->hmac, secret, secret_size);
    slot->key_size = key_size;
    slot->is_broker = is_broker;
    return 1;
}

void rp_access_end(rp_access *access, uint64_t published_size) {
    access->published_size = published_size;
    rp_sequence_end(&access->version, rp_load_acquire(&access->version));
}

uint64_t rp_access_refused(rp_access *access, uint32_t reason, uint64_t count) {
    return __atomic_add_fetch(&access->refused[reason % RP_ACCESS_REASONS], count, __ATOMIC_RELAXED);
}

/* The first of the WAYS places of a decision. */
static const rp_decision *places(const rp_access *access, const uint8_t *content, uint32_t size) {
    return &access->decisions[rp_hash_bytes(content, size, access->seed) % (RP_ACCESS_DECISIONS / WAYS) * WAYS];
}

static int is_same(const rp_decision *place, const uint8_t *content, uint32_t size) {
    return place->size == size && memcmp(place->content, content, size) == 0;
}

void rp_access_allow(rp_access *access, const uint8_t *content, uint32_t size) {
    rp_decision *bucket = (rp_decision *)places(access, content, size);
    for (uint32_t way = 0; way < WAYS; way++)
        if (is_same(&bucket[way], content, size)) return;
    rp_decision *place = &bucket[access->turn++ % WAYS]; /* of many requests under way each asks for the same entry */
    uint64_t odd = rp_sequence_begin(&place->lock);
    memcpy(place->content, content, size);
    place->size = size;
    rp_sequence_end(&place->lock, odd);
}

void rp_access_identify(const rp_access *access, const rp_header *headers, const rp_frame *frames, rp_signer *signers,
                        uint32_t count) {
    rp_signed asked[RP_HMAC_JOBS];
    rp_signer *whose[RP_HMAC_JOBS];
    uint32_t asked_count = 0;
    uint64_t version = rp_sequence_read(&access->version);
    for (uint32_t i = 0; i < count; i++) {
        if (!signers[i].access) continue;
        const rp_field *key = rp_header_field(&headers[i], "AccessKey");
        signers[i] = (rp_signer){.access = access};
        if (!key || key->escaped || key->value_size == 0 || key->value_size > RP_ACCESS_KEY_MAX) continue;
        const account *found = find(access, key->value, key->value_size);
        if (!found || found->key_size == 0) continue;
        signers[i].key = key->value;
        signers[i].key_size = key->value_size;
        signers[i].is_broker = found->is_broker;
        asked[asked_count] = (rp_signed){.header = &headers[i], .frame = &frames[i], .key = found->hmac};
        whose[asked_count++] = &signers[i];
    }
    if (!rp_sequence_is_valid(&access->version, version)) return;
    for (uint32_t at = 0; at < asked_count;) at += rp_signatures_check(asked + at, asked_count - at);
    for (uint32_t i = 0; i < asked_count; i++)
        if (asked[i].is_valid) whose[i]->version = version;
}

int rp_access_is_allowed(const rp_signer *signer, int32_t code, const uint8_t *topic, uint32_t topic_size,
                         const uint8_t *group, uint32_t group_size) {
    const rp_access *access = signer->access;
    struct {
        uint64_t version;
        int32_t code;
        uint32_t key_size, topic_size, group_size;
        uint8_t names[RP_ACCESS_DECISION_MAX - 24];
    } content = {signer->version, code, signer->key_size, topic_size, group_size, {0}};
    uint64_t names_size = (uint64_t)signer->key_size + topic_size + group_size;
    if (signer->version == 0 || names_size > sizeof content.names) return 0;
    memcpy(content.names, signer->key, signer->key_size);
    memcpy(content.names + signer->key_size, topic, topic_size);
    memcpy(content.names + signer->key_size + topic_size, group, group_size);
    const uint8_t *wanted = (const uint8_t *)&content;
    uint32_t size = (uint32_t)(sizeof content - sizeof content.names + names_size);
    const rp_decision *bucket = places(access, wanted, size);
    for (uint32_t way = 0; way < WAYS; way++) {
        uint64_t lock = rp_sequence_read(&bucket[way].lock);
        if (is_same(&bucket[way], wanted, size) && rp_sequence_is_valid(&bucket[way].lock, lock))
            return rp_load_acquire(&access->version) == signer->version;
    }
    return 0;
}
