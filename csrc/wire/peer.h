#ifndef ROCKETPY_PEER_H
#define ROCKETPY_PEER_H
/* The peer address of a connection, and whether it lies in one of the configured networks. */
#include <stdint.h>
#include "base/host.h"
#include "base/status.h"

typedef struct rp_network {
    uint8_t address[16]; /* IPv4 as ::ffff:a.b.c.d */
    uint32_t bits;       /* prefix length; that of an IPv4 network plus 96 */
} rp_network;

/* The peer of a connected socket; 0.0.0.0:0 for unix sockets and sockets that are no longer connected. */
rp_host rp_peer_of_socket(int fd);
int rp_peer_is_in(const rp_host *peer, const rp_network *networks, uint32_t network_count);

/* The header in which a proxy names the client of a connection: the PROXY protocol of HAProxy, versions 1 and 2. */

enum { RP_PROXY_LINE_MAX = 107, RP_PROXY_HEADER_MAX = 4096 };

enum { /* rp_proxy_header.kind */
       RP_PROXY_LOCAL = 1,   /* the proxy's own connection (a health check): the peer of the socket is the client */
       RP_PROXY_PEER = 2,
       RP_PROXY_UNKNOWN = 3  /* the proxy does not know the client's address */
};

typedef struct rp_proxy_header {
    rp_host peer;  /* if kind is PEER, else 0.0.0.0:0 */
    uint32_t kind;
    uint32_t size; /* bytes of the header; the client's own bytes follow */
} rp_proxy_header;

/* Parse the header at the beginning of a stream. RP_OK with *header filled; RP_INCOMPLETE: read more, up to
 * RP_PROXY_HEADER_MAX bytes in all; RP_INVALID, RP_TOO_LARGE: this is no PROXY header, close the connection. */
rp_status rp_proxy_header_cut(const uint8_t *data, uint64_t size, rp_proxy_header *header);
/* Bytes to read next, so that none of the client's own is among them; after RP_INCOMPLETE, or at the beginning. */
uint32_t rp_proxy_header_missing(const uint8_t *data, uint32_t size);
#endif
