#define _GNU_SOURCE
#include "store/log/log_view.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "store/log/mapped_file.h"

struct mapping {
    uint8_t *base;
    uint64_t start;
    uint64_t used; /* turn of the last use */
    uint32_t holders;
    uint64_t deleted_ns; /* when it was first seen that the file is gone; 0: it is there */
};

struct rp_log_view {
    char *directory;
    uint64_t file_size;
    uint64_t turn;
    struct mapping *mappings;
    uint32_t count;
    uint32_t capacity;
    uint32_t mappings_max; /* passed only while every mapping is held */
    uint32_t last;
    int is_exact;
};

rp_log_view *rp_log_view_open(const char *directory, uint64_t file_size, uint32_t mappings_max) {
    rp_log_view *view = calloc(1, sizeof *view);
    if (!view) return NULL;
    view->file_size = file_size;
    view->mappings_max = mappings_max ? mappings_max : 1;
    view->capacity = view->mappings_max;
    view->directory = strdup(directory);
    view->mappings = calloc(view->capacity, sizeof *view->mappings);
    if (view->directory && view->mappings) return view;
    rp_log_view_close(view);
    errno = ENOMEM;
    return NULL;
}

void rp_log_view_close(rp_log_view *view) {
    if (!view) return;
    for (uint32_t i = 0; i < view->count; i++) munmap(view->mappings[i].base, view->file_size);
    free(view->mappings);
    free(view->directory);
    free(view);
}

void rp_log_view_read_exactly(rp_log_view *view) { view->is_exact = 1; }

static struct mapping *find(rp_log_view *view, uint64_t start) {
    if (view->last < view->count && view->mappings[view->last].start == start) return &view->mappings[view->last];
    for (uint32_t i = 0; i < view->count; i++) {
        if (view->mappings[i].start != start) continue;
        view->last = i;
        return &view->mappings[i];
    }
    return NULL;
}

static void unmap_at(rp_log_view *view, uint32_t index) {
    munmap(view->mappings[index].base, view->file_size);
    view->mappings[index] = view->mappings[--view->count];
}

/* Make room for one more mapping: unmap the least recently used one that is not in use, or grow. */
static int make_room(rp_log_view *view) {
    if (view->count < view->mappings_max) return 0;
    uint32_t oldest = view->count;
    for (uint32_t i = 0; i < view->count; i++) {
        if (view->mappings[i].holders) continue;
        if (oldest == view->count || view->mappings[i].used < view->mappings[oldest].used) oldest = i;
    }
    if (oldest < view->count) {
        unmap_at(view, oldest);
        return 0;
    }
    if (view->count < view->capacity) return 0;
    struct mapping *grown = realloc(view->mappings, 2ull * view->capacity * sizeof *grown);
    if (!grown) return -1;
    view->mappings = grown;
    view->capacity *= 2;
    return 0;
}

const uint8_t *rp_log_view_acquire(rp_log_view *view, uint64_t phy_offset, uint64_t size) {
    uint64_t at = phy_offset % view->file_size, start = phy_offset - at;
    if (size > view->file_size - at) {
        errno = EINVAL;
        return NULL;
    }
    struct mapping *mapping = find(view, start);
    if (!mapping) {
        uint8_t *base;
        if (rp_mapped_file_map(view->directory, start, view->file_size, 0, &base) != RP_OK) return NULL;
        if (make_room(view) < 0) {
            munmap(base, view->file_size);
            return NULL;
        }
        view->last = view->count++;
        mapping = &view->mappings[view->last];
        *mapping = (struct mapping){.base = base, .start = start};
        if (view->is_exact) madvise(base, view->file_size, MADV_RANDOM);
    }
    mapping->used = ++view->turn;
    mapping->holders++;
    if (view->is_exact) madvise(mapping->base + (at & ~4095ull), size + (at & 4095), MADV_WILLNEED);
    return mapping->base + at;
}

int rp_log_view_record(rp_log_view *view, uint64_t phy_offset, uint64_t end, rp_record_view *record) {
    uint64_t size = view->file_size - phy_offset % view->file_size;
    if (phy_offset >= end) return 0;
    if (size > end - phy_offset) size = end - phy_offset;
    const uint8_t *image = rp_log_view_acquire(view, phy_offset, size);
    if (!image) return 0;
    if (rp_record_decode(image, size, 0, record) == RP_OK && record->phy_offset == phy_offset) return 1;
    rp_log_view_release(view, phy_offset);
    return 0;
}

int rp_log_view_is_missing(int error) { return error == ENOENT || error == EINVAL; }

void rp_log_view_release(rp_log_view *view, uint64_t phy_offset) {
    struct mapping *mapping = find(view, phy_offset - phy_offset % view->file_size);
    if (mapping && mapping->holders) mapping->holders--;
}

void rp_log_view_trim(rp_log_view *view, uint64_t min_phy_offset) {
    for (uint32_t i = view->count; i-- > 0;) {
        const struct mapping *mapping = &view->mappings[i];
        if (!mapping->holders && mapping->start + view->file_size <= min_phy_offset) unmap_at(view, i);
    }
}

uint64_t rp_log_view_trim_deleted(rp_log_view *view, uint64_t now_ns) {
    uint64_t first_ns = 0;
    if (!view) return 0;
    for (uint32_t i = view->count; i-- > 0;) {
        struct mapping *mapping = &view->mappings[i];
        char path[PATH_MAX];
        if (rp_mapped_file_path(path, sizeof path, view->directory, mapping->start) < 0) continue;
        if (!mapping->deleted_ns) {
            if (access(path, F_OK) == 0 || errno != ENOENT) continue;
            mapping->deleted_ns = now_ns;
        }
        if (!mapping->holders)
            unmap_at(view, i);
        else if (!first_ns || mapping->deleted_ns < first_ns)
            first_ns = mapping->deleted_ns;
    }
    return first_ns;
}

uint64_t rp_log_view_deleted_ns(rp_log_view *view, uint64_t phy_offset) {
    const struct mapping *mapping = find(view, phy_offset - phy_offset % view->file_size);
    return mapping ? mapping->deleted_ns : 0;
}

void rp_log_view_drop_pages(rp_log_view *view, uint64_t from, uint64_t to) {
    struct mapping *mapping = find(view, from - from % view->file_size);
    uint64_t page = 4096, at = (from % view->file_size) & ~(page - 1),
             end = mapping ? (to - mapping->start) & ~(page - 1) : 0;
    if (mapping && end > view->file_size) end = view->file_size & ~(page - 1);
    if (mapping && at < end) madvise(mapping->base + at, end - at, MADV_DONTNEED);
}
