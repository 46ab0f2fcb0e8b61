#ifndef ROCKETPY_COMMITLOG_H
#define ROCKETPY_COMMITLOG_H
/* The CommitLog as its single writer sees it, and as anyone reads it. */
#include <stdint.h>
#include "store/control_block.h"
#include "base/status.h"

typedef struct rp_commitlog rp_commitlog; /* the writer; in the send processor only */
typedef struct rp_log_view rp_log_view;   /* read-only mappings, per process */

/* Open for appending at control->published_phy_offset; bytes behind it (a torn record of a predecessor) are zeroed.
 * NULL with errno. */
rp_commitlog *rp_commitlog_open(const char *directory, rp_control *control);
void rp_commitlog_close(rp_commitlog *log);
/* Room for `size` contiguous bytes at *phy_offset, rolling to the next file (after a blank) where the rest of this
 * one does not hold size + 8. Encode straight into *at, then publish.
 * Returns RP_OK; RP_TOO_LARGE (size + 8 > file size); RP_NO_SPACE, RP_IO_ERROR: no next file; nothing has changed. */
rp_status rp_commitlog_reserve(rp_commitlog *log, uint32_t size, uint8_t **at, uint64_t *phy_offset);
/* The `size` bytes at the last reservation are complete: move the published position past them (release). */
void rp_commitlog_publish(rp_commitlog *log, uint32_t size, int64_t store_timestamp_ms);

rp_log_view *rp_log_view_open(const char *directory, uint64_t file_size, uint32_t mappings_max);
void rp_log_view_close(rp_log_view *view);
/* `size` bytes at `phy_offset`, in one file. The mapping stays until as many releases. NULL with errno: ENOENT, the
 * file is not there; EINVAL, they are not in one file, or it has another size; anything else says nothing of the file.
 */
const uint8_t *rp_log_view_acquire(rp_log_view *view, uint64_t phy_offset, uint64_t size);
void rp_log_view_release(rp_log_view *view, uint64_t phy_offset);
/* Unmap files below `min_phy_offset` that nobody holds: a deleted file keeps its disk space while it is mapped.
 * Call it now and then (a minute apart is fine) with control->min_phy_offset. */
void rp_log_view_trim(rp_log_view *view, uint64_t min_phy_offset);
/* The same by looking whether the files still exist, for processes without the control block. Returns when it was first
 * seen (`now_ns` of that call) that a file in use was deleted, the earliest if there are several;
 * 0: none. NULL: nothing. */
uint64_t rp_log_view_trim_deleted(rp_log_view *view, uint64_t now_ns);
/* The same of the file with this offset; 0: it has not been seen to be gone. */
uint64_t rp_log_view_deleted_ns(rp_log_view *view, uint64_t phy_offset);
/* [from, to) of one file will not be read again soon: give its page table entries back. */
void rp_log_view_drop_pages(rp_log_view *view, uint64_t from, uint64_t to);
#endif
