/* A clock that a test turns: preloaded into the processes of one member (tests/support/ha/clocks.py).
 *
 * It stands between a program and clock_gettime(). The file that ROCKETPY_CLOCK_FILE names, mapped by all processes of
 * the member, says how far each clock is off:
 *
 *     all clocks      skew_ns + (time since since_ns) * rate_ppm / 1e6
 *     CLOCK_BOOTTIME  boot_ns in addition: a machine that slept, or a virtual one that was put back
 *     CLOCK_REALTIME  wall_ns in addition: somebody has set the time
 *
 * A setting is never changed: the test writes the next one, and then its number. Waits until a time are moved to the
 * kernel's clock. Waits for a duration are left as they are: every loop looks at its clock after a wait.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { SETTINGS = 1000 };

typedef struct {
    int64_t since_ns; /* CLOCK_MONOTONIC of the kernel */
    int64_t rate_ppm; /* gained per second since then, us; negative: lost */
    int64_t skew_ns;
    int64_t boot_ns;
    int64_t wall_ns;
} setting;

typedef struct {
    _Atomic int64_t current;
    setting settings[SETTINGS];
} clock_file;

_Static_assert(sizeof(setting) == 40, "clocks.py writes the same");

static const clock_file *file;
static int (*real_gettime)(clockid_t, struct timespec *);
static int (*real_nanosleep)(clockid_t, int, const struct timespec *, struct timespec *);
static int (*real_sem_clockwait)(sem_t *, clockid_t, const struct timespec *);
static int (*real_cond_timedwait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
static int (*real_cond_clockwait)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);

__attribute__((constructor)) static void begin(void) {
    *(void **)&real_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    *(void **)&real_nanosleep = dlsym(RTLD_NEXT, "clock_nanosleep");
    *(void **)&real_sem_clockwait = dlsym(RTLD_NEXT, "sem_clockwait");
    /* dlsym() alone finds an older one, for other condition variables. */
    *(void **)&real_cond_timedwait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!real_cond_timedwait) *(void **)&real_cond_timedwait = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    *(void **)&real_cond_clockwait = dlsym(RTLD_NEXT, "pthread_cond_clockwait");
    const char *path = getenv("ROCKETPY_CLOCK_FILE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *mapped = mmap(NULL, sizeof(clock_file), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped != MAP_FAILED) file = mapped;
}

static int64_t ns_of(const struct timespec *t) { return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec; }

static struct timespec from_ns(int64_t ns) {
    if (ns < 0) ns = 0;
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

static int64_t real_ns(clockid_t clock) {
    struct timespec t = {0};
    real_gettime(clock, &t);
    return ns_of(&t);
}

static const setting *now_set(void) {
    return &file->settings[atomic_load_explicit(&file->current, memory_order_acquire)];
}

static int is_turned(clockid_t clock) {
    return file && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_BOOTTIME ||
                    clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE || clock == CLOCK_MONOTONIC_RAW);
}

static int64_t off_ns(clockid_t clock) {
    const setting *s = now_set();
    int64_t off = s->skew_ns + (real_ns(CLOCK_MONOTONIC) - s->since_ns) * s->rate_ppm / 1000000;
    if (clock == CLOCK_BOOTTIME) off += s->boot_ns;
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) off += s->wall_ns;
    return off;
}

/* The kernel's time at which the turned clock shows `until`, if nobody turns it again. */
static struct timespec moved(clockid_t clock, const struct timespec *until) {
    int64_t now = real_ns(clock), left = ns_of(until) - (now + off_ns(clock));
    return from_ns(now + (int64_t)((double)left / (1 + (double)now_set()->rate_ppm / 1e6)));
}

int clock_gettime(clockid_t clock, struct timespec *t) {
    if (!real_gettime) begin();
    int result = real_gettime(clock, t);
    if (result == 0 && is_turned(clock)) *t = from_ns(ns_of(t) + off_ns(clock));
    return result;
}

int gettimeofday(struct timeval *t, void *zone) {
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *t = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *t) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (t) *t = now.tv_sec;
    return now.tv_sec;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left) {
    if (!(flags & TIMER_ABSTIME) || !is_turned(clock)) return real_nanosleep(clock, flags, until, left);
    struct timespec real = moved(clock, until);
    return real_nanosleep(clock, flags, &real, left);
}

int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *until) {
    if (!is_turned(clock)) return real_sem_clockwait(semaphore, clock, until);
    struct timespec real = moved(clock, until);
    return real_sem_clockwait(semaphore, clock, &real);
}

int sem_timedwait(sem_t *semaphore, const struct timespec *until) {
    return sem_clockwait(semaphore, CLOCK_REALTIME, until);
}

int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock,
                           const struct timespec *until) {
    if (!is_turned(clock)) return real_cond_clockwait(cond, mutex, clock, until);
    struct timespec real = moved(clock, until);
    return real_cond_clockwait(cond, mutex, clock, &real);
}

/* Which clock a condition goes by is its own secret. Times of CLOCK_MONOTONIC are years away from those of the wall. */
int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until) {
    if (!file) return real_cond_timedwait(cond, mutex, until);
    clockid_t clock = ns_of(until) > real_ns(CLOCK_REALTIME) / 2 ? CLOCK_REALTIME : CLOCK_MONOTONIC;
    struct timespec real = moved(clock, until);
    return real_cond_timedwait(cond, mutex, &real);
}
