/* See slave_table.h.
 * Short: slave_connection.c fills the rows; this is what other workers call. */
#include "replication/slave_table.h"
#include <string.h>
#include "base/atomic.h"

void rp_slave_table_clear(rp_slave_table *table) {
    rp_store_release(&table->available, 0);
    rp_store_release(&table->available_phy_offset, 0);
    rp_store_release(&table->needed, 0);
    memset(table->rows, 0, sizeof table->rows);
}

int rp_slave_table_can_wait(const rp_slave_table *table, uint64_t end_phy_offset, uint64_t fall_behind_max) {
    if (!rp_load_acquire(&table->available)) return 0;
    uint64_t acked = rp_load_acquire(&table->available_phy_offset);
    return end_phy_offset <= acked || end_phy_offset - acked < fall_behind_max;
}
