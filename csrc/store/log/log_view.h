#ifndef ROCKETPY_LOG_VIEW_H
#define ROCKETPY_LOG_VIEW_H
/* Reads the CommitLog: read-only mappings of its files, a few per process, reference-counted. The least recently used
 * is unmapped first. A mapping outlives the name of its file: a slice in use stays readable when cleaning deletes the
 * file. Single-threaded: one view per thread that reads. */
#include <stdint.h>
#include "store/log/record.h"

typedef struct rp_log_view rp_log_view;

rp_log_view *rp_log_view_open(const char *directory, uint64_t file_size, uint32_t mappings_max);
void rp_log_view_close(rp_log_view *view);
/* Before the first acquire: read from the disk only the pages of slices that are acquired, none around them. A read
 * begins when its slice is acquired, and the caller waits for it at its first access. */
void rp_log_view_read_exactly(rp_log_view *view);
/* `size` bytes at `phy_offset`, in one file. Each call needs one release of the mapping. NULL with errno: ENOENT, the
 * file does not exist; EINVAL, the bytes are not in one file, or the file has a wrong size; other errors are not about
 * the file. */
const uint8_t *rp_log_view_acquire(rp_log_view *view, uint64_t phy_offset, uint64_t size);
/* The record at `phy_offset`, which has to carry this offset and end at or below `end`, the end of the log. 1: `record`
 * points into the mapping, which needs a release; 0: there is none, or it cannot be read now. */
int rp_log_view_record(rp_log_view *view, uint64_t phy_offset, uint64_t end, rp_record_view *record);
/* 1 if an errno of rp_log_view_acquire means that the log has no such bytes. 0: they may be read another time. */
int rp_log_view_is_missing(int error);
void rp_log_view_release(rp_log_view *view, uint64_t phy_offset);
/* Unmap unused files below `min_phy_offset`: a deleted file keeps its disk space while it is mapped. Call it about once
 * a minute with control->min_phy_offset. */
void rp_log_view_trim(rp_log_view *view, uint64_t min_phy_offset);
/* Unmap unused files that are gone, without the control block. Returns `now_ns` of the call that first found a file in
 * use deleted, the earliest of several; 0: none. NULL: does nothing. */
uint64_t rp_log_view_trim_deleted(rp_log_view *view, uint64_t now_ns);
/* That time, for the file that contains this offset; 0: it was not found deleted. */
uint64_t rp_log_view_deleted_ns(rp_log_view *view, uint64_t phy_offset);
/* [from, to) of one file will not be read again soon: release its page table entries. */
void rp_log_view_drop_pages(rp_log_view *view, uint64_t from, uint64_t to);
#endif
