/* See handshakes.h. */
#include "replication/handshakes.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

uint32_t rp_handshakes_done(const rp_slave_connection *slaves, uint32_t count) {
    uint32_t done = 0;
    for (uint32_t i = 0; i < count; i++) done += slaves[i].fd >= 0 && slaves[i].is_replicating;
    return done;
}

static int is_in_handshake(const rp_slave_connection *slave) { return slave->fd >= 0 && !slave->is_replicating; }

/* Who may have many addresses counts once: the first 64 bits of an IPv6 address, all of an IPv4 one. */
typedef struct host {
    uint8_t bytes[16];
} host;

enum { NETWORK_BYTES = 8 };

/* The host of `address`, host:port or [host]:port. What is no IP address is its own text, as far as that fits. */
static host host_of(const char *address) {
    host found = {{0}};
    char text[RP_SLAVE_ADDRESS_MAX] = "";
    struct in6_addr v6;
    const char *colon = strrchr(address, ':');
    size_t size = colon ? (size_t)(colon - address) : strlen(address);
    if (size >= 2 && address[0] == '[' && address[size - 1] == ']') {
        address++;
        size -= 2;
    }
    if (size < sizeof text) memcpy(text, address, size);
    text[strcspn(text, "%")] = 0; /* of a link-local address */
    if (inet_pton(AF_INET6, text, &v6) != 1)
        memcpy(found.bytes, text, sizeof found.bytes);
    else
        memcpy(found.bytes, &v6, IN6_IS_ADDR_V4MAPPED(&v6) ? sizeof v6 : NETWORK_BYTES);
    return found;
}

/* Number of the `count` hosts that are the one at `index`. */
static uint32_t same_as(const host *hosts, uint32_t count, uint32_t index) {
    uint32_t same = 0;
    for (uint32_t i = 0; i < count; i++) same += memcmp(&hosts[i], &hosts[index], sizeof *hosts) == 0;
    return same;
}

int32_t rp_handshakes_surplus(const rp_slave_connection *slaves, uint32_t count) {
    host hosts[RP_SLAVE_ROWS];
    uint32_t of[RP_SLAVE_ROWS], handshakes = 0, most = 0;
    int32_t surplus = -1;
    for (uint32_t i = 0; i < count && i < RP_SLAVE_ROWS; i++) {
        if (!is_in_handshake(&slaves[i])) continue;
        hosts[handshakes] = host_of(slaves[i].row->address);
        of[handshakes++] = i;
    }
    if (handshakes < RP_HANDSHAKES_MAX) return -1;
    for (uint32_t i = 0; i < handshakes; i++) {
        const rp_slave_connection *slave = &slaves[of[i]]; /* its read_ns is when it was opened */
        uint32_t same = same_as(hosts, handshakes, i);
        int is_older = surplus >= 0 && slave->read_ns < slaves[surplus].read_ns;
        if (same < most || (same == most && !is_older)) continue;
        most = same;
        surplus = (int32_t)of[i];
    }
    return surplus;
}
