/* What the coordinator of automatic failover allows (ipc/member.h): whether messages are stored, and until when answers
 * may leave. Without it everything is allowed, at the cost of one comparison.
 *
 * The orders are read at the start of a pass. So when this worker reports that sends are refused, all that it had taken
 * before is in the log, and nothing more will be. The deadline is compared for each answer: nothing but a process that
 * is stopped between both can let one leave later, which is what the margin of the lease fence is for. */
#include "workers/send_private.h"

const char rp_send_not_master[] =
    "service not available now: this broker is not, or not certainly, the master of its group; send again";

static const char REFUSED_BY_MASTER[] = "service not available now: this master hands over to another member, or fewer "
                                        "are in sync than minInSyncReplicas; send again";

void rp_send_read_orders(rp_send *send) {
    rp_member *member = send->config.member;
    rp_member_orders orders;
    if (!member || send->orders.version_plus_1 == rp_load_acquire(&member->version) + 1) return;
    uint64_t version_plus_1 = rp_member_read_orders(member, &orders);
    if (!version_plus_1) return; /* they are being changed: the next pass looks again */
    send->orders = (rp_send_orders){.version_plus_1 = version_plus_1,
                                    .takes_sends = orders.takes_sends,
                                    .answers_waits = orders.answers_waits,
                                    .is_alone = orders.counting_count == 1};
    rp_store_release(&member->sends_refused, orders.takes_sends ? 0 : version_plus_1 - 1);
}

const char *rp_send_refusal(const rp_send *send) {
    if (send->config.member && !send->orders.takes_sends)
        return send->orders.answers_waits ? REFUSED_BY_MASTER : rp_send_not_master;
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
