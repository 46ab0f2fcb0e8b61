#ifndef ROCKETPY_SPIN_H
#define ROCKETPY_SPIN_H
/* Whether a loop that found nothing to do looks again for a moment before it sleeps.
 *
 * A sleep and a wake-up cost some 10 microseconds, more where the core halts meanwhile: much of the time of a lone
 * request. Looking again instead takes a core. So a loop spins only while
 *   - short waits are usual: the last wait of this kind was shorter than the bound. An idle broker never spins.
 *   - a core is free: over the last window the cores were idle, or spun on here, for three quarters of a core at least.
 * Private to one loop; docs/adr/0075. */
#include <stdint.h>

typedef enum rp_wait_kind { RP_WAIT_FOR_REQUEST = 0, RP_WAIT_FOR_REPLY = 1, RP_WAIT_KINDS = 2 } rp_wait_kind;

typedef struct rp_spin {
    uint64_t bound_ns;       /* the longest spin; 0: never */
    uint64_t (*idle_ns)(struct rp_spin *spin); /* idle time of all cores since the start; UINT64_MAX: unknown */
    int uptime;              /* /proc/uptime, or -1 */
    int is_core_free;        /* as the last window showed */
    uint64_t window_from_ns; /* 0: none has begun */
    uint64_t window_idle_ns; /* idle_ns when it began */
    uint64_t window_spun_ns; /* spun since then */
    uint64_t waited_ns[RP_WAIT_KINDS]; /* the last wait of each kind */
} rp_spin;

/* Never spins where the process may use one core only, or where the idle time cannot be read. */
void rp_spin_open(rp_spin *spin, uint32_t bound_us);
void rp_spin_close(rp_spin *spin);
/* Nanoseconds that the wait which begins now may spin; 0: sleep. */
uint64_t rp_spin_allowed(rp_spin *spin, rp_wait_kind kind, uint64_t now_ns);
/* A wait has ended: how long it was, and how much of it was spun. */
void rp_spin_waited(rp_spin *spin, rp_wait_kind kind, uint64_t waited_ns, uint64_t spun_ns);
#endif
