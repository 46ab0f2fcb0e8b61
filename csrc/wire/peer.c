/* See peer.h. */
#define _GNU_SOURCE
#include "wire/peer.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

static const uint8_t V4_PREFIX[12] = {[10] = 0xFF, [11] = 0xFF};

rp_host rp_peer_v6(const uint8_t address[16], uint16_t port) {
    rp_host host = {.family = 6, .port = port};

    if (memcmp(address, V4_PREFIX, sizeof V4_PREFIX) == 0) {
        memcpy(host.address, address + sizeof V4_PREFIX, 4);
        host.family = 4;
    } else {
        memcpy(host.address, address, 16);
    }
    return host;
}

rp_host rp_peer_of_socket(int fd) {
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    rp_host host = {.family = 4};

    if (getpeername(fd, (struct sockaddr *)&address, &size) != 0) return host;
    if (address.ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)&address;
        memcpy(host.address, &v4->sin_addr, 4);
        host.port = ntohs(v4->sin_port);
    } else if (address.ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&address;
        host = rp_peer_v6(v6->sin6_addr.s6_addr, ntohs(v6->sin6_port));
    }
    return host;
}

static int is_in(const uint8_t address[16], const rp_network *network) {
    uint32_t whole = network->bits / 8, rest = network->bits % 8;

    if (memcmp(address, network->address, whole) != 0) return 0;
    return rest == 0 || (address[whole] ^ network->address[whole]) >> (8 - rest) == 0;
}

int rp_peer_is_in(const rp_host *peer, const rp_network *networks, uint32_t network_count) {
    uint8_t address[16];

    memcpy(address, V4_PREFIX, sizeof V4_PREFIX);
    if (peer->family == 4)
        memcpy(address + sizeof V4_PREFIX, peer->address, 4);
    else
        memcpy(address, peer->address, 16);
    for (uint32_t i = 0; i < network_count; i++)
        if (networks[i].bits <= 128 && is_in(address, &networks[i])) return 1;
    return 0;
}
