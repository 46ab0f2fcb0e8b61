/* See connection.h. Slots are referred to by number, not by pointer: a number fits into lists and ring messages. */
#define _GNU_SOURCE
#include "workers/selector/connection.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "base/shared.h"

enum {
    BLOCK_BYTES = 2048 - (int)sizeof(rp_segment), /* holds about eight replies to sends */
    POOL_MAX = 512,                               /* 1 MiB of blocks kept for reuse */
    SLICE_MAX = 1 << 30,
    GENERATION_MASK = (1 << RP_GENERATION_BITS) - 1
};

/* ---- slots ---- */

rp_status rp_connections_open(rp_connections *all, uint32_t count_max, uint32_t epoch, rp_log_view *log) {
    memset(all, 0, sizeof *all);
    all->slots = rp_private_create(count_max * sizeof *all->slots);
    if (all->slots == NULL) return RP_NO_MEMORY;
    all->count_max = count_max;
    all->first_free = all->first_retired = all->last_retired = NO_SLOT;
    memset(all->oldest, 0xFF, sizeof all->oldest); /* NO_SLOT */
    memset(all->newest, 0xFF, sizeof all->newest);
    all->generation_base = epoch << RP_GENERATION_BITS;
    all->log = log;
    return RP_OK;
}

void rp_connections_close(rp_connections *all) {
    for (rp_segment *block = all->pool; block != NULL;) {
        rp_segment *next = block->next;
        free(block);
        block = next;
    }
    if (all->slots != NULL) munmap(all->slots, all->count_max * sizeof *all->slots);
    memset(all, 0, sizeof *all);
}

/* The slot that was freed last is used first, which keeps few slots in the cache. A slot that has used all its
 * generations waits until every other slot has: after a million connections per slot, no process still has its old
 * numbers. */
uint32_t rp_connections_take(rp_connections *all) {
    uint32_t slot = all->first_free;
    uint32_t generation = all->generation_base;
    if (slot != NO_SLOT) {
        all->first_free = all->slots[slot].next_free;
        generation =
            all->slots[slot].generation + 1; /* not into the epoch's bits, which others read: it retires before */
    } else if (all->slots_used < all->count_max) {
        slot = all->slots_used++;
    } else if ((slot = all->first_retired) != NO_SLOT) {
        all->first_retired = all->slots[slot].next_free;
    } else {
        return NO_SLOT;
    }
    rp_connection *connection = &all->slots[slot];
    memset(connection, 0, sizeof *connection);
    connection->generation = generation;
    connection->fd = -1;
    memset(connection->older, 0xFF, sizeof connection->older);
    memset(connection->newer, 0xFF, sizeof connection->newer);
    return slot;
}

void rp_connections_give_back(rp_connections *all, uint32_t slot) {
    rp_connection *connection = &all->slots[slot];
    connection->flags = 0;
    if ((connection->generation & GENERATION_MASK) != GENERATION_MASK) {
        connection->next_free = all->first_free;
        all->first_free = slot;
        return;
    }
    connection->next_free = NO_SLOT;
    if (all->first_retired == NO_SLOT)
        all->first_retired = slot;
    else
        all->slots[all->last_retired].next_free = slot;
    all->last_retired = slot;
}

/* ---- lists, oldest first ---- */

/* Take a slot out of a list; nothing happens if it is not in it. */
static void unlist(rp_connections *all, uint32_t list, uint32_t slot) {
    uint32_t *older = &all->slots[slot].older[list], *newer = &all->slots[slot].newer[list];
    if (*older != NO_SLOT)
        all->slots[*older].newer[list] = *newer;
    else if (all->oldest[list] == slot)
        all->oldest[list] = *newer;
    if (*newer != NO_SLOT)
        all->slots[*newer].older[list] = *older;
    else if (all->newest[list] == slot)
        all->newest[list] = *older;
    *older = *newer = NO_SLOT;
}

static void become_newest(rp_connections *all, uint32_t list, uint32_t slot) {
    unlist(all, list, slot);
    all->slots[slot].older[list] = all->newest[list];
    if (all->newest[list] != NO_SLOT)
        all->slots[all->newest[list]].newer[list] = slot;
    else
        all->oldest[list] = slot;
    all->newest[list] = slot;
}

void rp_connection_untrack(rp_connections *all, uint32_t slot) { unlist(all, IDLE, slot); }

void rp_connection_touch(rp_connections *all, uint32_t slot, uint32_t now_s) {
    if (all->slots[slot].active_s == now_s && now_s != 0) return; /* exact to the second */
    all->slots[slot].active_s = now_s;
    become_newest(all, IDLE, slot);
}

/* ---- input that waits ---- */

/* Every change of the buffer goes through here, so that the sum is right. */
static void set_rest(rp_connections *all, rp_connection *connection, uint8_t *rest, uint32_t capacity) {
    uint32_t slot = (uint32_t)(connection - all->slots);
    if (connection->rest == NULL && rest != NULL) become_newest(all, REST, slot);
    if (rest == NULL) unlist(all, REST, slot);
    all->rest_bytes += (uint64_t)capacity - connection->rest_capacity;
    connection->rest = rest;
    connection->rest_capacity = capacity;
}

void rp_connection_renew_rest(rp_connections *all, rp_connection *connection) {
    if (connection->rest != NULL) become_newest(all, REST, (uint32_t)(connection - all->slots));
}

void rp_connection_drop_rest(rp_connections *all, rp_connection *connection) {
    free(connection->rest);
    set_rest(all, connection, NULL, 0);
    connection->rest_size = 0;
}

rp_status rp_connection_grow_rest(rp_connections *all, rp_connection *connection, uint32_t capacity) {
    uint8_t *larger = realloc(connection->rest, capacity);
    if (larger == NULL) return RP_NO_MEMORY;
    set_rest(all, connection, larger, capacity);
    return RP_OK;
}

rp_status rp_connection_keep(rp_connections *all, rp_connection *connection, const uint8_t *data, uint32_t size,
                             uint32_t capacity) {
    if (capacity < size) capacity = size;
    if (capacity == 0) {
        rp_connection_drop_rest(all, connection);
        return RP_OK;
    }
    uint8_t *rest = connection->rest;
    if (connection->rest_capacity < capacity || connection->rest_capacity / 4 > capacity) {
        rest = malloc(capacity);
        if (rest == NULL) return RP_NO_MEMORY;
    }
    memmove(rest, data, size);
    if (rest != connection->rest) {
        free(connection->rest);
        set_rest(all, connection, rest, capacity);
    }
    connection->rest_size = size;
    return RP_OK;
}

/* ---- output that waits ---- */

static uint64_t memory_of(const rp_segment *segment) { return sizeof *segment + segment->capacity; }

static void append(rp_connections *all, rp_connection *connection, rp_segment *segment) {
    segment->next = NULL;
    connection->output_memory += memory_of(segment);
    all->output_memory += memory_of(segment);
    if (connection->last != NULL)
        connection->last->next = segment;
    else
        connection->first = segment;
    connection->last = segment;
}

static rp_segment *new_block(rp_connections *all, uint32_t size) {
    int usual = size <= BLOCK_BYTES;
    rp_segment *block = usual ? all->pool : NULL;
    if (block != NULL) {
        all->pool = block->next;
        all->pool_count--;
    } else {
        block = malloc(sizeof *block + (usual ? (uint32_t)BLOCK_BYTES : size));
        if (block == NULL) return NULL;
    }
    block->data = block->bytes;
    block->size = 0;
    block->room = block->capacity = usual ? (uint32_t)BLOCK_BYTES : size;
    block->is_mapped = 0;
    block->is_block = (uint8_t)usual;
    return block;
}

static void free_segment(rp_connections *all, rp_segment *segment) {
    if (segment->is_mapped) rp_log_view_release(all->log, segment->phy_offset);
    if (segment->is_block && all->pool_count < POOL_MAX) {
        segment->next = all->pool;
        all->pool = segment;
        all->pool_count++;
        return;
    }
    free(segment);
}

rp_status rp_connection_queue(rp_connections *all, rp_connection *connection, const uint8_t *data, uint32_t size) {
    rp_segment *block = connection->last;
    if (size == 0) return RP_OK;
    if (block == NULL || block->room < size) {
        block = new_block(all, size);
        if (block == NULL) return RP_NO_MEMORY;
        append(all, connection, block);
    }
    memcpy((uint8_t *)(uintptr_t)block->data + block->size, data, size);
    block->size += size;
    block->room -= size;
    connection->queued_bytes += size;
    return RP_OK;
}

rp_status rp_connection_queue_slice(rp_connections *all, rp_connection *connection, const rp_slice *slice) {
    if (slice->size == 0) return RP_OK;
    if (all->log == NULL || slice->size > SLICE_MAX) return RP_NOT_FOUND;
    rp_segment *segment = calloc(1, sizeof *segment);
    if (segment == NULL) return RP_NO_MEMORY;
    segment->data = rp_log_view_acquire(all->log, slice->phy_offset, slice->size);
    if (segment->data == NULL) {
        free(segment);
        return RP_NOT_FOUND;
    }
    segment->size = (uint32_t)slice->size;
    segment->phy_offset = slice->phy_offset;
    segment->is_mapped = 1;
    append(all, connection, segment);
    connection->queued_bytes += slice->size;
    return RP_OK;
}

uint32_t rp_connection_gather(const rp_connection *connection, struct iovec *vectors, uint32_t vectors_max) {
    uint32_t count = 0;
    for (const rp_segment *segment = connection->first; segment != NULL && count < vectors_max; segment = segment->next)
        vectors[count++] = (struct iovec){.iov_base = (void *)(uintptr_t)segment->data, .iov_len = segment->size};
    return count;
}

void rp_connection_written(rp_connections *all, rp_connection *connection, uint64_t size) {
    connection->queued_bytes -= size;
    while (size > 0) {
        rp_segment *segment = connection->first;
        uint32_t part = size < segment->size ? (uint32_t)size : segment->size;
        segment->data += part;
        segment->size -= part;
        size -= part;
        if (segment->size == 0) {
            connection->first = segment->next;
            if (connection->first == NULL) connection->last = NULL;
            connection->output_memory -= memory_of(segment);
            all->output_memory -= memory_of(segment);
            free_segment(all, segment);
        }
    }
}

void rp_connection_drop_output(rp_connections *all, rp_connection *connection) {
    rp_connection_written(all, connection, connection->queued_bytes);
}
