#ifndef ROCKETPY_TIMER_MARKS_H
#define ROCKETPY_TIMER_MARKS_H
/* Timers that have ended, by a delivery, cancellation, move or renewal: one bit for each number, and a journal of the
 * latest ends, in a sparse mapped file that outlives the broker (docs/adr/0110). A timer's number is its offset
 * in the timer queue.
 *
 * The send worker adds the end of a timer to the journal in the step that publishes the record of its delivery,
 * cancellation, move or renewal. The timer thread sets the bit once the record is on the disk, and frees the entry. So
 * a set bit is true after a power failure as well; the journal is true only under the kernel that wrote it. Bits have
 * checks: with a damaged file the log says what has ended. Mapped before the first fork. */
#include <stdint.h>
#include "base/status.h"
#include "store/control/control_block.h"

#define RP_TIMER_DEAD_LETTERS "%DLQ%rmq_sys_wheel_timer"
enum {
    RP_TIMER_JOURNAL_MAX = 65536, /* entries */
    RP_TIMER_SPAN_MAX = 1 << 30   /* numbers from the oldest pending timer on */
};

typedef struct rp_timer_header {
    uint64_t magic;
    uint32_t layout_version;
    uint32_t must_scan;       /* 1: what has ended from scanned_phy_offset on is to be read from the log */
    uint8_t boot_id[16];      /* of the kernel that wrote the journal; 0xff: the log is shorter since */
    uint64_t journal_end;     /* send worker: entries written */
    uint64_t journal_begin;   /* timer thread: entries whose bits are set */
    uint64_t floor;           /* timer thread: all numbers below it have ended */
    uint64_t reserved;        /* timer thread: bits of numbers below it are zeroed and have their blocks */
    uint64_t filed;           /* timer thread: pending numbers below it are in runs */
    uint64_t filed_durable;   /* the same, of runs on the disk */
    uint64_t marked_phy_offset; /* timer thread: what ended below it has its bit */
    uint64_t scanned_phy_offset; /* the same, of bits on the disk */
    uint64_t next_run;        /* timer thread: name of the next run */
    uint64_t held_phy_offset; /* timer thread: 1 + position from which on the log is needed; 0: not known yet */
    uint64_t pending;     /* timer thread: number of pending timers */
    int64_t next_due_ms;  /* timer thread: time of the first of them; 0: none */
    uint64_t renew_to;       /* cleaning: timers in the log below this position are to be stored again */
    uint64_t renew_requests; /* cleaning: raised after renew_to */
    uint64_t boot_phy_offset; /* 1 + end of the log when this kernel opened it first, or recovery cut it, or one before
                               * it, if the numbers lost then are not forgotten yet; 0: not known */
    uint64_t followed_phy_offset; /* slave: what has ended below it has its bit, under this kernel */
    uint64_t followed_durable; /* the same, of bits on the disk */
    uint64_t bounds_check; /* timer thread: of floor and reserved */
} rp_timer_header;

typedef struct rp_timer_marks rp_timer_marks; /* the mapping; opaque */

enum { /* how a timer ended */
       RP_TIMER_DELIVERED,
       RP_TIMER_CHANGED, /* cancelled or moved */
       RP_TIMER_RENEWED /* stored again under another number */
};

/* An entry of the journal. */
typedef struct rp_timer_end {
    uint64_t number;
    uint64_t end_phy_offset; /* it counts once the published position reaches this */
    int kind; /* RP_TIMER_DELIVERED, ... */
} rp_timer_end;

/* Map the file at `path`, creating it if it is absent or not ours. NULL with errno. */
rp_timer_marks *rp_timer_marks_open(const char *path, const rp_control *control);
void rp_timer_marks_close(rp_timer_marks *marks);
rp_timer_header *rp_timer_marks_header(rp_timer_marks *marks);
/* The descriptor of the file, which the store worker keeps open: it allocates and frees blocks. */
int rp_timer_marks_descriptor(const rp_timer_marks *marks);

/* Send worker, at its start: remove the entry of a record that was not published. */
void rp_timer_journal_recover(rp_timer_marks *marks, uint64_t published_phy_offset);
/* Send worker: 1 if the journal has room for an entry. */
int rp_timer_journal_has_room(const rp_timer_marks *marks);
/* Send worker: add an entry; its number is below 2^62. There is room. */
void rp_timer_journal_add(rp_timer_marks *marks, const rp_timer_end *end);
/* Entry `at` of the journal, at < journal_end <= at + RP_TIMER_JOURNAL_MAX. */
rp_timer_end rp_timer_journal_at(const rp_timer_marks *marks, uint64_t at);

/* The timer thread. */
/* 1 if its bit is set, or it is below the floor. */
int rp_timer_has_ended(const rp_timer_marks *marks, uint64_t number);
/* Make room for the bits of numbers up to `number`. RP_OK; RP_FULL: too far beyond the floor; RP_NO_SPACE, RP_IO_ERROR
 * with errno. */
rp_status rp_timer_marks_reserve(rp_timer_marks *marks, uint64_t number);
/* Set the bit of a number below `reserved`. */
void rp_timer_set_ended(rp_timer_marks *marks, uint64_t number);
/* Move the floor over numbers that have ended, at most to `end` and not below `least`; frees bits below it. */
void rp_timer_marks_move_floor(rp_timer_marks *marks, uint64_t least, uint64_t end);
/* Numbers in [floor, end) that have not ended; reads all their bits. */
uint64_t rp_timer_marks_pending(const rp_timer_marks *marks, uint64_t end);
/* The first number of [from, end) that has not ended; `end` if there is none. */
uint64_t rp_timer_marks_next_pending(const rp_timer_marks *marks, uint64_t from, uint64_t end);
/* Forget everything about numbers from `number` on: the log was cut before them, and others get them. */
void rp_timer_marks_cut(rp_timer_marks *marks, uint64_t number);
/* Write the bits and the header to the disk. Any thread of the store worker. RP_OK; RP_IO_ERROR with errno. */
rp_status rp_timer_marks_sync(rp_timer_marks *marks);

/* Set the bits of the timers that records in [from, to) of the log end: after a power failure, and on a slave, where
 * the master delivers (rocketpy/store/services/timer_follower.py). Damage is passed over as dispatch does. RP_OK;
 * RP_STOPPED: *stop became 1; RP_NO_SPACE, RP_IO_ERROR, RP_NO_MEMORY with errno; RP_FULL as rp_timer_marks_reserve. */
rp_status rp_timer_scan(rp_timer_marks *marks, const rp_control *control, const char *commitlog_directory,
                        uint64_t from, uint64_t to, const uint32_t *stop);

/* An index over the journal: how a timer ended, without a search through all entries. C only; the send
 * worker. */

typedef struct rp_timer_end_index {
    const rp_timer_marks *marks;
    uint64_t *latest; /* by hash of the number: 1 + place of the latest entry with that hash; owned */
    uint64_t *before; /* by place: 1 + place of the entry before it with the same hash; owned */
    uint64_t end; /* entries below it are in the index */
    uint64_t seed; /* odd */
} rp_timer_end_index;

/* Index the last RP_TIMER_JOURNAL_MAX entries. RP_OK, RP_NO_MEMORY; to be closed in either case. */
rp_status rp_timer_end_index_open(rp_timer_end_index *index, const rp_timer_marks *marks, uint64_t journal_end);
void rp_timer_end_index_close(rp_timer_end_index *index);
/* Take in the entries that the journal has gained. */
void rp_timer_end_index_follow(rp_timer_end_index *index, uint64_t journal_end);
/* How a timer that has ended did so, as far as the last RP_TIMER_JOURNAL_MAX entries tell (others:
 * RP_TIMER_DELIVERED). */
int rp_timer_end_index_kind(const rp_timer_end_index *index, uint64_t number);
#endif
