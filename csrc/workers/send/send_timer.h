#ifndef ROCKETPY_SEND_TIMER_H
#define ROCKETPY_SEND_TIMER_H
/* Timers in the send worker: accepts them into the timer topic, delivers those that are due (docs/adr/0110), and stores
 * others again where cleaning wants their log files (docs/adr/0110). C only. */
#include "workers/send/send_private.h"
#include "workers/send/send_store.h"

enum { RP_TIMER_TAIL_MAX = 1024 };

/* What is added to a send that became a timer; kept until it is stored. */
typedef struct rp_timed {
    uint8_t tail[RP_TIMER_TAIL_MAX];
    char fault[192]; /* of RP_INVALID: for the sender */
} rp_timed;

/* Open what the delivery needs. RP_OK, RP_NO_MEMORY. */
rp_status rp_send_timer_open(rp_send *send);
void rp_send_timer_close(rp_send *send);
/* Turn a send with a timer property, whose queue is chosen, into one to the timer topic. If its time has come already
 * it stays unchanged. RP_OK; RP_INVALID: no number, or too far ahead; RP_NOT_FOUND: there is no timer topic yet;
 * RP_FULL: beyond RP_TIMER_SPAN_MAX. */
rp_status rp_send_timer_accept(rp_send *send, rp_put *put, rp_timed *timed);
/* Before a put that cancels or moves a timer. RP_RESPONSE_SUCCESS: it can be stored; RP_RESPONSE_QUERY_NOT_FOUND: the
 * timer is not pending, *timer_state says why (RP_TIMER_STATE_*); RP_RESPONSE_SYSTEM_BUSY: no room, or not known yet.
 */
int32_t rp_send_timer_check_change(const rp_send *send, const rp_put *put, uint32_t *timer_state);
/* Before a record is published: `end` counts from then on. There is room in the journal. */
void rp_send_timer_end(rp_send *send, const rp_timer_end *end);
/* Deliver one timer, or store it again if it is not due and the store worker asks for that. RP_OK: done, or refused for
 * now: then the store worker tries again. RP_FULL: the journal is full. */
rp_status rp_send_timer_serve(rp_send *send, const rp_msg_timer *message);
#endif
