/* Which connections a selector does not read, and for how long: because a bucket of their address is empty
 * (ipc/limits.h), or because their sends are on the slow path (workers/send/diverted.h).
 *
 * A throttled connection is in the slot of the tick (67 ms) at which it may be read again, or in the last of 64: a
 * list by `next_free` and, backwards, `next_stalled`. A turn looks at slots that are due; at nothing if none waits. */
#include <stddef.h>
#include "workers/selector/selector_private.h"

enum { TICK_BITS = 26 /* 67 ms */ };

/* A pause lasts a second. The send worker ends it earlier, unless it has died, or the manager is slow; after short
 * pauses more would arrive than a slow manager serves. */
#define PAUSE_NS (15ull << TICK_BITS)

static void unlink_throttled(rp_selector *selector, rp_connection *connection) {
    rp_wheel *wheel = &selector->wheel;
    uint32_t next = connection->next_free, before = connection->next_stalled;
    *(before == NO_SLOT ? &wheel->first[connection->due] : &at_slot(selector, before)->next_free) = next;
    *(next == NO_SLOT ? &wheel->last[connection->due] : &at_slot(selector, next)->next_stalled) = before;
    connection->flags &= (uint16_t)~CONNECTION_THROTTLED;
    wheel->count--;
}

void rp_selector_throttle(rp_selector *selector, rp_connection *connection, uint64_t until_ns) {
    rp_wheel *wheel = &selector->wheel;
    uint64_t now = selector->now_ns >> TICK_BITS, tick = (until_ns >> TICK_BITS) + 1;
    uint32_t slot = slot_of(selector, connection);
    if (wheel->count++ == 0) wheel->tick = now;
    if (tick >= wheel->tick + RP_WHEEL_SLOTS) tick = wheel->tick + RP_WHEEL_SLOTS - 1;
    connection->due = (uint8_t)(tick % RP_WHEEL_SLOTS);
    connection->next_free = NO_SLOT;
    connection->next_stalled = wheel->last[connection->due];
    if (connection->next_stalled == NO_SLOT)
        wheel->first[connection->due] = slot;
    else
        at_slot(selector, connection->next_stalled)->next_free = slot;
    wheel->last[connection->due] = slot;
    connection->flags |= CONNECTION_THROTTLED;
    rp_connection_touch(&selector->connections, slot, selector->now_s); /* to wait is not to be idle */
}

/* A stalled connection is not read anyhow. One that an empty bucket holds back is held back again when it is read. */
void rp_selector_pause(rp_selector *selector, rp_connection *connection, int is_paused) {
    int is_throttled = connection->flags & CONNECTION_THROTTLED;
    if (is_paused && !is_throttled && !(connection->flags & CONNECTION_STALLED))
        rp_selector_throttle(selector, connection, selector->now_ns + PAUSE_NS);
    if (!is_paused && is_throttled) unlink_throttled(selector, connection);
}

void rp_wheel_open(rp_wheel *wheel) {
    for (uint32_t i = 0; i < RP_WHEEL_SLOTS; i++) wheel->first[i] = wheel->last[i] = NO_SLOT;
}

uint64_t rp_wheel_due_ns(const rp_wheel *wheel) {
    return wheel->count == 0 ? UINT64_MAX : (wheel->tick + 1) << TICK_BITS;
}

rp_connection *rp_selector_next_due(rp_selector *selector) {
    rp_wheel *wheel = &selector->wheel;
    uint64_t now = selector->now_ns >> TICK_BITS;
    if (now > wheel->tick + RP_WHEEL_SLOTS) wheel->tick = now - RP_WHEEL_SLOTS; /* each slot once */
    for (; wheel->count > 0 && wheel->tick < now; wheel->tick++) {
        uint32_t first = wheel->first[(wheel->tick + 1) % RP_WHEEL_SLOTS];
        if (first == NO_SLOT) continue;
        unlink_throttled(selector, at_slot(selector, first));
        return at_slot(selector, first);
    }
    return NULL;
}

int rp_selector_join_limits(rp_selector *selector, rp_connection *connection) {
    return rp_limits_join(selector->config.limits, selector->config.index, &connection->peer, selector->now_ns,
                          &connection->limits_row) == RP_OK;
}

void rp_selector_leave_limits(rp_selector *selector, rp_connection *connection) {
    if (connection->limits_row == 0) return;
    rp_limits_leave(selector->config.limits, selector->config.index, connection->limits_row);
    connection->limits_row = 0;
}

void rp_selector_spend(rp_selector *selector, uint32_t row, uint64_t frames_before, uint64_t bytes_before) {
    const uint64_t *counters = selector->config.worker->counters;
    rp_limits_spend(selector->config.limits, row, counters[RP_COUNT_FRAMES_IN] - frames_before,
                    counters[RP_COUNT_BYTES_IN] - bytes_before, selector->now_ns);
}
