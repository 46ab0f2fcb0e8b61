/* Two intrusive chained hash tables over the same entries; the chains are short because the tables are as large as
 * half of what may be held. */
#include "held.h"

#include <stdlib.h>
#include <string.h>

static uint32_t connection_chain(const rp_helds *helds, uint64_t connection) {
    return (uint32_t)((connection ^ connection >> 32) * 0x9E3779B1u) & helds->mask;
}

int rp_helds_init(rp_helds *helds, uint32_t held_max) {
    uint32_t chains = 64;
    while (chains < held_max / 2 && chains < 65536) chains *= 2;
    *helds = (rp_helds){.mask = chains - 1, .max = held_max};
    helds->by_queue = calloc(chains, sizeof *helds->by_queue);
    helds->by_connection = calloc(chains, sizeof *helds->by_connection);
    return helds->by_queue && helds->by_connection ? 0 : -1;
}

void rp_helds_destroy(rp_helds *helds) {
    for (uint32_t i = 0; helds->by_queue && i <= helds->mask; i++)
        while (helds->by_queue[i]) rp_helds_remove(helds, helds->by_queue[i]);
    free(helds->by_queue);
    free(helds->by_connection);
    helds->by_queue = helds->by_connection = NULL;
}

rp_held *rp_helds_of_queue(rp_helds *helds, uint32_t queue_index) { return helds->by_queue[queue_index & helds->mask]; }

rp_held *rp_helds_add(rp_helds *helds, rp_control_block *block, rp_queue *queue, const uint8_t *request, uint32_t size) {
    rp_held *held = helds->count < helds->max ? malloc(sizeof *held + size) : NULL;
    if (!held) return NULL;
    memcpy(held->request, request, size);
    held->size = size;
    held->queue = queue;
    held->scanned = 0;
    rp_held **queue_head = &helds->by_queue[rp_control_queue_index(block, queue) & helds->mask];
    rp_held **connection_head =
        &helds->by_connection[connection_chain(helds, ((const rp_pull_request *)request)->origin.connection)];
    held->next_of_queue = *queue_head;
    held->link_of_queue = queue_head;
    if (*queue_head) (*queue_head)->link_of_queue = &held->next_of_queue;
    *queue_head = held;
    held->next_of_connection = *connection_head;
    held->link_of_connection = connection_head;
    if (*connection_head) (*connection_head)->link_of_connection = &held->next_of_connection;
    *connection_head = held;
    helds->count++;
    return held;
}

void rp_helds_remove(rp_helds *helds, rp_held *held) {
    *held->link_of_queue = held->next_of_queue;
    if (held->next_of_queue) held->next_of_queue->link_of_queue = held->link_of_queue;
    *held->link_of_connection = held->next_of_connection;
    if (held->next_of_connection) held->next_of_connection->link_of_connection = held->link_of_connection;
    helds->count--;
    free(held);
}

void rp_helds_drop_connection(rp_helds *helds, uint64_t connection) {
    rp_held *next;
    for (rp_held *held = helds->by_connection[connection_chain(helds, connection)]; held; held = next) {
        next = held->next_of_connection;
        if (((const rp_pull_request *)held->request)->origin.connection == connection) rp_helds_remove(helds, held);
    }
}
