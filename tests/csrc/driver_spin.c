/* When a loop may spin, on a clock and an idle time of the test's own: only while its last wait of that kind was short
 * and three quarters of a core were free in the last window, its own spinning not counted against it. */
#include "workers/selector/spin.h"
#include "check.h"

enum { BOUND_US = 100 };
static const uint64_t SHORT_NS = 50000, LONG_NS = 2000000, WINDOW_NS = 100000000;

static uint64_t idle_ns; /* of all cores */

static uint64_t fake_idle(rp_spin *spin) { return idle_ns; }

static void begin(rp_spin *spin, uint32_t bound_us) {
    rp_spin_open(spin, bound_us);
    spin->idle_ns = fake_idle;
    if (bound_us) spin->bound_ns = bound_us * 1000u; /* on a machine with one core too */
    idle_ns = 0;
}

/* One window in which the cores were idle, and we spun, for so long; whether the next wait may spin. */
static int is_allowed_after(rp_spin *spin, uint64_t *now_ns, uint64_t idle, uint64_t spun) {
    rp_spin_waited(spin, RP_WAIT_FOR_REPLY, SHORT_NS, spun);
    idle_ns += idle;
    *now_ns += WINDOW_NS;
    return rp_spin_allowed(spin, RP_WAIT_FOR_REPLY, *now_ns) != 0;
}

static void check_free_core(void) {
    rp_spin spin;
    uint64_t now_ns = 1;
    begin(&spin, BOUND_US);
    CHECK(!is_allowed_after(&spin, &now_ns, 0, 0)); /* nothing is known yet */
    CHECK(is_allowed_after(&spin, &now_ns, WINDOW_NS, 0));
    CHECK(!is_allowed_after(&spin, &now_ns, WINDOW_NS / 2, 0));
    CHECK(is_allowed_after(&spin, &now_ns, WINDOW_NS / 2, WINDOW_NS / 4));
    CHECK(!is_allowed_after(&spin, &now_ns, WINDOW_NS / 2, 0)); /* what was spun before has been forgotten */
    CHECK(is_allowed_after(&spin, &now_ns, WINDOW_NS, 0));
    idle_ns = UINT64_MAX; /* it cannot be read any more */
    now_ns += WINDOW_NS;
    CHECK(rp_spin_allowed(&spin, RP_WAIT_FOR_REPLY, now_ns) == 0);
    idle_ns = 0; /* nor compared with that */
    CHECK(!is_allowed_after(&spin, &now_ns, WINDOW_NS, 0));
    CHECK(is_allowed_after(&spin, &now_ns, WINDOW_NS, 0));
    rp_spin_close(&spin);
}

/* A window that has just ended is not asked about again before the next one has. */
static void check_window(void) {
    rp_spin spin;
    uint64_t now_ns = 1;
    begin(&spin, BOUND_US);
    is_allowed_after(&spin, &now_ns, 0, 0);
    CHECK(is_allowed_after(&spin, &now_ns, WINDOW_NS, 0));
    for (int i = 0; i < 9; i++) CHECK(rp_spin_allowed(&spin, RP_WAIT_FOR_REPLY, now_ns += WINDOW_NS / 10) != 0);
    CHECK(rp_spin_allowed(&spin, RP_WAIT_FOR_REPLY, now_ns + WINDOW_NS / 10) == 0);
    rp_spin_close(&spin);
}

static void check_short_waits(void) {
    rp_spin spin;
    uint64_t now_ns = 1;
    begin(&spin, BOUND_US);
    is_allowed_after(&spin, &now_ns, 0, 0);
    CHECK(is_allowed_after(&spin, &now_ns, WINDOW_NS, 0));
    CHECK(rp_spin_allowed(&spin, RP_WAIT_FOR_REPLY, now_ns) == BOUND_US * 1000u);
    CHECK(rp_spin_allowed(&spin, RP_WAIT_FOR_REQUEST, now_ns) == 0); /* none has been short yet */
    rp_spin_waited(&spin, RP_WAIT_FOR_REQUEST, SHORT_NS, 0);
    CHECK(rp_spin_allowed(&spin, RP_WAIT_FOR_REQUEST, now_ns) != 0);
    rp_spin_waited(&spin, RP_WAIT_FOR_REQUEST, LONG_NS, BOUND_US * 1000u);
    CHECK(rp_spin_allowed(&spin, RP_WAIT_FOR_REQUEST, now_ns) == 0);
    CHECK(rp_spin_allowed(&spin, RP_WAIT_FOR_REPLY, now_ns) != 0); /* another kind */
    rp_spin_close(&spin);
}

/* With the machine's own idle time: it is read, and grows. */
static void check_uptime(void) {
    rp_spin spin;
    rp_spin_open(&spin, BOUND_US);
    if (spin.uptime >= 0) {
        uint64_t before_ns = spin.idle_ns(&spin);
        CHECK(before_ns != UINT64_MAX && before_ns <= spin.idle_ns(&spin));
    }
    rp_spin_close(&spin);
    CHECK(spin.uptime == -1);
    rp_spin_open(&spin, 0);
    CHECK(spin.bound_ns == 0 && spin.uptime == -1 && rp_spin_allowed(&spin, RP_WAIT_FOR_REPLY, 1) == 0);
    rp_spin_close(&spin);
}

int main(void) {
    check_free_core();
    check_window();
    check_short_waits();
    check_uptime();
    return 0;
}
