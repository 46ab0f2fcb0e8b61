/* See consume_queue_ext.h. A unit, big-endian:
 *
 *   0   2  size of the unit, 20 and the filter bits
 *   2   8  tags code
 *   10  8  store timestamp of the message, ms
 *   18  2  size of the filter bits
 *   20  -  filter bits
 *
 * Address = offset over all files of the queue + INT64_MIN. A unit that would leave less than four bytes of its file
 * free goes into the next one, and FF FF ends the file. Behind the last unit all is zero. */
#define _GNU_SOURCE
#include "store/queues/consume_queue_ext.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/atomic.h"
#include "base/crash_point.h"
#include "base/endian.h"
#include "base/shared.h"
#include "store/queues/consume_queue.h"
#include "store/queues/queue_files.h"
#include "store/queues/unit.h"

static inline uint64_t ext_real_offset(int64_t address) { return (uint64_t)address ^ 1ull << 63; }
static inline int64_t ext_address_of(uint64_t offset) { return (int64_t)(offset ^ 1ull << 63); }

enum {
    FILES_MAX = 1024,
    UNIT_SIZE_MAX = RP_CQ_EXT_UNIT_SIZE + RP_CQ_EXT_BITMAP_MAX, /* as far as it is used */
    VIEWS = 64 /* mapped at a time, as pread takes longer than all else; each is unmapped within a second or so */
};
static const int64_t ADDRESS_MAX = (int64_t)INT32_MIN - 1;

int rp_cq_ext_is_address(int64_t field) { return field <= ADDRESS_MAX; }

/* The extension files of all queues. NULL with errno. A process has its large cache elsewhere; this one takes an eighth
 * of the descriptors at the most. */
static rp_queue_files *open_files(rp_control_block *block, const char *consume_queue_directory, uint64_t file_size,
                                  int is_writer) {
    char directory[PATH_MAX];
    struct rlimit limit;
    uint32_t files_max = FILES_MAX;
    int size = snprintf(directory, sizeof directory, "%s_ext", consume_queue_directory);
    if (size < 0 || (size_t)size >= sizeof directory) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / 8 < files_max)
        files_max = (uint32_t)(limit.rlim_cur / 8);
    return rp_queue_files_open(block, directory, file_size, files_max, is_writer);
}

/* The unit that starts `data`, checked; `at` is its place in its file. RP_OK, RP_NOT_FOUND. */
static rp_status parse_unit(const uint8_t *data, uint32_t size, uint64_t at, uint64_t file_size, rp_cq_ext_unit *unit) {
    if (size < RP_CQ_EXT_UNIT_SIZE) return RP_NOT_FOUND;
    unit->size = rp_load16(data);
    unit->tags_code = (int64_t)rp_load64(data + 2);
    unit->store_timestamp_ms = (int64_t)rp_load64(data + 10);
    unit->bitmap_size = rp_load16(data + 18);
    if (unit->size > INT16_MAX || unit->size < RP_CQ_EXT_UNIT_SIZE + unit->bitmap_size ||
        at + unit->size + RP_CQ_EXT_END_SIZE > file_size)
        return RP_NOT_FOUND;
    if (size == UNIT_SIZE_MAX) { /* a copy of known size is the faster one */
        memcpy(unit->bitmap, data + RP_CQ_EXT_UNIT_SIZE, RP_CQ_EXT_BITMAP_MAX);
    } else if (unit->bitmap_size <= RP_CQ_EXT_BITMAP_MAX) {
        if (size < RP_CQ_EXT_UNIT_SIZE + unit->bitmap_size) return RP_NOT_FOUND;
        memcpy(unit->bitmap, data + RP_CQ_EXT_UNIT_SIZE, unit->bitmap_size);
    }
    return RP_OK;
}

/* ---- reading ---- */

/* Units are read from mapped files: with pread, half of the time of a pull with filter bits went into copies. */
struct view {
    const rp_queue *queue; /* NULL: the view is free */
    uint64_t generation;
    uint64_t begin; /* the file's first byte, over all files of the queue */
    uint64_t size;  /* as long as the file was when it was mapped */
    const uint8_t *data;
};

struct rp_cq_ext {
    uint64_t file_size;
    rp_control_block *block;
    rp_queue_files *files;
    struct view views[VIEWS]; /* a file has one place in it */
    struct view *last;
};

rp_cq_ext *rp_cq_ext_open(rp_control_block *block, const char *consume_queue_directory, uint64_t file_size) {
    rp_cq_ext *ext = calloc(1, sizeof *ext);
    if (!ext) return NULL;
    ext->file_size = file_size;
    ext->block = block;
    ext->last = ext->views;
    ext->files = open_files(block, consume_queue_directory, file_size, 0);
    if (ext->files) return ext;
    free(ext);
    return NULL;
}

static void unmap(struct view *view) {
    if (view->queue) munmap((void *)view->data, view->size);
    view->queue = NULL;
}

static void unmap_all(rp_cq_ext *ext) {
    for (uint32_t i = 0; i < VIEWS; i++) unmap(&ext->views[i]);
}

void rp_cq_ext_close(rp_cq_ext *ext) {
    if (!ext) return;
    unmap_all(ext);
    rp_queue_files_close(ext->files);
    free(ext);
}

/* Map file `number` of a queue into `view`. RP_OK, RP_NOT_FOUND, RP_IO_ERROR. */
static rp_status map(const rp_cq_ext *ext, struct view *view, const rp_queue *queue, uint64_t number) {
    struct stat stat;
    uint64_t generation = rp_load_acquire(&queue->generation); /* before the file is looked up */
    unmap(view);
    int fd = rp_queue_files_find(ext->files, queue, number);
    if (fd < 0) return errno == ENOENT ? RP_NOT_FOUND : RP_IO_ERROR;
    if (fstat(fd, &stat) < 0) return RP_IO_ERROR;
    uint64_t size = (uint64_t)stat.st_size < ext->file_size ? (uint64_t)stat.st_size : ext->file_size;
    if (!size) return RP_NOT_FOUND;
    void *data = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) return RP_IO_ERROR;
    *view = (struct view){queue, generation, number * ext->file_size, size, data};
    return RP_OK;
}

static int shows(const struct view *view, const rp_queue *queue, uint64_t offset) {
    return view->queue == queue && offset - view->begin < view->size &&
           view->generation == rp_load_acquire(&queue->generation);
}

/* Let ext->last be the view that shows `address`. RP_OK, RP_NOT_FOUND, RP_IO_ERROR. */
static rp_status turn_to(rp_cq_ext *ext, const rp_queue *queue, int64_t address) {
    uint64_t offset = ext_real_offset(address);
    if (!rp_cq_ext_is_address(address)) return RP_NOT_FOUND;
    if (shows(ext->last, queue, offset)) return RP_OK; /* nothing to divide, which would take half of the time */
    uint64_t number = offset / ext->file_size;
    ext->last = &ext->views[(rp_control_queue_index(ext->block, queue) + number) % VIEWS];
    if (shows(ext->last, queue, offset)) return RP_OK;
    rp_status status = map(ext, ext->last, queue, number);
    if (status != RP_OK) return status;
    return shows(ext->last, queue, offset) ? RP_OK : RP_NOT_FOUND; /* the file is too short */
}

rp_status rp_cq_ext_read(rp_cq_ext *ext, const rp_queue *queue, int64_t address, rp_cq_ext_unit *unit) {
    rp_status status = turn_to(ext, queue, address);
    if (status != RP_OK) return status;
    uint64_t at = ext_real_offset(address) - ext->last->begin, rest = ext->last->size - at;
    return parse_unit(ext->last->data + at, rest < UNIT_SIZE_MAX ? (uint32_t)rest : UNIT_SIZE_MAX, at, ext->file_size,
                      unit);
}

static int has_bits(const rp_filter_place *place, const uint8_t *bits) {
    for (uint32_t i = 0; i < place->count; i++)
        if (!(bits[place->positions[i] / 8] & 1u << place->positions[i] % 8)) return 0;
    return 1;
}

/* Most units of a filtered pull end here, so each takes a few steps only: its address is compared with the bounds of
 * one view, and its extension is read where it is mapped. The sizes must be those that both brokers write. */
uint32_t rp_cq_ext_count_lacking(rp_cq_ext *ext, const rp_queue *queue, const rp_filter_place *place,
                                 uint64_t phy_offset_min, const uint8_t *units, uint32_t count) {
    uint32_t bitmap_size = place->bit_count / 8, size = RP_CQ_EXT_UNIT_SIZE + bitmap_size, passed = 0;
    if (!count || place->bit_count % 8 || bitmap_size > RP_CQ_EXT_BITMAP_MAX) return 0;
    if (turn_to(ext, queue, rp_unit_read(units).tags_code) != RP_OK) return 0;
    const struct view view = *ext->last;
    uint64_t end = ext->file_size - RP_CQ_EXT_END_SIZE, end_of_addresses = ext_real_offset(ADDRESS_MAX) - view.begin;
    if (view.size < end) end = view.size;
    if (end < size) return 0;
    uint64_t at_max = end - size < end_of_addresses ? end - size : end_of_addresses;
    for (; passed < count; passed++, units += RP_CQ_UNIT_SIZE) {
        rp_unit unit = rp_unit_read(units);
        uint64_t at = ext_real_offset(unit.tags_code) - view.begin;
        if (at > at_max || unit.phy_offset < phy_offset_min) break;
        const uint8_t *extension = view.data + at;
        if (rp_load16(extension) != size || rp_load16(extension + 18) != bitmap_size) break;
        if (has_bits(place, extension + RP_CQ_EXT_UNIT_SIZE)) break;
    }
    return passed;
}

void rp_cq_ext_release(rp_cq_ext *ext) {
    unmap_all(ext);
    rp_queue_files_release(ext->files);
}

/* The writer. The end of a queue's files is not stored. The writer keeps it in memory and finds it at first use: after
 * the unit of the last address in the queue (later bytes belong to queue units that were not written, and are zeroed),
 * or, if the queue has no address, by a walk over the last file. An address without a valid unit means lost data. Then
 * the file is ended there and a new one begins, so that an address in the queue never gets the unit of another message.
 */

enum { QUEUE_FILES_MAX = 4, LOOKED_AT_UNITS = 64, LOOKED_AT_FILES = 3, WALK_BYTES = 16384, UNITS_PER_WRITE = 128 };
static const uint64_t REAL_OFFSET_MAX = (uint64_t)INT64_MAX - (1ull << 31);
static const uint8_t END_OF_FILE[2] = {0xFF, 0xFF};

/* The ends of a queue's extension files: with this batch, and according to its written units. */
struct place {
    uint64_t end; /* + 1; 0: not known */
    uint64_t shown_end;
    uint64_t shown_max_offset; /* of the queue, at shown_end */
};

struct rp_cq_ext_writer {
    rp_control_block *block;
    uint64_t units_per_file; /* of the queues */
    uint64_t file_size;
    rp_cq_reader *queues;
    rp_queue_files *files;
    struct place *places; /* by queue */
};

rp_cq_ext_writer *rp_cq_ext_writer_open(rp_control_block *block, const char *consume_queue_directory,
                                        uint64_t consume_queue_file_size, uint64_t file_size) {
    rp_cq_ext_writer *writer = calloc(1, sizeof *writer);
    if (!writer) return NULL;
    writer->block = block;
    writer->units_per_file = consume_queue_file_size / RP_CQ_UNIT_SIZE;
    writer->file_size = file_size;
    writer->queues = rp_cq_reader_open(block, consume_queue_directory, consume_queue_file_size, QUEUE_FILES_MAX);
    writer->files = open_files(block, consume_queue_directory, file_size, 1);
    /* calloc would clear 24 MiB by hand where memory was freed before, and keep them */
    writer->places = rp_private_create(RP_CONTROL_QUEUES_MAX * sizeof *writer->places);
    if (writer->queues && writer->files && writer->places) return writer;
    int error = errno;
    rp_cq_ext_writer_close(writer);
    errno = error;
    return NULL;
}

void rp_cq_ext_writer_close(rp_cq_ext_writer *writer) {
    if (!writer) return;
    rp_cq_close(writer->queues);
    rp_queue_files_close(writer->files);
    if (writer->places) munmap(writer->places, RP_CONTROL_QUEUES_MAX * sizeof *writer->places);
    free(writer);
}

/* The last address in the queue's last files, which is its largest; 0 if there is none. RP_OK, RP_IO_ERROR. */
static rp_status last_address(rp_cq_ext_writer *writer, const rp_queue *queue, int64_t *address) {
    uint8_t units[LOOKED_AT_UNITS * RP_CQ_UNIT_SIZE];
    uint64_t at = queue->max_offset, looked_at = LOOKED_AT_FILES * writer->units_per_file;
    uint64_t stop = at > looked_at ? at - looked_at : 0;
    if (stop < queue->min_offset) stop = queue->min_offset;
    *address = 0;
    while (at > stop) {
        uint64_t in_file = (at - 1) % writer->units_per_file + 1,
                 count = in_file < LOOKED_AT_UNITS ? in_file : LOOKED_AT_UNITS;
        if (count > at - stop) count = at - stop;
        int32_t found = rp_cq_read(writer->queues, queue, at - count, (uint32_t)count, units);
        if (found < 0) return RP_IO_ERROR;
        for (int32_t i = found; i-- > 0;) {
            *address = rp_unit_read(units + i * RP_CQ_UNIT_SIZE).tags_code;
            if (rp_cq_ext_is_address(*address)) return RP_OK;
        }
        *address = 0;
        at -= count;
    }
    return RP_OK;
}

/* Find the end of the valid units at the start of a file. RP_OK; RP_NOT_FOUND: no such file; RP_IO_ERROR. */
static rp_status walk(rp_cq_ext_writer *writer, const rp_queue *queue, uint64_t number, uint64_t *at) {
    uint8_t block[WALK_BYTES];
    uint64_t start = 0, end = 0;
    int fd = rp_queue_files_find(writer->files, queue, number);
    if (fd < 0) return errno == ENOENT ? RP_NOT_FOUND : RP_IO_ERROR;
    for (*at = 0; *at + 2 <= writer->file_size;) {
        if (*at + 2 > end) {
            int64_t n = rp_read_at(fd, block, sizeof block, *at);
            if (n < 2) return n < 0 ? RP_IO_ERROR : RP_OK;
            start = *at;
            end = start + (uint64_t)n;
        }
        uint32_t size = rp_load16(block + (*at - start));
        if (size < RP_CQ_EXT_UNIT_SIZE || size > INT16_MAX || *at + size + RP_CQ_EXT_END_SIZE > writer->file_size)
            break;
        *at += size;
    }
    return RP_OK;
}

/* Zeros from `at` to the end of a file, whose size never changes: a Java broker would refuse another one. */
static rp_status wipe(rp_cq_ext_writer *writer, const rp_queue *queue, uint64_t number, uint64_t at) {
    static const uint8_t zeros[4096];
    struct stat info;
    int fd = rp_queue_files_find(writer->files, queue, number);
    if (fd < 0 || fstat(fd, &info) < 0) return RP_IO_ERROR;
    if ((uint64_t)info.st_size != writer->file_size) { /* mappedFileSizeConsumeQueueExt is not what it was */
        errno = EINVAL;
        return RP_IO_ERROR;
    }
    off_t data = lseek(fd, (off_t)at, SEEK_DATA);
    if (data < 0 && errno == ENXIO) return RP_OK;
    if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)(writer->file_size - at)) == 0)
        return RP_OK;
    if (errno != EOPNOTSUPP && errno != ENOSYS) return rp_status_of_errno();
    rp_status status = RP_OK;
    for (uint64_t size; at < writer->file_size && status == RP_OK; at += size) {
        size = writer->file_size - at < sizeof zeros ? writer->file_size - at : sizeof zeros;
        status = rp_write_at(fd, zeros, size, at);
    }
    return status;
}

/* Zero everything from `end` on. */
static rp_status cut(rp_cq_ext_writer *writer, const rp_queue *queue, uint64_t end) {
    uint64_t keep = (end + writer->file_size - 1) / writer->file_size;
    int64_t last;
    for (;;) {
        rp_status status = rp_queue_files_last(writer->files, queue, &last);
        if (status != RP_OK) return status;
        if (last < 0 || (uint64_t)last < keep) break;
        status = rp_queue_files_remove_one(writer->files, queue, (uint64_t)last);
        if (status != RP_OK) return status;
    }
    return end % writer->file_size ? wipe(writer, queue, end / writer->file_size, end % writer->file_size) : RP_OK;
}

/* End the file after its valid units: units of later addresses are lost. */
static rp_status seal(rp_cq_ext_writer *writer, const rp_queue *queue, uint64_t number) {
    uint64_t at;
    rp_status status = walk(writer, queue, number, &at);
    if (status != RP_OK) return status == RP_NOT_FOUND ? RP_OK : status;
    status = wipe(writer, queue, number, at);
    int fd = rp_queue_files_find(writer->files, queue, number);
    if (status != RP_OK || at + sizeof END_OF_FILE > writer->file_size) return status;
    return fd < 0 ? RP_IO_ERROR
                  : rp_queue_files_write(writer->files, queue, number, fd, END_OF_FILE, sizeof END_OF_FILE, at);
}

/* The unit at real offset `offset`, checked. RP_OK, RP_NOT_FOUND, RP_IO_ERROR. */
static rp_status read_unit(rp_cq_ext_writer *writer, const rp_queue *queue, uint64_t offset, rp_cq_ext_unit *unit) {
    uint8_t data[UNIT_SIZE_MAX];
    uint64_t at = offset % writer->file_size, rest = writer->file_size - at;
    int fd = rp_queue_files_find(writer->files, queue, offset / writer->file_size);
    if (fd < 0) return errno == ENOENT ? RP_NOT_FOUND : RP_IO_ERROR;
    int64_t got = rp_read_at(fd, data, rest < sizeof data ? rest : sizeof data, at);
    return got < 0 ? RP_IO_ERROR : parse_unit(data, (uint32_t)got, at, writer->file_size, unit);
}

static rp_status find_end(rp_cq_ext_writer *writer, const rp_queue *queue, uint64_t *end) {
    rp_cq_ext_unit unit;
    int64_t address = 0, last;
    rp_status status = last_address(writer, queue, &address);
    *end = 0;
    if (status == RP_OK && address) {
        *end = ext_real_offset(address);
        status = read_unit(writer, queue, *end, &unit);
        if (status == RP_OK) {
            *end += unit.size;
        } else if (status == RP_NOT_FOUND) {
            status = seal(writer, queue, *end / writer->file_size);
            *end += writer->file_size - *end % writer->file_size;
        }
    } else if (status == RP_OK && queue->max_offset) {
        status = rp_queue_files_last(writer->files, queue, &last);
        if (status == RP_OK && last >= 0) {
            status = walk(writer, queue, (uint64_t)last, end);
            *end += (uint64_t)last * writer->file_size;
        }
    }
    return status == RP_OK ? cut(writer, queue, *end) : status;
}

/* Write units to their place; create the file if they are its first. */
static rp_status write_units(rp_cq_ext_writer *writer, const rp_queue *queue, uint64_t end, const uint8_t *units,
                             uint64_t size) {
    uint64_t number = end / writer->file_size, at = end % writer->file_size;
    rp_new_file file;
    int fd = rp_queue_files_find(writer->files, queue, number);
    if (fd >= 0) return rp_queue_files_write(writer->files, queue, number, fd, units, size, at);
    if (errno != ENOENT || at) return rp_status_of_errno();
    rp_status status = rp_queue_files_begin(writer->files, queue, &file);
    if (status != RP_OK) return status;
    status = rp_write_at(file.fd, units, size, 0);
    return rp_queue_files_finish(writer->files, queue, number, &file, status);
}

/* Move *end to the next file if the next unit, of `size` bytes, does not fit into this one. */
static rp_status end_full_file(rp_cq_ext_writer *writer, const rp_queue *queue, uint64_t *end, uint32_t size) {
    uint64_t number = *end / writer->file_size, at = *end % writer->file_size;
    rp_status status = RP_OK;
    if (!at || at + size + RP_CQ_EXT_END_SIZE <= writer->file_size) return RP_OK;
    int fd = rp_queue_files_find(writer->files, queue, number);
    if (fd < 0) return rp_status_of_errno();
    if (at + sizeof END_OF_FILE <= writer->file_size)
        status = rp_queue_files_write(writer->files, queue, number, fd, END_OF_FILE, sizeof END_OF_FILE, at);
    if (status == RP_OK) *end += writer->file_size - at;
    return status;
}

static rp_status find_place(rp_cq_ext_writer *writer, const rp_queue *queue, struct place *place) {
    if (place->end && place->shown_max_offset == queue->max_offset) return RP_OK;
    if (!place->end) {
        uint64_t end;
        rp_status status = find_end(writer, queue, &end);
        if (status != RP_OK) return status;
        place->end = end + 1;
    }
    place->shown_end = place->end; /* nothing of this batch yet */
    place->shown_max_offset = queue->max_offset;
    return RP_OK;
}

static uint32_t unit_size(const rp_cq_extension *extension) { return RP_CQ_EXT_UNIT_SIZE + extension->bitmap_size; }

static void write_unit(uint8_t *out, int64_t tags_code, const rp_cq_extension *extension) {
    rp_store16(out, (uint16_t)unit_size(extension));
    rp_store64(out + 2, (uint64_t)tags_code);
    rp_store64(out + 10, (uint64_t)extension->store_timestamp_ms);
    rp_store16(out + 18, (uint16_t)extension->bitmap_size);
    memcpy(out + RP_CQ_EXT_UNIT_SIZE, extension->bitmap, extension->bitmap_size);
}

/* Write as many of the units as fit into one file. */
static rp_status extend_some(rp_cq_ext_writer *writer, const rp_queue *queue, uint32_t *count, uint8_t *units,
                             const rp_cq_extension *extensions) {
    uint8_t data[UNITS_PER_WRITE * (RP_CQ_EXT_UNIT_SIZE + RP_CQ_EXT_BITMAP_MAX)];
    struct place *place = &writer->places[rp_control_queue_index(writer->block, queue)];
    rp_status status = find_place(writer, queue, place);
    if (status != RP_OK) return status;
    uint64_t end = place->end - 1, size = 0;
    uint32_t some = 0;
    status = end_full_file(writer, queue, &end, unit_size(extensions));
    if (status == RP_OK && end > REAL_OFFSET_MAX) status = RP_TOO_LARGE;
    if (status != RP_OK) return status;
    uint64_t room = writer->file_size - end % writer->file_size - RP_CQ_EXT_END_SIZE;
    while (some < *count && some < UNITS_PER_WRITE && size + unit_size(&extensions[some]) <= room) {
        write_unit(data + size, rp_unit_read(units + some * RP_CQ_UNIT_SIZE).tags_code, &extensions[some]);
        size += unit_size(&extensions[some++]);
    }
    if (!some) return RP_TOO_LARGE; /* a file that is smaller than a unit */
    status = write_units(writer, queue, end, data, size);
    if (status != RP_OK) return status;
    RP_CRASH_POINT("queue_ext.units");
    for (uint32_t i = 0; i < some; end += unit_size(&extensions[i++]))
        rp_unit_set_tags_code(units + i * RP_CQ_UNIT_SIZE, ext_address_of(end));
    *count = some;
    place->end = end + 1;
    return RP_OK;
}

uint32_t rp_cq_ext_extend(rp_cq_ext_writer *writer, const rp_queue *queue, uint32_t count, uint8_t *units,
                          const rp_cq_extension *extensions) {
    while (count) {
        uint32_t some = count;
        if (extend_some(writer, queue, &some, units, extensions) != RP_OK) break;
        count -= some;
        units += some * (uint64_t)RP_CQ_UNIT_SIZE;
        extensions += some;
    }
    return count;
}

void rp_cq_ext_forget(rp_cq_ext_writer *writer) {
    uint32_t count = rp_load_acquire32(&rp_control_header(writer->block)->queue_count);
    for (uint32_t i = 0; i < count && i < RP_CONTROL_QUEUES_MAX; i++)
        if (writer->places[i].shown_max_offset == rp_control_queue(writer->block, i)->max_offset)
            writer->places[i].end = writer->places[i].shown_end;
}

rp_status rp_cq_ext_remove(rp_cq_ext_writer *writer, const rp_queue *queue) {
    writer->places[rp_control_queue_index(writer->block, queue)] = (struct place){0};
    return rp_queue_files_remove(writer->files, queue);
}

rp_status rp_cq_ext_sync(rp_cq_ext_writer *writer) { return rp_queue_files_sync(writer->files); }

void rp_cq_ext_writer_release(rp_cq_ext_writer *writer) {
    rp_cq_release(writer->queues);
    rp_queue_files_release(writer->files);
}
