/* The connections of a master's replicator: taken over, asked, answered and closed, between two turns of its loop. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "base/atomic.h"
#include "base/crc32.h"
#include "replication/handshakes.h"
#include "replication/master_private.h"

void rp_master_drop(rp_master *master, uint32_t index, uint32_t reason) {
    rp_slave_connection *slave = &master->slaves[index];
    rp_slave_connection_close(slave);
    master->closed[index].is_closed = 1;
    master->closed[index].reason = reason;
    master->closed_count++;
    rp_store_release32(&slave->row->state, RP_SLAVE_FREE);
    rp_add(&master->config.table->closed[reason], 1);
}

static int is_full(const rp_master *master) {
    return rp_handshakes_done(master->slaves, RP_SLAVE_ROWS) >= master->config.slaves_max;
}

rp_status rp_master_add(rp_master *master, int32_t fd, const char *address) {
    if (is_full(master)) return RP_FULL;
    int32_t surplus = rp_handshakes_surplus(master->slaves, RP_SLAVE_ROWS);
    if (surplus >= 0) rp_master_drop(master, (uint32_t)surplus, RP_SLAVE_TOO_MANY);
    for (uint32_t i = 0; i < RP_SLAVE_ROWS; i++) {
        rp_slave_connection *slave = &master->slaves[i];
        if (slave->fd >= 0 || master->closed[i].is_closed) continue;
        rp_slave_row *row = &master->config.table->rows[i];
        memset(row, 0, sizeof *row);
        strncpy(row->address, address, sizeof row->address - 1);
        row->epoch = -1;
        rp_store_release(&row->opened, master->config.table->opened + 1);
        rp_slave_connection_open(slave, fd, row, now_of(master));
        if (i >= master->used) master->used = i + 1;
        rp_add(&master->config.table->opened, 1);
        return RP_OK;
    }
    return RP_FULL;
}

int rp_master_closed(rp_master *master, rp_slave_closed *closed) {
    for (uint32_t i = 0; i < RP_SLAVE_ROWS && master->closed_count; i++) {
        if (!master->closed[i].is_closed) continue;
        const rp_slave_connection *slave = &master->slaves[i];
        *closed = (rp_slave_closed){
            .row = i, .reason = master->closed[i].reason, .reported = slave->reported, .acked = slave->acked};
        master->closed[i].is_closed = 0;
        master->closed_count--;
        return 1;
    }
    return 0;
}

int rp_master_asking(rp_master *master, rp_slave_asking *asking) {
    for (uint32_t i = 0; i < RP_SLAVE_ROWS; i++) {
        const rp_slave_connection *slave = &master->slaves[i];
        if (!is_asking(slave)) continue;
        *asking = (rp_slave_asking){.row = i};
        if (slave->handshake != RP_HA_STATE_INTRODUCED) return 1;
        asking->hello = slave->hello + RP_HA_SIZE_FRAME_HEADER;
        asking->hello_size = slave->hello_size - RP_HA_SIZE_FRAME_HEADER;
        return 1;
    }
    return 0;
}

rp_status rp_master_answer(rp_master *master, uint32_t row, const uint8_t *frame, uint32_t size, int begins,
                           uint64_t start) {
    uint32_t why = RP_SLAVE_TOO_MANY;
    rp_slave_connection *slave = &master->slaves[row];
    rp_status status = begins && is_full(master) ? RP_STOPPED
                                                 : rp_slave_connection_answer(slave, &master->rules, frame, size,
                                                                              begins, start, now_of(master), &why);
    if (status != RP_OK) rp_master_drop(master, row, why);
    return status;
}

void rp_master_refuse(rp_master *master, uint32_t row, const uint8_t *frame, uint32_t size, uint32_t reason) {
    rp_slave_connection *slave = &master->slaves[row];
    if (size) (void)send(slave->fd, frame, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    rp_slave_connection_close(slave);
    rp_store_release32(&slave->row->state, RP_SLAVE_FREE);
    rp_add(&master->config.table->closed[reason], 1);
}

rp_status rp_master_crc(rp_master *master, uint64_t phy_offset, uint64_t size, uint32_t *crc) {
    uint64_t file_size = master->rules.file_size;
    for (*crc = 0; size;) {
        uint64_t part = file_size - phy_offset % file_size;
        if (part > size) part = size;
        const uint8_t *bytes = rp_log_view_acquire(master->view, phy_offset, part);
        if (!bytes) return rp_log_view_is_missing(errno) ? RP_NOT_FOUND : RP_NO_MEMORY;
        *crc = rp_crc32(*crc, bytes, part);
        rp_log_view_release(master->view, phy_offset);
        phy_offset += part;
        size -= part;
    }
    return RP_OK;
}

rp_status rp_master_set_epochs(rp_master *master, const rp_epoch *epochs, uint32_t count) {
    if (master->epochs) return RP_INVALID;
    rp_epoch *copy = malloc((count ? count : 1) * sizeof *copy);
    if (!copy) return RP_NO_MEMORY;
    memcpy(copy, epochs, count * sizeof *copy);
    master->rules.epochs = master->epochs = copy;
    master->rules.epoch_count = count;
    master->rules.epoch = count ? copy[count - 1].number : 0;
    return RP_OK;
}

void rp_master_identify(rp_master *master, uint32_t row, const rp_store_id *store) {
    master->slaves[row].row->store = *store;
}
