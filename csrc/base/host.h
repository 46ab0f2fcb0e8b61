#ifndef ROCKETPY_HOST_H
#define ROCKETPY_HOST_H
/* An address and port of a peer, as records and messages between workers carry it.
 * Short: connections and records both have addresses, and records know nothing of connections. */
#include <stdint.h>

/* An IP endpoint as records carry it. `family` is 4 or 6; `address` holds 4 or 16 bytes in network order. */
typedef struct rp_host {
    uint8_t address[16];
    uint16_t port;
    uint8_t family;
    uint8_t reserved;
} rp_host;
#endif
