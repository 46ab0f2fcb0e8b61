/* The states are a circle of RP_HALF_WINDOW pairs of bits in words of 64: the pair of an offset is used again for the
 * offset one window later, and rp_half_states_add clears it then. */
#include "store/transactions/half_states.h"
#include <stdlib.h>
#include "base/atomic.h"
#include "base/crash_point.h"
#include "store/queues/unit.h"

#define LOW_BITS 0x5555555555555555ull
enum { PER_WORD = 32 };

static const uint64_t *word_of(const rp_half_states *states, uint64_t offset) {
    return &states->words[offset % RP_HALF_WINDOW / PER_WORD];
}

static uint32_t shift_of(uint64_t offset) { return (uint32_t)(offset % PER_WORD) * 2; }

static int is_in_window(const rp_half_states *states, uint64_t offset) {
    return offset - rp_load_acquire(&states->base) < RP_HALF_WINDOW;
}

static void put(rp_half_states *states, uint64_t offset, int32_t state) {
    uint64_t *word = (uint64_t *)word_of(states, offset);
    uint32_t shift = shift_of(offset);
    uint64_t others = __atomic_load_n(word, __ATOMIC_RELAXED) & ~(3ull << shift);
    __atomic_store_n(word, others | (uint64_t)(state & 3) << shift, __ATOMIC_RELAXED);
}

void rp_half_states_open(rp_half_states *states, uint64_t published_phy_offset) {
    if (states->end && states->end <= published_phy_offset) rp_half_states_complete(states);
    for (uint32_t i = 0; i < RP_HALF_RENEWED_MAX; i++)
        if (states->renewed[i].end_phy_offset > published_phy_offset) states->renewed[i].end_phy_offset = 0;
    rp_store_release(&states->end, 0);
}

int32_t rp_half_states_of(const rp_half_states *states, uint64_t offset) {
    uint64_t base = rp_load_acquire(&states->base);
    if (offset < base) return RP_HALF_ENDED;
    if (offset - base >= RP_HALF_WINDOW) return RP_HALF_OPEN;
    return (int32_t)(__atomic_load_n(word_of(states, offset), __ATOMIC_RELAXED) >> shift_of(offset) & 3);
}

int rp_half_states_has_room(const rp_half_states *states, uint64_t offset) { return is_in_window(states, offset); }

void rp_half_states_add(rp_half_states *states, uint64_t offset) { put(states, offset, RP_HALF_OPEN); }

void rp_half_states_begin(rp_half_states *states, uint64_t offset, int32_t state, uint64_t end_phy_offset) {
    states->offset = offset;
    states->state = state;
    rp_store_release(&states->end, end_phy_offset);
}

void rp_half_states_complete(rp_half_states *states) {
    uint64_t count = states->ops_missing_count;
    put(states, states->offset, (int32_t)states->state);
    RP_CRASH_POINT("half.state");
    if (count && states->ops_missing[count - 1] == states->offset) states->ops_missing_count = count - 1;
    rp_store_release(&states->end, 0);
}

void rp_half_states_set(rp_half_states *states, uint64_t offset, int32_t state) {
    if (is_in_window(states, offset)) put(states, offset, state);
}

rp_status rp_half_states_commit_without_op(rp_half_states *states, uint64_t offset) {
    rp_half_states_set(states, offset, RP_HALF_COMMITTED);
    if (states->ops_missing_count == RP_HALF_OPS_MISSING_MAX) return RP_FULL;
    states->ops_missing[states->ops_missing_count++] = offset;
    return RP_OK;
}

int rp_half_states_missing_op(const rp_half_states *states, uint64_t *offset) {
    uint64_t count = states->ops_missing_count;
    if (count) *offset = states->ops_missing[count - 1];
    return count != 0;
}

/* Replace an entry. The end is 0 meanwhile: if the worker dies in between, nobody follows an entry of two halves. */
static void replace(rp_half_renewal *entry, rp_half_renewal with) {
    uint64_t end = with.end_phy_offset;
    rp_store_release(&entry->end_phy_offset, 0);
    __atomic_thread_fence(__ATOMIC_RELEASE); /* orders the store of 0 before the stores of the other fields */
    with.end_phy_offset = 0;
    *entry = with;
    rp_store_release(&entry->end_phy_offset, end);
}

void rp_half_states_renew(rp_half_states *states, const rp_half_renewal *renewal) {
    for (uint32_t i = 0; i < RP_HALF_RENEWED_MAX; i++) {
        rp_half_renewal *before = &states->renewed[i];
        if (!before->end_phy_offset || before->target != renewal->offset) continue;
        replace(before, (rp_half_renewal){before->offset, before->phy_offset, renewal->target,
                                          renewal->target_phy_offset, renewal->end_phy_offset});
    }
    replace(&states->renewed[states->renewed_count++ % RP_HALF_RENEWED_MAX], *renewal);
}

int rp_half_states_renewed(const rp_half_states *states, uint64_t offset, uint64_t phy_offset, uint64_t *target,
                           uint64_t *target_phy_offset) {
    uint64_t count = states->renewed_count < RP_HALF_RENEWED_MAX ? states->renewed_count : RP_HALF_RENEWED_MAX;
    for (uint64_t i = 0; i < count; i++) {
        const rp_half_renewal *renewal = &states->renewed[i];
        if (!renewal->end_phy_offset || renewal->offset != offset || renewal->phy_offset != phy_offset) continue;
        *target = renewal->target;
        *target_phy_offset = renewal->target_phy_offset;
        return 1;
    }
    return 0;
}

uint64_t rp_half_states_base(const rp_half_states *states) { return rp_load_acquire(&states->base); }

void rp_half_states_move_base(rp_half_states *states, uint64_t base) {
    if (base > states->base) rp_store_release(&states->base, base);
}

/* One bit (the lower of its pair) for each open offset of the word, from `from` on and below `to`. */
static uint64_t open_in_word(const rp_half_states *states, uint64_t from, uint64_t to) {
    uint64_t word = __atomic_load_n(word_of(states, from), __ATOMIC_RELAXED), first = from - from % PER_WORD;
    uint64_t open = ~(word | word >> 1) & LOW_BITS;
    open &= ~0ull << shift_of(from);
    if (to - first < PER_WORD) open &= ~(~0ull << shift_of(to));
    return open;
}

uint64_t rp_half_states_next_open(const rp_half_states *states, uint64_t from, uint64_t to) {
    while (from < to) {
        uint64_t open = open_in_word(states, from, to), first = from - from % PER_WORD;
        if (open) return first + (uint64_t)__builtin_ctzll(open) / 2;
        from = first + PER_WORD;
    }
    return to;
}

uint64_t rp_half_states_count_open(const rp_half_states *states, uint64_t from, uint64_t to) {
    uint64_t count = 0;
    for (; from < to; from += PER_WORD - from % PER_WORD)
        count += (uint64_t)__builtin_popcountll(open_in_word(states, from, to));
    return count;
}

/* The latest places are kept in memory, because a transaction mostly ends soon after its half message was stored, and
 * because dispatch may be behind. All others are read from the half queue. */

enum { FILES = 4 };

struct rp_half_place {
    uint64_t offset; /* + 1; 0: none */
    uint64_t phy_offset;
};

rp_status rp_half_places_open(rp_half_places *places, rp_control_block *block, const char *consume_queue_directory,
                              uint64_t consume_queue_file_size) {
    places->latest = calloc(RP_HALF_PLACES_LATEST, sizeof *places->latest);
    places->units = rp_cq_reader_open(block, consume_queue_directory, consume_queue_file_size, FILES);
    return places->latest && places->units ? RP_OK : RP_NO_MEMORY;
}

void rp_half_places_close(rp_half_places *places) {
    if (places->units) rp_cq_close(places->units);
    free(places->latest);
    *places = (rp_half_places){0};
}

void rp_half_places_add(rp_half_places *places, uint64_t offset, uint64_t phy_offset) {
    places->latest[offset % RP_HALF_PLACES_LATEST] = (rp_half_place){offset + 1, phy_offset};
}

int rp_half_places_is_latest(const rp_half_places *places, uint64_t offset) {
    return places->latest[offset % RP_HALF_PLACES_LATEST].offset == offset + 1;
}

int rp_half_places_in_memory(rp_half_places *places, const rp_queue *queue, uint64_t offset) {
    return rp_half_places_is_latest(places, offset) || rp_cq_in_memory(places->units, queue, offset);
}

rp_status rp_half_places_find(rp_half_places *places, const rp_queue *queue, uint64_t offset, uint64_t *phy_offset) {
    const rp_half_place *latest = &places->latest[offset % RP_HALF_PLACES_LATEST];
    uint8_t unit[RP_CQ_UNIT_SIZE];
    if (latest->offset == offset + 1) {
        *phy_offset = latest->phy_offset;
        return RP_OK;
    }
    if (offset >= rp_load_acquire(&queue->max_offset)) return RP_EMPTY;
    int32_t count = rp_cq_read(places->units, queue, offset, 1, unit);
    if (count < 0) return RP_IO_ERROR;
    if (count == 0) return RP_NOT_FOUND;
    *phy_offset = rp_unit_read(unit).phy_offset;
    return RP_OK;
}

void rp_half_places_release(rp_half_places *places) {
    if (places->units) rp_cq_release(places->units);
}
