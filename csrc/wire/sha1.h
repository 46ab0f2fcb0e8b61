#ifndef ROCKETPY_SHA1_H
#define ROCKETPY_SHA1_H
/* HMAC-SHA1, for the signatures of requests: the protocol has no other algorithm. Pure functions; a key is prepared
 * once, so that a signature costs the blocks of its content and two more. */
#include <stdint.h>

enum {
    RP_SHA1_SIZE = 20,
    RP_HMAC_JOBS = 16, /* codes that are made at once */
    RP_HMAC_ROOM = 192 /* bytes that rp_hmac writes behind an edge: ends of the body, padding */
};
/* The states after the key's two blocks. As secret as the key. */
typedef struct rp_hmac_key {
    uint32_t inner[5];
    uint32_t outer[5];
} rp_hmac_key;

/* One code, of the bytes of `edge` and then those of `body`. */
typedef struct rp_hmac_job {
    const rp_hmac_key *key;
    uint8_t *edge; /* RP_HMAC_ROOM more bytes than edge_size, all of them the job's alone; overwritten */
    uint64_t edge_size;
    const uint8_t *body;
    uint64_t body_size;
    uint8_t code[20]; /* the result, RP_SHA1_SIZE bytes */
} rp_hmac_job;

void rp_hmac_key_make(rp_hmac_key *key, const uint8_t *secret, uint64_t size);
/* Make up to RP_HMAC_JOBS codes. Jobs are borrowed until return; a code depends on its own job only. Lock: none. */
void rp_hmac(rp_hmac_job *jobs, uint32_t count);

/* For tests: 1: the way for all CPUs is used, also where there are instructions. */
void rp_sha1_force_portable(int on);
#endif
