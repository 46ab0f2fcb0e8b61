/* Descriptors of removed files are closed in turn, whatever the calls before have done to the cache. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "store/queues/queue_files.h"
#include "check.h"

enum { FILES = 10 };

static int make_file(const char *directory, int number, int is_removed) {
    char path[128];
    snprintf(path, sizeof path, "%s/%d", directory, number);
    int fd = open(path, O_CREAT | O_RDWR, 0600);
    CHECK(fd >= 0);
    if (is_removed) unlink(path);
    return fd;
}

static int count_open(rp_file_cache *cache) {
    int count = 0;
    for (uint32_t i = 0; i < FILES; i++) count += rp_file_cache_find(cache, (rp_file_key){.queue = i}) >= 0;
    return count;
}

int main(void) {
    char directory[] = "/tmp/rocketpy-file-cache-XXXXXX";
    CHECK(mkdtemp(directory));
    rp_file_cache *cache = rp_file_cache_open(64);
    CHECK(cache);
    rp_file_cache_release(cache, 5); /* empty */
    for (int i = 0; i < FILES; i++)
        rp_file_cache_put(cache, (rp_file_key){.queue = (uint32_t)i}, make_file(directory, i, i % 2));
    for (int i = 0; i < FILES / 2; i++) {
        rp_file_cache_release(cache, 2); /* one of each kind */
        CHECK(count_open(cache) == FILES - 1 - i);
    }
    rp_file_cache_release(cache, 1000); /* more than there are: each once */
    CHECK(count_open(cache) == FILES / 2);
    int fd = make_file(directory, 1, 1);
    rp_file_cache_put(cache, (rp_file_key){.queue = 1}, fd); /* in a place that was freed */
    rp_file_cache_release(cache, FILES);
    CHECK(count_open(cache) == FILES / 2 && fcntl(fd, F_GETFD) < 0);
    rp_file_cache_close(cache);
    char path[128];
    for (int i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, "%s/%d", directory, i);
        unlink(path);
    }
    CHECK(rmdir(directory) == 0);
    puts("file cache: ok");
    return 0;
}
