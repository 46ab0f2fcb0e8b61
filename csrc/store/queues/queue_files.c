#define _GNU_SOURCE
#include "store/queues/queue_files.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/atomic.h"
#include "base/crash_point.h"
#include "store/queues/unit_windows.h"

enum { NAME_DIGITS = 20, RELEASE_FILES = 1024 /* looked at per call: half a millisecond */ };
/* A larger set gains nothing over one syncfs. sync_file_range before the syncs would save a fifth of the time. */
enum { DIRTY_MAX = 256, DIRTY_SLOTS = 512 /* a power of two, never more than half full */ };
enum {
    WITH_DATA = 1,
    WITH_NAMES = 2
}; /* what of a file must be synced: what was written; that it is there, or is not */

struct dirty_file {
    uint32_t queue;
    uint32_t what;
    uint64_t number;
};

/* A set of files. When it is full, it stands for all files. */
struct dirty_set {
    struct dirty_file files[DIRTY_MAX];
    uint16_t slots[DIRTY_SLOTS]; /* place in `files` + 1; 0: free */
    uint32_t count;
    int all;
};

struct rp_queue_files {
    rp_control_block *block;
    char *directory;
    uint64_t file_size;
    int is_writer;
    rp_file_cache *cache;
    rp_unit_windows *windows; /* NULL unless it writes */
    pthread_mutex_t lock; /* over what follows; the writer adds, a flush thread takes */
    struct dirty_set dirty;
};

rp_queue_files *rp_queue_files_open(rp_control_block *block, const char *directory, uint64_t file_size,
                                    uint32_t files_max, int is_writer) {
    rp_queue_files *files = calloc(1, sizeof *files);
    if (!files) return NULL;
    files->block = block;
    files->file_size = file_size;
    files->is_writer = is_writer;
    files->dirty.all = 1; /* for writes of an earlier process that were not synced */
    pthread_mutex_init(&files->lock, NULL);
    files->directory = strdup(directory);
    files->cache = rp_file_cache_open(files_max);
    if (is_writer) files->windows = rp_unit_windows_open(0);
    if (files->directory && files->cache && (files->windows || !is_writer)) return files;
    rp_queue_files_close(files);
    errno = ENOMEM;
    return NULL;
}

void rp_queue_files_close(rp_queue_files *files) {
    if (!files) return;
    rp_file_cache_close(files->cache);
    rp_unit_windows_close(files->windows);
    pthread_mutex_destroy(&files->lock);
    free(files->directory);
    free(files);
}

uint64_t rp_queue_files_size(const rp_queue_files *files) { return files->file_size; }

/* "<directory>/<topic>/<queue id>", with the file's name after it unless `number` is UINT64_MAX. 0, or -1. */
static int queue_path(const rp_queue_files *files, const rp_queue *queue, uint64_t number, char *out) {
    const uint8_t *topic;
    int topic_size = (int)rp_control_topic(files->block, queue->topic, &topic);
    int size = number == UINT64_MAX
                   ? snprintf(out, PATH_MAX, "%s/%.*s/%" PRIu32, files->directory, topic_size, (const char *)topic,
                              queue->queue_id)
                   : snprintf(out, PATH_MAX, "%s/%.*s/%" PRIu32 "/%020" PRIu64, files->directory, topic_size,
                              (const char *)topic, queue->queue_id, number * files->file_size);
    if (size >= 0 && size < PATH_MAX) return 0;
    errno = ENAMETOOLONG;
    return -1;
}

static rp_file_key file_key(const rp_queue_files *files, const rp_queue *queue, uint64_t number) {
    return (rp_file_key){.queue = rp_control_queue_index(files->block, queue),
                         .generation = (uint32_t)rp_load_acquire(&queue->generation),
                         .number = number};
}

/* Reads do not update the access time (O_NOATIME, allowed for the owner): the first read after each write would dirty
 * the inode, and sometimes wait for the journal. */
static int open_file(const char *path, int is_writer) {
    int fd = open(path, is_writer ? O_RDWR | O_CLOEXEC : O_RDONLY | O_CLOEXEC | O_NOATIME);
    return fd < 0 && errno == EPERM && !is_writer ? open(path, O_RDONLY | O_CLOEXEC) : fd;
}

int rp_queue_files_find(rp_queue_files *files, const rp_queue *queue, uint64_t number) {
    char path[PATH_MAX];
    rp_file_key key = file_key(files, queue, number);
    int fd = rp_file_cache_find(files->cache, key);
    if (fd >= 0) return fd;
    if (queue_path(files, queue, number, path) < 0) return -1;
    fd = open_file(path, files->is_writer);
    if (fd >= 0) rp_file_cache_put(files->cache, key, fd);
    return fd;
}

void rp_queue_files_release(rp_queue_files *files) { rp_file_cache_release(files->cache, RELEASE_FILES); }

/* ---- writing ---- */

static void add_dirty(struct dirty_set *dirty, uint32_t queue, uint64_t number, uint32_t what) {
    uint32_t at = queue * 2654435761u ^ (uint32_t)number * 40503u;
    if (dirty->all) return;
    for (at ^= at >> 16;; at++) {
        uint16_t *slot = &dirty->slots[at % DIRTY_SLOTS];
        struct dirty_file *file = *slot ? &dirty->files[*slot - 1] : NULL;
        if (file && (file->queue != queue || file->number != number)) continue;
        if (file) {
            file->what |= what;
        } else if (dirty->count == DIRTY_MAX) {
            dirty->all = 1;
        } else {
            dirty->files[dirty->count++] = (struct dirty_file){queue, what, number};
            *slot = (uint16_t)dirty->count;
        }
        return;
    }
}

static void mark_dirty(rp_queue_files *files, const rp_queue *queue, uint64_t number, uint32_t what) {
    pthread_mutex_lock(&files->lock);
    add_dirty(&files->dirty, rp_control_queue_index(files->block, queue), number, what);
    pthread_mutex_unlock(&files->lock);
}

rp_status rp_queue_files_begin(const rp_queue_files *files, const rp_queue *queue, rp_new_file *file) {
    char directory[PATH_MAX];
    if (queue_path(files, queue, UINT64_MAX, directory) < 0) return RP_IO_ERROR;
    if (rp_make_directories(directory) < 0) return rp_status_of_errno();
    rp_status status = rp_new_file_begin(file, directory);
    if (status != RP_OK) return status;
    status = rp_new_file_size(file, files->file_size, 0);
    if (status == RP_OK) return RP_OK;
    rp_new_file_abandon(file);
    return status;
}

rp_status rp_queue_files_finish(rp_queue_files *files, const rp_queue *queue, uint64_t number, rp_new_file *file,
                                rp_status status) {
    char path[PATH_MAX];
    if (status == RP_OK && queue_path(files, queue, number, path) < 0) status = RP_IO_ERROR;
    status = rp_new_file_finish(file, path, status);
    if (status != RP_OK) return status == RP_FULL ? RP_IO_ERROR : status;
    rp_file_cache_put(files->cache, file_key(files, queue, number), file->fd);
    rp_unit_windows_drop(files->windows, rp_control_queue_index(files->block, queue));
    mark_dirty(files, queue, number, WITH_DATA | WITH_NAMES);
    return RP_OK;
}

rp_status rp_queue_files_write(rp_queue_files *files, const rp_queue *queue, uint64_t number, int fd, const void *data,
                               uint64_t size, uint64_t at) {
    rp_status status = rp_write_at(fd, data, size, at);
    if (status == RP_OK) mark_dirty(files, queue, number, WITH_DATA);
    return status;
}

int rp_queue_files_write_mapped(rp_queue_files *files, const rp_queue *queue, uint64_t number, const void *data,
                                uint64_t size, uint64_t at) {
    uint32_t index = rp_control_queue_index(files->block, queue);
    if (!rp_unit_windows_write(files->windows, index, number * files->file_size + at, data, size)) return 0;
    mark_dirty(files, queue, number, WITH_DATA);
    return 1;
}

void rp_queue_files_map_next(rp_queue_files *files, const rp_queue *queue, uint64_t number, int fd, uint64_t size,
                             uint64_t at) {
    rp_unit_windows_follow(files->windows, rp_control_queue_index(files->block, queue), fd, number * files->file_size,
                           files->file_size, at, size);
}

/* ---- removing ---- */

rp_status rp_queue_files_remove_one(rp_queue_files *files, const rp_queue *queue, uint64_t number) {
    char path[PATH_MAX];
    if (queue_path(files, queue, number, path) < 0) return RP_IO_ERROR;
    rp_file_cache_drop(files->cache, file_key(files, queue, number));
    rp_unit_windows_drop(files->windows, rp_control_queue_index(files->block, queue));
    if (unlink(path) < 0) return errno == ENOENT ? RP_NOT_FOUND : RP_IO_ERROR;
    mark_dirty(files, queue, number, WITH_NAMES);
    return RP_OK;
}

rp_status rp_queue_files_remove(rp_queue_files *files, const rp_queue *queue) {
    char path[PATH_MAX];
    rp_status status = RP_OK;
    int error = 0;
    if (queue_path(files, queue, UINT64_MAX, path) < 0) return RP_IO_ERROR;
    rp_unit_windows_drop(files->windows, rp_control_queue_index(files->block, queue));
    DIR *directory = opendir(path);
    if (!directory) return errno == ENOENT ? RP_OK : RP_IO_ERROR;
    for (struct dirent *entry; (entry = readdir(directory));) {
        RP_CRASH_POINT("queue.remove_file");
        if (entry->d_name[0] == '.' || unlinkat(dirfd(directory), entry->d_name, 0) == 0 || errno == ENOENT) continue;
        status = RP_IO_ERROR;
        error = errno;
    }
    closedir(directory);
    RP_CRASH_POINT("queue.remove_directory");
    mark_dirty(files, queue, 0, WITH_NAMES);
    if (rmdir(path) < 0) { /* an unknown file may be in it: then the directory stays */
        int is_left = errno == ENOTEMPTY || errno == EEXIST;
        if (status != RP_OK) errno = error;
        return status != RP_OK || is_left ? status : RP_IO_ERROR;
    }
    *strrchr(path, '/') = 0;
    rmdir(path); /* the topic's directory, if this was its last queue */
    return RP_OK; /* the directory is gone, and so is all that was in it */
}

rp_status rp_queue_files_last(const rp_queue_files *files, const rp_queue *queue, int64_t *number) {
    char path[PATH_MAX];
    *number = -1;
    if (queue_path(files, queue, UINT64_MAX, path) < 0) return RP_IO_ERROR;
    DIR *directory = opendir(path);
    if (!directory) return errno == ENOENT ? RP_OK : RP_IO_ERROR;
    for (struct dirent *entry; (entry = readdir(directory));) {
        char *end;
        uint64_t start = strtoull(entry->d_name, &end, 10);
        if (*end || end - entry->d_name != NAME_DIGITS || start > INT64_MAX || start % files->file_size) continue;
        if ((int64_t)(start / files->file_size) > *number) *number = (int64_t)(start / files->file_size);
    }
    closedir(directory);
    return RP_OK;
}

/* ---- syncing ---- */

/* Sync one file or directory (`sync` fdatasync, fsync), or its file system (syncfs). A missing one was deleted
 * meanwhile; then its directory is in the set. Data that a sync could not write may be lost, although the kernel marks
 * it clean from then on. */
static rp_status sync_path(const rp_queue_files *files, const char *path, int (*sync)(int fd)) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT ? RP_OK : RP_IO_ERROR;
    rp_status status = sync(fd) < 0 ? rp_status_of_errno() : RP_OK;
    if (status != RP_OK) rp_store_release(&rp_control_header(files->block)->units_lost, 1);
    rp_close_after(fd);
    return status;
}

/* Sync the directories of the queue and of its topic; skip the topic if it is `topic`, which was just synced. */
static rp_status sync_names(const rp_queue_files *files, const rp_queue *queue, uint32_t *topic) {
    char path[PATH_MAX];
    if (queue_path(files, queue, UINT64_MAX, path) < 0) return RP_IO_ERROR;
    rp_status status = sync_path(files, path, fsync);
    if (status != RP_OK || *topic == queue->topic) return status;
    *topic = queue->topic;
    *strrchr(path, '/') = 0;
    return sync_path(files, path, fsync);
}

/* Sync the directory of all topics and its parent, because it may be new itself. */
static rp_status sync_root(const rp_queue_files *files) {
    char path[PATH_MAX];
    int size = snprintf(path, sizeof path, "%s/..", files->directory);
    if (size < 0 || (size_t)size >= sizeof path) {
        errno = ENAMETOOLONG;
        return RP_IO_ERROR;
    }
    rp_status status = sync_path(files, files->directory, fsync);
    return status == RP_OK ? sync_path(files, path, fsync) : status;
}

static rp_status sync_set(const rp_queue_files *files, const struct dirty_set *dirty) {
    char path[PATH_MAX];
    rp_status status = RP_OK;
    uint32_t topic = UINT32_MAX;
    uint32_t has_names = 0;
    for (uint32_t i = 0; i < dirty->count && status == RP_OK; i++) {
        const struct dirty_file *file = &dirty->files[i];
        const rp_queue *queue = rp_control_queue(files->block, file->queue);
        if (file->what & WITH_DATA) {
            if (queue_path(files, queue, file->number, path) < 0) return RP_IO_ERROR;
            status = sync_path(files, path, fdatasync);
        }
        if (status == RP_OK && file->what & WITH_NAMES) status = sync_names(files, queue, &topic);
        has_names |= file->what & WITH_NAMES;
    }
    return status == RP_OK && has_names ? sync_root(files) : status;
}

rp_status rp_queue_files_sync(rp_queue_files *files) {
    struct dirty_set dirty;
    pthread_mutex_lock(&files->lock);
    dirty = files->dirty;
    memset(files->dirty.slots, 0, sizeof files->dirty.slots);
    files->dirty.count = 0;
    files->dirty.all = 0;
    pthread_mutex_unlock(&files->lock);
    RP_CRASH_POINT("queue.sync");
    rp_status status = dirty.all ? sync_path(files, files->directory, syncfs) : sync_set(files, &dirty);
    pthread_mutex_lock(&files->lock);
    files->dirty.all |= status != RP_OK; /* it all is still to be done */
    pthread_mutex_unlock(&files->lock);
    return status;
}

/* The file cache: entries in one array, chained by hash and by use, all as indexes from 1 on. Memory of entries that
 * were never needed is never touched: most caches stay nearly empty. */

enum { NONE = 0 }; /* what fresh memory holds */

struct entry {
    rp_file_key key;
    int fd;
    uint32_t chain; /* next of the same bucket, or next free */
    uint32_t newer;
    uint32_t older;
};

struct rp_file_cache {
    struct entry *entries;
    uint32_t *buckets;
    uint32_t capacity;
    uint32_t mask;
    uint32_t used; /* entries from 1 to here have been in use */
    uint32_t free;
    uint32_t newest;
    uint32_t oldest;
    uint32_t looked_at; /* the last one, by rp_file_cache_release */
};

rp_file_cache *rp_file_cache_open(uint32_t files_max) {
    struct rlimit limit;
    rp_file_cache *cache = calloc(1, sizeof *cache);
    if (!cache) return NULL;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && files_max > limit.rlim_cur * 3 / 4)
        files_max = (uint32_t)(limit.rlim_cur * 3 / 4);
    cache->capacity = files_max < 4 ? 4 : files_max;
    cache->mask = 15;
    while (cache->mask < cache->capacity) cache->mask = cache->mask * 2 + 1;
    cache->entries = calloc(cache->capacity + 1ull, sizeof *cache->entries);
    cache->buckets = calloc(cache->mask + 1ull, sizeof *cache->buckets);
    if (!cache->entries || !cache->buckets) {
        rp_file_cache_close(cache);
        errno = ENOMEM;
        return NULL;
    }
    return cache;
}

void rp_file_cache_close(rp_file_cache *cache) {
    if (!cache) return;
    for (uint32_t i = 1; cache->entries && i <= cache->used; i++)
        if (cache->entries[i].fd >= 0) close(cache->entries[i].fd);
    free(cache->entries);
    free(cache->buckets);
    free(cache);
}

static uint32_t *bucket_of(const rp_file_cache *cache, rp_file_key key) {
    uint64_t hash =
        (key.queue + ((uint64_t)key.generation << 32)) * 0x9E3779B97F4A7C15ull + key.number * 0xD6E8FEB86659FD93ull;
    return &cache->buckets[(hash ^ hash >> 29) & cache->mask];
}

static int same(rp_file_key a, rp_file_key b) {
    return a.queue == b.queue && a.generation == b.generation && a.number == b.number;
}

/* The link to the entry of `key`, or to NONE. */
static uint32_t *link_to(const rp_file_cache *cache, rp_file_key key) {
    uint32_t *link = bucket_of(cache, key);
    while (*link != NONE && !same(cache->entries[*link].key, key)) link = &cache->entries[*link].chain;
    return link;
}

static void leave_order(rp_file_cache *cache, uint32_t at) {
    const struct entry *entry = &cache->entries[at];
    if (entry->newer != NONE)
        cache->entries[entry->newer].older = entry->older;
    else
        cache->newest = entry->older;
    if (entry->older != NONE)
        cache->entries[entry->older].newer = entry->newer;
    else
        cache->oldest = entry->newer;
}

static void become_newest(rp_file_cache *cache, uint32_t at) {
    struct entry *entry = &cache->entries[at];
    entry->newer = NONE;
    entry->older = cache->newest;
    if (cache->newest != NONE)
        cache->entries[cache->newest].newer = at;
    else
        cache->oldest = at;
    cache->newest = at;
}

int rp_file_cache_find(rp_file_cache *cache, rp_file_key key) {
    uint32_t at = *link_to(cache, key);
    if (at == NONE) return -1;
    if (cache->newest != at) {
        leave_order(cache, at);
        become_newest(cache, at);
    }
    return cache->entries[at].fd;
}

void rp_file_cache_drop(rp_file_cache *cache, rp_file_key key) {
    uint32_t *link = link_to(cache, key), at = *link;
    if (at == NONE) return;
    *link = cache->entries[at].chain;
    leave_order(cache, at);
    close(cache->entries[at].fd);
    cache->entries[at].fd = -1;
    cache->entries[at].chain = cache->free;
    cache->free = at;
}

void rp_file_cache_put(rp_file_cache *cache, rp_file_key key, int fd) {
    rp_file_cache_drop(cache, key);
    if (cache->free == NONE && cache->used == cache->capacity)
        rp_file_cache_drop(cache, cache->entries[cache->oldest].key);
    uint32_t at = cache->free, *bucket = bucket_of(cache, key);
    if (at == NONE)
        at = ++cache->used;
    else
        cache->free = cache->entries[at].chain;
    cache->entries[at].key = key;
    cache->entries[at].fd = fd;
    cache->entries[at].chain = *bucket;
    *bucket = at;
    become_newest(cache, at);
}

void rp_file_cache_release(rp_file_cache *cache, uint32_t count) {
    struct stat status;
    if (count > cache->used) count = cache->used;
    while (count--) {
        uint32_t at = cache->looked_at < cache->used ? ++cache->looked_at : (cache->looked_at = 1);
        const struct entry *entry = &cache->entries[at];
        if (entry->fd >= 0 && fstat(entry->fd, &status) == 0 && status.st_nlink == 0)
            rp_file_cache_drop(cache, entry->key);
    }
}
