#ifndef ROCKETPY_QUEUE_FILES_H
#define ROCKETPY_QUEUE_FILES_H
/* The files of all queues below one directory: "<directory>/<topic>/<queue id>/<20 digits: start in bytes>". Each has
 * its full size, sparse, from the moment that it has a name. Descriptors are kept in a bounded cache. Changed files are
 * kept as a set of (queue, file) for the flush thread, which syncs each of them, and the directories of created and
 * removed files. Above 256 files one syncfs is faster than single syncs (docs/adr/0055), and covers all of them.
 *
 * C only. consume_queue.c and consume_queue_ext.c know the content of the files. */
#include <stdint.h>
#include "base/status.h"
#include "store/control/control_block.h"
#include "store/log/new_file.h"

typedef struct rp_queue_files rp_queue_files;

/* At most `files_max` descriptors. NULL with errno. */
rp_queue_files *rp_queue_files_open(rp_control_block *block, const char *directory, uint64_t file_size,
                                    uint32_t files_max, int is_writer);
void rp_queue_files_close(rp_queue_files *files);
uint64_t rp_queue_files_size(const rp_queue_files *files); /* of each file, in bytes */
/* The descriptor of a queue's file `number` (which starts at number * file_size). It belongs to the cache and is valid
 * until the next call. -1 with errno (ENOENT: the file does not exist). */
int rp_queue_files_find(rp_queue_files *files, const rp_queue *queue, uint64_t number);
/* Close removed files, some per call: with one call per second, none stays open for more than half a minute. */
void rp_queue_files_release(rp_queue_files *files);
/* Begin a file of a queue: of full size, to be filled through file->fd before it is visible. */
rp_status rp_queue_files_begin(const rp_queue_files *files, const rp_queue *queue, rp_new_file *file);
/* End a file that was begun: link it as file `number` if it was filled (`status` RP_OK), else discard it. Returns
 * `status`, or the error of the link. */
rp_status rp_queue_files_finish(rp_queue_files *files, const rp_queue *queue, uint64_t number, rp_new_file *file,
                                rp_status status);
/* Write to an existing file, and add it to the set of files to sync. */
rp_status rp_queue_files_write(rp_queue_files *files, const rp_queue *queue, uint64_t number, int fd, const void *data,
                               uint64_t size, uint64_t at);
/* The same through the queue's window (unit_windows.h). Returns 0 if the place is not in it: nothing was written. */
int rp_queue_files_write_mapped(rp_queue_files *files, const rp_queue *queue, uint64_t number, const void *data,
                                uint64_t size, uint64_t at);
/* The queue's window moves to the page after what was just written. */
void rp_queue_files_map_next(rp_queue_files *files, const rp_queue *queue, uint64_t number, int fd, uint64_t size,
                             uint64_t at);
/* Remove one file. RP_OK; RP_NOT_FOUND: it does not exist. */
rp_status rp_queue_files_remove_one(rp_queue_files *files, const rp_queue *queue, uint64_t number);
/* Remove all files of the queue, its directory, and the topic's if that was its last queue. The queue's generation must
 * have been moved before. */
rp_status rp_queue_files_remove(rp_queue_files *files, const rp_queue *queue);
/* The number of the queue's last file, or -1 if it has none. RP_OK; RP_IO_ERROR. */
rp_status rp_queue_files_last(const rp_queue_files *files, const rp_queue *queue, int64_t *number);
/* Sync everything written before the call. The only call that another thread may make. */
rp_status rp_queue_files_sync(rp_queue_files *files);

/* A bounded cache of open descriptors, least recently used closed first. For C only; single-threaded.
 * Keys are three numbers. A removed queue gets another generation, so its stale descriptors are never found again; they
 * age out, or rp_file_cache_release closes them, because an open file keeps its disk space. */

typedef struct rp_file_cache rp_file_cache;
typedef struct rp_file_key {
    uint32_t queue;
    uint32_t generation;
    uint64_t number; /* of the file in its queue */
} rp_file_key;

/* At most `files_max` descriptors, and never more than three quarters of RLIMIT_NOFILE. NULL with errno. */
rp_file_cache *rp_file_cache_open(uint32_t files_max);
void rp_file_cache_close(rp_file_cache *cache);
/* The descriptor, or -1. */
int rp_file_cache_find(rp_file_cache *cache, rp_file_key key);
/* Add an open descriptor; closes the least recently used one when full. */
void rp_file_cache_put(rp_file_cache *cache, rp_file_key key, int fd);
/* Close the descriptor if it is in the cache. */
void rp_file_cache_drop(rp_file_cache *cache, rp_file_key key);
/* Check the next `count` entries, round robin, and close files that were removed from their directories. */
void rp_file_cache_release(rp_file_cache *cache, uint32_t count);
#endif
