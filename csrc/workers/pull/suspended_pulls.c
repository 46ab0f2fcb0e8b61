/* A chained hash table by queue, with half as many chains as pulls that may be suspended, and a list per connection.
 * Free slots are reused last in, first out, so that few of them are touched. */
#include "workers/pull/suspended_pulls.h"

#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"

int rp_suspension_watch(const rp_suspended_pull *suspended, rp_worker *store) {
    __atomic_store_n(&suspended->queue->watched, 1, __ATOMIC_RELAXED);
    rp_full_fence(); /* orders the store of `watched` before the load of max_offset */
    if (rp_load_acquire(&suspended->queue->max_offset) > suspended->scanned) return 0;
    if (store && __atomic_load_n(&suspended->queue->next_offset, __ATOMIC_RELAXED) > suspended->scanned)
        rp_worker_wake(store, 1);
    return 1;
}

int rp_suspended_pulls_init(rp_suspended_pulls *pulls, rp_suspension_slots *slots) {
    uint32_t chains = 64;
    while (chains < slots->capacity / 2 && chains < 65536) chains *= 2;
    *pulls = (rp_suspended_pulls){.mask = chains - 1, .slots = slots, .orphans_end = slots->used};
    pulls->next_free = calloc((size_t)slots->capacity + 1, sizeof *pulls->next_free);
    pulls->by_queue = calloc(chains, sizeof *pulls->by_queue);
    pulls->by_connection = calloc(chains, sizeof *pulls->by_connection);
    return pulls->next_free && pulls->by_queue && pulls->by_connection ? 0 : -1;
}

static uint32_t take_slot(rp_suspended_pulls *pulls) {
    rp_suspension_slots *slots = pulls->slots;
    if (pulls->first_free) {
        uint32_t slot = pulls->first_free - 1;
        pulls->first_free = pulls->next_free[slot];
        return slot;
    }
    return slots->used < slots->capacity ? slots->used++ : UINT32_MAX;
}

static void free_slot(rp_suspended_pulls *pulls, uint32_t slot) {
    rp_store_release32(&pulls->slots->slots[slot].live, 0);
    pulls->next_free[slot] = pulls->first_free;
    pulls->first_free = slot + 1;
}

rp_suspension_slot *rp_suspended_pulls_orphan(rp_suspended_pulls *pulls) {
    for (; pulls->orphan < pulls->orphans_end; pulls->orphan++) {
        rp_suspension_slot *slot = &pulls->slots->slots[pulls->orphan];
        if (rp_load_acquire32(&slot->live)) return slot;
        free_slot(pulls, pulls->orphan);
    }
    return NULL;
}

void rp_suspended_pulls_drop_orphan(rp_suspended_pulls *pulls) { free_slot(pulls, pulls->orphan++); }

void rp_suspended_pulls_destroy(rp_suspended_pulls *pulls) {
    for (uint32_t i = 0; pulls->by_queue && i <= pulls->mask; i++)
        while (pulls->by_queue[i].first) rp_suspended_pulls_remove(pulls, pulls->by_queue[i].first);
    free(pulls->by_queue);
    free(pulls->by_connection);
    free(pulls->next_free);
    pulls->by_queue = NULL;
    pulls->by_connection = NULL;
}

static void append_arrived(rp_suspended_pulls *pulls, rp_suspension_chain *chain) {
    chain->is_arrived = 1;
    chain->next_arrived = NULL;
    if (pulls->first_arrived)
        pulls->last_arrived->next_arrived = chain;
    else
        pulls->first_arrived = chain;
    pulls->last_arrived = chain;
    pulls->arrived++;
}

void rp_suspended_pulls_arrived(rp_suspended_pulls *pulls, uint32_t queue_index) {
    rp_suspension_chain *chain = &pulls->by_queue[queue_index & pulls->mask];
    if (chain->is_arrived) {
        chain->is_arrived_again = 1;
    } else if ((chain->next = chain->first)) {
        append_arrived(pulls, chain);
    }
}

rp_suspension_chain *rp_suspended_pulls_take_arrived(rp_suspended_pulls *pulls) {
    rp_suspension_chain *chain = pulls->first_arrived;
    if (!chain) return NULL;
    pulls->first_arrived = chain->next_arrived;
    pulls->arrived--;
    chain->is_arrived = 0;
    return chain;
}

void rp_suspended_pulls_return_arrived(rp_suspended_pulls *pulls, rp_suspension_chain *chain) {
    if (!chain->next && chain->is_arrived_again) {
        chain->next = chain->first;
        chain->is_arrived_again = 0;
    }
    if (chain->next) append_arrived(pulls, chain);
}

/* 1 if another pull of `size` bytes is within the bounds, of all pulls and of its connection (`holder` NULL: its
 * first). The share of a connection is one of the free part: connections that take all they can leave room for others,
 * and each that comes lowers what they may have. */
static int is_within_bounds(const rp_suspended_pulls *pulls, const rp_holder *holder, uint32_t size) {
    uint64_t bytes_max = (uint64_t)pulls->slots->capacity * RP_SUSPENDED_BYTES;
    if (bytes_max < RP_SUSPENDED_BYTES_MIN) bytes_max = RP_SUSPENDED_BYTES_MIN;
    if (pulls->count >= pulls->slots->capacity || size > bytes_max - pulls->bytes) return 0;
    uint64_t share = (bytes_max - pulls->bytes) / RP_SUSPENDED_SHARE;
    uint32_t count_max = (pulls->slots->capacity - pulls->count) / RP_SUSPENDED_SHARE;
    if (share < RP_SUSPENDED_BYTES_MIN) share = RP_SUSPENDED_BYTES_MIN;
    if (count_max < RP_SUSPENDED_SHARE_MIN) count_max = RP_SUSPENDED_SHARE_MIN;
    return holder ? holder->count < count_max && holder->bytes + size <= share : size <= share;
}

/* Where the holder of `connection` is linked, or would be. */
static rp_holder **holder_link(const rp_suspended_pulls *pulls, uint64_t connection) {
    rp_holder **link = &pulls->by_connection[(uint32_t)((connection ^ connection >> 32) * 0x9E3779B1u) & pulls->mask];
    while (*link && (*link)->connection != connection) link = &(*link)->next;
    return link;
}

static rp_holder *make_holder(uint64_t connection) {
    rp_holder *holder = malloc(sizeof *holder);
    if (holder) *holder = (rp_holder){.connection = connection};
    return holder;
}

static void drop_holder_if_empty(rp_suspended_pulls *pulls, rp_holder *holder) {
    if (holder->count) return;
    *holder_link(pulls, holder->connection) = holder->next;
    free(holder);
}

/* Allocate an entry with struct, tag set and names, in no list yet. NULL without memory. */
static rp_suspended_pull *copy_of(const rp_msg_pull *request, const uint8_t *names, const rp_tags *tags,
                                  uint32_t tags_size, uint32_t size) {
    rp_suspended_pull *suspended =
        malloc(sizeof *suspended + tags_size + request->group_size + (uint64_t)request->topic_size);
    if (!suspended) return NULL;
    uint8_t *at = (uint8_t *)(suspended + 1);
    *suspended = (rp_suspended_pull){.size = size, .request = *request};
    if (tags) {
        rp_tags *copy = (rp_tags *)at;
        *copy = *tags;
        copy->hashes = (int32_t *)(copy + 1);
        if (tags->count) memcpy(copy->hashes, tags->hashes, tags->count * sizeof tags->hashes[0]);
        suspended->tags = copy;
        rp_filter_hold(tags->filter);
    }
    memcpy(at + tags_size, names, request->group_size + request->topic_size);
    suspended->names = at + tags_size;
    suspended->request.subscription_size = suspended->request.expression_type_size = 0;
    return suspended;
}

static void free_suspended(rp_suspended_pull *suspended) {
    if (suspended && suspended->tags) rp_filter_release(suspended->tags->filter);
    free(suspended);
}

static void link_suspended(rp_suspended_pulls *pulls, rp_suspended_pull *suspended, rp_holder *holder,
                           uint32_t queue_index) {
    rp_suspension_chain *chain = &pulls->by_queue[queue_index & pulls->mask];
    suspended->chain = chain;
    suspended->next_of_queue = chain->first;
    suspended->link_of_queue = &chain->first;
    if (chain->first) chain->first->link_of_queue = &suspended->next_of_queue;
    chain->first = suspended;
    suspended->holder = holder;
    suspended->next_of_holder = holder->first;
    suspended->link_of_holder = &holder->first;
    if (holder->first) holder->first->link_of_holder = &suspended->next_of_holder;
    holder->first = suspended;
    holder->count++;
    holder->bytes += suspended->size;
    pulls->count++;
    pulls->bytes += suspended->size;
}

rp_suspended_pull *rp_suspended_pulls_add(rp_suspended_pulls *pulls, rp_control_block *block, rp_queue *queue,
                                          const rp_msg_pull *request, const uint8_t *names, const rp_tags *tags) {
    uint64_t connection = request->origin.connection;
    uint32_t tags_size = tags ? (uint32_t)(sizeof *tags + tags->count * sizeof tags->hashes[0]) : 0;
    uint64_t size = sizeof(rp_suspended_pull) + tags_size + (uint64_t)request->group_size + request->topic_size;
    if (tags && tags->filter) size += rp_filter_size(tags->filter); /* it may soon be the only one that holds it */
    rp_holder **link = holder_link(pulls, connection), *holder = *link;
    if (size > UINT32_MAX || !is_within_bounds(pulls, holder, (uint32_t)size)) return NULL;
    rp_suspended_pull *suspended = copy_of(request, names, tags, tags_size, (uint32_t)size);
    if (suspended && !holder) holder = *link = make_holder(connection);
    uint32_t slot = suspended && holder ? take_slot(pulls) : UINT32_MAX;
    if (slot == UINT32_MAX) {
        if (holder) drop_holder_if_empty(pulls, holder);
        free_suspended(suspended);
        return NULL;
    }
    uint32_t queue_index = rp_control_queue_index(block, queue);
    pulls->slots->slots[slot] = (rp_suspension_slot){.connection = connection,
                                                     .queue_offset = request->queue_offset,
                                                     .opaque = request->opaque,
                                                     .flags = request->flags,
                                                     .queue = queue_index};
    rp_store_release32(&pulls->slots->slots[slot].live, 1);
    suspended->slot = slot;
    suspended->queue = queue;
    link_suspended(pulls, suspended, holder, queue_index);
    return suspended;
}

void rp_suspended_pulls_remove(rp_suspended_pulls *pulls, rp_suspended_pull *suspended) {
    if (suspended->chain->next == suspended) suspended->chain->next = suspended->next_of_queue;
    if (pulls->sweep == suspended) pulls->sweep = suspended->next_of_queue;
    *suspended->link_of_queue = suspended->next_of_queue;
    if (suspended->next_of_queue) suspended->next_of_queue->link_of_queue = suspended->link_of_queue;
    *suspended->link_of_holder = suspended->next_of_holder;
    if (suspended->next_of_holder) suspended->next_of_holder->link_of_holder = suspended->link_of_holder;
    suspended->holder->count--;
    suspended->holder->bytes -= suspended->size;
    pulls->count--;
    pulls->bytes -= suspended->size;
    free_slot(pulls, suspended->slot);
    drop_holder_if_empty(pulls, suspended->holder);
    free_suspended(suspended);
}

void rp_suspended_pulls_drop_connection(rp_suspended_pulls *pulls, uint64_t connection) {
    rp_holder *holder = *holder_link(pulls, connection);
    /* The holder is freed with its last pull. */
    for (uint32_t count = holder ? holder->count : 0; count; count--) rp_suspended_pulls_remove(pulls, holder->first);
}
