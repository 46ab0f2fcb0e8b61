/* The file of the control block: created, mapped, checked, reset and synced; and its tables.
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
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/atomic.h"
#include "base/crash_point.h"
#include "base/map.h"

/* The layout of the control block: header, queue entries, topic names, and the two hash indexes that find them.
 *
 *   0            rp_control, then the adders' lock at LOCK_AT
 *   QUEUES_AT    RP_CONTROL_QUEUES_MAX entries of 64 bytes (RP_CONTROL_QUEUES_AT)
 *   TOPICS_AT    RP_CONTROL_TOPICS_MAX names of 128 bytes: length, then up to 127 bytes
 *   SLOTS_AT     hash slots of queues, 4 bytes: entry number + 1, 0 free; linear probing, half full at the most
 *   NAMES_AT     hash slots of topics, likewise */
#define QUEUE_SLOTS (RP_CONTROL_QUEUES_MAX * 2u)
#define TOPIC_SLOTS (RP_CONTROL_TOPICS_MAX * 2u)
#define LOCK_AT 2048u
#define TOPICS_AT (RP_CONTROL_QUEUES_AT + (uint64_t)RP_CONTROL_QUEUES_MAX * sizeof(rp_queue))
#define SLOTS_AT (TOPICS_AT + (uint64_t)RP_CONTROL_TOPICS_MAX * RP_CONTROL_TOPIC_ENTRY)
#define NAMES_AT (SLOTS_AT + (uint64_t)QUEUE_SLOTS * 4)
#define FILE_SIZE (NAMES_AT + (uint64_t)TOPIC_SLOTS * 4)

_Static_assert(sizeof(rp_queue) == 64, "one cache line per queue");
_Static_assert(sizeof(rp_control) <= LOCK_AT && sizeof(pthread_mutex_t) <= RP_CONTROL_QUEUES_AT - LOCK_AT,
               "header fits its page");

struct rp_control_block {
    uint8_t *base;
    char *path;
};

static inline rp_queue *queue_at(const rp_control_block *block, uint32_t index) {
    return (rp_queue *)(block->base + RP_CONTROL_QUEUES_AT) + index;
}
static inline uint8_t *topic_at(const rp_control_block *block, uint32_t index) {
    return block->base + TOPICS_AT + (uint64_t)index * RP_CONTROL_TOPIC_ENTRY;
}
static inline uint32_t *queue_slots(const rp_control_block *block) { return (uint32_t *)(block->base + SLOTS_AT); }
static inline uint32_t *topic_slots(const rp_control_block *block) { return (uint32_t *)(block->base + NAMES_AT); }
static inline pthread_mutex_t *adders(const rp_control_block *block) {
    return (pthread_mutex_t *)(block->base + LOCK_AT);
}

/* The tables of the control block: find and add topics and queues; fields that several processes change.
 *
 * Lookups take no lock: a slot is stored with release after its entry is complete, and never changes again. A process
 * that dies while it adds leaves at most one counted entry without a slot; the next addition repairs that (lock: robust
 * mutex). */

#define RESERVE_STEP 4096u /* entries whose blocks are reserved at once */

rp_control *rp_control_header(rp_control_block *block) { return (rp_control *)block->base; }
rp_queue *rp_control_queue(rp_control_block *block, uint32_t index) { return queue_at(block, index); }
uint32_t rp_control_queue_index(const rp_control_block *block, const rp_queue *queue) {
    return (uint32_t)(queue - queue_at(block, 0));
}

uint32_t rp_control_topic(const rp_control_block *block, uint32_t topic, const uint8_t **name) {
    const uint8_t *entry = topic_at(block, topic);
    *name = entry + 1;
    return entry[0];
}

/* Mixes eight bytes at a time; good enough for names, and the same in every process of one build. The seed is secret,
 * so clients cannot choose names that collide. */
static uint64_t hash_name(const uint8_t *name, uint32_t size, uint64_t seed) {
    uint64_t hash = (seed + size) * 0x9E3779B97F4A7C15ull, word;
    while (size) {
        uint32_t n = size < 8 ? size : 8;
        word = 0;
        memcpy(&word, name, n);
        hash = (hash ^ word) * 0xD6E8FEB86659FD93ull;
        hash ^= hash >> 32;
        name += n;
        size -= n;
    }
    return hash;
}

static uint64_t seed_of(const rp_control_block *block) { return ((const rp_control *)block->base)->hash_seed; }

static int name_is(const rp_control_block *block, uint32_t topic, const uint8_t *name, uint32_t size) {
    const uint8_t *entry = topic_at(block, topic);
    return entry[0] == size && memcmp(entry + 1, name, size) == 0;
}

/* The slot of (name, queue id), or the free slot for it; and likewise of a topic. */
static uint32_t *queue_slot(const rp_control_block *block, const uint8_t *name, uint32_t size, uint32_t queue_id) {
    uint32_t *slots = queue_slots(block);
    for (uint64_t at = hash_name(name, size, seed_of(block) + queue_id);; at++) {
        uint32_t *slot = &slots[at & (QUEUE_SLOTS - 1)], value = rp_load_acquire32(slot);
        if (!value) return slot;
        const rp_queue *queue = queue_at(block, value - 1);
        if (queue->queue_id == queue_id && name_is(block, queue->topic, name, size)) return slot;
    }
}

static uint32_t *topic_slot(const rp_control_block *block, const uint8_t *name, uint32_t size) {
    uint32_t *slots = topic_slots(block);
    for (uint64_t at = hash_name(name, size, seed_of(block));; at++) {
        uint32_t *slot = &slots[at & (TOPIC_SLOTS - 1)], value = rp_load_acquire32(slot);
        if (!value || name_is(block, value - 1, name, size)) return slot;
    }
}

rp_queue *rp_control_find(rp_control_block *block, const uint8_t *topic, uint32_t topic_size, uint32_t queue_id) {
    if (!topic_size || topic_size > RP_CONTROL_TOPIC_ENTRY - 1) return NULL;
    uint32_t value = rp_load_acquire32(queue_slot(block, topic, topic_size, queue_id));
    return value ? queue_at(block, value - 1) : NULL;
}

uint32_t rp_control_next_of_topic(rp_control_block *block, const uint8_t *topic, uint32_t topic_size, uint32_t from) {
    uint32_t count = rp_load_acquire32(&rp_control_header(block)->queue_count);
    uint32_t value =
        topic_size && topic_size < RP_CONTROL_TOPIC_ENTRY ? rp_load_acquire32(topic_slot(block, topic, topic_size)) : 0;
    if (!value) return count;
    while (from < count && queue_at(block, from)->topic != value - 1) from++;
    return from;
}

void rp_control_sum_topics(rp_control_block *block, uint32_t *used, uint8_t *deleted) {
    uint32_t count = rp_load_acquire32(&rp_control_header(block)->queue_count);
    for (uint32_t i = 0; i < count; i++) {
        const rp_queue *queue = queue_at(block, i);
        uint64_t next = rp_load_acquire(&queue->next_offset);
        uint32_t topic = queue->topic, queues = queue->queue_id + 1;
        if (topic >= RP_CONTROL_TOPICS_MAX) continue; /* damaged */
        if (queue->state == RP_QUEUE_LIVE && next && used[topic] < queues) used[topic] = queues;
        if (queue->state == RP_QUEUE_DELETED) deleted[topic] |= next > rp_load_acquire(&queue->min_offset) ? 3 : 1;
    }
}

/* Reserve blocks for [offset, offset + size) of the file. 0, or -1 with errno; file systems without fallocate stay
 * sparse. */
static int reserve(int fd, uint64_t offset, uint64_t size) {
    if (fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)size) == 0) return 0;
    return errno == EOPNOTSUPP || errno == ENOSYS ? 0 : -1;
}

/* Reserve RESERVE_STEP entries of a table where the `index`-th begins a step. Opens by path: workers keep no
 * descriptor. */
static int reserve_entry(rp_control_block *block, uint64_t table, uint32_t index, uint64_t entry_size) {
    if (index % RESERVE_STEP) return 0;
    int fd = open(block->path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return -1;
    int result = reserve(fd, table + index * entry_size, RESERVE_STEP * entry_size), error = errno;
    close(fd);
    errno = error;
    return result;
}

/* Store the slots of the newest topic and queue if a process died while it added them. */
static void show_newest(rp_control_block *block) {
    rp_control *control = rp_control_header(block);
    if (control->topic_count) {
        const uint8_t *entry = topic_at(block, control->topic_count - 1);
        uint32_t *slot = topic_slot(block, entry + 1, entry[0]);
        if (!*slot) rp_store_release32(slot, control->topic_count);
    }
    if (control->queue_count) {
        const rp_queue *queue = queue_at(block, control->queue_count - 1);
        const uint8_t *entry = topic_at(block, queue->topic);
        uint32_t *slot = queue_slot(block, entry + 1, entry[0], queue->queue_id);
        if (!*slot) rp_store_release32(slot, control->queue_count);
    }
}

static int add_topic(rp_control_block *block, const uint8_t *name, uint32_t size, uint32_t *topic) {
    rp_control *control = rp_control_header(block);
    uint32_t *slot = topic_slot(block, name, size), index = control->topic_count;
    if (*slot) {
        *topic = *slot - 1;
        return 0;
    }
    if (index == RP_CONTROL_TOPICS_MAX) {
        errno = EOVERFLOW;
        return -1;
    }
    if (reserve_entry(block, TOPICS_AT, index, RP_CONTROL_TOPIC_ENTRY) < 0) return -1;
    uint8_t *entry = topic_at(block, index);
    entry[0] = (uint8_t)size;
    memcpy(entry + 1, name, size);
    RP_CRASH_POINT("control.topic");
    rp_store_release32(&control->topic_count, index + 1);
    RP_CRASH_POINT("control.topic_slot");
    rp_store_release32(slot, index + 1);
    *topic = index;
    return 0;
}

static rp_queue *add_queue(rp_control_block *block, const uint8_t *name, uint32_t size, uint32_t queue_id) {
    rp_control *control = rp_control_header(block);
    uint32_t *slot = queue_slot(block, name, size, queue_id), index = control->queue_count, topic;
    if (*slot) {
        rp_queue *queue = queue_at(block, *slot - 1);
        rp_store_release32(&queue->state, RP_QUEUE_LIVE);
        return queue;
    }
    if (index == RP_CONTROL_QUEUES_MAX) {
        errno = EOVERFLOW;
        return NULL;
    }
    if (add_topic(block, name, size, &topic) < 0 ||
        reserve_entry(block, RP_CONTROL_QUEUES_AT, index, sizeof(rp_queue)) < 0)
        return NULL;
    rp_queue *queue = queue_at(block, index);
    memset(queue, 0, sizeof *queue);
    RP_CRASH_POINT("control.entry");
    queue->topic = topic;
    queue->queue_id = queue_id;
    queue->state = RP_QUEUE_LIVE;
    RP_CRASH_POINT("control.queue");
    rp_store_release32(&control->queue_count, index + 1);
    RP_CRASH_POINT("control.queue_slot");
    rp_store_release32(slot, index + 1);
    return queue;
}

/* A topic becomes a directory below consumequeue/: names that would leave it or cannot be one are refused. */
int rp_control_is_name(const uint8_t *name, uint32_t size) {
    if (!size || size > RP_CONTROL_TOPIC_ENTRY - 1 || memchr(name, '/', size) || memchr(name, 0, size)) return 0;
    return !(name[0] == '.' && (size == 1 || (size == 2 && name[1] == '.')));
}

rp_queue *rp_control_add(rp_control_block *block, const uint8_t *topic, uint32_t topic_size, uint32_t queue_id) {
    if (!rp_control_is_name(topic, topic_size) || queue_id > INT32_MAX) {
        errno = EINVAL;
        return NULL;
    }
    int locked = pthread_mutex_lock(adders(block));
    if (locked == EOWNERDEAD) {
        pthread_mutex_consistent(adders(block));
        show_newest(block);
    } else if (locked) {
        errno = locked;
        return NULL;
    }
    rp_queue *queue = add_queue(block, topic, topic_size, queue_id);
    int error = errno;
    pthread_mutex_unlock(adders(block));
    errno = error;
    return queue;
}

int rp_control_refuses(int error) { return error == EINVAL || error == EOVERFLOW; }

int rp_control_put_flag(rp_control *control, uint32_t flag, int on) {
    uint32_t before = on ? __atomic_fetch_or(&control->running_flags, flag, __ATOMIC_ACQ_REL)
                         : __atomic_fetch_and(&control->running_flags, ~flag, __ATOMIC_ACQ_REL);
    return !(before & flag) == !!on;
}

int rp_control_is_deleted(const rp_queue *queue) {
    uint64_t below = rp_load_acquire(&queue->deleted_below);
    return below && queue->max_offset && queue->max_phy_offset <= below;
}

int rp_control_move_min(rp_queue *queue, uint64_t from, uint64_t to) {
    return __atomic_compare_exchange_n(&queue->min_offset, &from, to, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

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
    return reserve(fd, 0, RP_CONTROL_QUEUES_AT) < 0 || reserve(fd, SLOTS_AT, FILE_SIZE - SLOTS_AT) < 0 ? -1 : 0;
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
    show_newest(block);
    for (uint32_t i = 0; i < control->topic_count; i++)
        if (*topic_slot(block, topic_at(block, i) + 1, topic_at(block, i)[0]) != i + 1) return 0;
    for (uint32_t i = 0; i < control->queue_count; i++) {
        const uint8_t *name = topic_at(block, queue_at(block, i)->topic);
        if (*queue_slot(block, name + 1, name[0], queue_at(block, i)->queue_id) != i + 1) return 0;
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
    return reserve(fd, SLOTS_AT, FILE_SIZE - SLOTS_AT) < 0 ? -1 : 1;
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
    int failed = format_file(fd) < 0, error = failed ? errno : init_adders(block);
    close(fd);
    if (!failed) set_identity(block, commitlog_file_size);
    errno = error;
    if (!error) return RP_OK;
    return error == ENOSPC || error == EDQUOT ? RP_NO_SPACE : RP_IO_ERROR;
}

rp_status rp_control_sync(rp_control_block *block) {
    int fd = open(block->path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return RP_IO_ERROR;
    RP_CRASH_POINT("control.sync");
    int failed = fdatasync(fd) < 0;
    close(fd);
    return failed ? RP_IO_ERROR : RP_OK;
}
