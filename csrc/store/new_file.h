#ifndef ROCKETPY_NEW_FILE_H
#define ROCKETPY_NEW_FILE_H
/* Files that appear whole: filled while they have no name (or another one, outside their directory), then linked in.
 * Nobody, and no Java loader after a crash, ever finds a partial one; an existing file is never replaced. For C only.
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
/* Start a file that is to live in `directory`; where unnamed files are not supported it is built as
 * `directory`.new.PID. */
rp_status rp_new_file_begin(rp_new_file *file, const char *directory);
/* Give it `size` bytes: with `reserve` blocks for all of them, else sparse. */
rp_status rp_new_file_size(rp_new_file *file, uint64_t size, int reserve);
/* Show it at `path`; RP_FULL if there is one already. The descriptor stays open in file->fd on RP_OK, else is closed.
 */
rp_status rp_new_file_finish(rp_new_file *file, const char *path);
/* Give it up; errno stays that of what failed. */
void rp_new_file_abandon(rp_new_file *file);
/* Write all of `size` bytes at `offset`. */
rp_status rp_write_at(int fd, const void *data, uint64_t size, uint64_t offset);
/* mkdir -p; 0 or -1 with errno. */
int rp_make_directories(const char *path);
#endif
