#ifndef ROCKETPY_PEER_H
#define ROCKETPY_PEER_H
/* Who is at the other end of a connection, and whether that is one of the networks that somebody named. */
#include <stdint.h>
#include "record.h"

typedef struct rp_network {
    uint8_t address[16]; /* IPv4 as ::ffff:a.b.c.d */
    uint32_t bits;       /* of it that count; those of an IPv4 network + 96 */
} rp_network;

/* The peer of a connected socket; 0.0.0.0:0 if it has none (unix sockets), or none any more. */
rp_host rp_peer_of_socket(int fd);
/* An IPv6 address; one that stands for an IPv4 address becomes it. */
rp_host rp_peer_v6(const uint8_t address[16], uint16_t port);
int rp_peer_is_in(const rp_host *peer, const rp_network *networks, uint32_t network_count);
#endif
