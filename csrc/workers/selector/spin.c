/* The idle time comes from /proc/uptime: its second number is the seconds, to the hundredth, that all cores together
 * were idle. It is read once per window, and only by loops that would spin. */
#define _GNU_SOURCE
#include "workers/selector/spin.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint64_t WINDOW_NS = 100000000;
static const uint64_t NS_PER_HUNDREDTH = 10000000;

static uint64_t read_uptime(rp_spin *spin) {
    char text[64];
    ssize_t size = pread(spin->uptime, text, sizeof text - 1, 0);
    if (size <= 0) return UINT64_MAX;
    text[size] = 0;
    char *idle = strchr(text, ' ');
    if (!idle) return UINT64_MAX;
    char *fraction;
    uint64_t seconds = strtoull(idle, &fraction, 10);
    uint64_t hundredths = *fraction == '.' ? strtoull(fraction + 1, NULL, 10) : 0;
    return (seconds * 100 + hundredths) * NS_PER_HUNDREDTH;
}

static int has_two_cores(void) {
    cpu_set_t cores;
    return sched_getaffinity(0, sizeof cores, &cores) != 0 || CPU_COUNT(&cores) >= 2; /* fails beyond 1024 cores */
}

void rp_spin_open(rp_spin *spin, uint32_t bound_us) {
    *spin = (rp_spin){.uptime = -1, .idle_ns = read_uptime};
    for (int kind = 0; kind < RP_WAIT_KINDS; kind++) spin->waited_ns[kind] = UINT64_MAX;
    if (!bound_us || !has_two_cores()) return;
    spin->uptime = open("/proc/uptime", O_RDONLY | O_CLOEXEC);
    if (spin->uptime >= 0) spin->bound_ns = bound_us * (uint64_t)1000;
}

void rp_spin_close(rp_spin *spin) {
    if (spin->uptime >= 0) close(spin->uptime);
    spin->uptime = -1;
}

/* What we spun ourselves was free too. A window of unknown idle time frees no core. */
static void end_window(rp_spin *spin, uint64_t now_ns) {
    uint64_t idle_ns = spin->idle_ns(spin);
    int is_known = spin->window_from_ns && idle_ns != UINT64_MAX && spin->window_idle_ns <= idle_ns;
    uint64_t free_ns = is_known ? idle_ns - spin->window_idle_ns + spin->window_spun_ns : 0;
    spin->is_core_free = is_known && free_ns >= (now_ns - spin->window_from_ns) / 4 * 3;
    spin->window_from_ns = now_ns;
    spin->window_idle_ns = idle_ns;
    spin->window_spun_ns = 0;
}

uint64_t rp_spin_allowed(rp_spin *spin, rp_wait_kind kind, uint64_t now_ns) {
    if (!spin->bound_ns || spin->waited_ns[kind] > spin->bound_ns) return 0;
    if (!spin->window_from_ns || now_ns - spin->window_from_ns >= WINDOW_NS) end_window(spin, now_ns);
    return spin->is_core_free ? spin->bound_ns : 0;
}

void rp_spin_waited(rp_spin *spin, rp_wait_kind kind, uint64_t waited_ns, uint64_t spun_ns) {
    spin->waited_ns[kind] = waited_ns;
    spin->window_spun_ns += spun_ns;
}
