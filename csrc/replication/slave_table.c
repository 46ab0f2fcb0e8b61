/* See slave_table.h.
 * Short: slave_connection.c fills the rows; this is what other workers call. */
#include "replication/slave_table.h"
#include <string.h>
#include "base/atomic.h"

rp_slave_table *rp_slave_table_create(void) { return rp_shared_memory(sizeof(rp_slave_table)); }

void rp_slave_table_clear(rp_slave_table *table) {
    rp_store_release(&table->available, 0);
    rp_store_release(&table->available_phy_offset, 0);
    rp_store_release(&table->needed, 0);
    memset(table->rows, 0, sizeof table->rows);
}

int32_t rp_slave_table_take(rp_slave_table *table, const char *address) {
    for (int32_t i = 0; i < RP_SLAVE_ROWS; i++) {
        rp_slave_row *row = &table->rows[i];
        if (row->state != RP_SLAVE_FREE) continue;
        memset(row, 0, sizeof *row);
        strncpy(row->address, address, sizeof row->address - 1);
        row->epoch = -1;
        rp_store_release(&row->opened, table->opened + 1);
        rp_store_release32(&row->state, RP_SLAVE_CONNECTED);
        rp_add(&table->opened, 1);
        return i;
    }
    return -1;
}

int rp_slave_table_can_wait(const rp_slave_table *table, uint64_t end_phy_offset, uint64_t fall_behind_max) {
    if (!rp_load_acquire(&table->available)) return 0;
    uint64_t acked = rp_load_acquire(&table->available_phy_offset);
    return end_phy_offset <= acked || end_phy_offset - acked < fall_behind_max;
}
