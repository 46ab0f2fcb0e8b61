/* Pending timers: the heap gives them in order, the set of numbers agrees with an array, bits and floor survive a turn
 * of the ring of bits, and heap and runs together give each pending timer in order, after a restart and damage too. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/timers/timer_index.h"
#include "store/timers/timer_marks.h"
#include "check.h"

enum { TIMERS = 5000, NUMBERS = 3000, CHUNK = 4 << 20 };

static char directory[] = "/tmp/driver_timers_XXXXXX";
static rp_control control;

static char *path_of(const char *name) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static void check_heap(void) {
    random_source random = {1};
    rp_timer_heap heap = {0};
    rp_timer last = {0};
    for (uint32_t i = 0; i < TIMERS; i++) {
        rp_timer timer = {.due_ms = random_below(&random, 500), .number = i};
        CHECK(rp_timer_heap_push(&heap, &timer) == RP_OK);
    }
    for (uint32_t i = 0; i < TIMERS; i++) {
        CHECK(i == 0 || rp_timer_compare(&last, &heap.timers[0]) < 0);
        last = heap.timers[0];
        rp_timer_heap_pop(&heap);
    }
    CHECK(heap.count == 0);
    rp_timer_heap_destroy(&heap);
}

static void check_set(void) {
    static uint8_t is_in[NUMBERS];
    random_source random = {2};
    rp_number_set set;
    CHECK(rp_number_set_init(&set, NUMBERS) == RP_OK);
    for (uint32_t turn = 0; turn < 200000; turn++) {
        uint32_t number = random_below(&random, NUMBERS);
        if (random_below(&random, 2)) {
            rp_number_set_add(&set, number);
            is_in[number] = 1;
        } else {
            rp_number_set_remove(&set, number);
            is_in[number] = 0;
        }
        number = random_below(&random, NUMBERS);
        CHECK(rp_number_set_has(&set, number) == is_in[number]);
    }
    for (uint32_t number = 0; number < NUMBERS; number++) CHECK(rp_number_set_has(&set, number) == is_in[number]);
    rp_number_set_destroy(&set);
}

enum { FEW = 200, PAGES_OF_FEW = FEW / 32 + 2 };

static uint32_t pages_in_use(const uint64_t *table, uint32_t count) {
    enum { OF_PAGE = 4096 / sizeof *table };
    uint32_t pages = 0;
    for (uint32_t at = 0, counted = 0; at < count; at++) {
        if (!table[at] || at / OF_PAGE < counted) continue;
        counted = at / OF_PAGE + 1;
        pages++;
    }
    return pages;
}

/* A broker that has had few timers keeps few pages of a table in memory. */
static void check_set_of_few(void) {
    rp_number_set set;
    CHECK(rp_number_set_init(&set, 1 << 16) == RP_OK);
    for (uint32_t number = 1000; number < 1000 + FEW; number++) rp_number_set_add(&set, number);
    CHECK(pages_in_use(set.slots, set.mask + 1) <= PAGES_OF_FEW);
    rp_number_set_destroy(&set);
}

static rp_timer_marks *open_marks(void) {
    rp_timer_marks *marks = rp_timer_marks_open(path_of("delivered"), &control);
    CHECK(marks != NULL);
    return marks;
}

/* More numbers than there are bits go through; bits behind the floor do not count for later numbers. */
static void check_bits(void) {
    rp_timer_marks *marks = open_marks();
    rp_timer_header *header = rp_timer_marks_header(marks);
    for (uint64_t start = 0; start < (uint64_t)RP_TIMER_SPAN_MAX + 3 * CHUNK; start += CHUNK) {
        CHECK(rp_timer_marks_reserve(marks, start + 1000) == RP_OK);
        CHECK(rp_timer_marks_pending(marks, start + 1000) == 1000);
        for (uint64_t number = start; number < start + 1000; number++) {
            CHECK(!rp_timer_has_ended(marks, number));
            if ((number - start) % 100 != 7) rp_timer_set_ended(marks, number);
        }
        CHECK(rp_timer_marks_pending(marks, start + 1000) == 10);
        rp_timer_marks_move_floor(marks, 0, start + 1000);
        CHECK(header->floor == start + 7 && rp_timer_has_ended(marks, start) && !rp_timer_has_ended(marks, start + 7));
        rp_timer_marks_move_floor(marks, start + CHUNK, start + CHUNK); /* the queue begins there now */
        CHECK(header->floor == start + CHUNK);
    }
    CHECK(rp_timer_marks_reserve(marks, header->floor + RP_TIMER_SPAN_MAX) == RP_FULL);
    CHECK(rp_timer_marks_sync(marks) == RP_OK);
    rp_timer_marks_close(marks);
    unlink(path_of("delivered"));
}

/* Numbers that a power failure took back are pending when they are given again, wherever the floor was. */
static void check_cut(void) {
    static const uint64_t ends[] = {0, 1, 63, 64, 5000, CHUNK - 1, CHUNK, CHUNK + 77, 2 * CHUNK + 9};
    for (uint32_t i = 0; i < sizeof ends / sizeof *ends; i++)
        for (uint64_t floor = 0; floor <= 2 * CHUNK; floor += CHUNK / 2) {
            rp_timer_marks *marks = open_marks();
            rp_timer_header *header = rp_timer_marks_header(marks);
            uint64_t all = 2 * CHUNK + 100, end = ends[i];
            CHECK(rp_timer_marks_reserve(marks, all) == RP_OK);
            for (uint64_t number = 0; number < all; number += 997) rp_timer_set_ended(marks, number);
            for (uint64_t number = 0; number < 200; number++) rp_timer_set_ended(marks, end + number);
            rp_timer_marks_move_floor(marks, floor, all);
            rp_timer_marks_cut(marks, end);
            CHECK(header->floor <= end || header->floor == 0);
            CHECK(rp_timer_marks_reserve(marks, end + CHUNK) == RP_OK);
            CHECK(rp_timer_marks_next_pending(marks, end, end + CHUNK) == end);
            CHECK(rp_timer_marks_pending(marks, end + CHUNK) - rp_timer_marks_pending(marks, end) == CHUNK);
            rp_timer_set_ended(marks, end);
            CHECK(rp_timer_marks_next_pending(marks, end, end + 1) == end + 1);
            CHECK(rp_timer_marks_next_pending(marks, end, end + 9) == end + 1);
            rp_timer_marks_close(marks);
            unlink(path_of("delivered"));
        }
}

/* What was published counts, under the same kernel. */
static void check_journal(void) {
    rp_timer_marks *marks = open_marks();
    rp_timer_marks_header(marks)->must_scan = 0;
    rp_timer_journal_add(marks, &(rp_timer_end){.number = 5, .end_phy_offset = 100, .kind = RP_TIMER_CHANGED});
    rp_timer_journal_add(marks, &(rp_timer_end){.number = 3, .end_phy_offset = 200});
    CHECK(rp_timer_journal_at(marks, 1).kind == RP_TIMER_DELIVERED && rp_timer_journal_at(marks, 1).number == 3);
    rp_timer_marks_close(marks);
    marks = open_marks();
    rp_timer_journal_recover(marks, 199);
    CHECK(rp_timer_marks_header(marks)->journal_end == 1);
    rp_timer_journal_recover(marks, 199);
    rp_timer_end end = rp_timer_journal_at(marks, 0);
    CHECK(rp_timer_marks_header(marks)->journal_end == 1 && end.number == 5 && end.end_phy_offset == 100);
    CHECK(end.kind == RP_TIMER_CHANGED);
    rp_timer_marks_close(marks);
    control.boot_id[0]++;
    marks = open_marks();
    CHECK(rp_timer_marks_header(marks)->journal_end == 0 && rp_timer_marks_header(marks)->must_scan == 1);
    for (uint32_t i = 0; i < RP_TIMER_JOURNAL_MAX; i++) {
        CHECK(rp_timer_journal_has_room(marks));
        rp_timer_journal_add(
            marks,
            &(rp_timer_end){.number = i, .end_phy_offset = i, .kind = i == 7 ? RP_TIMER_RENEWED : RP_TIMER_DELIVERED});
    }
    CHECK(!rp_timer_journal_has_room(marks));
    rp_timer_marks_close(marks);
    unlink(path_of("delivered"));
}

/* What a search through the journal finds. */
static int kind_of(const rp_timer_marks *marks, uint64_t end, uint64_t number) {
    uint64_t begin = end < RP_TIMER_JOURNAL_MAX ? 0 : end - RP_TIMER_JOURNAL_MAX;
    while (end-- > begin)
        if (rp_timer_journal_at(marks, end).number == number) return rp_timer_journal_at(marks, end).kind;
    return RP_TIMER_DELIVERED;
}

/* The index says what the journal says, over more than two rounds of it and over a restart of the send worker.
 * Fault: A change of ended timers searched 32 times 65 536 entries in the send worker: 10 ms without a send. */
static void check_end_index(void) {
    rp_timer_marks *marks = open_marks();
    rp_timer_header *header = rp_timer_marks_header(marks);
    random_source random = {22};
    rp_timer_end_index index;
    CHECK(rp_timer_end_index_open(&index, marks, header->journal_end) == RP_OK);
    for (uint32_t i = 0; i < FEW; i++) {
        header->journal_begin = header->journal_end;
        rp_timer_journal_add(marks, &(rp_timer_end){.number = i});
        rp_timer_end_index_follow(&index, header->journal_end);
    }
    CHECK(pages_in_use(index.latest, RP_TIMER_JOURNAL_MAX) <= PAGES_OF_FEW);
    for (uint32_t i = 0; i < 2 * RP_TIMER_JOURNAL_MAX + 1000; i++) {
        uint64_t number = random_below(&random, 3 * RP_TIMER_JOURNAL_MAX);
        header->journal_begin = header->journal_end;
        rp_timer_journal_add(marks, &(rp_timer_end){.number = number, .kind = (int)random_below(&random, 3)});
        rp_timer_end_index_follow(&index, header->journal_end);
        if (i % 1000) continue;
        for (uint32_t look = 0; look < 5; look++) {
            number = random_below(&random, 3 * RP_TIMER_JOURNAL_MAX);
            CHECK(rp_timer_end_index_kind(&index, number) == kind_of(marks, header->journal_end, number));
        }
        if (i % 40000) continue;
        rp_timer_end_index_close(&index);
        CHECK(rp_timer_end_index_open(&index, marks, header->journal_end) == RP_OK);
    }
    rp_timer_end_index_close(&index);
    rp_timer_marks_close(marks);
    unlink(path_of("delivered"));
}

static void damage_first_run(void) {
    char name[32];
    snprintf(name, sizeof name, "runs/%020d", 0);
    int fd = open(path_of(name), O_WRONLY);
    CHECK(fd >= 0 && pwrite(fd, "?", 1, 100) == 1);
    close(fd);
}

/* Take timers in order until `limit` are taken; each once. */
static uint32_t take(rp_timer_index *index, rp_timer_marks *marks, uint32_t limit) {
    rp_timer last = {0};
    uint32_t taken = 0;
    for (const rp_timer *timer; taken < limit && (timer = rp_timer_index_first(index)); taken++) {
        CHECK(taken == 0 || rp_timer_compare(&last, timer) < 0);
        CHECK(timer->phy_offset == timer->number * 3 && timer->size == 100);
        last = *timer;
        rp_timer_index_take(index);
        rp_timer_set_ended(marks, last.number);
    }
    return taken;
}

static void add(rp_timer_index *index, rp_timer_marks *marks, random_source *random, uint64_t from, uint64_t to) {
    for (uint64_t number = from; number < to; number++) {
        rp_timer timer = {
            .due_ms = random_below(random, 100000), .number = number, .phy_offset = number * 3, .size = 100};
        if (!rp_timer_has_ended(marks, number)) CHECK(rp_timer_heap_push(&index->heap, &timer) == RP_OK);
        if (rp_timer_index_is_full(index, number + 1)) CHECK(rp_timer_index_file(index, NULL, 0, number + 1) == RP_OK);
    }
}

static void check_index(void) {
    random_source random = {3};
    rp_number_set under_way;
    rp_timer_index index;
    rp_timer_marks *marks = open_marks();
    char runs[4096];
    snprintf(runs, sizeof runs, "%s/runs", directory);
    CHECK(rp_number_set_init(&under_way, 16) == RP_OK && rp_timer_marks_reserve(marks, TIMERS) == RP_OK);
    CHECK(rp_timer_index_open(&index, runs, marks, &under_way, TIMERS) == RP_OK);
    index.heap_max = 700;
    add(&index, marks, &random, 0, TIMERS);
    CHECK(index.run_count == TIMERS / 700 && rp_timer_marks_header(marks)->filed == TIMERS / 700 * 700);
    CHECK(take(&index, marks, 2000) == 2000);
    rp_number_set_add(&under_way, rp_timer_index_first(&index)->number);
    CHECK(!rp_number_set_has(&under_way, rp_timer_index_first(&index)->number));
    CHECK(rp_timer_index_file(&index, NULL, 0, TIMERS) == RP_OK && index.heap.count == 0);
    rp_timer_index_close(&index);
    rp_number_set_destroy(&under_way);
    CHECK(rp_number_set_init(&under_way, 16) == RP_OK);

    CHECK(rp_timer_index_open(&index, runs, marks, &under_way, TIMERS) == RP_OK); /* a restart */
    CHECK(rp_timer_marks_header(marks)->filed == TIMERS);
    CHECK(take(&index, marks, 500) == 500);
    rp_timer_index_close(&index);

    damage_first_run();
    CHECK(rp_timer_index_open(&index, runs, marks, &under_way, TIMERS) == RP_OK);
    CHECK(rp_timer_marks_header(marks)->filed == 0); /* everything is to be read again */
    index.heap_max = 700;
    add(&index, marks, &random, 0, TIMERS);
    CHECK(take(&index, marks, TIMERS) >= TIMERS - 2500 - 1);
    CHECK(rp_timer_marks_pending(marks, TIMERS) == 0);
    rp_timer_index_retire(&index);
    CHECK(index.run_count == 0 && rp_timer_index_first(&index) == NULL);
    rp_timer_index_close(&index);
    rp_number_set_destroy(&under_way);
    rp_timer_marks_close(marks);
    CHECK(rmdir(runs) == 0); /* nothing is left */
    unlink(path_of("delivered"));
}

int main(void) {
    CHECK(mkdtemp(directory) != NULL);
    check_heap();
    check_set();
    check_set_of_few();
    check_bits();
    check_cut();
    check_journal();
    check_end_index();
    check_index();
    CHECK(rmdir(directory) == 0);
    return 0;
}
