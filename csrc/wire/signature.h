#ifndef ROCKETPY_SIGNATURE_H
#define ROCKETPY_SIGNATURE_H
/* The signature of a request (rocketpy/remoting/signature.py is its meaning), for requests in the usual form: all
 * fields but the signature are signed, names are ASCII, and none comes twice. Of all others nothing is known here:
 * Python decides about them. */
#include "wire/header.h"
#include "wire/sha1.h"

/* The field of this name; NULL if there is none. The last one of several. */
const rp_field *rp_header_field(const rp_header *header, const char *name);
typedef struct rp_signed {
    const rp_header *header;
    const rp_frame *frame;
    rp_hmac_key key; /* of the account that it names */
    int is_valid; /* the result: it carries the signature that `key` makes of it. 0: it does not, or has another form */
} rp_signed;

/* Check requests, several at once if the CPU can. Returns the number of those that were checked: the first ones, at
 * least one of `count` > 0. Takes the same time for every wrong signature.
 *
 * Owner: all is borrowed until return. Lock: none. A result depends on its own request only. */
uint32_t rp_signatures_check(rp_signed *requests, uint32_t count);
#endif
