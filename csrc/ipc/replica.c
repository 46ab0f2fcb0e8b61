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

void rp_replica_set_master(rp_replica *replica, const char *master, const char *ha) {
    uint32_t version = rp_load_acquire32(&replica->address_version) | 1; /* a killed manager may have left it odd */
    rp_store_release32(&replica->address_version, version);
    rp_full_fence(); /* the odd version before the bytes */
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
