/* What the coordinator of automatic failover allows (ipc/member.h): whether messages are stored, and until when answers
 * may leave. Without it everything is allowed, at the cost of one comparison.
 *
 * The orders are read at the start of a pass. So when this worker reports that sends are refused, all that it had taken
 * before is in the log, and nothing more will be. A master that hands over lets selectors read no more requests, and
 * takes those that were read before: their answers leave before its process tree ends, and its connections, with what
 * clients send meanwhile, go to the next one (docs/adr/0114). The deadline is compared for each answer: nothing but a
 * process that is stopped between both can let one leave later, which is what the margin of the lease fence is for. */
#include "base/shared.h"
#include "workers/send/send_private.h"

static const char NOT_MASTER[] =
    "service not available now: this broker is not, or not certainly, the master of its group; send again";

static const char REFUSED_BY_MASTER[] = "service not available now: this master hands over to another member, or fewer "
                                        "are in sync than minInSyncReplicas; send again";

enum {
    FINISH_BEGIN_NS = 100000000, /* the next master, a slave still, stops passing sends on first */
    FINISH_QUIET_NS = 40000000, /* requests that a selector has read are here after that long, if the machine is busy */
    FINISH_MAX_NS = 400000000
};

/* In nanoseconds. A change of roles takes less; a coordinator that is gone gives no order that ends the pause. */
#define INTAKE_PAUSE_MAX_NS UINT64_C(5000000000)

/* Selectors read no requests while this is wanted, but not for ever. */
static void pause_intake(rp_send *send, int is_wanted) {
    uint64_t now_ns = send->admission.now_ns;
    if (!is_wanted)
        send->intake_pause_ns = 0;
    else if (!send->intake_pause_ns)
        send->intake_pause_ns = now_ns;
    int is_paused = is_wanted && now_ns - send->intake_pause_ns < INTAKE_PAUSE_MAX_NS;
    rp_store_release32(&send->config.member->intake_paused, (uint32_t)is_paused);
}

void rp_send_read_orders(rp_send *send) {
    rp_member *member = send->config.member;
    rp_member_orders orders;
    if (!member) return;
    if (send->intake_pause_ns) pause_intake(send, 1);
    if (send->orders.version_plus_1 == rp_load_acquire(&member->version) + 1) return;
    uint64_t version_plus_1 = rp_sequence_copy(&member->version, &orders, &member->orders, sizeof orders);
    if (!version_plus_1) return; /* they are being changed: the next pass looks again */
    uint32_t role = send->config.is_slave ? RP_ROLE_SLAVE : RP_ROLE_MASTER;
    int hands_over = role == RP_ROLE_MASTER && orders.keeps_sends && orders.answers_waits;
    int is_finishing = hands_over && send->orders.takes_sends;
    int changes = orders.keeps_sends && (orders.role != role || orders.pauses_intake);
    pause_intake(send, (hands_over && (!is_finishing || send->finish_paused_ns)) || changes);
    if (!is_finishing) {
        send->finish_by_ns = send->finish_paused_ns = 0;
    } else if (!send->finish_by_ns) {
        send->finish_quiet_ns = send->admission.now_ns + FINISH_BEGIN_NS;
        send->finish_by_ns = send->finish_quiet_ns + FINISH_MAX_NS;
    }
    if (is_finishing) orders.takes_sends = 1;
    send->orders = (rp_send_orders){.version_plus_1 = version_plus_1,
                                    .takes_sends = orders.takes_sends,
                                    .keeps_sends = orders.keeps_sends,
                                    .role = orders.role,
                                    .answers_waits = orders.answers_waits,
                                    .is_alone = orders.counting_count == 1};
    rp_store_release(&member->sends_refused, orders.takes_sends ? 0 : version_plus_1 - 1);
}

/* Have selectors read no more; the time is taken after the order can be seen. */
static void pause_selectors(rp_send *send) {
    pause_intake(send, 1);
    rp_full_fence(); /* orders the store of intake_paused before the clock is read */
    send->finish_paused_ns = send->admission.clock_ns();
    for (uint32_t i = 0; i < send->config.selector_count; i++)
        rp_worker_wake((rp_worker *)rp_ring_consumer(send->config.selectors[i]), 1);
}

/* 1 if each selector has begun a turn since then: it has seen the order before it read anything. A spare one that has
 * never been started reads nothing, and its process begins with the order. */
static int selectors_are_paused(const rp_send *send) {
    for (uint32_t i = 0; i < send->config.selector_count; i++) {
        const rp_worker *selector = rp_ring_consumer(send->config.selectors[i]);
        int is_started = rp_load_acquire32(&selector->epoch) != 0;
        if (is_started && rp_load_acquire(&selector->heartbeat_ns) <= send->finish_paused_ns) return 0;
    }
    return 1;
}

void rp_send_finish_intake(rp_send *send, uint32_t taken) {
    uint64_t now_ns = send->admission.now_ns;
    if (!send->finish_by_ns || now_ns < send->finish_quiet_ns) return;
    if (!send->finish_paused_ns) pause_selectors(send);
    if (taken || !selectors_are_paused(send)) send->finish_quiet_ns = now_ns;
    if (now_ns < send->finish_quiet_ns + FINISH_QUIET_NS && now_ns < send->finish_by_ns) return;
    send->finish_by_ns = 0;
    send->orders.takes_sends = 0;
    rp_store_release(&send->config.member->sends_refused, send->orders.version_plus_1 - 1);
}

const char *rp_send_refusal(const rp_send *send) {
    if (send->config.member && !send->orders.takes_sends)
        return send->orders.answers_waits ? REFUSED_BY_MASTER : NOT_MASTER;
    return rp_store_fault(rp_load_acquire32(&send->control->running_flags));
}

int rp_send_may_answer(const rp_send *send) {
    if (!send->config.member) return 1;
    uint64_t deadline = rp_load_acquire(&send->config.member->deadline_ns);
    if (!send->orders.answers_waits || !deadline) return 0;
    return deadline == UINT64_MAX || (uint64_t)(send->config.boot_ms() + 1) * 1000000u <= deadline;
}

uint64_t rp_send_confirmed(const rp_send *send, uint64_t *alone) {
    *alone = 0;
    if (!send->config.waits_for_confirmed) return rp_load_acquire(&send->control->replicated_phy_offset);
    uint64_t confirmed = rp_load_acquire(&send->control->confirmed_phy_offset);
    *alone = rp_load_acquire(
        &send->config.member->alone_phy_offset); /* after confirmed, because the writer stores it first */
    return confirmed;
}
