#ifndef ROCKETPY_SEND_DELAY_H
#define ROCKETPY_SEND_DELAY_H
/* Delay levels in the send worker: accepts a message into the queue of its level, and delivers those that the manager
 * has found due (docs/adr/0090). What is out of the ordinary is the manager's. C only. */
#include "workers/send/send_private.h"
#include "workers/send/send_store.h"

enum { RP_DELAY_TAIL_MAX = 1024 };

/* Open what the delivery needs. RP_OK, RP_NO_MEMORY. */
rp_status rp_send_delay_open(rp_send *send);
void rp_send_delay_close(rp_send *send);
/* Turn a send with a delay level, whose queue is chosen, into one to the queue of the level. `tail`: of
 * RP_DELAY_TAIL_MAX bytes, kept until it is stored. RP_OK; RP_NOT_FOUND: the manager has to look at it. */
rp_status rp_send_delay_accept(const rp_send *send, rp_put *put, uint8_t *tail);
/* Serve one DELIVER: store its messages in their topics, up to the first one that needs the manager, and answer how
 * many. Those that are marked as delivered count, and are not stored again. RP_FULL: no room, it stays in the ring. */
rp_status rp_send_deliver(rp_send *send, const uint8_t *data, uint32_t size);
#endif
