#ifndef ROCKETPY_VERIFY_H
#define ROCKETPY_VERIFY_H
/* Checks of a store for `rocketpy store verify` and `stats`: the units that each queue must have according to the log,
 * the units in its files, and the consistency of an index. Nothing here opens a file or trusts its content. */
#include <stdint.h>
#include "base/status.h"

/* One queue according to its records in the log. Offsets begin again at 0 after a topic was deleted and created again;
 * `first_offset` and the sums are of the records since then. Equal sums mean equal units: they are 64-bit hashes over
 * (queue offset, log offset, size, tags code), the second without the tags code. */
typedef struct rp_tally {
    uint64_t first_offset;
    uint64_t next_offset;
    uint64_t units;          /* of records below the limit; all are before units_end */
    uint64_t units_end;
    uint64_t units_sum;
    uint64_t places_sum;
    uint64_t records;        /* all of them, with their bytes */
    uint64_t bytes;
    uint64_t max_phy_offset; /* end of the newest record */
    uint64_t entry_offset; /* queue and log offset of the first record that was met: a log that is walked in parts */
    uint64_t entry_phy_offset; /* is joined by them (rocketpy/store/inspection/tally.py) */
    const uint8_t *topic;
    uint32_t topic_size;
    int32_t queue_id;
    uint32_t index; /* in `tallies` */
} rp_tally;

/* An inconsistency in a complete record. */
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
    uint64_t findings; /* all; the first RP_FINDINGS_MAX are in `findings` */
    uint32_t tallies;
} rp_verify_totals;

enum { RP_FINDINGS_MAX = 1024 };
typedef struct rp_verify {
    rp_verify_totals totals;
    rp_tally **tallies; /* totals.tallies of them */
    struct rp_map *by_name; /* topic, then the queue id in 4 bytes -> tally; owned */
    uint32_t tally_room;
    rp_finding findings[RP_FINDINGS_MAX];
    uint64_t damage_at; /* a gap in queue offsets over this place is not a finding of its own; ~0: none */
} rp_verify;

rp_verify *rp_verify_open(void); /* NULL with errno */
void rp_verify_close(rp_verify *verify);
/* Walk the records of one log file: `image` has `size` bytes and starts at `start` of the log; walk from *position up
 * to `stop`. Records below `units_limit` must have units. RP_OK: *position reached `stop` or the file's end;
 * RP_END_OF_FILE: past a blank; RP_EMPTY: zeros; RP_CORRUPT, RP_INCOMPLETE: damage at *position; RP_NO_MEMORY. */
rp_status rp_verify_log(rp_verify *verify, const uint8_t *image, uint64_t size, uint64_t start, uint64_t *position,
                        uint64_t stop, uint64_t units_limit, int check_crc);

typedef struct rp_units {
    uint64_t units; /* from first_offset up to end_offset, without pre-blank units */
    uint64_t blanks; /* pre-blank units, wherever they are */
    uint64_t stray; /* before first_offset, of records that the log still has */
    uint64_t beyond; /* from end_offset on */
    uint64_t extended; /* whose tags code lies in consumequeue_ext */
    uint64_t units_sum;
    uint64_t places_sum;
} rp_units;

/* Add up to `count` units, the first at queue offset `offset`. Returns the number of units before the first invalid one
 * (zeros, or an impossible size). */
uint32_t rp_verify_units(const uint8_t *units, uint32_t count, uint64_t offset, uint64_t first_offset,
                         uint64_t end_offset, uint64_t log_begin, rp_units *sum);

enum { RP_INDEX_COUNT = 1, RP_INDEX_HASH = 2, RP_INDEX_PREVIOUS = 3, RP_INDEX_SLOT = 4 };
typedef struct rp_index_check {
    uint32_t units;
    uint32_t faults;
    uint32_t reason; /* of the first fault: RP_INDEX_*, at unit or slot `at` */
    uint32_t at;
    int64_t expected;
    int64_t found;
} rp_index_check;
/* Follow every chain of an index file: each unit must point to the unit before it in its slot, and each slot to its
 * newest unit, or to the next unit to be written (if its writer was killed in between). RP_OK; RP_INVALID: `size` does
 * not fit the numbers; RP_NO_MEMORY. */
rp_status rp_verify_index(const uint8_t *image, uint64_t size, uint32_t slot_num, uint32_t index_num,
                          rp_index_check *check);
/* Check that the units from *unit up to `end` point to records with a key of that hash; records below `log_begin` are
 * skipped. `units_image` is the start of unit 0. Continues while the records are in the given log file. RP_OK: *unit
 * reached `end`; RP_END_OF_FILE: the record of *unit is in another file; RP_CORRUPT: the record of *unit has no such
 * key; RP_NOT_FOUND: there is no valid record. */
rp_status rp_verify_keys(const uint8_t *units_image, uint32_t *unit, uint32_t end, uint64_t log_begin,
                         const uint8_t *log_image, uint64_t log_size, uint64_t log_start);
#endif
