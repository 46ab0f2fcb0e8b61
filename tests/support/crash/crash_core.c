/* What the core calls in the build with crash points: the points themselves and, by the linker's --wrap, everything
 * that makes data durable. Also a send as the send worker stores it (csrc/workers/send/send_store.c), without its rings. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stddef.h>
#include "store/log/commitlog.h"
#include "base/crash_point.h"
#include "workers/send/send_store.h"

enum { POINT = 0, SYNC_FILE = 1, SYNC_FILE_SYSTEM = 2 };
enum { RESERVE_MAX = 256 << 10 }; /* blocks of the control block; a store of this size never needs them */

void crash_event(int event, const char *name, int descriptor);
int crash_events_on = 0;

static void tell(int event, const char *name, int descriptor) {
    if (crash_events_on) crash_event(event, name, descriptor);
}

void rp_crash_point(const char *name) { tell(POINT, name, -1); }

int __wrap_fdatasync(int fd) {
    tell(SYNC_FILE, "", fd);
    return 0;
}

int __wrap_fsync(int fd) {
    tell(SYNC_FILE, "", fd);
    return 0;
}

int __wrap_syncfs(int fd) {
    tell(SYNC_FILE_SYSTEM, "", fd);
    return 0;
}

int __real_fallocate(int fd, int mode, off_t offset, off_t size);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t size) {
    return size >= RESERVE_MAX ? 0 : __real_fallocate(fd, mode, offset, size);
}

static void publish(void *context, const rp_put *put, const rp_stored *stored) {
    (void)context;
    (void)put;
    (void)stored;
}

rp_status crash_put(rp_commitlog *log, const rp_put *put) {
    rp_stored stored;
    uint64_t total;
    uint32_t count = rp_put_measure(put, &total);
    return count ? rp_put_append(log, put, total, count, publish, NULL, &stored) : RP_INVALID;
}
