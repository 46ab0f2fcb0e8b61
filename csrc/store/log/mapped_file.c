#define _GNU_SOURCE
#include "store/log/mapped_file.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "store/log/new_file.h"

int rp_mapped_file_path(char *out, uint64_t out_size, const char *directory, uint64_t start) {
    int size = snprintf(out, out_size, "%s/%020" PRIu64, directory, start);
    if (size >= 0 && (uint64_t)size < out_size) return 0;
    errno = ENAMETOOLONG;
    return -1;
}

rp_status rp_mapped_file_create(const char *directory, uint64_t start, uint64_t size) {
    char path[PATH_MAX];
    rp_new_file file;
    if (rp_mapped_file_path(path, sizeof path, directory, start) < 0) return RP_IO_ERROR;
    if (access(path, F_OK) == 0) return RP_OK;
    if (rp_make_directories(directory) < 0) return rp_status_of_errno();
    rp_status status = rp_new_file_begin(&file, directory);
    if (status != RP_OK) return status;
    status = rp_new_file_finish(&file, path, rp_new_file_size(&file, size, 1));
    if (status == RP_OK) close(file.fd);
    return status == RP_FULL ? RP_OK : status;
}

/* A file of a Java broker has blocks only for written data; ours has all blocks. To reserve existing blocks would still
 * wait for the file system's journal, and the writer opens a file at each roll. */
static int is_sparse(const struct stat *status) {
    return (uint64_t)status->st_blocks * 512 < (uint64_t)status->st_size;
}

rp_status rp_mapped_file_map(const char *directory, uint64_t start, uint64_t size, int writable, uint8_t **base) {
    char path[PATH_MAX];
    struct stat status;
    rp_status result = RP_OK;
    if (rp_mapped_file_path(path, sizeof path, directory, start) < 0) return RP_IO_ERROR;
    int fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT ? RP_NOT_FOUND : rp_status_of_errno();
    if (fstat(fd, &status) < 0) {
        result = RP_IO_ERROR;
    } else if ((uint64_t)status.st_size != size) {
        errno = EINVAL;
        result = RP_CORRUPT;
    } else if (writable && is_sparse(&status) && fallocate(fd, 0, 0, (off_t)size) < 0 && errno != EOPNOTSUPP &&
               errno != ENOSYS) {
        result = rp_status_of_errno();
    } else {
        void *at = mmap(NULL, size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
        if (at == MAP_FAILED)
            result = rp_status_of_errno();
        else
            *base = at;
    }
    rp_close_after(fd);
    return result;
}
