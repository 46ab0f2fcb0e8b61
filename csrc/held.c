/* A chained hash table by queue, whose chains are short because it is as large as half of what may be held, and a list
 * per connection. Slots are given out again last in, first out, so that few of them are ever touched. */
#define _GNU_SOURCE
#include "held.h"

#include <stddef.h>
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
        while (helds->by_queue[i].first) rp_helds_remove(helds, helds->by_queue[i].first);
    free(helds->by_queue);
    free(helds->by_connection);
    free(helds->next_free);
    helds->by_queue = NULL;
    helds->by_connection = NULL;
}

static void append_arrived(rp_helds *helds, rp_held_chain *chain) {
    chain->is_arrived = 1;
    chain->next_arrived = NULL;
    if (helds->first_arrived) helds->last_arrived->next_arrived = chain;
    else helds->first_arrived = chain;
    helds->last_arrived = chain;
    helds->arrived++;
}

void rp_helds_arrived(rp_helds *helds, uint32_t queue_index) {
    rp_held_chain *chain = &helds->by_queue[queue_index & helds->mask];
    if (chain->is_arrived) {
        chain->is_arrived_again = 1;
    } else if ((chain->next = chain->first)) {
        append_arrived(helds, chain);
    }
}

rp_held_chain *rp_helds_take_arrived(rp_helds *helds) {
    rp_held_chain *chain = helds->first_arrived;
    if (!chain) return NULL;
    helds->first_arrived = chain->next_arrived;
    helds->arrived--;
    chain->is_arrived = 0;
    return chain;
}

void rp_helds_return_arrived(rp_helds *helds, rp_held_chain *chain) {
    if (!chain->next && chain->is_arrived_again) {
        chain->next = chain->first;
        chain->is_arrived_again = 0;
    }
    if (chain->next) append_arrived(helds, chain);
}

/* Whether one more of `size` bytes is within the bounds, of all and of its connection (`holder` NULL: its first). */
static int is_within_bounds(const rp_helds *helds, const rp_holder *holder, uint32_t size) {
    uint64_t bytes_max = (uint64_t)helds->slots->capacity * RP_HELD_BYTES, share = bytes_max / RP_HELD_SHARE;
    uint32_t count_max = helds->slots->capacity / RP_HELD_SHARE;
    if (share < RP_HELD_BYTES_MIN) share = RP_HELD_BYTES_MIN;
    if (count_max < RP_HELD_SHARE_MIN) count_max = RP_HELD_SHARE_MIN;
    if (bytes_max < share) bytes_max = share;
    if (helds->count >= helds->slots->capacity || size > bytes_max - helds->bytes) return 0;
    return holder ? holder->count < count_max && size <= share - holder->bytes : size <= share;
}

/* Where the holder of `connection` is linked, or would be. */
static rp_holder **holder_link(const rp_helds *helds, uint64_t connection) {
    rp_holder **link = &helds->by_connection[(uint32_t)((connection ^ connection >> 32) * 0x9E3779B1u) & helds->mask];
    while (*link && (*link)->connection != connection) link = &(*link)->next;
    return link;
}

static rp_holder *make_holder(uint64_t connection) {
    rp_holder *holder = malloc(sizeof *holder);
    if (holder) *holder = (rp_holder){.connection = connection};
    return holder;
}

static void drop_holder_if_empty(rp_helds *helds, rp_holder *holder) {
    if (holder->count) return;
    *holder_link(helds, holder->connection) = holder->next;
    free(holder);
}

/* The entry itself, in no list yet: struct, tag set, names. NULL without memory. */
static rp_held *copy_of(const rp_pull_request *request, const uint8_t *names, const rp_tags *tags, uint32_t tags_size,
                        uint32_t size) {
    rp_held *held = malloc(size);
    if (!held) return NULL;
    uint8_t *at = (uint8_t *)(held + 1);
    *held = (rp_held){.size = size, .request = *request};
    if (tags) {
        memcpy(at, tags, tags_size);
        held->tags = (const rp_tags *)at;
    }
    memcpy(at + tags_size, names, request->group_size + request->topic_size);
    held->names = at + tags_size;
    held->request.subscription_size = held->request.expression_type_size = 0;
    return held;
}

static void link_held(rp_helds *helds, rp_held *held, rp_holder *holder, uint32_t queue_index) {
    rp_held_chain *chain = &helds->by_queue[queue_index & helds->mask];
    held->chain = chain;
    held->next_of_queue = chain->first;
    held->link_of_queue = &chain->first;
    if (chain->first) chain->first->link_of_queue = &held->next_of_queue;
    chain->first = held;
    held->holder = holder;
    held->next_of_holder = holder->first;
    held->link_of_holder = &holder->first;
    if (holder->first) holder->first->link_of_holder = &held->next_of_holder;
    holder->first = held;
    holder->count++;
    holder->bytes += held->size;
    helds->count++;
    helds->bytes += held->size;
}

rp_held *rp_helds_add(rp_helds *helds, rp_control_block *block, rp_queue *queue, const rp_pull_request *request,
                      const uint8_t *names, const rp_tags *tags) {
    uint64_t connection = request->origin.connection;
    uint32_t tags_size = tags ? (uint32_t)(offsetof(rp_tags, hashes) + tags->count * sizeof tags->hashes[0]) : 0;
    uint64_t size = sizeof(rp_held) + tags_size + (uint64_t)request->group_size + request->topic_size;
    rp_holder **link = holder_link(helds, connection), *holder = *link;
    if (size > UINT32_MAX || !is_within_bounds(helds, holder, (uint32_t)size)) return NULL;
    rp_held *held = copy_of(request, names, tags, tags_size, (uint32_t)size);
    if (held && !holder) holder = *link = make_holder(connection);
    uint32_t slot = held && holder ? take_slot(helds) : UINT32_MAX;
    if (slot == UINT32_MAX) {
        if (holder) drop_holder_if_empty(helds, holder);
        free(held);
        return NULL;
    }
    uint32_t queue_index = rp_control_queue_index(block, queue);
    helds->slots->slots[slot] = (rp_held_slot){.connection = connection,
                                               .queue_offset = request->queue_offset,
                                               .opaque = request->opaque,
                                               .flags = request->flags,
                                               .queue = queue_index};
    rp_store_release32(&helds->slots->slots[slot].live, 1);
    held->slot = slot;
    held->queue = queue;
    link_held(helds, held, holder, queue_index);
    return held;
}

void rp_helds_remove(rp_helds *helds, rp_held *held) {
    if (held->chain->next == held) held->chain->next = held->next_of_queue;
    if (helds->sweep == held) helds->sweep = held->next_of_queue;
    *held->link_of_queue = held->next_of_queue;
    if (held->next_of_queue) held->next_of_queue->link_of_queue = held->link_of_queue;
    *held->link_of_holder = held->next_of_holder;
    if (held->next_of_holder) held->next_of_holder->link_of_holder = held->link_of_holder;
    held->holder->count--;
    held->holder->bytes -= held->size;
    helds->count--;
    helds->bytes -= held->size;
    free_slot(helds, held->slot);
    drop_holder_if_empty(helds, held->holder);
    free(held);
}

void rp_helds_drop_connection(rp_helds *helds, uint64_t connection) {
    rp_holder *holder = *holder_link(helds, connection);
    /* The holder goes with its last pull. */
    for (uint32_t count = holder ? holder->count : 0; count; count--) rp_helds_remove(helds, holder->first);
}
