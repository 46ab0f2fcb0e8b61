#ifndef ROCKETPY_PEER_H
#define ROCKETPY_PEER_H
/* The peer address of a connection, and whether it lies in one of the configured networks. */
#include <stdint.h>
#include "base/host.h"

typedef struct rp_network {
    uint8_t address[16]; /* IPv4 as ::ffff:a.b.c.d */
    uint32_t bits;       /* prefix length; that of an IPv4 network plus 96 */
} rp_network;

/* The peer of a connected socket; 0.0.0.0:0 for unix sockets and sockets that are no longer connected. */
rp_host rp_peer_of_socket(int fd);
/* An IPv6 peer; an IPv4-mapped address (::ffff:a.b.c.d) becomes IPv4. */
rp_host rp_peer_v6(const uint8_t address[16], uint16_t port);
int rp_peer_is_in(const rp_host *peer, const rp_network *networks, uint32_t network_count);
#endif
