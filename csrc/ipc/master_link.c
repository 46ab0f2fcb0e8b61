/* See master_link.h.
 * Short: copies of addresses between processes; the loops that use them are in replication and workers. */
#include "ipc/master_link.h"
#include <string.h>
#include "base/atomic.h"

rp_master_link *rp_master_link_create(void) { return rp_shared_memory(sizeof(rp_master_link)); }

static void copy_address(char *target, const char *source) {
    size_t size = strnlen(source, RP_ADDRESS_TEXT_MAX - 1);
    memcpy(target, source, size);
    memset(target + size, 0, RP_ADDRESS_TEXT_MAX - size);
}

void rp_master_link_set_master(rp_master_link *link, const char *master, const char *ha) {
    uint64_t odd = rp_sequence_begin(&link->address_version);
    copy_address(link->master, master);
    copy_address(link->ha, ha);
    rp_sequence_end(&link->address_version, odd);
}

int rp_master_link_read_master(const rp_master_link *link, char *master, char *ha) {
    uint64_t version = rp_sequence_read(&link->address_version);
    memcpy(master, link->master, RP_ADDRESS_TEXT_MAX);
    memcpy(ha, link->ha, RP_ADDRESS_TEXT_MAX);
    return rp_sequence_is_valid(&link->address_version, version);
}

void rp_master_link_set_followed(rp_master_link *link, const char *master) {
    uint64_t odd = rp_sequence_begin(&link->followed_version);
    copy_address(link->followed, master);
    rp_sequence_end(&link->followed_version, odd);
}

int rp_master_link_read_followed(const rp_master_link *link, char *master) {
    uint64_t version = rp_sequence_read(&link->followed_version);
    memcpy(master, link->followed, RP_ADDRESS_TEXT_MAX);
    return rp_sequence_is_valid(&link->followed_version, version);
}
