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
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/atomic.h"
#include "base/endian.h"
#include "store/queues/consume_queue.h"
#include "store/queues/consume_queue_ext_private.h"
#include "store/queues/unit.h"

enum {
    FILES_MAX = 1024,
    UNIT_SIZE_MAX = RP_CQ_EXT_UNIT_SIZE + RP_CQ_EXT_BITMAP_MAX, /* as far as it is used */
    VIEWS = 64 /* mapped at a time, as pread takes longer than all else; each is unmapped within a second or so */
};
static const int64_t ADDRESS_MAX = (int64_t)INT32_MIN - 1;

int rp_cq_ext_is_address(int64_t field) { return field <= ADDRESS_MAX; }

/* A process has its large cache elsewhere; this one takes an eighth of the descriptors at the most. */
rp_queue_files *rp_ext_open_files(rp_control_block *block, const char *consume_queue_directory, uint64_t file_size,
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

/* Read up to `size` bytes at real offset `offset`, of its file alone; *got is set to their number. RP_OK, RP_NOT_FOUND,
 * RP_IO_ERROR. */
static rp_status read_bytes(rp_queue_files *files, uint64_t file_size, const rp_queue *queue, uint64_t offset,
                            uint8_t *data, uint32_t size, uint32_t *got) {
    uint64_t at = offset % file_size;
    ssize_t n;
    int fd = rp_queue_files_find(files, queue, offset / file_size);
    if (fd < 0) return errno == ENOENT ? RP_NOT_FOUND : RP_IO_ERROR;
    if (size > file_size - at) size = (uint32_t)(file_size - at);
    do n = pread(fd, data, size, (off_t)at);
    while (n < 0 && errno == EINTR);
    if (n < 0) return RP_IO_ERROR;
    *got = (uint32_t)n;
    return RP_OK;
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

rp_status rp_ext_read_unit(rp_queue_files *files, uint64_t file_size, const rp_queue *queue, uint64_t offset,
                           rp_cq_ext_unit *unit) {
    uint8_t data[UNIT_SIZE_MAX];
    uint32_t got;
    rp_status status = read_bytes(files, file_size, queue, offset, data, sizeof data, &got);
    return status != RP_OK ? status : parse_unit(data, got, offset % file_size, file_size, unit);
}

/* ------------------------------------------------------------------ reading */

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
    ext->files = rp_ext_open_files(block, consume_queue_directory, file_size, 0);
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
