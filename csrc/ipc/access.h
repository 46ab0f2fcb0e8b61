#ifndef ROCKETPY_ACCESS_H
#define ROCKETPY_ACCESS_H
/* Access control for the fast path: recognises sends and pulls that are certainly allowed. Python decides about all
 * others (rocketpy/broker/access.py), so the rules exist once.
 *
 * A table in shared memory, made before the first fork. The manager writes it; codecs and selectors read it.
 *
 *   accounts    access key -> prepared secret key. Those that do not fit are not here.
 *   decisions   requests (version, code, access key, topic, group) that Python has allowed; they end with the version
 *   published   the accounts as Python reads them, for the other processes that decide in Python
 *
 * Lock: a sequence lock (base/atomic.h) around accounts and published bytes, and one around each decision. */
#include <stdint.h>
#include "wire/header.h"
#include "wire/sha1.h"

enum {
    RP_ACCESS_ACCOUNTS_MAX = 4096,
    RP_ACCESS_KEY_MAX = 60, /* bytes of an access key in the table */
    RP_ACCESS_DECISIONS = 16384,
    RP_ACCESS_DECISION_MAX = 496, /* bytes; requests with more have no decision */
    RP_ACCESS_PUBLISHED_MAX = 33554432,
    RP_ACCESS_REASONS = 8
};

typedef struct rp_access_account {
    uint32_t key_size; /* 0: free */
    uint8_t key[RP_ACCESS_KEY_MAX];
    int is_broker;
    rp_hmac_key hmac;
} rp_access_account;

typedef struct rp_decision {
    uint64_t lock;
    uint32_t size; /* 0: free */
    uint8_t content[RP_ACCESS_DECISION_MAX];
} rp_decision;

typedef struct rp_access {
    uint64_t version; /* odd: accounts and published bytes are being changed */
    uint64_t refused[RP_ACCESS_REASONS];
    uint64_t seed; /* of places of decisions; random */
    uint32_t count;
    uint32_t turn; /* which of a decision's places is taken next */
    uint16_t used[RP_ACCESS_ACCOUNTS_MAX]; /* where the `count` accounts are: no other page of the table is touched */
    rp_access_account accounts[2 * RP_ACCESS_ACCOUNTS_MAX];
    rp_decision decisions[RP_ACCESS_DECISIONS];
    uint64_t published_size;
    uint8_t published[RP_ACCESS_PUBLISHED_MAX];
} rp_access;

/* The manager alone, or the process that starts the broker: begin, add each account, fill the published bytes, end. */
void rp_access_begin(rp_access *access);
/* 1; 0: it does not fit. */
int rp_access_add(rp_access *access, const uint8_t *key, uint32_t key_size, const uint8_t *secret, uint32_t secret_size,
                  int is_broker);
void rp_access_end(rp_access *access, uint64_t published_size);
/* Enter a decision, which takes the place of another. `content`, of RP_ACCESS_DECISION_MAX bytes at most: version (8
 * bytes), code, sizes of access key, topic and group (4 each, as the machine has them), then these names. */
void rp_access_allow(rp_access *access, const uint8_t *content, uint32_t size);

/* Requests that were refused, by a reason of RP_ACCESS_REASONS; any process. Adds `count`, returns the sum. */
uint64_t rp_access_refused(rp_access *access, uint32_t reason, uint64_t count);

/* The account that has signed a request. */
typedef struct rp_signer {
    const rp_access *access; /* NULL: nobody asks who has */
    uint64_t version; /* of the accounts; 0: it is not certain who has signed */
    const uint8_t *key; /* its access key, in the header */
    uint32_t key_size;
    int is_broker; /* the limits of accounts are not for it */
} rp_signer;

/* Find who has signed up to RP_HMAC_JOBS requests: fill the signers whose `access` is set, each from the request of the
 * same index. Owner: signers point into the headers. Lock: a reader's. */
void rp_access_identify(const rp_access *access, const rp_header *headers, const rp_frame *frames, rp_signer *signers,
                        uint32_t count);
/* 1: it is certain that the signer may send this request. */
int rp_access_is_allowed(const rp_signer *signer, int32_t code, const uint8_t *topic, uint32_t topic_size,
                         const uint8_t *group, uint32_t group_size);
#endif
