#ifndef ROCKETPY_PROXY_HEADER_H
#define ROCKETPY_PROXY_HEADER_H
/* What a proxy says first of whom it speaks for: the PROXY protocol of HAProxy, versions 1 and 2. */
#include <stdint.h>
#include "record.h"
#include "status.h"

enum { RP_PROXY_LINE_MAX = 107, RP_PROXY_HEADER_MAX = 4096 };

enum { /* rp_proxy_header.kind */
    RP_PROXY_LOCAL = 1,   /* the proxy speaks for itself (a health check): the peer of the socket is the peer */
    RP_PROXY_PEER = 2,
    RP_PROXY_UNKNOWN = 3  /* somebody, whom it cannot name */
};

typedef struct rp_proxy_header {
    rp_host peer;  /* of kind PEER; 0.0.0.0:0 of the others */
    uint32_t kind;
    uint32_t size; /* bytes of the header; the stream of the client begins behind it */
} rp_proxy_header;

/* Look at the beginning of a stream. RP_OK with *header filled; RP_INCOMPLETE: it may become one, of at most
 * RP_PROXY_HEADER_MAX bytes; RP_INVALID, RP_TOO_LARGE: it is none, close the connection. */
rp_status rp_proxy_header_cut(const uint8_t *data, uint64_t size, rp_proxy_header *header);
#endif
