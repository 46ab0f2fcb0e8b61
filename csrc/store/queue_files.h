#ifndef ROCKETPY_QUEUE_FILES_H
#define ROCKETPY_QUEUE_FILES_H
/* The files of all queues below one directory: "<directory>/<topic>/<queue id>/<20 digits: start in bytes>", each of
 * its full size and sparse from the moment that it has a name. Descriptors are kept in a bounded cache; what must be
 * synced is kept as a set of (queue, file), so that a flush thread can take it: each file is synced by itself, and the
 * directories of those that were created or removed. Above 256 files one syncfs is faster than as many syncs
 * (docs/adr/0059), and covers everything.
 *
 * For C only: what is in the files is known to consume_queue.c and consume_queue_ext.c. */
#include <stdint.h>
#include "store/control_block.h"
#include "store/new_file.h"
#include "base/status.h"

typedef struct rp_queue_files rp_queue_files;

/* At most `files_max` descriptors. NULL with errno. */
rp_queue_files *rp_queue_files_open(rp_control_block *block, const char *directory, uint64_t file_size,
                                    uint32_t files_max, int is_writer);
void rp_queue_files_close(rp_queue_files *files);
/* The descriptor of a queue's file `number` (which starts at number * file_size); the cache's, so good until the next
 * call. -1 with errno (ENOENT: there is no such file). */
int rp_queue_files_find(rp_queue_files *files, const rp_queue *queue, uint64_t number);
/* Close files that were removed, some at a time: with a call a second, none stays open for more than half a minute. */
void rp_queue_files_release(rp_queue_files *files);
/* Start a file that is to be a queue's: of full size, to be filled through file->fd while nobody sees it. */
rp_status rp_queue_files_begin(const rp_queue_files *files, const rp_queue *queue, rp_new_file *file);
/* End what was begun: shown as file `number` if it was filled (`status` RP_OK), else abandoned. Returns `status`, or
 * why it could not be shown. */
rp_status rp_queue_files_finish(rp_queue_files *files, const rp_queue *queue, uint64_t number, rp_new_file *file,
                                rp_status status);
/* Write into a file that is there, and remember that it must be synced. */
rp_status rp_queue_files_write(rp_queue_files *files, const rp_queue *queue, uint64_t number, int fd, const void *data,
                               uint64_t size, uint64_t at);
/* Remove one file. RP_OK; RP_NOT_FOUND: it is not there. */
rp_status rp_queue_files_remove_one(rp_queue_files *files, const rp_queue *queue, uint64_t number);
/* Remove all files of the queue, its directory, and the topic's if that was its last queue. */
rp_status rp_queue_files_remove(rp_queue_files *files, const rp_queue *queue);
/* The number of the queue's last file, or -1 if it has none. RP_OK; RP_IO_ERROR. */
rp_status rp_queue_files_last(const rp_queue_files *files, const rp_queue *queue, int64_t *number);
/* Bring to the disk what was written before the call. The only call that another thread may make. */
rp_status rp_queue_files_sync(rp_queue_files *files);
#endif
