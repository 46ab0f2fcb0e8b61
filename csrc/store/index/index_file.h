#ifndef ROCKETPY_INDEX_FILE_H
#define ROCKETPY_INDEX_FILE_H
/* The hash index from message keys to CommitLog offsets: the part of its single writer (dispatch).
 *
 *   0   i64 begin timestamp   8 i64 end timestamp   16 i64 begin phy offset   24 i64 end phy offset
 *   32  i32 slots in use      36 i32 number of the next unit (starts at 1; unit 0 is never used)
 *   40  slot_num x i32: newest unit of the chain, 0 none
 *   then index_num x 20 bytes: i32 hash, i64 phy offset, i32 seconds since begin timestamp, i32 previous unit */
#include <stdint.h>
#include "base/status.h"
#include "store/log/record.h"

enum { RP_INDEX_HEADER_SIZE = 40, RP_INDEX_SLOT_SIZE = 4, RP_INDEX_UNIT_SIZE = 20 };
typedef struct rp_index rp_index;

/* Open for appending to the newest file of `directory`, if there is one. NULL with errno. */
rp_index *rp_index_open(const char *directory, uint32_t slot_num, uint32_t index_num);
void rp_index_close(rp_index *index);
/* Enter one key (`hash`: rp_index_hash of topic#key) of the record at `phy_offset`; rolls to a new file when full.
 * `is_redo`: the record may have been entered before; a key that heads its chain already is not entered twice.
 * RP_OK; RP_NO_SPACE, RP_IO_ERROR: nothing was entered. */
rp_status rp_index_put(rp_index *index, int32_t hash, uint64_t phy_offset, int64_t store_timestamp_ms, int is_redo);
/* A key to enter. */
typedef struct rp_index_key {
    uint64_t phy_offset;
    int64_t store_timestamp_ms;
    int32_t hash;
    uint32_t reserved;
} rp_index_key;
/* Enter keys, without redo. */
rp_status rp_index_put_keys(rp_index *index, const rp_index_key *keys, uint64_t count);
/* Create the next file under this name (digits: local time as yyyyMMddHHmmssSSS), as if it followed a full file that
 * ends at these values (0, 0: it is the first). For rebuilding, where each file is made on its own. RP_OK;
 * RP_NO_SPACE, RP_IO_ERROR. */
rp_status rp_index_begin_file(rp_index *index, int64_t name, int64_t timestamp_ms, uint64_t phy_offset);
/* End offset of the newest file: records below it have been entered. */
uint64_t rp_index_end(const rp_index *index);
/* Limit the end offset of the newest file to `phy_offset`. (An end offset beyond the log is damage: no further record
 * would be indexed.) */
void rp_index_limit(rp_index *index, uint64_t phy_offset);
/* Sync full files; *timestamp_ms is set to the end timestamp of the newest of them, if any. Another thread may call
 * this. */
rp_status rp_index_sync_full(rp_index *index, int64_t *timestamp_ms);
/* Sync everything; only in the writer's thread. */
rp_status rp_index_sync(rp_index *index);

/* For the repair of a file after a power failure (rocketpy/store/recovery/index_repair.py): the number after the last
 * unit below `count` that is consistent and of a record below `phy_limit`. Units are in the order of the log, as are
 * those that were indexed again. `newest`, slot_num zeros of 4 bytes: becomes the right values of the slots. */
uint32_t rp_index_follow(const uint8_t *image, uint32_t slot_num, uint32_t count, uint64_t phy_limit, uint8_t *newest);

/* The hashes under which a record is in the index: of topic#UNIQ_KEY, then of topic#key for the first
 * RP_INDEX_KEYS_MAX of KEYS. */

/* An iterator. Large: keep it outside of the stack. */
typedef struct rp_key_hashes {
    rp_keys keys; /* into the properties */
    uint32_t prefix_size;
    uint32_t room;
    int is_cut_short; /* there are more keys than the index takes */
    uint8_t text[RP_TOPIC_SIZE_V2_MAX + 1 + RP_PROPERTIES_SIZE_MAX];
} rp_key_hashes;

/* 1 if the index takes the keys of such a record: all but rollbacks and records without properties. */
int rp_key_hashes_wants(int32_t sys_flag, uint32_t properties_size);
/* Begin with the keys of a record; the properties are borrowed until the end. */
void rp_key_hashes_begin(rp_key_hashes *hashes, const uint8_t *topic, uint32_t topic_size, const uint8_t *properties,
                         uint32_t properties_size);
/* 1 with *hash; 0 at the end. */
int rp_key_hashes_next(rp_key_hashes *hashes, int32_t *hash);
#endif
