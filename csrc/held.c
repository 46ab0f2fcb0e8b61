/* Two intrusive chained hash tables over the same entries; the chains are short because the tables are as large as
 * half of what may be held. Slots are given out again last in, first out, so that few of them are ever touched. */
#define _GNU_SOURCE
#include "held.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "atomic.h"

int rp_held_watch(const rp_held *held, rp_worker *store) {
    __atomic_store_n(&held->queue->watched, 1, __ATOMIC_RELAXED);
    rp_full_fence();
    if (rp_load_acquire(&held->queue->max_offset) > held->scanned) return 0;
    if (store && __atomic_load_n(&held->queue->next_offset, __ATOMIC_RELAXED) > held->scanned) rp_worker_wake(store, 1);
    return 1;
}

rp_held_slots *rp_held_slots_create(uint32_t capacity) {
    size_t size = sizeof(rp_held_slots) + (size_t)capacity * sizeof(rp_held_slot);
    rp_held_slots *slots = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (slots == MAP_FAILED) return NULL;
    slots->capacity = capacity;
    return slots;
}

static uint32_t connection_chain(const rp_helds *helds, uint64_t connection) {
    return (uint32_t)((connection ^ connection >> 32) * 0x9E3779B1u) & helds->mask;
}

int rp_helds_init(rp_helds *helds, rp_held_slots *slots) {
    uint32_t chains = 64;
    while (chains < slots->capacity / 2 && chains < 65536) chains *= 2;
    *helds = (rp_helds){.mask = chains - 1, .slots = slots, .orphans_end = slots->used};
    helds->next_free = calloc((size_t)slots->capacity + 1, sizeof *helds->next_free);
    helds->by_queue = calloc(chains, sizeof *helds->by_queue);
    helds->by_connection = calloc(chains, sizeof *helds->by_connection);
    return helds->next_free && helds->by_queue && helds->by_connection ? 0 : -1;
}

static uint32_t take_slot(rp_helds *helds) {
    rp_held_slots *slots = helds->slots;
    if (helds->first_free) {
        uint32_t slot = helds->first_free - 1;
        helds->first_free = helds->next_free[slot];
        return slot;
    }
    return slots->used < slots->capacity ? slots->used++ : UINT32_MAX;
}

static void free_slot(rp_helds *helds, uint32_t slot) {
    rp_store_release32(&helds->slots->slots[slot].live, 0);
    helds->next_free[slot] = helds->first_free;
    helds->first_free = slot + 1;
}

rp_held_slot *rp_helds_orphan(rp_helds *helds) {
    for (; helds->orphan < helds->orphans_end; helds->orphan++) {
        rp_held_slot *slot = &helds->slots->slots[helds->orphan];
        if (rp_load_acquire32(&slot->live)) return slot;
        free_slot(helds, helds->orphan);
    }
    return NULL;
}

void rp_helds_drop_orphan(rp_helds *helds) { free_slot(helds, helds->orphan++); }

void rp_helds_destroy(rp_helds *helds) {
    for (uint32_t i = 0; helds->by_queue && i <= helds->mask; i++)
        while (helds->by_queue[i]) rp_helds_remove(helds, helds->by_queue[i]);
    free(helds->by_queue);
    free(helds->by_connection);
    free(helds->next_free);
    helds->by_queue = helds->by_connection = NULL;
}

rp_held *rp_helds_of_queue(rp_helds *helds, uint32_t queue_index) { return helds->by_queue[queue_index & helds->mask]; }

rp_held *rp_helds_add(rp_helds *helds, rp_control_block *block, rp_queue *queue, const uint8_t *request, uint32_t size) {
    const rp_pull_request *pull = (const rp_pull_request *)request;
    rp_held *held = malloc(sizeof *held + size);
    uint32_t slot = held ? take_slot(helds) : UINT32_MAX;
    if (slot == UINT32_MAX) {
        free(held);
        return NULL;
    }
    helds->slots->slots[slot] = (rp_held_slot){.connection = pull->origin.connection,
                                               .queue_offset = pull->queue_offset,
                                               .opaque = pull->opaque,
                                               .flags = pull->flags,
                                               .queue = rp_control_queue_index(block, queue)};
    rp_store_release32(&helds->slots->slots[slot].live, 1);
    held->slot = slot;
    memcpy(held->request, request, size);
    held->size = size;
    held->queue = queue;
    held->scanned = 0;
    rp_held **queue_head = &helds->by_queue[helds->slots->slots[slot].queue & helds->mask];
    rp_held **connection_head =
        &helds->by_connection[connection_chain(helds, pull->origin.connection)];
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
    free_slot(helds, held->slot);
    free(held);
}

void rp_helds_drop_connection(rp_helds *helds, uint64_t connection) {
    rp_held *next;
    for (rp_held *held = helds->by_connection[connection_chain(helds, connection)]; held; held = next) {
        next = held->next_of_connection;
        if (((const rp_pull_request *)held->request)->origin.connection == connection) rp_helds_remove(helds, held);
    }
}
