/* What the page cache holds of a file: tells reads of a cold store from reads of a warm one. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "load.h"

int64_t load_cached_pages(const char *path, uint64_t size) {
    enum { PAGE = 4096, PAGES_PER_CALL = 4096 };
    unsigned char resident[PAGES_PER_CALL];
    int64_t cached = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    uint8_t *base = fd < 0 ? MAP_FAILED : mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) cached = -1;
    for (uint64_t at = 0; cached >= 0 && at < size; at += (uint64_t)PAGES_PER_CALL * PAGE) {
        uint64_t part = size - at < (uint64_t)PAGES_PER_CALL * PAGE ? size - at : (uint64_t)PAGES_PER_CALL * PAGE;
        if (mincore(base + at, part, resident) != 0) cached = -1;
        for (uint64_t i = 0; cached >= 0 && i < (part + PAGE - 1) / PAGE; i++) cached += resident[i] & 1;
    }
    int error = errno;
    if (base != MAP_FAILED) munmap(base, size);
    if (fd >= 0) close(fd);
    errno = error;
    return cached;
}
