/* See consume_queue.h. Files: "<directory>/<topic>/<queue id>/<20 digits: start in bytes>", full size from creation,
 * sparse, zero behind the last unit.
 *
 * An empty file, or one with nothing but pre-blank units, would make a Java broker count units that are not there:
 * a file is therefore linked into its directory only after its first real units are in it.
 *
 * What must be synced is kept as a list of (queue, file) under a lock, so that a flush thread can take it; when too
 * much is dirty, or files were created (directories must reach the disk, too), one syncfs covers everything. */
#define _GNU_SOURCE
#include "consume_queue.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "atomic.h"
#include "endian.h"
#include "file_cache.h"
#include "new_file.h"

enum { DIRTY_MAX = 64, BLANKS_PER_WRITE = 256 };

/* "<directory>/<topic>/<queue id>", with the file's name behind it unless `start` is UINT64_MAX. 0, or -1. */
static int queue_path(char *out, const rp_control_block *block, const char *directory, const rp_queue *queue, uint64_t start) {
    const uint8_t *topic;
    int topic_size = (int)rp_control_topic(block, queue->topic, &topic);
    int size = start == UINT64_MAX
        ? snprintf(out, PATH_MAX, "%s/%.*s/%" PRIu32, directory, topic_size, (const char *)topic, queue->queue_id)
        : snprintf(out, PATH_MAX, "%s/%.*s/%" PRIu32 "/%020" PRIu64, directory, topic_size, (const char *)topic,
                   queue->queue_id, start);
    if (size >= 0 && size < PATH_MAX) return 0;
    errno = ENAMETOOLONG;
    return -1;
}

static rp_file_key file_key(const rp_control_block *block, const rp_queue *queue, uint64_t number) {
    return (rp_file_key){.queue = rp_control_queue_index(block, queue),
                         .generation = (uint32_t)rp_load_acquire(&queue->generation), .number = number};
}

struct rp_cq_reader {
    rp_control_block *block;
    char *directory;
    uint64_t file_size;
    rp_file_cache *files;
};

rp_cq_reader *rp_cq_reader_open(rp_control_block *block, const char *directory, uint64_t file_size, uint32_t files_max) {
    rp_cq_reader *reader = calloc(1, sizeof *reader);
    if (!reader) return NULL;
    reader->block = block;
    reader->file_size = file_size;
    reader->directory = strdup(directory);
    reader->files = rp_file_cache_open(files_max);
    if (reader->directory && reader->files) return reader;
    rp_cq_reader_close(reader);
    errno = ENOMEM;
    return NULL;
}

void rp_cq_reader_close(rp_cq_reader *reader) {
    if (!reader) return;
    rp_file_cache_close(reader->files);
    free(reader->directory);
    free(reader);
}

int32_t rp_cq_read(rp_cq_reader *reader, const rp_queue *queue, uint64_t offset, uint32_t count, uint8_t *units) {
    uint64_t max = rp_load_acquire(&queue->max_offset), min = rp_load_acquire(&queue->min_offset);
    uint64_t per_file = reader->file_size / RP_CQ_UNIT_SIZE, at = offset % per_file;
    if (offset < min || offset >= max) return 0;
    if (count > max - offset) count = (uint32_t)(max - offset);
    if (count > per_file - at) count = (uint32_t)(per_file - at);
    rp_file_key key = file_key(reader->block, queue, offset / per_file);
    int fd = rp_file_cache_find(reader->files, key);
    if (fd < 0) {
        char path[PATH_MAX];
        if (queue_path(path, reader->block, reader->directory, queue, key.number * reader->file_size) < 0) return -1;
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) return errno == ENOENT ? 0 : -1;
        rp_file_cache_put(reader->files, key, fd);
    }
    uint64_t size = (uint64_t)count * RP_CQ_UNIT_SIZE, done = 0;
    while (done < size) {
        ssize_t n = pread(fd, units + done, size - done, (off_t)(at * RP_CQ_UNIT_SIZE + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        if (n == 0) break;
        done += (uint64_t)n;
    }
    return (int32_t)(done / RP_CQ_UNIT_SIZE);
}

struct dirty_file {
    uint32_t queue;
    uint64_t start;
};

struct rp_cq_writer {
    rp_control_block *block;
    char *directory;
    uint64_t file_size;
    rp_file_cache *files;
    pthread_mutex_t lock; /* over what follows; the writer adds, a flush thread takes */
    struct dirty_file dirty[DIRTY_MAX];
    uint32_t dirty_count;
    int dirty_all; /* more than the list holds, or new names */
};

rp_cq_writer *rp_cq_writer_open(rp_control_block *block, const char *directory, uint64_t file_size, uint32_t files_max) {
    rp_cq_writer *writer = calloc(1, sizeof *writer);
    if (!writer) return NULL;
    writer->block = block;
    writer->file_size = file_size;
    writer->dirty_all = 1; /* whatever a predecessor wrote and did not sync */
    pthread_mutex_init(&writer->lock, NULL);
    writer->directory = strdup(directory);
    writer->files = rp_file_cache_open(files_max);
    if (writer->directory && writer->files) return writer;
    rp_cq_writer_close(writer);
    errno = ENOMEM;
    return NULL;
}

void rp_cq_writer_close(rp_cq_writer *writer) {
    if (!writer) return;
    rp_file_cache_close(writer->files);
    pthread_mutex_destroy(&writer->lock);
    free(writer->directory);
    free(writer);
}

static void mark_dirty(rp_cq_writer *writer, uint32_t queue, uint64_t start, int is_new) {
    pthread_mutex_lock(&writer->lock);
    if (is_new) writer->dirty_all = 1;
    for (uint32_t i = 0; !writer->dirty_all && i <= writer->dirty_count; i++) {
        if (i == DIRTY_MAX) {
            writer->dirty_all = 1;
        } else if (i == writer->dirty_count) {
            writer->dirty[writer->dirty_count++] = (struct dirty_file){queue, start};
            break;
        } else if (writer->dirty[i].queue == queue && writer->dirty[i].start == start) {
            break;
        }
    }
    pthread_mutex_unlock(&writer->lock);
}

/* Pre-blank units in the first `count` places. */
static rp_status write_blanks(int fd, uint64_t count) {
    uint8_t blanks[BLANKS_PER_WRITE * RP_CQ_UNIT_SIZE] = {0};
    rp_status status = RP_OK;
    for (uint32_t i = 0; i < BLANKS_PER_WRITE; i++) rp_store32(blanks + i * RP_CQ_UNIT_SIZE + 8, INT32_MAX);
    for (uint64_t at = 0; at < count && status == RP_OK; at += BLANKS_PER_WRITE) {
        uint64_t n = count - at < BLANKS_PER_WRITE ? count - at : BLANKS_PER_WRITE;
        status = rp_write_at(fd, blanks, n * RP_CQ_UNIT_SIZE, at * RP_CQ_UNIT_SIZE);
    }
    return status;
}

/* Make the file at `path` with its first units, the first of them in place `at`. Its descriptor goes to the cache. */
static rp_status create_file(rp_cq_writer *writer, const rp_queue *queue, rp_file_key key, const char *path, uint64_t at,
                             uint32_t count, const uint8_t *units) {
    char directory[PATH_MAX];
    rp_new_file file;
    if (queue_path(directory, writer->block, writer->directory, queue, UINT64_MAX) < 0) return RP_IO_ERROR;
    if (rp_make_directories(directory) < 0) return rp_status_of_errno();
    rp_status status = rp_new_file_begin(&file, directory);
    if (status != RP_OK) return status;
    status = rp_new_file_size(&file, writer->file_size, 0);
    if (status == RP_OK) status = write_blanks(file.fd, at);
    if (status == RP_OK) status = rp_write_at(file.fd, units, (uint64_t)count * RP_CQ_UNIT_SIZE, at * RP_CQ_UNIT_SIZE);
    if (status != RP_OK) {
        int error = errno;
        rp_new_file_abandon(&file);
        errno = error;
        return status;
    }
    status = rp_new_file_finish(&file, path);
    if (status == RP_OK) rp_file_cache_put(writer->files, key, file.fd);
    return status == RP_FULL ? RP_IO_ERROR : status;
}

/* The part of a write that lies in one file. */
static rp_status write_in_file(rp_cq_writer *writer, const rp_queue *queue, uint64_t number, uint64_t at, uint32_t count,
                               const uint8_t *units) {
    char path[PATH_MAX];
    rp_file_key key = file_key(writer->block, queue, number);
    uint64_t start = number * writer->file_size;
    rp_status status;
    int fd = rp_file_cache_find(writer->files, key), is_new = 0;
    if (fd < 0) {
        if (queue_path(path, writer->block, writer->directory, queue, start) < 0) return RP_IO_ERROR;
        fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0 && errno != ENOENT) return rp_status_of_errno();
        if (fd >= 0) rp_file_cache_put(writer->files, key, fd);
        else is_new = 1;
    }
    if (is_new) status = create_file(writer, queue, key, path, at, count, units);
    else status = rp_write_at(fd, units, (uint64_t)count * RP_CQ_UNIT_SIZE, at * RP_CQ_UNIT_SIZE);
    if (status == RP_OK) mark_dirty(writer, key.queue, start, is_new);
    return status;
}

rp_status rp_cq_write(rp_cq_writer *writer, const rp_queue *queue, uint64_t offset, uint32_t count, const uint8_t *units) {
    uint64_t per_file = writer->file_size / RP_CQ_UNIT_SIZE;
    rp_status status = RP_OK;
    while (count && status == RP_OK) {
        uint64_t at = offset % per_file;
        uint32_t n = count < per_file - at ? count : (uint32_t)(per_file - at);
        status = write_in_file(writer, queue, offset / per_file, at, n, units);
        offset += n;
        count -= n;
        units += (uint64_t)n * RP_CQ_UNIT_SIZE;
    }
    return status;
}

rp_status rp_cq_remove(rp_cq_writer *writer, const rp_queue *queue) {
    char path[PATH_MAX];
    rp_status status = RP_OK;
    if (queue_path(path, writer->block, writer->directory, queue, UINT64_MAX) < 0) return RP_IO_ERROR;
    DIR *directory = opendir(path);
    if (!directory) return errno == ENOENT ? RP_OK : RP_IO_ERROR;
    for (struct dirent *entry; (entry = readdir(directory));)
        if (entry->d_name[0] != '.' && unlinkat(dirfd(directory), entry->d_name, 0) < 0) status = RP_IO_ERROR;
    closedir(directory);
    if (rmdir(path) < 0) return RP_IO_ERROR;
    *strrchr(path, '/') = 0;
    rmdir(path); /* the topic's directory, if this was its last queue */
    pthread_mutex_lock(&writer->lock);
    writer->dirty_all = 1;
    pthread_mutex_unlock(&writer->lock);
    return status;
}

static rp_status sync_file_system(const char *directory) {
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT ? RP_OK : RP_IO_ERROR;
    int failed = syncfs(fd) < 0, error = errno;
    close(fd);
    errno = error;
    return failed ? rp_status_of_errno() : RP_OK;
}

static rp_status sync_file(rp_cq_writer *writer, const struct dirty_file *file) {
    char path[PATH_MAX];
    const rp_queue *queue = rp_control_queue(writer->block, file->queue);
    if (queue_path(path, writer->block, writer->directory, queue, file->start) < 0) return RP_IO_ERROR;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT ? RP_OK : RP_IO_ERROR; /* deleted meanwhile */
    int failed = fdatasync(fd) < 0, error = errno;
    close(fd);
    errno = error;
    return failed ? rp_status_of_errno() : RP_OK;
}

rp_status rp_cq_writer_sync(rp_cq_writer *writer) {
    struct dirty_file dirty[DIRTY_MAX];
    rp_status status = RP_OK;
    pthread_mutex_lock(&writer->lock);
    uint32_t count = writer->dirty_count;
    int all = writer->dirty_all;
    memcpy(dirty, writer->dirty, count * sizeof *dirty);
    writer->dirty_count = 0;
    writer->dirty_all = 0;
    pthread_mutex_unlock(&writer->lock);
    if (all) status = sync_file_system(writer->directory);
    for (uint32_t i = 0; !all && i < count && status == RP_OK; i++) status = sync_file(writer, &dirty[i]);
    if (status != RP_OK) { /* it all is still to be done */
        pthread_mutex_lock(&writer->lock);
        writer->dirty_all = 1;
        pthread_mutex_unlock(&writer->lock);
    }
    return status;
}
