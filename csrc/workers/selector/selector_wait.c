/* Waiting for sockets, replies and the doorbell: looking again for a moment where that pays (spin.h), then asleep.
 *
 * While it looks, the selector is not asleep: who writes a reply need not ring. */
#define _GNU_SOURCE
#include "workers/selector/selector_private.h"

#include <sys/epoll.h>

#include "base/clock.h"

#define LOOK_AGAIN_NS 5000000ull /* acknowledgements wake nobody */

int rp_selector_has_replies(const rp_selector *selector) {
    for (uint32_t i = 0; i < selector->reply_count; i++)
        if (!rp_ring_is_empty(selector->replies[i])) return 1;
    return 0;
}

/* Time until the next deadline in milliseconds, rounded up; -1: none. */
static int timeout_ms(const rp_selector *selector, uint64_t deadline_ns) {
    uint64_t due_ns = deadline_ns;

    if (selector->idle_s != 0 && selector->connections.oldest != NO_SLOT) {
        uint64_t idle_ns =
            (selector->connections.slots[selector->connections.oldest].active_s + (uint64_t)selector->idle_s) *
            NS_PER_S;
        if (idle_ns < due_ns) due_ns = idle_ns;
    }
    if (selector->leave_ns != 0 && selector->leave_ns + STOP_S * NS_PER_S < due_ns)
        due_ns = selector->leave_ns + STOP_S * NS_PER_S;
    if (selector->leave_ns != 0 && selector->now_ns + LOOK_AGAIN_NS < due_ns) due_ns = selector->now_ns + LOOK_AGAIN_NS;
    if (due_ns == UINT64_MAX) return -1;
    if (due_ns <= selector->now_ns) return 0;
    uint64_t ms = (due_ns - selector->now_ns + 999999) / 1000000;
    return ms > 60000 ? 60000 : (int)ms;
}

/* Look for events and replies until `until_ns` without sleeping. Returns the number of events, or -1. */
static int spin(rp_selector *selector, struct epoll_event *events, int events_max, uint64_t until_ns) {
    int ready;

    do {
        ready = epoll_wait(selector->epoll, events, events_max, 0);
    } while (ready == 0 && !rp_selector_has_replies(selector) && rp_now_ns() < until_ns);
    return ready;
}

static int sleep_for_events(rp_selector *selector, struct epoll_event *events, int events_max, uint64_t deadline_ns) {
    int timeout = timeout_ms(selector, deadline_ns);

    rp_worker_prepare_sleep(selector->worker);
    if (rp_selector_has_replies(selector))
        timeout = 0;
    else if (timeout != 0)
        count(selector, RP_COUNT_SLEEPS, 1);
    int ready = epoll_wait(selector->epoll, events, events_max, timeout);
    rp_store_release32(&selector->worker->asleep, 0); /* the doorbell is drained when epoll says that it was rung */
    return ready;
}

int rp_selector_wait(rp_selector *selector, struct epoll_event *events, int events_max, uint64_t deadline_ns) {
    rp_wait_kind kind = selector->wait_kind;
    uint64_t began_ns = rp_now_ns(), spun_ns = 0;
    uint64_t spin_ns = selector->is_lone ? rp_spin_allowed(&selector->spin, kind, began_ns) : 0;
    int ready = 0, is_over = 0;

    if (spin_ns != 0) {
        ready = spin(selector, events, events_max, began_ns + spin_ns);
        spun_ns = rp_now_ns() - began_ns;
        is_over = ready != 0 || rp_selector_has_replies(selector);
    }
    if (!is_over) ready = sleep_for_events(selector, events, events_max, deadline_ns);
    rp_spin_waited(&selector->spin, kind, rp_now_ns() - began_ns, spun_ns);
    return ready;
}
