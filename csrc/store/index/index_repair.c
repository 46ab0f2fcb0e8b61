/* See index_repair.h. Units are only added, and each names the one before it in its slot. A walk from the first unit
 * shows the right value of every slot, and the first missing page. */
#define _GNU_SOURCE
#include "store/index/index_repair.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/endian.h"
#include "store/index/index_file.h"
#include "store/index/index_layout.h"

typedef struct image {
    uint8_t *base;
    uint8_t *units;
    uint32_t slot_num;
    uint32_t count; /* number of the next unit, by the header */
    uint64_t phy_limit;
    uint64_t size;
} image;

static uint8_t *unit_at(const image *file, uint32_t number) {
    return file->units + number * (uint64_t)RP_INDEX_UNIT_SIZE;
}

static int is_lost(const image *file, uint32_t number) {
    static const uint8_t zeros[RP_INDEX_UNIT_SIZE];
    return number > 1 && memcmp(unit_at(file, number), zeros, sizeof zeros) == 0;
}

/* Returns the number after the last consistent unit. Units are in the order of the log; units that were indexed again
 * are in order as well. `newest` is set to the right values of the slots. */
static uint32_t follow(const image *file, uint32_t *newest) {
    uint64_t at_least = rp_load64(file->base + BEGIN_PHY_OFFSET), end = rp_load64(file->base + END_PHY_OFFSET);
    uint32_t number = 1;
    for (; number < file->count; number++) {
        rp_index_unit unit = rp_index_unit_read(unit_at(file, number));
        if (unit.hash > INT32_MAX || is_lost(file, number)) break;
        if (unit.phy_offset < at_least || unit.phy_offset > end || unit.phy_offset >= file->phy_limit) break;
        uint32_t *head = &newest[unit.hash % file->slot_num];
        if (unit.previous != *head) break;
        *head = number;
        at_least = unit.phy_offset;
    }
    return number;
}

/* A slot that names the next unit to be written is inconsistent too: that unit may be lost, or may be used by another
 * slot. */
static int slots_fit(const image *file, const uint32_t *newest) {
    for (uint32_t slot = 0; slot < file->slot_num; slot++) {
        uint32_t shown = rp_load32(file->base + RP_INDEX_HEADER_SIZE + slot * (uint64_t)RP_INDEX_SLOT_SIZE);
        if (shown != newest[slot]) return 0;
    }
    return 1;
}

static void write_anew(const image *file, uint32_t kept, const uint32_t *newest) {
    uint32_t used = 0;
    for (uint32_t slot = 0; slot < file->slot_num; slot++) {
        uint8_t *at = file->base + RP_INDEX_HEADER_SIZE + slot * (uint64_t)RP_INDEX_SLOT_SIZE;
        used += newest[slot] != 0;
        if (rp_load32(at) != newest[slot]) rp_store32(at, newest[slot]); /* holes stay holes */
    }
    if (kept < file->count) {
        rp_index_unit last = rp_index_unit_read(unit_at(file, kept - 1));
        uint64_t begin_ms = rp_load64(file->base + BEGIN_TIMESTAMP);
        rp_store64(file->base + END_PHY_OFFSET, last.phy_offset);
        rp_store64(file->base + END_TIMESTAMP, begin_ms + (uint64_t)last.seconds * 1000);
        memset(unit_at(file, kept), 0, (file->count - kept) * (uint64_t)RP_INDEX_UNIT_SIZE);
    }
    rp_store32(file->base + SLOT_COUNT, used);
    rp_store32(file->base + INDEX_COUNT, kept);
}

static rp_status repair(const image *file, uint64_t *end_phy_offset, int *is_repaired) {
    uint32_t *newest = calloc(file->slot_num, sizeof *newest);
    if (!newest) return RP_NO_MEMORY;
    uint32_t kept = follow(file, newest);
    rp_status status = RP_OK;
    if (kept < file->count || !slots_fit(file, newest)) {
        if (kept == 1)
            status = RP_EMPTY;
        else {
            write_anew(file, kept, newest);
            *is_repaired = 1;
            if (msync(file->base, file->size, MS_SYNC) < 0) status = RP_IO_ERROR;
        }
    }
    *end_phy_offset = rp_load64(file->base + END_PHY_OFFSET);
    free(newest);
    return status;
}

rp_status rp_index_repair(const char *path, uint32_t slot_num, uint32_t index_num, uint64_t phy_limit,
                          uint64_t *end_phy_offset, int *is_repaired) {
    uint64_t units_at = RP_INDEX_HEADER_SIZE + (uint64_t)slot_num * RP_INDEX_SLOT_SIZE;
    uint64_t size = units_at + (uint64_t)index_num * RP_INDEX_UNIT_SIZE;
    struct stat info;
    *end_phy_offset = 0;
    *is_repaired = 0;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return RP_IO_ERROR;
    rp_status status = fstat(fd, &info) < 0                              ? RP_IO_ERROR
                       : slot_num == 0 || (uint64_t)info.st_size != size ? RP_CORRUPT
                                                                         : RP_OK;
    void *base = status == RP_OK ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (status == RP_OK && base == MAP_FAILED) status = RP_NO_MEMORY;
    if (status == RP_OK) {
        image file = {.base = base,
                      .units = (uint8_t *)base + units_at,
                      .slot_num = slot_num,
                      .size = size,
                      .phy_limit = phy_limit,
                      .count = rp_load32((uint8_t *)base + INDEX_COUNT)};
        status = file.count == 0 || file.count > index_num ? RP_EMPTY : repair(&file, end_phy_offset, is_repaired);
    }
    int error = errno;
    if (base != MAP_FAILED) munmap(base, size);
    close(fd);
    errno = error;
    return status;
}
