/* See handshakes.h. */
#include "replication/handshakes.h"
#include <string.h>

uint32_t rp_handshakes_done(const rp_slave *slaves, uint32_t count) {
    uint32_t done = 0;
    for (uint32_t i = 0; i < count; i++) done += slaves[i].fd >= 0 && slaves[i].is_replicating;
    return done;
}

static int is_in_handshake(const rp_slave *slave) { return slave->fd >= 0 && !slave->is_replicating; }

/* Bytes of an address (host:port) without its port. */
static size_t host_size(const char *address) {
    const char *colon = strrchr(address, ':');
    return colon ? (size_t)(colon - address) : strlen(address);
}

/* Number of connections in the handshake from the host of `slave`. */
static uint32_t of_same_host(const rp_slave *slaves, uint32_t count, const rp_slave *slave) {
    const char *address = slave->row->address;
    size_t size = host_size(address);
    uint32_t same = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!is_in_handshake(&slaves[i])) continue;
        const char *other = slaves[i].row->address;
        same += host_size(other) == size && memcmp(other, address, size) == 0;
    }
    return same;
}

int32_t rp_handshakes_surplus(const rp_slave *slaves, uint32_t count) {
    uint32_t handshakes = 0, most = 0;
    int32_t surplus = -1;
    for (uint32_t i = 0; i < count; i++) handshakes += (uint32_t)is_in_handshake(&slaves[i]);
    if (handshakes < RP_HANDSHAKES_MAX) return -1;
    for (uint32_t i = 0; i < count; i++) {
        if (!is_in_handshake(&slaves[i])) continue; /* its read_ns is when it was opened */
        uint32_t same = of_same_host(slaves, count, &slaves[i]);
        int is_older = surplus >= 0 && slaves[i].read_ns < slaves[surplus].read_ns;
        if (same < most || (same == most && !is_older)) continue;
        most = same;
        surplus = (int32_t)i;
    }
    return surplus;
}
