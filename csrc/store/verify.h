#ifndef ROCKETPY_VERIFY_H
#define ROCKETPY_VERIFY_H
/* A store checked from outside, for `rocketpy store verify` and `stats`: what the log says that each queue must hold,
 * what the queue's files hold, and whether an index is whole. Nothing here opens a file or trusts a byte of one. */
#include <stdint.h>
#include "base/status.h"

/* One queue, by its records in the log. Offsets begin anew at 0 when a topic was deleted and made again; `first_offset`
 * and the sums are of the records since then. Equal sums mean equal units: they are 64-bit hashes over (queue offset,
 * log offset, size, tags code), the second without the tags code. */
typedef struct rp_tally {
    uint64_t first_offset;
    uint64_t next_offset;
    uint64_t units;          /* of records below the limit; the last of them is before units_end */
    uint64_t units_end;
    uint64_t units_sum;
    uint64_t places_sum;
    uint64_t records;        /* all of them, with their bytes */
    uint64_t bytes;
    uint64_t max_phy_offset; /* end of the newest record */
    const uint8_t *topic;
    uint32_t topic_size;
    int32_t queue_id;
} rp_tally;

/* Something that does not hold in a record that is whole. */
enum { RP_FOUND_OWN_OFFSET = 1, RP_FOUND_QUEUE_OFFSET = 2 };
typedef struct rp_finding {
    uint64_t phy_offset;
    uint64_t expected;
    uint64_t found;
    uint32_t kind;
    uint32_t tally;
} rp_finding;

typedef struct rp_verify_totals {
    uint64_t records;
    uint64_t body_bytes;
    int64_t first_store_timestamp_ms;
    int64_t last_store_timestamp_ms;
    uint64_t findings; /* all; rp_verify_finding knows the first RP_FINDINGS_MAX */
    uint32_t tallies;
} rp_verify_totals;

enum { RP_FINDINGS_MAX = 1024 };
typedef struct rp_verify rp_verify;

rp_verify *rp_verify_open(void); /* NULL with errno */
void rp_verify_close(rp_verify *verify);
/* Walk the records of one log file: `image`, `size` bytes that start at `start` of the log, from *position up to `stop`
 * at the most. Units are expected of records below `units_limit`.
 * RP_OK: *position reached `stop` or the file's end; RP_END_OF_FILE: past a blank; RP_EMPTY: zeros; RP_CORRUPT,
 * RP_INCOMPLETE: damage at *position; RP_NO_MEMORY. */
rp_status rp_verify_log(rp_verify *verify, const uint8_t *image, uint64_t size, uint64_t start, uint64_t *position,
                        uint64_t stop, uint64_t units_limit, int check_crc);
/* A jump in queue offsets over this place is no finding of its own. */
void rp_verify_damage(rp_verify *verify, uint64_t phy_offset);
void rp_verify_read_totals(const rp_verify *verify, rp_verify_totals *totals);
const rp_finding *rp_verify_finding(const rp_verify *verify, uint32_t index);
const rp_tally *rp_verify_tally(const rp_verify *verify, uint32_t index);

typedef struct rp_units {
    uint64_t units;      /* at first_offset and behind, before end_offset; pre-blank ones aside */
    uint64_t blanks;     /* pre-blank units, wherever they are */
    uint64_t stray;      /* before first_offset, and of records that the log still has */
    uint64_t beyond;     /* at end_offset and behind */
    uint64_t extended;   /* whose tags code lies in consumequeue_ext */
    uint64_t units_sum;
    uint64_t places_sum;
} rp_units;

/* Add up to `count` units, the first of them at queue offset `offset`; returns how many there were before the first
 * that is none (zeros, or a size that cannot be). */
uint32_t rp_verify_units(const uint8_t *units, uint32_t count, uint64_t offset, uint64_t first_offset,
                         uint64_t end_offset, uint64_t log_begin, rp_units *sum);

/* What is odd about a queue's files beside their units. */
enum {
    RP_QUEUE_FOREIGN = 1, /* a name or size that does not belong there */
    RP_QUEUE_GAP = 2,     /* a file between two others is missing */
    RP_QUEUE_NOT_ZERO = 4 /* something lies behind the last unit */
};
/* Add the units of all files of a queue's directory; one descriptor at a time. `*file_size`: of all queue files; 0
 * becomes that of the first one met. RP_OK, with *odd; RP_NOT_FOUND: no such directory; RP_IO_ERROR, RP_NO_MEMORY. */
rp_status rp_verify_queue(const char *directory, uint64_t *file_size, uint64_t first_offset, uint64_t end_offset,
                          uint64_t log_begin, rp_units *sum, uint32_t *odd);

enum { RP_INDEX_SOUND = 0, RP_INDEX_COUNT = 1, RP_INDEX_HASH = 2, RP_INDEX_PREVIOUS = 3, RP_INDEX_SLOT = 4 };
typedef struct rp_index_check {
    uint32_t units;
    uint32_t faults;
    uint32_t reason;   /* of the first fault: RP_INDEX_*, at unit or slot `at` */
    uint32_t at;
    int64_t expected;
    int64_t found;
} rp_index_check;
/* Follow every chain of an index file: each unit must point to the newest one before it in its slot, and each slot to
 * the newest of all, or to the one that comes next: its writer was killed in between. RP_OK; RP_INVALID: `size` does
 * not fit the numbers; RP_NO_MEMORY. */
rp_status rp_verify_index(const uint8_t *image, uint64_t size, uint32_t slot_num, uint32_t index_num,
                          rp_index_check *check);
/* Whether the units from *unit up to `end` name records that have such a key; those below `log_begin` are passed over.
 * `units_image` is where unit 0 begins. Goes on while they lie in the given log file. RP_OK: *unit reached `end`;
 * RP_END_OF_FILE: *unit lies in another file; RP_CORRUPT: the record of *unit has no such key; RP_NOT_FOUND: there is
 * no sound record. */
rp_status rp_verify_keys(const uint8_t *units_image, uint32_t *unit, uint32_t end, uint64_t log_begin,
                         const uint8_t *log_image, uint64_t log_size, uint64_t log_start);
#endif
