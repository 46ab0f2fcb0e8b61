/* See confirm.h.
 * Short: one step; the confirmed position rests on it alone, so it is read and tested apart. */
#include "replication/confirm.h"
#include <string.h>
#include "base/atomic.h"
#include "base/shared.h"

int rp_confirm_look(rp_confirm *confirm) {
    if (confirm->version_plus_1 == rp_load_acquire(&confirm->member->version) + 1) return 1;
    rp_member_orders orders;
    rp_store_id own;
    const rp_member *member = confirm->member;
    uint64_t version_plus_1 = rp_sequence_copy(&member->version, &orders, &member->orders, sizeof orders);
    if (!version_plus_1 || !rp_sequence_copy(&member->own_version, &own, &member->own, sizeof own)) return 0;
    confirm->orders = orders;
    confirm->own = own;
    confirm->version_plus_1 = version_plus_1;
    return 1;
}

static int is_same(const rp_store_id *a, const rp_store_id *b) {
    return strncmp(a->member, b->member, sizeof a->member) == 0 &&
           strncmp(a->incarnation, b->incarnation, sizeof a->incarnation) == 0;
}

/* What a store has acknowledged under the epoch of the orders; 0: nothing. */
static uint64_t acknowledged(const rp_confirm *confirm, const rp_store_id *store) {
    uint64_t best = 0;
    for (uint32_t i = 0; i < RP_SLAVE_ROWS; i++) {
        const rp_slave_row *row = &confirm->table->rows[i];
        if (row->state == RP_SLAVE_FREE || row->epoch != confirm->orders.epoch || !is_same(&row->store, store))
            continue;
        if (row->acked_phy_offset > best) best = row->acked_phy_offset;
    }
    return best;
}

static uint64_t local_end(const rp_confirm *confirm) {
    uint64_t end = rp_load_acquire(&confirm->control->published_phy_offset);
    uint64_t durable = confirm->is_durable ? rp_load_acquire(&confirm->control->durable_phy_offset) : end;
    return durable < end ? durable : end;
}

int rp_confirm_run(rp_confirm *confirm) {
    rp_member *member = confirm->member;
    if (!rp_confirm_look(confirm) || confirm->orders.epoch < 0 || !confirm->orders.counting_count) return 0;
    uint64_t before = rp_load_acquire(&confirm->control->confirmed_phy_offset), end = local_end(confirm);
    uint32_t others = 0;
    for (uint32_t i = 0; i < confirm->orders.counting_count && end > before; i++) {
        if (is_same(&confirm->orders.counting[i], &confirm->own)) continue;
        uint64_t position = acknowledged(confirm, &confirm->orders.counting[i]);
        if (position < end) end = position;
        others++;
    }
    if (end <= before) return 0;
    if (end > member->proposed_phy_offset) rp_store_release(&member->proposed_phy_offset, end);
    if (!rp_member_holds(member, confirm->version_plus_1 - 1)) return 0;
    if (!others) rp_store_release(&member->alone_phy_offset, end); /* before readers may see it confirmed */
    rp_store_release(&confirm->control->confirmed_phy_offset, end);
    return 1;
}
