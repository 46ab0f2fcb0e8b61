#ifndef ROCKETPY_SEND_REPLY_H
#define ROCKETPY_SEND_REPLY_H
/* Encodes the response to a stored send and writes it to the ring of its selector. C only. */
#include <stdint.h>
#include "base/status.h"
#include "wire/reply.h"
#include "ipc/ring.h"

/* Upper bound of the size of the response in the ring. */
uint32_t rp_send_reply_bound(uint32_t region_size, uint32_t message_ids_size);
/* Write the response for `connection`. RP_OK, RP_FULL, RP_NO_MEMORY. */
rp_status rp_send_reply_send(rp_ring_writer *selector, uint64_t connection, const rp_send_reply *reply);
#endif
