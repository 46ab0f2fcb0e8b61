#ifndef ROCKETPY_HANDSHAKES_H
#define ROCKETPY_HANDSHAKES_H
/* The bound on connections that do not replicate yet: those in the handshake, and those of 4.9 before their first
 * report.
 *
 * They take no place of a slave. When there are RP_HANDSHAKES_MAX and another one comes, one is closed: the oldest of
 * the host that has most. So one host cannot keep the others out, however many connections it opens. All IPv6 addresses
 * of a /64 count as one host: who has one of them has all. */
#include <stdint.h>
#include "replication/slave_connection.h"

/* Number of connections that replicate. */
uint32_t rp_handshakes_done(const rp_slave_connection *slaves, uint32_t count);
/* The index of the connection that has to go before another one may begin its handshake; -1: none has to. */
int32_t rp_handshakes_surplus(const rp_slave_connection *slaves, uint32_t count);
#endif
