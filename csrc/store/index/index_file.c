/* See index_file.h. The newest file is mapped; slots are at random places, units grow at the end. The file has its full
 * size from creation and is sparse; blocks are reserved for header and slots at creation and for units GROW bytes at a
 * time, before they are written, so that a full disk is an error and never a SIGBUS.
 *
 * A put writes the unit, then its slot, then the header. A writer that dies in between leaves a slot that names the
 * next unit to be written: the next writer continues the chain with that unit. */
#define _GNU_SOURCE
#include "store/index/index_file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/crash_point.h"
#include "base/endian.h"
#include "store/index/index_layout.h"
#include "store/log/new_file.h"

enum { GROW = 4 << 20, FULL_MAX = 8, NAME_DIGITS = 17, PAGE = 4096 };

struct rp_index {
    char *directory;
    uint64_t file_size;
    uint64_t units_at;
    uint64_t reserved; /* blocks are there below this offset */
    uint8_t *base; /* NULL: no file yet */
    int fd;
    uint32_t slot_num;
    uint32_t index_num;
    int64_t name; /* of the newest file */
    pthread_mutex_t lock; /* over what follows: full files that a flush thread brings to the disk */
    int full[FULL_MAX];
    uint32_t full_count;
    int64_t full_timestamp_ms;
    int has_failed; /* a full file could not be synced, and nothing is durable any more */
};

static int32_t count_of(const uint8_t *base) {
    int32_t count = (int32_t)rp_load32(base + INDEX_COUNT);
    return count > 0 ? count : 1;
}

uint64_t rp_index_end(const rp_index *index) { return index->base ? rp_load64(index->base + END_PHY_OFFSET) : 0; }

void rp_index_limit(rp_index *index, uint64_t phy_offset) {
    if (rp_index_end(index) > phy_offset) rp_store64(index->base + END_PHY_OFFSET, phy_offset);
}

/* The number in a file's name; -1 for other names. */
static int64_t number_of(const char *name) {
    size_t size = strspn(name, "0123456789");
    int is_name = !name[size] && (size == NAME_DIGITS || (size == NAME_DIGITS + 1 && *name != '0'));
    return is_name ? strtoll(name, NULL, 10) : -1;
}

static int64_t newest_name(const char *directory) {
    int64_t newest = -1;
    DIR *entries = opendir(directory);
    if (!entries) return -1;
    for (struct dirent *entry; (entry = readdir(entries));) {
        int64_t number = number_of(entry->d_name);
        if (number > newest) newest = number;
    }
    closedir(entries);
    return newest;
}

static int path_of(char *out, const rp_index *index, int64_t name) {
    int size = snprintf(out, PATH_MAX, "%s/%0*" PRId64, index->directory, NAME_DIGITS, name);
    if (size >= 0 && size < PATH_MAX) return 0;
    errno = ENAMETOOLONG;
    return -1;
}

static rp_status reserve_blocks(rp_index *index, uint64_t to) {
    if (to <= index->reserved) return RP_OK;
    uint64_t size = to + GROW < index->file_size ? to + GROW - index->reserved : index->file_size - index->reserved;
    if (fallocate(index->fd, 0, (off_t)index->reserved, (off_t)size) < 0 && errno != EOPNOTSUPP && errno != ENOSYS)
        return rp_status_of_errno();
    index->reserved += size;
    return RP_OK;
}

/* Map the open file `fd` as the newest. Keeps fd on RP_OK. New parts (units, and all of a new file) are accessed page
 * by page, because readahead would clear megabytes at once and delay other processes on this CPU (docs/adr/0055). Slots
 * of an existing file are read from the disk. */
static rp_status take_file(rp_index *index, int fd, int64_t name, int is_new) {
    uint8_t *base = mmap(NULL, index->file_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) return rp_status_of_errno();
    uint64_t fresh = is_new ? 0 : index->units_at & ~(uint64_t)(PAGE - 1);
    madvise(base + fresh, index->file_size - fresh, MADV_RANDOM);
    index->base = base;
    index->fd = fd;
    index->name = name;
    index->reserved = 0;
    uint64_t units = (uint64_t)count_of(base) * RP_INDEX_UNIT_SIZE;
    rp_status status = reserve_blocks(index, index->units_at + units);
    if (status != RP_OK) {
        munmap(base, index->file_size);
        index->base = NULL;
        index->fd = -1;
    }
    return status;
}

static rp_status open_newest(rp_index *index) {
    char path[PATH_MAX];
    struct stat info;
    int64_t name = newest_name(index->directory);
    if (name < 0) return RP_OK;
    if (path_of(path, index, name) < 0) return RP_IO_ERROR;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return rp_status_of_errno();
    rp_status status = fstat(fd, &info) < 0 ? RP_IO_ERROR : RP_OK;
    /* A shorter file is extended, as in the reference; a longer one was created with other sizes. */
    if (status == RP_OK && (uint64_t)info.st_size < index->file_size && ftruncate(fd, (off_t)index->file_size) < 0)
        status = rp_status_of_errno();
    if (status == RP_OK && (uint64_t)info.st_size > index->file_size) {
        errno = EINVAL;
        status = RP_CORRUPT;
    }
    if (status == RP_OK) status = take_file(index, fd, name, 0);
    if (status == RP_OK && count_of(index->base) > (int32_t)index->index_num)
        rp_store32(index->base + INDEX_COUNT, index->index_num);
    if (status != RP_OK) close(fd);
    return status;
}

rp_index *rp_index_open(const char *directory, uint32_t slot_num, uint32_t index_num) {
    rp_index *index = calloc(1, sizeof *index);
    if (!index) return NULL;
    pthread_mutex_init(&index->lock, NULL);
    index->fd = -1;
    index->name = -1;
    index->slot_num = slot_num;
    index->index_num = index_num;
    index->units_at = RP_INDEX_HEADER_SIZE + (uint64_t)slot_num * RP_INDEX_SLOT_SIZE;
    index->file_size = index->units_at + (uint64_t)index_num * RP_INDEX_UNIT_SIZE;
    index->directory = strdup(directory);
    if (index->directory && slot_num && index_num > 1 && index_num <= INT32_MAX && open_newest(index) == RP_OK)
        return index;
    int error = errno ? errno : EINVAL;
    rp_index_close(index);
    errno = error;
    return NULL;
}

void rp_index_close(rp_index *index) {
    if (!index) return;
    if (index->base) munmap(index->base, index->file_size);
    if (index->fd >= 0) close(index->fd);
    for (uint32_t i = 0; i < index->full_count; i++) close(index->full[i]);
    pthread_mutex_destroy(&index->lock);
    free(index->directory);
    free(index);
}

/* The name of a new file: current local time as yyyyMMddHHmmssSSS; never an existing name. */
static int64_t new_name(const rp_index *index) {
    struct timespec now;
    struct tm local;
    char second[32];
    clock_gettime(CLOCK_REALTIME, &now);
    strftime(second, sizeof second, "%Y%m%d%H%M%S", localtime_r(&now.tv_sec, &local));
    int64_t name = strtoll(second, NULL, 10) * 1000 + now.tv_nsec / 1000000;
    return name > index->name ? name : index->name + 1;
}

/* Keep the mapped full file for rp_index_sync_full. */
static void retire_file(rp_index *index) {
    int64_t timestamp_ms = (int64_t)rp_load64(index->base + END_TIMESTAMP);
    munmap(index->base, index->file_size);
    index->base = NULL;
    pthread_mutex_lock(&index->lock);
    if (index->full_count < FULL_MAX) {
        index->full[index->full_count++] = index->fd;
    } else { /* many at once */
        if (fdatasync(index->fd) < 0) index->has_failed = 1;
        close(index->fd);
    }
    index->full_timestamp_ms = timestamp_ms;
    pthread_mutex_unlock(&index->lock);
    index->fd = -1;
}

rp_status rp_index_begin_file(rp_index *index, int64_t name, int64_t timestamp_ms, uint64_t phy_offset) {
    char path[PATH_MAX];
    uint8_t header[RP_INDEX_HEADER_SIZE] = {0};
    rp_new_file file;
    rp_store64(header + BEGIN_TIMESTAMP, (uint64_t)timestamp_ms);
    rp_store64(header + END_TIMESTAMP, (uint64_t)timestamp_ms);
    rp_store64(header + BEGIN_PHY_OFFSET, phy_offset);
    rp_store64(header + END_PHY_OFFSET, phy_offset);
    rp_store32(header + INDEX_COUNT, 1);
    if (path_of(path, index, name) < 0) return RP_IO_ERROR;
    if (rp_make_directories(index->directory) < 0) return rp_status_of_errno();
    rp_status status = rp_new_file_begin(&file, index->directory);
    if (status != RP_OK) return status;
    status = rp_new_file_size(&file, index->file_size, 0);
    if (status == RP_OK) status = rp_write_at(file.fd, header, sizeof header, 0);
    if (status == RP_OK && fallocate(file.fd, 0, 0, (off_t)index->units_at) < 0 && errno != EOPNOTSUPP &&
        errno != ENOSYS)
        status = rp_status_of_errno();
    status = rp_new_file_finish(&file, path, status);
    if (status != RP_OK) return status == RP_FULL ? RP_IO_ERROR : status;
    RP_CRASH_POINT("index.roll");
    if (index->base) retire_file(index);
    status = take_file(index, file.fd, name, 1);
    if (status != RP_OK) close(file.fd);
    return status;
}

/* Create the next file. If it follows a full file, its begin and end are the end of that file, as in the reference: the
 * time of its first unit is counted from there. */
static rp_status create_file(rp_index *index) {
    const uint8_t *full = index->base;
    return rp_index_begin_file(index, new_name(index), full ? (int64_t)rp_load64(full + END_TIMESTAMP) : 0,
                               rp_index_end(index));
}

static int32_t seconds_between(int64_t begin_ms, int64_t end_ms) {
    if (begin_ms <= 0 || end_ms <= begin_ms) return 0;
    int64_t difference = (end_ms - begin_ms) / 1000;
    return difference > INT32_MAX ? INT32_MAX : (int32_t)difference;
}

static rp_index_unit unit_at(const rp_index *index, int32_t number) {
    return rp_index_unit_read(index->base + index->units_at + (uint64_t)number * RP_INDEX_UNIT_SIZE);
}

/* The previous unit of the chain; 0: none. */
static int32_t previous_of(const rp_index *index, const uint8_t *slot, int32_t count) {
    int32_t value = (int32_t)rp_load32(slot);
    if (value <= 0 || value > count) return 0;
    if (value < count) return value;
    value = (int32_t)unit_at(index, count).previous; /* a writer died between slot and header */
    return value > 0 && value < count ? value : 0;
}

static int unit_is(const rp_index *index, int32_t number, int32_t hash, uint64_t phy_offset) {
    rp_index_unit unit = unit_at(index, number);
    return unit.hash == (uint32_t)hash && unit.phy_offset == phy_offset;
}

rp_status rp_index_put(rp_index *index, int32_t hash, uint64_t phy_offset, int64_t store_timestamp_ms, int is_redo) {
    if (!index->base || count_of(index->base) >= (int32_t)index->index_num) {
        rp_status status = create_file(index);
        if (status != RP_OK) return status;
    }
    uint8_t *base = index->base,
            *slot = base + RP_INDEX_HEADER_SIZE + (uint64_t)((uint32_t)hash % index->slot_num) * RP_INDEX_SLOT_SIZE;
    int32_t count = count_of(base), previous = previous_of(index, slot, count);
    uint64_t place = index->units_at + (uint64_t)count * RP_INDEX_UNIT_SIZE;
    if (is_redo && previous && unit_is(index, previous, hash, phy_offset)) return RP_OK;
    rp_status status = reserve_blocks(index, place + RP_INDEX_UNIT_SIZE);
    if (status != RP_OK) return status;
    int64_t begin_ms = (int64_t)rp_load64(base + BEGIN_TIMESTAMP);
    rp_index_unit unit = {.hash = (uint32_t)hash,
                          .phy_offset = phy_offset,
                          .seconds = (uint32_t)seconds_between(begin_ms, store_timestamp_ms),
                          .previous = (uint32_t)previous};
    RP_CRASH_POINT("index.unit");
    rp_index_unit_fill(base + place, &unit);
    __atomic_thread_fence(__ATOMIC_RELEASE); /* orders the stores of the unit before the store of the slot */
    RP_CRASH_POINT("index.slot");
    rp_store32(slot, (uint32_t)count);
    RP_CRASH_POINT("index.header");
    if (count <= 1) {
        rp_store64(base + BEGIN_TIMESTAMP, (uint64_t)store_timestamp_ms);
        rp_store64(base + BEGIN_PHY_OFFSET, phy_offset);
    }
    if (!previous) rp_store32(base + SLOT_COUNT, rp_load32(base + SLOT_COUNT) + 1);
    __atomic_thread_fence(__ATOMIC_RELEASE); /* orders the store of the slot before the store of the count */
    rp_store32(base + INDEX_COUNT, (uint32_t)count + 1);
    RP_CRASH_POINT("index.end");
    rp_store64(base + END_PHY_OFFSET, phy_offset);
    rp_store64(base + END_TIMESTAMP, (uint64_t)store_timestamp_ms);
    return RP_OK;
}

rp_status rp_index_put_keys(rp_index *index, const rp_index_key *keys, uint64_t count) {
    rp_status status = RP_OK;
    for (uint64_t i = 0; i < count && status == RP_OK; i++)
        status = rp_index_put(index, keys[i].hash, keys[i].phy_offset, keys[i].store_timestamp_ms, 0);
    return status;
}

rp_status rp_index_sync_full(rp_index *index, int64_t *timestamp_ms) {
    int full[FULL_MAX];
    rp_status status = RP_OK;
    pthread_mutex_lock(&index->lock);
    uint32_t count = index->full_count;
    int64_t newest_ms = index->full_timestamp_ms;
    memcpy(full, index->full, count * sizeof *full);
    index->full_count = 0;
    if (index->has_failed) {
        errno = EIO;
        status = RP_IO_ERROR;
    }
    pthread_mutex_unlock(&index->lock);
    for (uint32_t i = 0; i < count; i++) {
        RP_CRASH_POINT("index.sync_full");
        if (fdatasync(full[i]) < 0) status = rp_status_of_errno();
        rp_close_after(full[i]);
    }
    if (status == RP_OK && count) *timestamp_ms = newest_ms;
    return status;
}

rp_status rp_index_sync(rp_index *index) {
    int64_t timestamp_ms;
    rp_status status = rp_index_sync_full(index, &timestamp_ms);
    if (status != RP_OK || !index->base) return status;
    return fdatasync(index->fd) < 0 ? rp_status_of_errno() : RP_OK;
}

/* Units are only added, and each names the one before it in its slot. So a walk from the first unit shows the right
 * value of every slot, and the first missing page. */
uint32_t rp_index_follow(const uint8_t *image, uint32_t slot_num, uint32_t count, uint64_t phy_limit, uint8_t *newest) {
    const uint8_t *units = image + RP_INDEX_HEADER_SIZE + (uint64_t)slot_num * RP_INDEX_SLOT_SIZE;
    uint64_t at_least = rp_load64(image + BEGIN_PHY_OFFSET), end = rp_load64(image + END_PHY_OFFSET);
    static const uint8_t lost[RP_INDEX_UNIT_SIZE];
    uint32_t number = 1;
    for (; number < count; number++) {
        const uint8_t *bytes = units + number * (uint64_t)RP_INDEX_UNIT_SIZE;
        rp_index_unit unit = rp_index_unit_read(bytes);
        if (unit.hash > INT32_MAX || (number > 1 && memcmp(bytes, lost, sizeof lost) == 0)) break;
        if (unit.phy_offset < at_least || unit.phy_offset > end || unit.phy_offset >= phy_limit) break;
        uint8_t *head = newest + (uint64_t)(unit.hash % slot_num) * RP_INDEX_SLOT_SIZE;
        if (unit.previous != rp_load32(head)) break;
        rp_store32(head, number);
        at_least = unit.phy_offset;
    }
    return number;
}

int rp_key_hashes_wants(int32_t sys_flag, uint32_t properties_size) {
    return (sys_flag & RP_TRANSACTION_MASK) != RP_SYS_FLAG_TRANSACTION_ROLLBACK && properties_size;
}

void rp_key_hashes_begin(rp_key_hashes *hashes, const uint8_t *topic, uint32_t topic_size, const uint8_t *properties,
                         uint32_t properties_size) {
    rp_keys_begin(&hashes->keys, properties, properties_size);
    memcpy(hashes->text, topic, topic_size);
    hashes->text[topic_size] = '#';
    hashes->prefix_size = topic_size + 1;
    hashes->room = RP_INDEX_KEYS_MAX + (hashes->keys.unique != NULL);
    hashes->is_cut_short = 0;
}

int rp_key_hashes_next(rp_key_hashes *hashes, int32_t *hash) {
    const uint8_t *key;
    uint32_t size;
    if (!rp_keys_next(&hashes->keys, &key, &size)) return 0;
    if (!hashes->room) {
        hashes->is_cut_short = 1;
        return 0;
    }
    hashes->room--;
    memcpy(hashes->text + hashes->prefix_size, key, size);
    *hash = rp_index_hash(hashes->text, hashes->prefix_size + size);
    return 1;
}
