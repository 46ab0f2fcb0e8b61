#ifndef ROCKETPY_SIGNATURE_H
#define ROCKETPY_SIGNATURE_H
/* The signature of a request (rocketpy/remoting/signature.py is its meaning), for requests in the usual form: all
 * fields but the signature are signed, names are ASCII, and none comes twice. Of all others nothing is known here:
 * Python decides about them. */
#include "wire/header.h"
#include "wire/sha1.h"

/* The field of this name; NULL if there is none. The last one of several. */
const rp_field *rp_header_field(const rp_header *header, const char *name);
/* 1: the request carries the signature that `key` makes of it. 0: it does not, or is in another form. Takes the same
 * time for every wrong signature. */
int rp_signature_is_of(const rp_header *header, const rp_frame *frame, const rp_hmac_key *key);
#endif
