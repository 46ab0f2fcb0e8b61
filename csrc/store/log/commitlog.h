#ifndef ROCKETPY_COMMITLOG_H
#define ROCKETPY_COMMITLOG_H
/* The CommitLog, as its single writer has it. log_view.h reads it. */
#include <stdint.h>
#include "base/status.h"
#include "store/control/control_block.h"

typedef struct rp_commitlog rp_commitlog; /* the writer; in the send worker only */

/* Open for appending at control->published_phy_offset; bytes after it (an incomplete record) are zeroed. NULL with
 * errno. */
rp_commitlog *rp_commitlog_open(const char *directory, rp_control *control);
void rp_commitlog_close(rp_commitlog *log);
/* Reserve `size` contiguous bytes at *phy_offset. If the rest of the file is smaller than size + 8, write a blank and
 * continue in the next file. Encode into *at, then publish.
 * Returns RP_OK; RP_TOO_LARGE (size + 8 > file size); RP_NO_SPACE, RP_IO_ERROR: the next file cannot be created;
 * nothing has changed. */
rp_status rp_commitlog_reserve(rp_commitlog *log, uint32_t size, uint8_t **at, uint64_t *phy_offset);
/* Publish the `size` bytes of the last reservation: move the published position past them (release store). */
void rp_commitlog_publish(rp_commitlog *log, uint32_t size, int64_t store_timestamp_ms);
/* For a log that is received from a master: *at, the place of the log's end at *phy_offset, and *room, the bytes from
 * there to the end of the file. Fill some of it (rp_commitlog_write) with whole records, or with a blank that fills all
 * of it, then publish them. Returns RP_OK; RP_NO_SPACE, RP_IO_ERROR as rp_commitlog_reserve. */
rp_status rp_commitlog_window(rp_commitlog *log, uint8_t **at, uint64_t *phy_offset, uint64_t *room);
/* Put `size` bytes into the room of the last window, `skip` bytes past the log's end. RP_OK; RP_NO_SPACE, RP_IO_ERROR
 * with errno: some of them may be there; write them again later. */
rp_status rp_commitlog_write(rp_commitlog *log, uint64_t skip, const uint8_t *data, uint64_t size);
/* Let an empty log begin at `phy_offset`, the start of a file. RP_OK; RP_INVALID: it is not empty, or not a start. */
rp_status rp_commitlog_begin_at(rp_commitlog *log, uint64_t phy_offset);
/* How often the log has continued in a new file since the last call. */
uint32_t rp_commitlog_take_rolls(rp_commitlog *log);
#endif
