/* Sums up the units of a queue's directory (see verify.h): one call per queue, because there may be a hundred thousand
 * queues. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "store/queues/consume_queue.h"
#include "store/recovery/verify.h"

enum { NAME_DIGITS = 20, READ_UNITS_FIRST = 200, READ_UNITS = 2000 }; /* a quiet queue's file is mostly hole */

typedef struct name_list {
    char (*names)[NAME_DIGITS + 1];
    uint32_t count, room;
} name_list;

static int is_file_name(const char *name) {
    return strlen(name) == NAME_DIGITS && strspn(name, "0123456789") == NAME_DIGITS;
}

static int compare_names(const void *left, const void *right) { return memcmp(left, right, NAME_DIGITS); }

static rp_status list_names(DIR *entries, name_list *list, uint32_t *odd) {
    for (struct dirent *entry; (entry = readdir(entries));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (!is_file_name(entry->d_name)) {
            *odd |= RP_QUEUE_FOREIGN;
            continue;
        }
        if (list->count == list->room) {
            uint32_t room = list->room ? list->room * 2 : 4;
            void *grown = realloc(list->names, room * sizeof *list->names);
            if (!grown) return RP_NO_MEMORY;
            list->names = grown;
            list->room = room;
        }
        memcpy(list->names[list->count++], entry->d_name, NAME_DIGITS + 1);
    }
    if (list->count > 1) qsort(list->names, list->count, sizeof *list->names, compare_names);
    return RP_OK;
}

static int is_zero(const uint8_t *data, uint64_t size) {
    for (uint64_t i = 0; i < size; i++)
        if (data[i]) return 0;
    return 1;
}

/* 1: the file is full of units, continue in the next one; 0: the units end here; -1 with errno. */
static int add_file(int fd, uint64_t start, uint64_t first_offset, uint64_t end_offset, uint64_t log_begin,
                    rp_units *sum, uint32_t *odd) {
    uint8_t units[READ_UNITS * RP_CQ_UNIT_SIZE];
    uint64_t at = 0, want = READ_UNITS_FIRST * RP_CQ_UNIT_SIZE;
    posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM); /* reading ahead would fill memory with holes */
    for (;; want = sizeof units) {
        ssize_t size = pread(fd, units, want, (off_t)at);
        if (size < 0) return -1;
        uint32_t count = (uint32_t)size / RP_CQ_UNIT_SIZE;
        uint32_t found =
            rp_verify_units(units, count, (start + at) / RP_CQ_UNIT_SIZE, first_offset, end_offset, log_begin, sum);
        if (found < count) {
            if (!is_zero(units + found * RP_CQ_UNIT_SIZE, (count - found) * (uint64_t)RP_CQ_UNIT_SIZE))
                *odd |= RP_QUEUE_NOT_ZERO;
            return 0;
        }
        at += (uint64_t)count * RP_CQ_UNIT_SIZE;
        if (count == 0) return 1;
    }
}

rp_status rp_verify_queue(const char *directory, uint64_t *file_size, uint64_t first_offset, uint64_t end_offset,
                          uint64_t log_begin, rp_units *sum, uint32_t *odd) {
    name_list list = {0};
    *odd = 0;
    DIR *entries = opendir(directory);
    if (!entries) return errno == ENOENT ? RP_NOT_FOUND : RP_IO_ERROR;
    rp_status status = list_names(entries, &list, odd);
    uint64_t expected = UINT64_MAX;
    int goes_on = 1;
    for (uint32_t i = 0; status == RP_OK && i < list.count; i++) {
        struct stat info;
        uint64_t start = strtoull(list.names[i], NULL, 10);
        int fd = openat(dirfd(entries), list.names[i], O_RDONLY | O_CLOEXEC);
        if (fd < 0) {
            if (errno != ENOENT) status = RP_IO_ERROR; /* else: deleted meanwhile */
            continue;
        }
        if (fstat(fd, &info) < 0)
            status = RP_IO_ERROR;
        else {
            if (*file_size == 0) *file_size = (uint64_t)info.st_size;
            if (!S_ISREG(info.st_mode) || (uint64_t)info.st_size != *file_size) *odd |= RP_QUEUE_FOREIGN;
            if (expected != UINT64_MAX && start != expected) *odd |= RP_QUEUE_GAP;
            expected = start + (uint64_t)info.st_size;
            if (goes_on && S_ISREG(info.st_mode))
                goes_on = add_file(fd, start, first_offset, end_offset, log_begin, sum, odd);
            if (goes_on < 0) status = RP_IO_ERROR;
        }
        close(fd);
    }
    free(list.names);
    closedir(entries);
    return status;
}
