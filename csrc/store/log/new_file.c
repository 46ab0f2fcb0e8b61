/* See new_file.h. O_TMPFILE and linkat where the file system has them, a name beside the directory and
 * RENAME_NOREPLACE elsewhere. */
#define _GNU_SOURCE
#include "store/log/new_file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/crash_point.h"

rp_status rp_status_of_errno(void) {
    if (errno == ENOSPC || errno == EDQUOT) return RP_NO_SPACE;
    return errno == ENOMEM ? RP_NO_MEMORY : RP_IO_ERROR;
}

rp_status rp_new_file_begin(rp_new_file *file, const char *directory) {
    file->aside[0] = 0;
    file->fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);
    if (file->fd >= 0) return RP_OK;
    if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) return rp_status_of_errno();
    int size = snprintf(file->aside, sizeof file->aside, "%s.new.%ld", directory, (long)getpid());
    if (size < 0 || (size_t)size >= sizeof file->aside) {
        errno = ENAMETOOLONG;
        return RP_IO_ERROR;
    }
    file->fd = open(file->aside, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    return file->fd >= 0 ? RP_OK : rp_status_of_errno();
}

rp_status rp_new_file_size(rp_new_file *file, uint64_t size, int reserve) {
    if (reserve) {
        if (fallocate(file->fd, 0, 0, (off_t)size) == 0) return RP_OK;
        if (errno != EOPNOTSUPP && errno != ENOSYS) return rp_status_of_errno();
    }
    return ftruncate(file->fd, (off_t)size) == 0 ? RP_OK : rp_status_of_errno();
}

rp_status rp_new_file_finish(rp_new_file *file, const char *path, rp_status status) {
    char source[64];
    int failed;
    if (status != RP_OK) {
        rp_new_file_abandon(file);
        return status;
    }
    RP_CRASH_POINT("new_file.link");
    if (file->aside[0]) {
        failed = renameat2(AT_FDCWD, file->aside, AT_FDCWD, path, RENAME_NOREPLACE);
    } else {
        snprintf(source, sizeof source, "/proc/self/fd/%d", file->fd);
        failed = linkat(AT_FDCWD, source, AT_FDCWD, path, AT_SYMLINK_FOLLOW);
    }
    if (!failed) {
        RP_CRASH_POINT("new_file.linked");
        file->aside[0] = 0;
        return RP_OK;
    }
    status = errno == EEXIST ? RP_FULL : rp_status_of_errno();
    rp_new_file_abandon(file);
    return status;
}

void rp_close_after(int fd) {
    int error = errno;
    if (fd >= 0) close(fd);
    errno = error;
}

void rp_new_file_abandon(rp_new_file *file) {
    int error = errno;
    rp_close_after(file->fd);
    if (file->aside[0]) unlink(file->aside);
    file->fd = -1;
    file->aside[0] = 0;
    errno = error;
}

rp_status rp_sync_path(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT ? RP_OK : RP_IO_ERROR;
    int failed = fsync(fd) < 0;
    rp_close_after(fd);
    return failed ? RP_IO_ERROR : RP_OK;
}

int64_t rp_read_at(int fd, void *data, uint64_t size, uint64_t offset) {
    uint64_t done = 0;
    while (done < size) {
        ssize_t n = pread(fd, (uint8_t *)data + done, size - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        if (n == 0) break;
        done += (uint64_t)n;
    }
    return (int64_t)done;
}

rp_status rp_write_at(int fd, const void *data, uint64_t size, uint64_t offset) {
    const uint8_t *at = data;
    while (size) {
        ssize_t n = pwrite(fd, at, size, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n < 0 ? rp_status_of_errno() : RP_IO_ERROR;
        at += n;
        size -= (uint64_t)n;
        offset += (uint64_t)n;
    }
    return RP_OK;
}

int rp_make_directories(const char *path) {
    char part[PATH_MAX];
    size_t size = strlen(path);
    if (size >= sizeof part) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(part, path, size + 1);
    for (size_t i = 1; i < size; i++) {
        if (part[i] != '/') continue;
        part[i] = 0;
        if (mkdir(part, 0755) < 0 && errno != EEXIST) return -1;
        part[i] = '/';
    }
    return mkdir(part, 0755) < 0 && errno != EEXIST ? -1 : 0;
}
