/* Accounts are in an open-addressing table that is never more than half full. Readers may see it while it is changed:
 * every index is masked and every size is checked, and the version says whether what was copied is valid. */
#include "ipc/access.h"

#include <string.h>

#include "base/atomic.h"
#include "wire/signature.h"

enum { SLOTS = 2 * RP_ACCESS_ACCOUNTS_MAX, PROBES = 64, WAYS = 4 };
typedef rp_access_account account;

/* FNV-1a: nobody but the operator chooses keys that are entered. */
static uint32_t first_slot(const uint8_t *key, uint32_t size) {
    uint32_t hash = 2166136261u;
    for (uint32_t i = 0; i < size; i++) hash = (hash ^ key[i]) * 16777619u;
    return hash;
}

/* The slot of a key, or the free one where it would be; NULL: there is none within PROBES. */
static const account *find(const rp_access *access, const uint8_t *key, uint32_t size) {
    uint32_t start = first_slot(key, size);
    for (uint32_t i = 0; i < PROBES; i++) {
        const account *slot = &access->accounts[(start + i) % SLOTS];
        if (slot->key_size == 0 || (slot->key_size == size && memcmp(slot->key, key, size) == 0)) return slot;
    }
    return NULL;
}

void rp_access_begin(rp_access *access) {
    rp_sequence_begin(&access->version);
    memset(access->accounts, 0, sizeof access->accounts);
    access->count = 0;
}

int rp_access_add(rp_access *access, const uint8_t *key, uint32_t key_size, const uint8_t *secret, uint32_t secret_size,
                  int is_broker) {
    if (key_size == 0 || key_size > RP_ACCESS_KEY_MAX || access->count >= RP_ACCESS_ACCOUNTS_MAX) return 0;
    account *slot = (account *)find(access, key, key_size);
    if (!slot || slot->key_size > 0) return 0;
    memcpy(slot->key, key, key_size);
    rp_hmac_key_make(&slot->hmac, secret, secret_size);
    slot->key_size = key_size;
    slot->is_broker = is_broker;
    access->count++;
    return 1;
}

void rp_access_end(rp_access *access, uint64_t published_size) {
    access->published_size = published_size;
    rp_sequence_end(&access->version, rp_load_acquire(&access->version));
}

uint64_t rp_access_refused(rp_access *access, uint32_t reason, uint64_t count) {
    return __atomic_add_fetch(&access->refused[reason % RP_ACCESS_REASONS], count, __ATOMIC_RELAXED);
}

static const uint64_t *places(const rp_access *access, const uint64_t *decision) {
    return access->decisions[decision[0] % (RP_ACCESS_DECISIONS / WAYS) * WAYS];
}

/* A reader that sees half of an old and half of a new decision finds neither. */
void rp_access_allow(rp_access *access, const uint8_t *decision) {
    uint64_t words[2], *bucket;
    memcpy(words, decision, sizeof words);
    bucket = (uint64_t *)places(access, words);
    for (uint32_t way = 0; way < WAYS; way++)
        if (memcmp(&bucket[2 * way], words, sizeof words) == 0) return;
    uint32_t way = access->turn++ % WAYS; /* of many requests under way each asks for the same entry */
    __atomic_store_n(&bucket[2 * way], words[0], __ATOMIC_RELAXED);
    __atomic_store_n(&bucket[2 * way + 1], words[1], __ATOMIC_RELAXED);
}

void rp_access_identify(const rp_access *access, const rp_header *header, const rp_frame *frame, rp_signer *signer) {
    const rp_field *key = rp_header_field(header, "AccessKey");
    uint64_t version = rp_sequence_read(&access->version);
    *signer = (rp_signer){.access = access};
    if (!key || key->escaped || key->value_size == 0 || key->value_size > RP_ACCESS_KEY_MAX) return;
    const account *found = find(access, key->value, key->value_size);
    if (!found || found->key_size == 0) return;
    rp_hmac_key hmac = found->hmac;
    signer->is_broker = found->is_broker;
    if (!rp_sequence_is_valid(&access->version, version) || !rp_signature_is_of(header, frame, &hmac)) return;
    signer->version = version;
    signer->key = key->value;
    signer->key_size = key->value_size;
}

int rp_access_is_allowed(const rp_signer *signer, int32_t code, const uint8_t *topic, uint32_t topic_size,
                         const uint8_t *group, uint32_t group_size) {
    const rp_access *access = signer->access;
    if (signer->version == 0) return 0;
    struct {
        uint64_t version;
        int32_t code;
        uint32_t key_size, topic_size, group_size;
    } head = {signer->version, code, signer->key_size, topic_size, group_size};
    rp_sha1 sum;
    uint8_t sent[RP_SHA1_SIZE];
    uint64_t words[2];
    rp_hmac_begin(&sum, &access->of_decisions);
    rp_sha1_update(&sum, (const uint8_t *)&head, sizeof head);
    rp_sha1_update(&sum, signer->key, signer->key_size);
    rp_sha1_update(&sum, topic, topic_size);
    rp_sha1_update(&sum, group, group_size);
    rp_hmac_end(&sum, &access->of_decisions, sent);
    memcpy(words, sent, sizeof words);
    const uint64_t *bucket = places(access, words);
    for (uint32_t way = 0; way < WAYS; way++)
        if (__atomic_load_n(&bucket[2 * way], __ATOMIC_RELAXED) == words[0] &&
            __atomic_load_n(&bucket[2 * way + 1], __ATOMIC_RELAXED) == words[1])
            return rp_load_acquire(&access->version) == signer->version;
    return 0;
}
