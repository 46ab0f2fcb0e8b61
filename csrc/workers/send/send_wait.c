/* See send_wait.h. */
#include "workers/send/send_wait.h"

#include <stdlib.h>
#include <string.h>

int rp_waits_have_room(const rp_waits *waits, uint32_t ids_size) {
    return waits->tail - waits->head < RP_WAITING_MAX &&
           (waits->bytes + ids_size <= RP_WAITING_BYTES_MAX || waits->head == waits->tail);
}

rp_status rp_waits_push(rp_waits *waits, const rp_wait *wait) {
    if (!rp_waits_have_room(waits, wait->ids_size)) return RP_FULL;
    if (!waits->entries && !(waits->entries = calloc(RP_WAITING_MAX, sizeof *waits->entries))) return RP_NO_MEMORY;
    uint8_t *ids = malloc(wait->ids_size ? wait->ids_size : 1);
    if (!ids) return RP_NO_MEMORY;
    rp_wait *entry = &waits->entries[waits->tail % RP_WAITING_MAX];
    *entry = *wait;
    entry->ids = memcpy(ids, wait->ids, wait->ids_size);
    waits->bytes += wait->ids_size;
    waits->tail++;
    return RP_OK;
}

rp_wait *rp_waits_first(rp_waits *waits) {
    return waits->head == waits->tail ? NULL : &waits->entries[waits->head % RP_WAITING_MAX];
}

void rp_waits_pop(rp_waits *waits) {
    rp_wait *entry = &waits->entries[waits->head % RP_WAITING_MAX];
    waits->bytes -= entry->ids_size;
    free(entry->ids);
    entry->ids = NULL;
    waits->head++;
}

void rp_waits_destroy(rp_waits *waits) {
    while (rp_waits_first(waits)) rp_waits_pop(waits);
    free(waits->entries);
    waits->entries = NULL;
}
