#ifndef ROCKETPY_PRIORITY_H
#define ROCKETPY_PRIORITY_H
/* When the kernel runs the calling thread. */

/* Ask the kernel to run this thread soon after each wake-up, in short slices (EEVDF; kernels before 6.12 ignore it).
 * For loops that do little per message and pass it on: with the default slice of about 3 ms, a loop in the middle of a
 * batch would keep the others waiting. */
void rp_priority_prefer_latency(void);
/* Give this thread the lowest priority, because nobody waits for its work. */
void rp_priority_lower(void);
#endif
