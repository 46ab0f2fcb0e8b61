#ifndef ROCKETPY_SHA1_H
#define ROCKETPY_SHA1_H
/* SHA-1 and HMAC-SHA1, for the signatures of requests: the protocol has no other algorithm. Pure functions; a key is
 * prepared once, so that a signature costs the blocks of its content and two more. */
#include <stdint.h>

enum { RP_SHA1_SIZE = 20 };
typedef struct rp_sha1 {
    uint32_t state[5];
    uint32_t used; /* bytes of `block` */
    uint64_t size; /* bytes so far */
    uint8_t block[64];
} rp_sha1;
/* The states after the key's two blocks. As secret as the key. */
typedef struct rp_hmac_key {
    uint32_t inner[5];
    uint32_t outer[5];
} rp_hmac_key;

void rp_hmac_key_make(rp_hmac_key *key, const uint8_t *secret, uint64_t size);
/* One code: begin, rp_sha1_update for each piece of the content, end. */
void rp_hmac_begin(rp_sha1 *sum, const rp_hmac_key *key);
void rp_sha1_update(rp_sha1 *sum, const uint8_t *data, uint64_t size);
void rp_hmac_end(rp_sha1 *sum, const rp_hmac_key *key, uint8_t *code);

/* For tests: 1: the way for all CPUs is used, also where there are instructions. */
void rp_sha1_force_portable(int on);
#endif
