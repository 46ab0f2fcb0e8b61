/* A circle of requests: the send worker adds at the end and takes from the front, the thread reads in between. The
 * thread uses pread: a page that cannot be read is an error, not a signal. */
#define _GNU_SOURCE
#include "workers/send/half_reads.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"
#include "ipc/process.h"
#include "store/log/mapped_file.h"
#include "store/queues/consume_queue.h"
#include "store/queues/unit.h"

enum { PAGE = 4096, PIECE = 64 << 10, FILES = 2 };

struct rp_half_reads {
    rp_worker *worker;
    rp_control_block *block;
    char *commitlog_directory;
    rp_cq_reader *units;
    struct half_read {
        const rp_queue *queue;
        rp_msg_end_transaction *request; /* owned */
        uint64_t record_max;             /* bytes */
    } slots[RP_HALF_READS_MAX];
    uint64_t taken, added; /* send worker */
    uint64_t read;         /* thread */
    uint8_t *piece;        /* PIECE bytes; thread */
    pthread_t thread;
    int has_thread, stop;  /* `stop` under the lock */
    pthread_mutex_t lock;  /* for waiting */
    pthread_cond_t wake;
};

rp_half_reads *rp_half_reads_open(rp_worker *worker, rp_control_block *block, const char *commitlog_directory,
                                  const char *consume_queue_directory, uint64_t consume_queue_file_size) {
    rp_half_reads *reads = calloc(1, sizeof *reads);
    if (!reads) return NULL;
    reads->worker = worker;
    reads->block = block;
    pthread_mutex_init(&reads->lock, NULL);
    pthread_cond_init(&reads->wake, NULL);
    reads->commitlog_directory = strdup(commitlog_directory);
    reads->units = rp_cq_reader_open(block, consume_queue_directory, consume_queue_file_size, FILES);
    if (reads->commitlog_directory && reads->units) return reads;
    rp_half_reads_close(reads);
    return NULL;
}

void rp_half_reads_close(rp_half_reads *reads) {
    if (!reads) return;
    if (reads->has_thread) {
        pthread_mutex_lock(&reads->lock);
        reads->stop = 1;
        pthread_cond_signal(&reads->wake);
        pthread_mutex_unlock(&reads->lock);
        pthread_join(reads->thread, NULL);
    }
    for (; reads->taken < reads->added; reads->taken++) free(reads->slots[reads->taken % RP_HALF_READS_MAX].request);
    if (reads->units) rp_cq_close(reads->units);
    pthread_cond_destroy(&reads->wake);
    pthread_mutex_destroy(&reads->lock);
    free(reads->commitlog_directory);
    free(reads->piece);
    free(reads);
}

int rp_half_reads_in_memory(const uint8_t *at, uint64_t size) {
    uint64_t skew = (uintptr_t)at % PAGE, pages = (skew + size + PAGE - 1) / PAGE;
    unsigned char resident[64];
    for (uint64_t done = 0; done < pages; done += sizeof resident) {
        uint64_t count = pages - done < sizeof resident ? pages - done : sizeof resident;
        if (mincore((uint8_t *)(uintptr_t)(at - skew) + done * PAGE, count * PAGE, resident) != 0) return 1;
        for (uint64_t i = 0; i < count; i++)
            if (!(resident[i] & 1)) return 0;
    }
    return 1;
}

/* Read a record into the page cache. Whatever fails is found again by the send worker. */
static void read_record(rp_half_reads *reads, uint64_t phy_offset, uint64_t size) {
    char path[PATH_MAX];
    uint64_t file_size = rp_control_header(reads->block)->commitlog_file_size, at = phy_offset % file_size;
    if (rp_mapped_file_path(path, sizeof path, reads->commitlog_directory, phy_offset - at) < 0) return;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    for (uint64_t end = size < file_size - at ? at + size : file_size; at < end;) {
        ssize_t n = pread(fd, reads->piece, end - at < PIECE ? end - at : PIECE, (off_t)at);
        if (n <= 0) break;
        at += (uint64_t)n;
    }
    close(fd);
}

/* The client names a place of the log and a queue offset. Only the place that the unit names is read, and the size is
 * the unit's: else a client could have any bytes taken for a size. */
static void read_half(rp_half_reads *reads, const struct half_read *wanted) {
    uint8_t bytes[RP_CQ_UNIT_SIZE];
    const rp_msg_end_transaction *request = wanted->request;
    if (rp_cq_read(reads->units, wanted->queue, (uint64_t)request->queue_offset, 1, bytes) != 1) return;
    rp_unit unit = rp_unit_read(bytes);
    if (unit.phy_offset == (uint64_t)request->phy_offset)
        read_record(reads, unit.phy_offset, unit.size < wanted->record_max ? unit.size : wanted->record_max);
}

static void *run(void *argument) {
    rp_half_reads *reads = argument;
    rp_priority_lower();
    pthread_mutex_lock(&reads->lock);
    while (!reads->stop) {
        if (reads->read == rp_load_acquire(&reads->added)) {
            rp_cq_release(reads->units);
            pthread_cond_wait(&reads->wake, &reads->lock);
            continue;
        }
        pthread_mutex_unlock(&reads->lock);
        read_half(reads, &reads->slots[reads->read % RP_HALF_READS_MAX]);
        rp_store_release(&reads->read, reads->read + 1);
        rp_full_fence(); /* orders the store of `read` before the load of `asleep` */
        rp_worker_wake(reads->worker, 0);
        pthread_mutex_lock(&reads->lock);
    }
    pthread_mutex_unlock(&reads->lock);
    return NULL;
}

rp_status rp_half_reads_add(rp_half_reads *reads, const rp_queue *queue, const rp_msg_end_transaction *request,
                            uint64_t record_max) {
    if (reads->added - reads->taken == RP_HALF_READS_MAX) return RP_FULL;
    if (!reads->piece && !(reads->piece = malloc(PIECE))) return RP_NO_MEMORY;
    if (!reads->has_thread && pthread_create(&reads->thread, NULL, run, reads) != 0) return RP_NO_MEMORY;
    reads->has_thread = 1;
    uint64_t size = sizeof *request + request->group_size, at = reads->added % RP_HALF_READS_MAX;
    if (!(reads->slots[at].request = malloc(size))) return RP_NO_MEMORY;
    memcpy(reads->slots[at].request, request, size);
    reads->slots[at].queue = queue;
    reads->slots[at].record_max = record_max;
    pthread_mutex_lock(&reads->lock);
    rp_store_release(&reads->added, reads->added + 1);
    pthread_cond_signal(&reads->wake);
    pthread_mutex_unlock(&reads->lock);
    return RP_OK;
}

const rp_msg_end_transaction *rp_half_reads_first(rp_half_reads *reads) {
    if (reads->taken == rp_load_acquire(&reads->read)) return NULL;
    return reads->slots[reads->taken % RP_HALF_READS_MAX].request;
}

void rp_half_reads_drop_first(rp_half_reads *reads) {
    free(reads->slots[reads->taken % RP_HALF_READS_MAX].request);
    reads->taken++;
}

int rp_half_reads_are_waiting(const rp_half_reads *reads) { return reads->taken < reads->added; }
