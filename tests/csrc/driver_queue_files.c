/* What a sync of queue files syncs: each dirty file, and the directories of those that were created or removed; the
 * whole file system where the set of dirty files is not known or does not hold them. The syncs here are counted, not
 * done. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "store/queues/queue_files.h"
#include "check.h"
#include "directory.h"

enum { SET = 256, FILE_SIZE = 4096, SEEN_MAX = 4096 };

static char base[] = "/tmp/rocketpy-queue-files-XXXXXX";
static int whole, data_count, names_count, fail_at; /* fail_at: the n-th sync of a file fails; 0: none */
static ino_t seen[SEEN_MAX];
static int seen_count;

static void see(int fd) {
    struct stat info;
    CHECK(fstat(fd, &info) == 0 && seen_count < SEEN_MAX);
    seen[seen_count++] = info.st_ino;
}

int syncfs(int fd) {
    (void)fd;
    whole++;
    return 0;
}

int fdatasync(int fd) {
    see(fd);
    data_count++;
    if (!fail_at || --fail_at) return 0;
    errno = EIO;
    return -1;
}

int fsync(int fd) {
    see(fd);
    names_count++;
    return 0;
}

static int was_synced(const char *path) {
    struct stat info;
    int times = 0;
    CHECK(stat(path, &info) == 0);
    for (int i = 0; i < seen_count; i++) times += seen[i] == info.st_ino;
    return times;
}

static rp_status sync_all(rp_queue_files *files) {
    whole = data_count = names_count = seen_count = 0;
    return rp_queue_files_sync(files);
}

static void create(rp_queue_files *files, const rp_queue *queue, uint64_t number) {
    rp_new_file file;
    CHECK(rp_queue_files_begin(files, queue, &file) == RP_OK);
    CHECK(rp_queue_files_finish(files, queue, number, &file, RP_OK) == RP_OK);
}

static void put(rp_queue_files *files, const rp_queue *queue, uint64_t number) {
    int fd = rp_queue_files_find(files, queue, number);
    CHECK(fd >= 0 && rp_queue_files_write(files, queue, number, fd, "unit", 4, 0) == RP_OK);
}

static const char *below(const char *path) {
    static char out[256];
    snprintf(out, sizeof out, "%s/%s", base, path);
    return out;
}

static void test_names(rp_queue_files *files, const rp_queue *queue) {
    CHECK(sync_all(files) == RP_OK && whole == 1); /* whatever a previous worker wrote */
    CHECK(sync_all(files) == RP_OK && whole + data_count + names_count == 0);
    create(files, queue, 0);
    put(files, queue, 0);
    put(files, queue, 0);
    CHECK(sync_all(files) == RP_OK && whole == 0 && data_count == 1 && names_count == 4);
    CHECK(was_synced(below("queues/T/0/00000000000000000000")) == 1 && was_synced(below("queues/T/0")) == 1);
    CHECK(was_synced(below("queues/T")) == 1 && was_synced(below("queues")) == 1 && was_synced(base) == 1);
    put(files, queue, 0);
    CHECK(sync_all(files) == RP_OK && data_count == 1 && names_count == 0);
    CHECK(rp_queue_files_remove_one(files, queue, 0) == RP_OK);
    CHECK(sync_all(files) == RP_OK && whole + data_count == 0 && was_synced(below("queues/T/0")) == 1);
    create(files, queue, 0);
    CHECK(rp_queue_files_remove(files, queue) == RP_OK); /* with its directory and the topic's */
    CHECK(sync_all(files) == RP_OK && whole + data_count == 0 && was_synced(below("queues")) == 1);
}

/* Fault: A unit that went through a window was in no sync. */
static void test_window(rp_queue_files *files, const rp_queue *queue) {
    create(files, queue, 0);
    CHECK(sync_all(files) == RP_OK && !rp_queue_files_write_mapped(files, queue, 0, "unit", 4, 4));
    put(files, queue, 0);
    rp_queue_files_map_next(files, queue, 0, rp_queue_files_find(files, queue, 0), 4, 0);
    CHECK(sync_all(files) == RP_OK && data_count == 1);
    CHECK(rp_queue_files_write_mapped(files, queue, 0, "unit", 4, 4));
    CHECK(sync_all(files) == RP_OK && data_count == 1 && was_synced(below("queues/T/0/00000000000000000000")) == 1);
    CHECK(rp_queue_files_remove_one(files, queue, 0) == RP_OK);
    CHECK(!rp_queue_files_write_mapped(files, queue, 0, "unit", 4, 8));
    create(files, queue, 0);
    put(files, queue, 0);
    rp_queue_files_map_next(files, queue, 0, rp_queue_files_find(files, queue, 0), 4, 0);
    CHECK(rp_queue_files_remove(files, queue) == RP_OK);
    CHECK(!rp_queue_files_write_mapped(files, queue, 0, "unit", 4, 4));
    CHECK(sync_all(files) == RP_OK);
}

/* Fault: A flush of more than 64 queue files wrote everything dirty in the file system. */
static void test_bound(rp_queue_files *files, rp_queue *const *queues) {
    for (int i = 0; i < SET; i++) create(files, queues[i], 0);
    CHECK(sync_all(files) == RP_OK && whole == 0 && data_count == SET && was_synced(below("queues/T")) == 1);
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < SET; i++) put(files, queues[i], 0);
    CHECK(sync_all(files) == RP_OK && whole == 0 && data_count == SET && names_count == 0);
    for (int i = 0; i <= SET; i++) create(files, queues[i], 1);
    CHECK(sync_all(files) == RP_OK && whole == 1 && data_count == 0);
    CHECK(sync_all(files) == RP_OK && whole == 0); /* the set is empty again */
}

/* What a failed sync did not write is not taken for written, whatever the next sync says. */
static void test_failure(rp_queue_files *files, rp_queue *const *queues, rp_control *control) {
    for (int i = 0; i < 3; i++) put(files, queues[i], 0);
    fail_at = 2;
    CHECK(sync_all(files) == RP_IO_ERROR && control->units_lost == 1);
    CHECK(sync_all(files) == RP_OK && whole == 1 && control->units_lost == 1);
}

int main(void) {
    rp_queue *queues[SET + 1];
    char control_path[PATH_SIZE];
    CHECK(mkdtemp(base));
    rp_control_block *block = rp_control_open(path_in(control_path, base, "control"), 1 << 20);
    CHECK(block);
    for (uint32_t i = 0; i <= SET; i++) CHECK((queues[i] = rp_control_add(block, (const uint8_t *)"T", 1, i)));
    char *directory = strdup(below("queues"));
    CHECK(mkdir(directory, 0755) == 0);
    rp_queue_files *files = rp_queue_files_open(block, directory, FILE_SIZE, 1024, 1);
    CHECK(files);
    test_names(files, queues[0]);
    test_window(files, queues[0]);
    test_bound(files, queues);
    test_failure(files, queues, rp_control_header(block));
    rp_queue_files_close(files);
    rp_control_close(block);
    free(directory);
    remove_directory(base);
    puts("queue files: ok");
    return 0;
}
