/* Coordinator, replicator and send worker over the member block at the same time: what is confirmed after a change of
 * the in-sync set is what the coordinator knew of then, or what the new set has; what one member has confirmed alone is
 * never taken for more.   driver_member [ROUNDS]
 *
 * Not for the thread sanitizer: orders are copied while they may change, and thrown away then. */
#include <pthread.h>
#include <sched.h>
#include "base/atomic.h"
#include "replication/confirm.h"
#include "shared_memory.h"

enum { LOOKS = 200, EPOCH = 3 };
static const uint64_t ACKED = 50; /* what the other member has, whatever happens */

static struct {
    rp_member *member;
    rp_control control;
    rp_slave_table *table;
    uint32_t stop;
} rig;

static rp_member_orders orders_of(uint32_t count) {
    rp_member_orders orders = {.role = RP_ROLE_MASTER, .epoch = EPOCH, .counting_count = count};
    strcpy(orders.counting[0].member, "a");
    if (count > 1) strcpy(orders.counting[1].member, "b");
    return orders;
}

/* Confirms, and publishes more all the time. */
static void *replicate(void *unused) {
    (void)unused;
    rp_confirm confirm = {.member = rig.member, .control = &rig.control, .table = rig.table};
    while (!rp_load_acquire32(&rig.stop)) {
        rp_store_release(&rig.control.published_phy_offset, rig.control.published_phy_offset + 1);
        rp_confirm_run(&confirm);
    }
    return NULL;
}

/* As the send worker reads them: no position that only one member has is without its mark. */
static void *answer(void *unused) {
    (void)unused;
    while (!rp_load_acquire32(&rig.stop)) {
        uint64_t confirmed = rp_load_acquire(&rig.control.confirmed_phy_offset);
        uint64_t alone = rp_load_acquire(&rig.member->alone_phy_offset);
        CHECK(confirmed <= ACKED || confirmed <= alone);
    }
    return NULL;
}

int main(int argc, char **argv) {
    uint32_t rounds = argc > 1 ? (uint32_t)atoi(argv[1]) : 5000;
    CHECK(rig.member = create_member());
    CHECK(rig.table = rp_shared_create(sizeof(rp_slave_table)));
    rp_store_id own = {.member = "a"};
    rp_sequence_write(&rig.member->own_version, &rig.member->own, &own, sizeof own);
    rig.table->rows[0] = (rp_slave_row){
        .state = RP_SLAVE_REPLICATING, .epoch = EPOCH, .acked_phy_offset = ACKED, .store = {.member = "b"}};
    pthread_t threads[2];
    CHECK(pthread_create(&threads[0], NULL, replicate, NULL) == 0);
    CHECK(pthread_create(&threads[1], NULL, answer, NULL) == 0);
    uint64_t moved = 0, last = 0;
    for (uint32_t i = 0; i < rounds; i++) {
        rp_member_orders alone = orders_of(1), both = orders_of(2);
        rp_member_order(rig.member, &alone);
        for (uint32_t look = 0; look < LOOKS && rp_load_acquire(&rig.control.confirmed_phy_offset) <= last; look++)
            sched_yield();
        rp_member_order(rig.member, &both);
        uint64_t known = rp_member_confirmed(rig.member, rp_load_acquire(&rig.control.confirmed_phy_offset));
        moved += known > last;
        last = known;
        for (uint32_t look = 0; look < LOOKS; look++)
            CHECK(rp_load_acquire(&rig.control.confirmed_phy_offset) <= (known > ACKED ? known : ACKED));
    }
    rp_store_release32(&rig.stop, 1);
    for (uint32_t i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    CHECK(moved > rounds / 100);
    printf("member: %u changes of the set, %u of them after something was confirmed\n", rounds, (uint32_t)moved);
    return 0;
}
