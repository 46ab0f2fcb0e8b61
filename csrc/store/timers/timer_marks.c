/* The file: header (4096 bytes), journal, words of bits. A word has the bits of 32 numbers, and above them their check:
 * what changes a word on the disk is found. One store writes both, so no death of a process and no power failure can
 * part them. Bits are a ring: number n has bit n % RP_TIMER_SPAN_MAX. They are zeroed and given their blocks in chunks
 * before a number of the chunk is used, so that a full disk cannot fail a write through the mapping; chunks below the
 * floor become holes. A word of zeros is valid: no number of it has ended.
 *
 * If a check fails when the file is opened, the file begins anew, and the log says again what has ended. A word that is
 * damaged later counts as zeros: a timer that comes twice is better than one that is lost. The journal has no check: it
 * counts only under the kernel that wrote it. */
#define _GNU_SOURCE
#include "store/timers/timer_marks.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/atomic.h"
#include "base/crash_point.h"
#include "base/map.h"
#include "store/log/log_view.h"
#include "store/log/new_file.h"
#include "store/log/timer_properties.h"
#include "store/recovery/recovery.h"

#define MAGIC 0x3152454d49545052ull /* "RPTIMER1", little-endian */
enum {
    LAYOUT_VERSION = 2, /* 1: without checks; its files begin anew */
    HEADER_SIZE = 4096,
    CHUNK_SIZE = 1 << 20, /* bytes of words */
    WORD_NUMBERS = 32,
    CHUNK_NUMBERS = CHUNK_SIZE / 8 * WORD_NUMBERS,
    BITS_SIZE = RP_TIMER_SPAN_MAX / WORD_NUMBERS * 8,
    WORDS_PER_READ = 4096
};

#define CHECK_FACTOR 0x9e3779b97f4a7c15ull /* odd, its bits well mixed */
#define IS_CHANGE ((uint64_t)1 << 63)
#define IS_RENEWAL ((uint64_t)1 << 62)

struct entry {
    uint64_t number; /* | IS_CHANGE or IS_RENEWAL */
    uint64_t end_phy_offset;
};
#define JOURNAL_SIZE ((uint64_t)RP_TIMER_JOURNAL_MAX * sizeof(struct entry))
#define BITS_AT (HEADER_SIZE + JOURNAL_SIZE)
#define FILE_SIZE (BITS_AT + BITS_SIZE)

struct rp_timer_marks {
    rp_timer_header *header;
    struct entry *journal;
    uint64_t *words;
    int fd;
};

static uint64_t checked(uint32_t bits) { return (uint64_t)bits * CHECK_FACTOR >> 32 << 32 | bits; }

static uint64_t bounds_check(const rp_timer_header *header) {
    return ~(header->floor * CHECK_FACTOR ^ header->reserved);
}

static void set_bounds(rp_timer_header *header, uint64_t floor, uint64_t reserved) {
    rp_store_release(&header->floor, floor);
    header->reserved = reserved;
    header->bounds_check = bounds_check(header);
}

static int is_known(const rp_timer_header *header) {
    return header->magic == MAGIC && header->layout_version == LAYOUT_VERSION &&
           header->bounds_check == bounds_check(header) && header->journal_begin <= header->journal_end &&
           header->journal_end - header->journal_begin <= RP_TIMER_JOURNAL_MAX &&
           (header->reserved < header->floor || header->reserved - header->floor <= RP_TIMER_SPAN_MAX);
}

static uint64_t word_at(uint64_t number) { return number % RP_TIMER_SPAN_MAX / WORD_NUMBERS; }

/* 1 if the words from the floor to `reserved` are as they were written. Reads the file, not the mapping, whose pages
 * would stay in memory. */
static int is_intact(const rp_timer_marks *marks) {
    uint64_t words[WORDS_PER_READ];
    uint64_t number = marks->header->floor - marks->header->floor % WORD_NUMBERS, end = marks->header->reserved;
    while (number < end) {
        uint64_t at = word_at(number), count = (end - number + WORD_NUMBERS - 1) / WORD_NUMBERS;
        if (count > WORDS_PER_READ) count = WORDS_PER_READ;
        if (count > RP_TIMER_SPAN_MAX / WORD_NUMBERS - at) count = RP_TIMER_SPAN_MAX / WORD_NUMBERS - at;
        if (rp_read_at(marks->fd, words, count * 8, BITS_AT + at * 8) != (int64_t)(count * 8)) return 0;
        for (uint64_t i = 0; i < count; i++)
            if (words[i] != checked((uint32_t)words[i])) return 0;
        number += count * WORD_NUMBERS;
    }
    return 1;
}

/* Empty the file and give header and journal their blocks. */
static int begin_anew(rp_timer_marks *marks) {
    if (ftruncate(marks->fd, 0) != 0 || ftruncate(marks->fd, (off_t)FILE_SIZE) != 0) return -1;
    if (fallocate(marks->fd, 0, 0, (off_t)BITS_AT) != 0 && errno != EOPNOTSUPP) return -1;
    marks->header->layout_version = LAYOUT_VERSION;
    set_bounds(marks->header, 0, 0);
    marks->header->magic = MAGIC;
    return 0;
}

static void lower(uint64_t *position, uint64_t end) {
    if (*position > end) *position = end;
}

/* Under another kernel, or with a log that recovery has made shorter (it clears boot_id), the journal, and what was not
 * synced, does not count. The position from which on numbers may be used again is on the disk before one is: until the
 * lost ones are forgotten, a second power failure must find it. */
static int begin_boot(rp_timer_marks *marks, const rp_control *control) {
    rp_timer_header *header = marks->header;
    if (memcmp(header->boot_id, control->boot_id, sizeof header->boot_id) == 0) return 0;
    uint64_t end = control->published_phy_offset, boot = end + 1;
    if (!header->must_scan || !header->boot_phy_offset || boot < header->boot_phy_offset)
        header->boot_phy_offset = boot;
    header->must_scan = 1;
    header->journal_begin = header->journal_end = 0;
    header->filed = header->filed_durable;
    lower(&header->scanned_phy_offset, end);
    lower(&header->followed_durable, end);
    header->marked_phy_offset = header->scanned_phy_offset;
    header->followed_phy_offset = header->followed_durable;
    memcpy(header->boot_id, control->boot_id, sizeof header->boot_id);
    return fdatasync(marks->fd);
}

rp_timer_marks *rp_timer_marks_open(const char *path, const rp_control *control) {
    struct stat info;
    rp_timer_marks *marks = calloc(1, sizeof *marks);
    if (!marks) return NULL;
    marks->header = MAP_FAILED;
    marks->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (marks->fd < 0 || fstat(marks->fd, &info) != 0) goto fail;
    int is_whole = info.st_size == (off_t)FILE_SIZE;
    if (!is_whole && ftruncate(marks->fd, (off_t)FILE_SIZE) != 0) goto fail;
    uint8_t *base = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, marks->fd, 0);
    if (base == MAP_FAILED) goto fail;
    marks->header = (rp_timer_header *)base;
    marks->journal = (struct entry *)(base + HEADER_SIZE);
    marks->words = (uint64_t *)(base + BITS_AT);
    if ((!is_whole || !is_known(marks->header) || !is_intact(marks)) && begin_anew(marks) != 0) goto fail;
    if (begin_boot(marks, control) != 0) goto fail;
    return marks;
fail:;
    int error = errno;
    rp_timer_marks_close(marks);
    errno = error;
    return NULL;
}

void rp_timer_marks_close(rp_timer_marks *marks) {
    if (!marks) return;
    if ((void *)marks->header != MAP_FAILED) munmap(marks->header, FILE_SIZE);
    if (marks->fd >= 0) close(marks->fd);
    free(marks);
}

rp_timer_header *rp_timer_marks_header(rp_timer_marks *marks) { return marks->header; }

int rp_timer_marks_descriptor(const rp_timer_marks *marks) { return marks->fd; }

/* ---- journal ---- */

static struct entry *entry_at(const rp_timer_marks *marks, uint64_t at) {
    return &marks->journal[at % RP_TIMER_JOURNAL_MAX];
}

void rp_timer_journal_recover(rp_timer_marks *marks, uint64_t published_phy_offset) {
    rp_timer_header *header = marks->header;
    uint64_t end = header->journal_end;
    if (end > rp_load_acquire(&header->journal_begin) &&
        entry_at(marks, end - 1)->end_phy_offset > published_phy_offset)
        rp_store_release(&header->journal_end, end - 1);
}

int rp_timer_journal_has_room(const rp_timer_marks *marks) {
    return marks->header->journal_end - rp_load_acquire(&marks->header->journal_begin) < RP_TIMER_JOURNAL_MAX;
}

rp_timer_end rp_timer_journal_at(const rp_timer_marks *marks, uint64_t at) {
    const struct entry *entry = entry_at(marks, at);
    return (rp_timer_end){.number = entry->number & ~(IS_CHANGE | IS_RENEWAL),
                          .end_phy_offset = entry->end_phy_offset,
                          .kind = entry->number & IS_CHANGE
                                      ? RP_TIMER_CHANGED
                                      : (entry->number & IS_RENEWAL ? RP_TIMER_RENEWED : RP_TIMER_DELIVERED)};
}

void rp_timer_journal_add(rp_timer_marks *marks, const rp_timer_end *end) {
    static const uint64_t flags[] = {[RP_TIMER_CHANGED] = IS_CHANGE, [RP_TIMER_RENEWED] = IS_RENEWAL};
    uint64_t at = marks->header->journal_end;
    *entry_at(marks, at) = (struct entry){end->number | flags[end->kind], end->end_phy_offset};
    rp_store_release(&marks->header->journal_end, at + 1);
}

/* ---- bits ---- */

/* The bits of the word of a number. */
static uint32_t bits_of(const rp_timer_marks *marks, uint64_t number) {
    uint64_t word = rp_load_acquire(&marks->words[word_at(number)]);
    return word == checked((uint32_t)word) ? (uint32_t)word : 0;
}

static void set_bits_of(rp_timer_marks *marks, uint64_t number, uint32_t bits) {
    rp_store_release(&marks->words[word_at(number)], checked(bits));
}

int rp_timer_has_ended(const rp_timer_marks *marks, uint64_t number) {
    if (number < marks->header->floor) return 1;
    return number < marks->header->reserved && bits_of(marks, number) >> number % WORD_NUMBERS & 1;
}

void rp_timer_set_ended(rp_timer_marks *marks, uint64_t number) {
    if (number >= marks->header->floor && number < marks->header->reserved)
        set_bits_of(marks, number, bits_of(marks, number) | (uint32_t)1 << number % WORD_NUMBERS);
}

static off_t chunk_at(uint64_t number) {
    return (off_t)(BITS_AT + number % RP_TIMER_SPAN_MAX / CHUNK_NUMBERS * CHUNK_SIZE);
}

static void make_hole(rp_timer_marks *marks, uint64_t number) {
    if (fallocate(marks->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, chunk_at(number), CHUNK_SIZE) != 0)
        memset((uint8_t *)marks->header + chunk_at(number), 0, CHUNK_SIZE);
}

rp_status rp_timer_marks_reserve(rp_timer_marks *marks, uint64_t number) {
    rp_timer_header *header = marks->header;
    if (header->reserved < header->floor - header->floor % CHUNK_NUMBERS)
        set_bounds(header, header->floor, header->floor - header->floor % CHUNK_NUMBERS);
    while (number >= header->reserved) {
        if (header->reserved + CHUNK_NUMBERS > header->floor + RP_TIMER_SPAN_MAX - CHUNK_NUMBERS) return RP_FULL;
        make_hole(marks, header->reserved);
        if (fallocate(marks->fd, 0, chunk_at(header->reserved), CHUNK_SIZE) != 0 && errno != EOPNOTSUPP)
            return rp_status_of_errno();
        set_bounds(header, header->floor, header->reserved + CHUNK_NUMBERS);
        if (fdatasync(marks->fd) != 0) return RP_IO_ERROR;
    }
    return RP_OK;
}

void rp_timer_marks_move_floor(rp_timer_marks *marks, uint64_t least, uint64_t end) {
    rp_timer_header *header = marks->header;
    uint64_t floor = header->floor < least ? least : header->floor;
    if (end > header->reserved) end = header->reserved;
    if (floor < end) floor = rp_timer_marks_next_pending(marks, floor, end);
    uint64_t chunk = header->floor - header->floor % CHUNK_NUMBERS;
    set_bounds(header, floor, header->reserved);
    for (uint32_t i = 0; chunk + CHUNK_NUMBERS <= floor && i < BITS_SIZE / CHUNK_SIZE; i++, chunk += CHUNK_NUMBERS)
        make_hole(marks, chunk);
}

uint64_t rp_timer_marks_pending(const rp_timer_marks *marks, uint64_t end) {
    uint64_t pending = 0, at = marks->header->floor, limit = marks->header->reserved;
    while (at < end && at < limit) {
        if (at % WORD_NUMBERS == 0 && end - at >= WORD_NUMBERS) {
            pending += WORD_NUMBERS - (uint64_t)__builtin_popcount(bits_of(marks, at));
            at += WORD_NUMBERS;
        } else {
            pending += !rp_timer_has_ended(marks, at++);
        }
    }
    return pending + (at < end ? end - at : 0);
}

uint64_t rp_timer_marks_next_pending(const rp_timer_marks *marks, uint64_t from, uint64_t end) {
    uint64_t reserved = marks->header->reserved, at = from < marks->header->floor ? marks->header->floor : from;
    while (at < end && at < reserved) {
        if (at % WORD_NUMBERS == 0 && bits_of(marks, at) == UINT32_MAX)
            at += WORD_NUMBERS;
        else if (rp_timer_has_ended(marks, at))
            at++;
        else
            break;
    }
    return at < end ? at : end;
}

void rp_timer_marks_cut(rp_timer_marks *marks, uint64_t number) {
    rp_timer_header *header = marks->header;
    uint64_t chunk = number - number % CHUNK_NUMBERS, end = chunk + CHUNK_NUMBERS;
    if (header->filed > number) header->filed = number;
    if (header->filed_durable > number) header->filed_durable = number;
    if (number < header->floor) { /* its chunk may be a hole: it is made anew when it is reserved */
        set_bounds(header, number, header->reserved > chunk ? chunk : header->reserved);
        return;
    }
    set_bounds(header, header->floor, header->reserved > end ? end : header->reserved);
    if (number % WORD_NUMBERS && number < header->reserved)
        set_bits_of(marks, number, bits_of(marks, number) & (((uint32_t)1 << number % WORD_NUMBERS) - 1));
    for (number += (WORD_NUMBERS - number % WORD_NUMBERS) % WORD_NUMBERS; number < header->reserved;
         number += WORD_NUMBERS)
        set_bits_of(marks, number, 0);
}

rp_status rp_timer_marks_sync(rp_timer_marks *marks) {
    rp_timer_header *header = marks->header;
    uint64_t marked = rp_load_acquire(&header->marked_phy_offset);
    if (fdatasync(marks->fd) != 0) return RP_IO_ERROR; /* what was written through the mapping, too */
    RP_CRASH_POINT("timer.synced");
    if (!rp_load_acquire32(&header->must_scan)) rp_store_release(&header->scanned_phy_offset, marked);
    return RP_OK;
}

/* Entries with the same hash are chained from the latest to older ones. A place that is one journal before the end, or
 * further, belongs to another entry by now: there a chain ends. A look takes 7 ns; a search through the journal took
 * 313 us. */

enum { BITS = 16 };
_Static_assert(1 << BITS == RP_TIMER_JOURNAL_MAX, "one chain for each entry");

rp_status rp_timer_end_index_open(rp_timer_end_index *index, const rp_timer_marks *marks, uint64_t journal_end) {
    uint64_t count = journal_end < RP_TIMER_JOURNAL_MAX ? journal_end : RP_TIMER_JOURNAL_MAX;
    *index = (rp_timer_end_index){.marks = marks, .end = journal_end - count, .seed = rp_random_seed() | 1};
    index->latest = calloc(RP_TIMER_JOURNAL_MAX, sizeof *index->latest);
    index->before = calloc(RP_TIMER_JOURNAL_MAX, sizeof *index->before);
    if (!index->latest || !index->before) return RP_NO_MEMORY;
    rp_timer_end_index_follow(index, journal_end);
    return RP_OK;
}

void rp_timer_end_index_close(rp_timer_end_index *index) {
    free(index->latest);
    free(index->before);
    *index = (rp_timer_end_index){0};
}

static uint64_t *chain_of(const rp_timer_end_index *index, uint64_t number) {
    uint64_t hash = (number >> 5) * index->seed >> (64 - BITS + 5); /* neighbours as in rp_number_set (map.c) */
    return &index->latest[hash << 5 | (number & 31)];
}

void rp_timer_end_index_follow(rp_timer_end_index *index, uint64_t journal_end) {
    for (; index->end < journal_end; index->end++) {
        uint64_t *chain = chain_of(index, rp_timer_journal_at(index->marks, index->end).number);
        index->before[index->end % RP_TIMER_JOURNAL_MAX] = *chain;
        *chain = index->end + 1;
    }
}

int rp_timer_end_index_kind(const rp_timer_end_index *index, uint64_t number) {
    uint64_t place = *chain_of(index, number);
    while (place && place + RP_TIMER_JOURNAL_MAX > index->end) {
        rp_timer_end end = rp_timer_journal_at(index->marks, place - 1);
        if (end.number == number) return end.kind;
        place = index->before[(place - 1) % RP_TIMER_JOURNAL_MAX];
    }
    return RP_TIMER_DELIVERED;
}

/* Looks for records that name the place of the timer that they end (timer_properties.h). Of those with a transaction
 * flag only cancellations count, which look like a rollback: a commit names its half message in the same field. */

enum { STOP_EVERY = 4096 /* records */, MAPPINGS = 4 };

struct scan {
    rp_timer_marks *marks;
    rp_log_view *view; /* in which timers are looked up, too */
    const uint32_t *stop;
    uint64_t records;
};

static rp_status mark(void *context, const rp_record_view *record, uint64_t phy_offset) {
    struct scan *scan = context;
    rp_record_view ended;
    uint64_t timer;
    if (++scan->records % STOP_EVERY == 0 && rp_load_acquire32(scan->stop)) return RP_STOPPED;
    if (!rp_timer_place(record, &timer) || timer + 1 >= phy_offset) return RP_OK;
    if (record->sys_flag & RP_TRANSACTION_MASK && !rp_timer_is_timer(record)) return RP_OK;
    if (!rp_log_view_record(scan->view, timer, phy_offset, &ended)) return RP_OK;
    int is_timer = rp_timer_is_timer(&ended);
    rp_status status = is_timer ? rp_timer_marks_reserve(scan->marks, ended.queue_offset) : RP_OK;
    if (is_timer && status == RP_OK) rp_timer_set_ended(scan->marks, ended.queue_offset);
    rp_log_view_release(scan->view, timer);
    return status;
}

rp_status rp_timer_scan(rp_timer_marks *marks, const rp_control *control, const char *commitlog_directory,
                        uint64_t from, uint64_t to, const uint32_t *stop) {
    uint64_t min = rp_load_acquire(&control->min_phy_offset), size = control->commitlog_file_size;
    struct scan scan = {marks, rp_log_view_open(commitlog_directory, size, MAPPINGS), stop, 0};
    if (!scan.view) return RP_NO_MEMORY;
    rp_status status = rp_recovery_walk(scan.view, size, from < min ? min : from, to, mark, &scan);
    rp_log_view_close(scan.view);
    return status;
}
