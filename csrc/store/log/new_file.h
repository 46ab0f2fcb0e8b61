#ifndef ROCKETPY_NEW_FILE_H
#define ROCKETPY_NEW_FILE_H
/* Creates files that appear complete: they are filled while they have no name (or a name outside of their directory),
 * then linked into it. So no process, and no Java broker after a crash, ever finds a partial file. An existing file is
 * never replaced. C only.
 */
#include <limits.h>
#include <stdint.h>
#include "base/status.h"

typedef struct rp_new_file {
    int fd;
    char aside[PATH_MAX]; /* empty: the file has no name yet (O_TMPFILE) */
} rp_new_file;

/* The status of the current errno: RP_NO_SPACE, RP_NO_MEMORY, else RP_IO_ERROR. */
rp_status rp_status_of_errno(void);
/* Begin a file for `directory`; built as `directory`.new.PID if the file system does not support unnamed files. */
rp_status rp_new_file_begin(rp_new_file *file, const char *directory);
/* Set its size: with `reserve`, all blocks are allocated, else it is sparse. */
rp_status rp_new_file_size(rp_new_file *file, uint64_t size, int reserve);
/* Link it to `path` if it was filled (`status` RP_OK), else give it up; RP_FULL if a file exists there. On RP_OK the
 * descriptor stays open in file->fd, else it is closed, and errno stays that of what failed. */
rp_status rp_new_file_finish(rp_new_file *file, const char *path, rp_status status);
/* Give it up; errno stays that of what failed. */
void rp_new_file_abandon(rp_new_file *file);
/* Close a descriptor; errno stays that of what failed. */
void rp_close_after(int fd);
/* fsync a file or directory; a missing one was deleted meanwhile. RP_OK; RP_IO_ERROR with errno. */
rp_status rp_sync_path(const char *path);
/* Read up to `size` bytes at `offset`, fewer at the end of the file. Returns their number; -1 with errno. */
int64_t rp_read_at(int fd, void *data, uint64_t size, uint64_t offset);
/* Write all of `size` bytes at `offset`. */
rp_status rp_write_at(int fd, const void *data, uint64_t size, uint64_t offset);
/* mkdir -p; 0 or -1 with errno. */
int rp_make_directories(const char *path);
#endif
