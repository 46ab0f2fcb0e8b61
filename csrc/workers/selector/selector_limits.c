/* Closes connections that cost too much (docs/adr/0040).
 *
 *   idle        no byte in either direction for idle_s
 *   unfinished  the unfinished frames of all connections exceed unfinished_bytes_max: closes the connection whose
 *               unfinished frame began first
 *   unsent      the memory of all unread output exceeds its bound: closes the connections that have the most
 *   pinning     an answer still to be written lies in a deleted log file, whose disk space is not free until it is */
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include "workers/selector/selector_private.h"

enum { NS_PER_MS = 1000000 };

/* Return 1 if the socket has unread input. Then the connection is not idle: this process was stopped or paused, and has
 * more to read than one turn takes. */
static int is_behind_with(const rp_connection *connection) {
    int bytes = 0;
    return connection->interest & EPOLLIN && ioctl(connection->fd, FIONREAD, &bytes) == 0 && bytes > 0;
}

static void close_idle(rp_selector *selector) {
    uint32_t slot;
    while (selector->config.idle_s != 0 && (slot = selector->connections.oldest[IDLE]) != NO_SLOT &&
           selector->now_s - at_slot(selector, slot)->active_s >= selector->config.idle_s) {
        rp_connection *connection = at_slot(selector, slot);
        if (is_behind_with(connection)) {
            rp_connection_touch(&selector->connections, slot, selector->now_s);
            continue;
        }
        count(selector, RP_COUNT_IDLE_CLOSED, 1);
        rp_selector_close_connection(selector, connection);
    }
}

static void close_unfinished(rp_selector *selector) {
    while (selector->connections.rest_bytes > selector->config.unfinished_bytes_max) {
        count(selector, RP_COUNT_UNFINISHED_CLOSED, 1);
        rp_selector_close_connection(selector, at_slot(selector, selector->connections.oldest[REST]));
    }
}

/* Close the connection with the most, and those with half as much or more, until an eighth of the limit is free again.
 * So all connections are scanned only twice per eighth of the memory. */
static void close_unsent(rp_selector *selector) {
    rp_connections *all = &selector->connections;
    uint64_t enough = selector->config.unsent_bytes_max - selector->config.unsent_bytes_max / 8;
    while (all->output_memory > selector->config.unsent_bytes_max) {
        uint64_t largest = 0;
        for (uint32_t slot = 0; slot < all->slots_used; slot++)
            if (all->slots[slot].output_memory > largest) largest = all->slots[slot].output_memory;
        for (uint32_t slot = 0; slot < all->slots_used && all->output_memory > enough; slot++) {
            if (all->slots[slot].output_memory < largest - largest / 2) continue;
            count(selector, RP_COUNT_UNSENT_CLOSED, 1);
            rp_selector_close_connection(selector, &all->slots[slot]);
        }
    }
}

static int pins(rp_selector *selector, const rp_connection *connection, uint64_t deleted_before_ns) {
    for (const rp_segment *segment = connection->first; segment != NULL; segment = segment->next) {
        if (!segment->is_mapped) continue;
        uint64_t deleted_ns = rp_log_view_deleted_ns(selector->connections.log, segment->phy_offset);
        if (deleted_ns != 0 && deleted_ns <= deleted_before_ns) return 1;
    }
    return 0;
}

/* Checks all files and all connections, so it is called once per run only. */
void rp_selector_close_pinning(rp_selector *selector) {
    uint64_t first_ns = rp_log_view_trim_deleted(selector->connections.log, selector->now_ns);
    uint64_t grace_ns = (uint64_t)selector->config.deleted_grace_ms * NS_PER_MS;
    if (first_ns == 0 || selector->now_ns - first_ns < grace_ns) return;
    for (uint32_t slot = 0; slot < selector->connections.slots_used; slot++) {
        rp_connection *connection = at_slot(selector, slot);
        if (!(connection->flags & CONNECTION_OPEN) || !pins(selector, connection, selector->now_ns - grace_ns))
            continue;
        count(selector, RP_COUNT_PINNING_CLOSED, 1);
        rp_selector_close_connection(selector, connection);
    }
    (void)rp_log_view_trim_deleted(selector->connections.log, selector->now_ns);
}

void rp_selector_close_costly(rp_selector *selector) {
    close_unfinished(selector);
    close_unsent(selector);
    close_idle(selector);
}
