#ifndef ROCKETPY_COMMITLOG_H
#define ROCKETPY_COMMITLOG_H
/* The CommitLog: its single writer, and read-only views. */
#include <stdint.h>
#include "base/status.h"
#include "store/control_block.h"

typedef struct rp_commitlog rp_commitlog; /* the writer; in the send worker only */
typedef struct rp_log_view rp_log_view;   /* read-only mappings, per process */

/* Open for appending at control->published_phy_offset; bytes behind it (an incomplete record) are zeroed. NULL with
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
 * there to the end of the file. Fill some of it with whole records, or with a blank that fills all of it, then publish
 * them. Returns RP_OK; RP_NO_SPACE, RP_IO_ERROR as rp_commitlog_reserve. */
rp_status rp_commitlog_window(rp_commitlog *log, uint8_t **at, uint64_t *phy_offset, uint64_t *room);
/* Let an empty log begin at `phy_offset`, the start of a file. RP_OK; RP_INVALID: it is not empty, or not a start. */
rp_status rp_commitlog_begin_at(rp_commitlog *log, uint64_t phy_offset);
/* How often the log has continued in a new file since the last call. */
uint32_t rp_commitlog_take_rolls(rp_commitlog *log);

rp_log_view *rp_log_view_open(const char *directory, uint64_t file_size, uint32_t mappings_max);
void rp_log_view_close(rp_log_view *view);
/* `size` bytes at `phy_offset`, in one file. Each call needs one release of the mapping. NULL with errno: ENOENT, the
 * file does not exist; EINVAL, the bytes are not in one file, or the file has a wrong size; other errors are not about
 * the file.
 */
const uint8_t *rp_log_view_acquire(rp_log_view *view, uint64_t phy_offset, uint64_t size);
void rp_log_view_release(rp_log_view *view, uint64_t phy_offset);
/* Unmap unused files below `min_phy_offset`: a deleted file keeps its disk space while it is mapped. Call it about once
 * a minute with control->min_phy_offset. */
void rp_log_view_trim(rp_log_view *view, uint64_t min_phy_offset);
/* The same for processes without the control block: checks whether the files still exist. Returns `now_ns` of the call
 * that first found a file in use deleted, the earliest of several; 0: none. NULL: does nothing. */
uint64_t rp_log_view_trim_deleted(rp_log_view *view, uint64_t now_ns);
/* The same for the file that contains this offset; 0: it was not found deleted. */
uint64_t rp_log_view_deleted_ns(rp_log_view *view, uint64_t phy_offset);
/* [from, to) of one file will not be read again soon: release its page table entries. */
void rp_log_view_drop_pages(rp_log_view *view, uint64_t from, uint64_t to);
#endif
