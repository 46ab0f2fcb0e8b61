/* The file of the control block: created, mapped, checked, reset and synced. control_tables.c is what it holds.
 *
 * The file is sparse; blocks are reserved before a page is first written, so that a full disk is an error of
 * rp_control_add and never a SIGBUS.
 *
 * The content of the file is checked when it is opened (`check_tables`), because lookups check no bounds and probe
 * until a free slot. A block with inconsistent tables is reset, and recovery uses the files. */
#define _GNU_SOURCE
#include "store/control/control_block.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/atomic.h"
#include "base/crash_point.h"
#include "base/random_seed.h"
#include "store/control/control_private.h"

#define CONTROL_MAGIC 0x31304b4c42595052ull /* "RPYBLK01", little-endian */
#define SLOTS_PER_READ 16384u

static int read_boot_id(uint8_t id[16]) {
    char text[40];
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC), digits = 0;
    if (fd < 0) return -1;
    ssize_t size = read(fd, text, sizeof text);
    close(fd);
    memset(id, 0, 16);
    for (ssize_t i = 0; i < size && digits < 32; i++) {
        int c = text[i], value = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (value < 0) continue;
        id[digits / 2] = (uint8_t)(id[digits / 2] << 4 | value);
        digits++;
    }
    return digits == 32 ? 0 : -1;
}

int rp_control_is_same_boot(const rp_control_block *block) {
    uint8_t id[16];
    return read_boot_id(id) == 0 && memcmp(id, ((const rp_control *)block->base)->boot_id, 16) == 0;
}

void rp_control_mark_boot(rp_control_block *block) {
    rp_control *control = rp_control_header(block);
    if (read_boot_id(control->boot_id) < 0) memset(control->boot_id, 0, sizeof control->boot_id);
}

/* Create an empty file of full size, with blocks for the header, both indexes and the first entries. */
static int format_file(int fd) {
    RP_CRASH_POINT("control.format");
    if (ftruncate(fd, 0) < 0 || ftruncate(fd, (off_t)FILE_SIZE) < 0) return -1;
    RP_CRASH_POINT("control.formatted");
    return rp_control_reserve(fd, 0, RP_CONTROL_QUEUES_AT) < 0 ||
                   rp_control_reserve(fd, SLOTS_AT, FILE_SIZE - SLOTS_AT) < 0
               ? -1
               : 0;
}

static int init_adders(rp_control_block *block) {
    pthread_mutexattr_t attributes;
    int error = pthread_mutexattr_init(&attributes);
    if (error) return error;
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    memset(adders(block), 0, sizeof(pthread_mutex_t));
    error = pthread_mutex_init(adders(block), &attributes);
    pthread_mutexattr_destroy(&attributes);
    return error;
}

static void set_identity(rp_control_block *block, uint64_t commitlog_file_size) {
    rp_control *control = rp_control_header(block);
    RP_CRASH_POINT("control.identity");
    control->layout_version = RP_CONTROL_LAYOUT_VERSION;
    control->commitlog_file_size = commitlog_file_size;
    control->hash_seed = rp_random_seed();
    rp_store_release(&control->magic, CONTROL_MAGIC);
}

int rp_control_is_known(const rp_control *control) {
    return control->magic == CONTROL_MAGIC && control->layout_version == RP_CONTROL_LAYOUT_VERSION;
}

static int is_ours(const rp_control *control, uint64_t commitlog_file_size) {
    return rp_control_is_known(control) && control->commitlog_file_size == commitlog_file_size &&
           control->queue_count <= RP_CONTROL_QUEUES_MAX && control->topic_count <= RP_CONTROL_TOPICS_MAX &&
           control->clean <= 1;
}

/* Check that every slot of a table names one of `entries` entries, and that there are not more used slots than entries:
 * then half of the table is free, and probing ends. Reads by descriptor: a table that is mapped would stay in the
 * process. */
static int slots_fit(int fd, uint64_t at, uint64_t end, uint32_t entries) {
    uint32_t values[SLOTS_PER_READ];
    uint64_t taken = 0;
    while (at < end) {
        off_t data = lseek(fd, (off_t)at, SEEK_DATA); /* over what was never written */
        if (data < 0 && errno == ENXIO) break;
        if (data > 0 && (uint64_t)data > at) at = (uint64_t)data - (uint64_t)data % sizeof *values;
        if (at >= end) break;
        uint64_t size = end - at < sizeof values ? end - at : sizeof values;
        if (pread(fd, values, size, (off_t)at) != (ssize_t)size) return 0;
        for (uint64_t i = 0; i < size / sizeof *values; i++) {
            if (values[i] > entries) return 0;
            taken += values[i] != 0;
        }
        at += size;
    }
    return taken <= entries;
}

/* Check the tables: no reference leaves the mapping, and each entry is found by its own name. */
static int tables_are_sound(rp_control_block *block, int fd) {
    const rp_control *control = rp_control_header(block);
    if (!slots_fit(fd, SLOTS_AT, NAMES_AT, control->queue_count) ||
        !slots_fit(fd, NAMES_AT, FILE_SIZE, control->topic_count))
        return 0;
    for (uint32_t i = 0; i < control->topic_count; i++)
        if (!rp_control_is_name(topic_at(block, i) + 1, topic_at(block, i)[0])) return 0;
    for (uint32_t i = 0; i < control->queue_count; i++) {
        const rp_queue *queue = queue_at(block, i);
        if (queue->topic >= control->topic_count || queue->queue_id > INT32_MAX) return 0;
        if (queue->state != RP_QUEUE_LIVE && queue->state != RP_QUEUE_DELETED) return 0;
    }
    rp_control_show_newest(block);
    for (uint32_t i = 0; i < control->topic_count; i++)
        if (*rp_control_topic_slot(block, topic_at(block, i) + 1, topic_at(block, i)[0]) != i + 1) return 0;
    for (uint32_t i = 0; i < control->queue_count; i++) {
        const uint8_t *name = topic_at(block, queue_at(block, i)->topic);
        if (*rp_control_queue_slot(block, name + 1, name[0], queue_at(block, i)->queue_id) != i + 1) return 0;
    }
    return 1;
}

/* Check the tables of an existing block. 1: usable. 0: the block must be reset. -1 with errno. After a power failure
 * pages of the tables may be of different times, and only the positions are used. So the block is not reset: invalid
 * entries are freed, and no entry is found until recovery adds it again.
 */
static int check_tables(rp_control_block *block, int fd) {
    const rp_control *control = rp_control_header(block);
    if (tables_are_sound(block, fd)) return 1;
    if (control->clean || rp_control_is_same_boot(block)) return 0;
    for (uint32_t i = 0; i < control->queue_count; i++)
        if (queue_at(block, i)->topic >= RP_CONTROL_TOPICS_MAX) memset(queue_at(block, i), 0, sizeof(rp_queue));
    if (ftruncate(fd, (off_t)SLOTS_AT) < 0 || ftruncate(fd, (off_t)FILE_SIZE) < 0) return -1;
    return rp_control_reserve(fd, SLOTS_AT, FILE_SIZE - SLOTS_AT) < 0 ? -1 : 1;
}

rp_control_block *rp_control_open(const char *path, uint64_t commitlog_file_size) {
    int error = 0;
    struct stat status;
    rp_control_block *block = calloc(1, sizeof *block);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (!block || fd < 0 || !(block->path = strdup(path)) || fstat(fd, &status) < 0) goto failed;
    int is_new = status.st_size != (off_t)FILE_SIZE;
    if (is_new && format_file(fd) < 0) goto failed;
    void *base = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (base == MAP_FAILED) goto failed;
    block->base = base;
    /* A lookup needs one page. The kernel would read 128 KiB around it, and each process that looks would keep them. */
    madvise(block->base + SLOTS_AT, FILE_SIZE - SLOTS_AT, MADV_RANDOM);
    if (!is_new) {
        int is_usable = is_ours(base, commitlog_file_size) ? check_tables(block, fd) : 0;
        if (is_usable < 0 || (!is_usable && format_file(fd) < 0)) goto failed;
        is_new = !is_usable;
    }
    if ((error = init_adders(block))) {
        errno = error;
        goto failed;
    }
    if (is_new) set_identity(block, commitlog_file_size);
    close(fd);
    return block;
failed:
    error = errno;
    if (fd >= 0) close(fd);
    rp_control_close(block);
    errno = error;
    return NULL;
}

void rp_control_close(rp_control_block *block) {
    if (!block) return;
    if (block->base) munmap(block->base, FILE_SIZE);
    free(block->path);
    free(block);
}

rp_status rp_control_reset(rp_control_block *block) {
    uint64_t commitlog_file_size = rp_control_header(block)->commitlog_file_size;
    int fd = open(block->path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return RP_IO_ERROR;
    int failed = format_file(fd) < 0, error = errno;
    close(fd);
    if (failed) {
        errno = error;
        return error == ENOSPC || error == EDQUOT ? RP_NO_SPACE : RP_IO_ERROR;
    }
    error = init_adders(block);
    set_identity(block, commitlog_file_size);
    errno = error;
    return error ? RP_IO_ERROR : RP_OK;
}

rp_status rp_control_sync(rp_control_block *block) {
    int fd = open(block->path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return RP_IO_ERROR;
    RP_CRASH_POINT("control.sync");
    int failed = fdatasync(fd) < 0;
    close(fd);
    return failed ? RP_IO_ERROR : RP_OK;
}
