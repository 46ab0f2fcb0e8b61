/* See master_link.h. */
#define _GNU_SOURCE
#include "ipc/master_link.h"
#include <string.h>
#include <sys/mman.h>
#include "base/atomic.h"

rp_master_link *rp_master_link_create(void) {
    rp_master_link *link = mmap(NULL, sizeof *link, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return link == MAP_FAILED ? NULL : link;
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

void rp_master_link_set_master(rp_master_link *link, const char *master, const char *ha) {
    uint32_t version = begin_change(&link->address_version);
    copy_address(link->master, master);
    copy_address(link->ha, ha);
    rp_store_release32(&link->address_version, version + 1);
}

int rp_master_link_read_master(const rp_master_link *link, char *master, char *ha) {
    uint32_t version = rp_load_acquire32(&link->address_version);
    memcpy(master, link->master, RP_ADDRESS_TEXT_MAX);
    memcpy(ha, link->ha, RP_ADDRESS_TEXT_MAX);
    rp_full_fence(); /* the bytes before the second look */
    return !(version & 1) && rp_load_acquire32(&link->address_version) == version;
}

void rp_master_link_set_followed(rp_master_link *link, const char *master) {
    uint32_t version = begin_change(&link->followed_version);
    copy_address(link->followed, master);
    rp_store_release32(&link->followed_version, version + 1);
}

int rp_master_link_read_followed(const rp_master_link *link, char *master) {
    uint32_t version = rp_load_acquire32(&link->followed_version);
    memcpy(master, link->followed, RP_ADDRESS_TEXT_MAX);
    rp_full_fence(); /* the bytes before the second look */
    return !(version & 1) && rp_load_acquire32(&link->followed_version) == version;
}
