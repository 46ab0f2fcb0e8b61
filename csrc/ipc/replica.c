/* See replica.h. */
#define _GNU_SOURCE
#include "ipc/replica.h"
#include <string.h>
#include <sys/mman.h>
#include "base/atomic.h"

rp_replica *rp_replica_create(void) {
    rp_replica *replica = mmap(NULL, sizeof *replica, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return replica == MAP_FAILED ? NULL : replica;
}

static void copy_address(char *target, const char *source) {
    size_t size = strnlen(source, RP_ADDRESS_TEXT_MAX - 1);
    memcpy(target, source, size);
    memset(target + size, 0, RP_ADDRESS_TEXT_MAX - size);
}

/* Make a version odd: readers try again. The writer that died may have left it odd. */
static uint32_t begin_change(uint32_t *version) {
    uint32_t odd = rp_load_acquire32(version) | 1;
    rp_store_release32(version, odd);
    rp_full_fence(); /* the odd version before the bytes */
    return odd;
}

void rp_replica_set_master(rp_replica *replica, const char *master, const char *ha) {
    uint32_t version = begin_change(&replica->address_version);
    copy_address(replica->master, master);
    copy_address(replica->ha, ha);
    rp_store_release32(&replica->address_version, version + 1);
}

int rp_replica_read_master(const rp_replica *replica, char *master, char *ha) {
    uint32_t version = rp_load_acquire32(&replica->address_version);
    memcpy(master, replica->master, RP_ADDRESS_TEXT_MAX);
    memcpy(ha, replica->ha, RP_ADDRESS_TEXT_MAX);
    rp_full_fence(); /* the bytes before the second look */
    return !(version & 1) && rp_load_acquire32(&replica->address_version) == version;
}

void rp_replica_set_followed(rp_replica *replica, const char *master) {
    uint32_t version = begin_change(&replica->followed_version);
    copy_address(replica->followed, master);
    rp_store_release32(&replica->followed_version, version + 1);
}

int rp_replica_read_followed(const rp_replica *replica, char *master) {
    uint32_t version = rp_load_acquire32(&replica->followed_version);
    memcpy(master, replica->followed, RP_ADDRESS_TEXT_MAX);
    rp_full_fence(); /* the bytes before the second look */
    return !(version & 1) && rp_load_acquire32(&replica->followed_version) == version;
}
