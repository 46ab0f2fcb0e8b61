#define _GNU_SOURCE
#include "replication/master.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/atomic.h"
#include "base/clock.h"
#include "base/endian.h"
#include "ipc/worker_counters.h"
#include "replication/confirm.h"
#include "replication/slave_connection.h"

enum {
    MAPPINGS_MAX = 4,
    NEAR_BYTES = RP_HA_DATA_MAX, /* a slave that lacks no more gets it at once: it was written just now */
    FAR_BYTES = 1 << 20          /* of the log in a turn, for all others together */
};
enum { HANDSHAKES = 0, DOORBELL = 1, SLAVES = 2 }; /* places in `polled` */
static const uint64_t LOOK_NS = 10000000; /* between two looks while stopping */
static const uint64_t ORDERS_NS = 20000000; /* with automatic failover: nobody wakes it when orders change */
/* While messages come in and no send waits for a slave, it polls every millisecond and is not marked asleep, so that
 * the send worker need not wake it for each message (as store_loop.c does). */
static const uint64_t NAP_NS = 1000000, NAPS_AFTER_WORK_NS = 50000000;

struct rp_master {
    rp_master_config config;
    rp_slave_rules rules;
    rp_control *control;
    rp_log_view *view;
    rp_slave_connection slaves[RP_SLAVE_ROWS];
    struct pollfd polled[SLAVES + RP_SLAVE_ROWS];
    struct {
        uint32_t is_closed;
        uint32_t reason;
    } closed[RP_SLAVE_ROWS]; /* rows that Python has not been told of */
    uint32_t closed_count;
    uint32_t used;         /* rows from here on are free */
    uint32_t first;        /* the first row that is served in the next turn */
    uint64_t replicated; /* as the control block has it */
    uint64_t worked_ns, stopping_ns;
    int has_more; /* some slave can be sent more at once */
    rp_confirm confirm; /* with automatic failover */
};

static uint64_t now_of(const rp_master *master) { return master->config.clock_ns(); }

rp_master *rp_master_open(const rp_master_config *config) {
    rp_master *master = calloc(1, sizeof *master);
    if (!master) return NULL;
    master->config = *config;
    if (!config->clock_ns) master->config.clock_ns = rp_now_ns;
    master->control = rp_control_header(config->block);
    master->rules = (rp_slave_rules){.config = &master->config, .file_size = master->control->commitlog_file_size};
    master->confirm = (rp_confirm){.member = config->member,
                                   .control = master->control,
                                   .table = config->table,
                                   .is_durable = config->is_durable != 0};
    for (uint32_t i = 0; i < RP_SLAVE_ROWS; i++) master->slaves[i].fd = -1;
    master->replicated = rp_load_acquire(&master->control->replicated_phy_offset);
    rp_slave_table_clear(config->table);
    master->view = rp_log_view_open(config->commitlog_directory, master->rules.file_size, MAPPINGS_MAX);
    if (master->view) return master;
    free(master);
    errno = ENOMEM;
    return NULL;
}

void rp_master_close(rp_master *master) {
    if (!master) return;
    for (uint32_t i = 0; i < RP_SLAVE_ROWS; i++)
        if (master->slaves[i].fd >= 0) close(master->slaves[i].fd);
    rp_slave_table_clear(master->config.table);
    rp_log_view_close(master->view);
    free(master);
}

/* Close a connection; Python learns the reason, RP_SLAVE_*. */
static void drop(rp_master *master, uint32_t index, uint32_t reason) {
    rp_slave_connection *slave = &master->slaves[index];
    close(slave->fd);
    slave->fd = -1;
    master->closed[index].is_closed = 1;
    master->closed[index].reason = reason;
    master->closed_count++;
    rp_store_release32(&slave->row->state, RP_SLAVE_FREE);
    rp_add(&master->config.table->closed[reason], 1);
}

void rp_master_add(rp_master *master, uint32_t row, int32_t fd, int is_rocketpy, uint64_t start, uint64_t acked,
                   uint64_t written_ns) {
    rp_slave_connection_open(&master->slaves[row], &master->rules, fd, &master->config.table->rows[row], is_rocketpy,
                             start, acked, written_ns, now_of(master));
    if (row >= master->used) master->used = row + 1;
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

rp_status rp_master_set_epochs(rp_master *master, const rp_epoch *epochs, uint32_t count) {
    if (master->rules.epochs) return RP_INVALID;
    master->rules.epochs = epochs;
    master->rules.epoch_count = count;
    master->rules.epoch = count ? epochs[count - 1].number : 0;
    return RP_OK;
}

/* Show what the slaves have; wake the send worker if that releases a send. */
static void publish_progress(rp_master *master, uint64_t end, uint64_t now) {
    rp_slave_table *table = master->config.table;
    uint64_t available = 0, best = 0, acked = 0, needed = 0;
    for (uint32_t i = 0; i < master->used; i++) {
        rp_slave_connection *slave = &master->slaves[i];
        if (slave->fd < 0) continue;
        int is_available = rp_slave_connection_publish(slave, &master->rules, end, now);
        if (slave->acked > acked) acked = slave->acked;
        uint64_t sent = rp_transfer_sent(&slave->transfer);
        uint64_t from = slave->acked ? slave->acked : sent; /* where it would go on after a lost connection */
        if (!needed || from + 1 < needed) needed = from + 1;
        available += (uint64_t)is_available;
        if (is_available && slave->acked > best) best = slave->acked;
    }
    rp_store_release(&table->available_phy_offset, best);
    rp_store_release(&table->available, available);
    rp_store_release(&table->needed, needed);
    if (acked <= master->replicated) return;
    master->replicated = acked;
    rp_store_release(&master->control->replicated_phy_offset, acked);
    rp_full_fence(); /* orders the store of replicated_phy_offset before the load of the send worker's `asleep` */
    rp_worker_wake(master->config.send, 0);
}

/* Move the confirmed position: consumers see what is below it, and sends that wait for it are answered. */
static void confirm(rp_master *master) {
    if (!master->config.member) {
        master->rules.confirmed = rp_load_acquire(&master->control->published_phy_offset);
        return;
    }
    int has_moved = rp_confirm_run(&master->confirm);
    master->rules.confirmed = rp_load_acquire(&master->control->confirmed_phy_offset);
    if (!has_moved) return;
    rp_full_fence(); /* orders the store of confirmed_phy_offset before the loads of `asleep` */
    rp_worker_wake(master->config.send, 0);
    if (master->config.store) rp_worker_wake(master->config.store, 0);
}

/* Nobody follows a broker that is not the master any more. */
static void fence(rp_master *master) {
    uint8_t frame[RP_HA_SIZE_FRAME_HEADER + RP_HA_SIZE_FENCED];
    int32_t newest = __atomic_load_n(&master->config.member->newest_epoch_seen, __ATOMIC_RELAXED);
    rp_store32(frame, 1 + RP_HA_SIZE_FENCED);
    frame[4] = RP_HA_TYPE_FENCED;
    rp_store32(frame + RP_HA_SIZE_FRAME_HEADER, (uint32_t)newest);
    for (uint32_t i = 0; i < master->used; i++) {
        rp_slave_connection *slave = &master->slaves[i];
        if (slave->fd < 0) continue;
        if (newest > master->rules.epoch && !rp_transfer_is_inside(&slave->transfer))
            (void)send(slave->fd, frame, sizeof frame, MSG_DONTWAIT | MSG_NOSIGNAL);
        drop(master, i, RP_SLAVE_FENCED);
    }
}

/* Read what the slaves say. */
static void read_all(rp_master *master, uint64_t end, uint64_t now) {
    for (uint32_t i = 0; i < master->used; i++) {
        rp_slave_connection *slave = &master->slaves[i];
        uint32_t why;
        if (slave->fd < 0) continue;
        short events = master->polled[SLAVES + i].fd == slave->fd ? master->polled[SLAVES + i].revents : 0;
        rp_status status = RP_OK;
        if (events & (POLLIN | POLLHUP | POLLERR))
            status = rp_slave_connection_read(slave, &master->rules, end, now, &why);
        if (events & POLLOUT) slave->is_blocked = 0;
        if (status == RP_STOPPED) drop(master, i, why);
    }
}

/* Send a slave up to about `most` bytes of the log. Returns how many were sent. */
static uint64_t write_one(rp_master *master, uint32_t index, uint64_t end, uint64_t most, uint64_t now) {
    rp_slave_connection *slave = &master->slaves[index];
    uint32_t why;
    uint64_t before = slave->row->sent_bytes;
    rp_status status = rp_slave_connection_write(slave, &master->rules, master->view, end, most, now, &why);
    uint64_t sent = slave->row->sent_bytes - before;
    if (sent) {
        rp_add(&master->config.table->sent_bytes, sent);
        master->worked_ns = now;
    }
    if (status == RP_INCOMPLETE && !slave->is_blocked) master->has_more = 1;
    if (status == RP_OK && now - slave->read_ns >= (uint64_t)master->config.housekeeping_ns) {
        status = RP_STOPPED;
        why = RP_SLAVE_SILENT;
    }
    if (status == RP_STOPPED) drop(master, index, why);
    return sent;
}

/* Send the slaves what they lack. Those that are far behind share FAR_BYTES and take turns: reading for them may take
 * long. Those that are near the end of the log get all that they lack. */
static void write_all(rp_master *master, uint64_t end, uint64_t now) {
    uint64_t left = FAR_BYTES;
    uint32_t first = master->first, skipped = 0;
    master->has_more = 0;
    for (uint32_t n = 0; n < master->used; n++) {
        uint32_t i = (first + n) % master->used;
        rp_slave_connection *slave = &master->slaves[i];
        if (slave->fd < 0) continue;
        int is_far = !slave->is_blocked && end - rp_transfer_sent(&slave->transfer) > NEAR_BYTES;
        if (is_far && !left) {
            if (!skipped++) master->first = i;
            master->has_more = 1;
            continue;
        }
        uint64_t sent = write_one(master, i, end, is_far ? left : NEAR_BYTES, now);
        if (is_far) left -= sent < left ? sent : left;
    }
}

static uint64_t wait_until(rp_master *master, uint64_t end, uint64_t now, uint64_t until) {
    uint64_t due = until;
    for (uint32_t i = 0; i < master->used; i++) {
        rp_slave_connection *slave = &master->slaves[i];
        if (slave->fd < 0) continue;
        uint64_t slave_due = rp_slave_connection_due_ns(slave, &master->rules, end);
        if (slave_due < due) due = slave_due;
    }
    if (master->config.member && due > now + ORDERS_NS) due = now + ORDERS_NS;
    if (due > now + LOOK_NS && rp_load_acquire32(&master->config.worker->stop)) due = now + LOOK_NS;
    return due;
}

/* Wait for events. With `is_asleep` the send worker rings when it has published something. */
static void wait_for(rp_master *master, uint64_t timeout_ns, int is_asleep) {
    struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / 1000000000), .tv_nsec = (long)(timeout_ns % 1000000000)};
    master->polled[HANDSHAKES] = (struct pollfd){.fd = master->config.handshakes, .events = POLLIN};
    master->polled[DOORBELL] = (struct pollfd){.fd = master->config.worker->doorbell, .events = POLLIN};
    for (uint32_t i = 0; i < RP_SLAVE_ROWS; i++) {
        const rp_slave_connection *slave = &master->slaves[i];
        master->polled[SLAVES + i] =
            (struct pollfd){.fd = slave->fd, .events = (short)(slave->is_blocked ? POLLIN | POLLOUT : POLLIN)};
    }
    if (ppoll(master->polled, SLAVES + RP_SLAVE_ROWS, &timeout, NULL) < 0)
        for (uint32_t i = 0; i < SLAVES + RP_SLAVE_ROWS; i++) master->polled[i].revents = 0;
    if (is_asleep || master->polled[DOORBELL].revents) rp_worker_end_sleep(master->config.worker);
}

static int is_behind(const rp_master *master, uint64_t end) {
    return rp_load_acquire(&master->control->published_phy_offset) != end;
}

/* Once stopped: 1 when every slave that can be waited for has everything, or has had time enough. */
static int has_finished(rp_master *master, uint64_t end, uint64_t now) {
    if (!master->stopping_ns) master->stopping_ns = now;
    if (now - master->stopping_ns >= (uint64_t)master->config.stall_ns) return 1;
    for (uint32_t i = 0; i < master->used; i++) {
        const rp_slave_connection *slave = &master->slaves[i];
        uint32_t state = slave->fd < 0 ? RP_SLAVE_FREE : slave->row->state;
        if ((state == RP_SLAVE_REPLICATING || state == RP_SLAVE_CATCHING_UP) && slave->acked < end) return 0;
    }
    return 1;
}

/* Nobody wakes it when more of the log is on the disk, which a member has to confirm with SYNC_FLUSH. */
static int naps(const rp_master *master, uint64_t now) {
    if (master->config.member && master->config.is_durable)
        return rp_load_acquire(&master->control->durable_phy_offset) <
               rp_load_acquire(&master->control->published_phy_offset);
    return !master->config.is_sync_master && now - master->worked_ns < NAPS_AFTER_WORK_NS;
}

static void wait_for_work(rp_master *master, uint64_t end, uint64_t until) {
    rp_worker *worker = master->config.worker;
    uint64_t now = now_of(master), due = wait_until(master, end, now, until);
    if (master->has_more || due <= now || is_behind(master, end)) {
        wait_for(master, 0, 0);
    } else if (naps(master, now)) {
        wait_for(master, NAP_NS, 0);
    } else {
        rp_worker_prepare_sleep(worker);
        rp_add(&worker->counters[RP_COUNT_SLEEPS], 1);
        wait_for(master, is_behind(master, end) ? 0 : due - now, 1);
    }
}

rp_master_event rp_master_run(rp_master *master, int64_t timeout_ns) {
    rp_worker *worker = master->config.worker;
    uint64_t until = now_of(master) + (uint64_t)timeout_ns, end;
    for (wait_for(master, 0, 0);; wait_for_work(master, end, until)) {
        uint64_t now = now_of(master);
        end = rp_load_acquire(&master->control->published_phy_offset);
        int is_stopping = rp_load_acquire32(&worker->stop) != 0;
        rp_store_release(&worker->heartbeat_ns, now);
        rp_add(&worker->counters[RP_COUNT_LOOPS], 1);
        read_all(master, end, now);
        publish_progress(master, end, now); /* before slaves that are far behind are served: sends wait for it */
        confirm(master);
        if (master->confirm.version_plus_1 && !master->confirm.orders.sends_stream) fence(master);
        write_all(master, end, now);
        publish_progress(master, end, now);
        if (is_stopping && has_finished(master, end, now)) return RP_MASTER_STOPPED;
        if (master->closed_count || master->polled[HANDSHAKES].revents) return RP_MASTER_ATTEND;
        if (now >= until) break;
    }
    rp_log_view_trim(master->view, rp_load_acquire(&master->control->min_phy_offset));
    return RP_MASTER_IDLE;
}
