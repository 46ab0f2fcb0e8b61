#ifndef ROCKETPY_TESTS_FUZZ_STORE_H
#define ROCKETPY_TESTS_FUZZ_STORE_H
/* What the fuzzers of the store share: a directory in memory whose files are made of the input, mappings with a page
 * behind them that may not be touched, and mutations that keep a damaged log interesting: records with their CRC and
 * own offset put right again, so that damage gets past the first check.
 *
 * Input: HEAD bytes of parameters, then what the fuzzer says. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/crc32.h"
#include "base/endian.h"
#include "store/log/record.h"
#include "check.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wformat-truncation" /* every path here begins with a short root */
#endif

enum { HEAD = 16, LOG_FILE_SIZE = 4096, LOG_FILES = 4, LOG_SIZE = LOG_FILES * LOG_FILE_SIZE, PAGE_SIZE = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

/* --- the linker sends the code under test here (--wrap) --- */

void *__real_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *at, size_t size);
int __real_munmap(void *at, size_t size);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t size);

static inline size_t guarded(size_t size) { return (size + PAGE_SIZE - 1) / PAGE_SIZE * PAGE_SIZE + PAGE_SIZE; }

/* Sizes here are whole pages, so the first byte behind a mapping is the guard's. */
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    if (at != NULL) return __real_mmap(at, size, protection, flags, fd, offset);
    uint8_t *base = __real_mmap(NULL, guarded(size), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(base != MAP_FAILED);
    CHECK(__real_mmap(base, size, protection, flags | MAP_FIXED, fd, offset) == base);
    return base;
}

int __wrap_munmap(void *at, size_t size) { return __real_munmap(at, guarded(size)); }

/* Files stay sparse: reserving blocks is what takes the time here. */
int __wrap_fallocate(int fd, int mode, off_t offset, off_t size) {
    (void)fd, (void)mode, (void)offset, (void)size;
    errno = EOPNOTSUPP;
    return -1;
}

/* --- a directory --- */

typedef struct fuzz_paths {
    char log[128], queues[128], index[128], control[128], root[64];
} fuzz_paths;

static inline int remove_one(const char *path, const struct stat *info, int type, struct FTW *where) {
    (void)info, (void)type, (void)where;
    return remove(path);
}

static inline void remove_tree(const char *path) { nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

static fuzz_paths fuzz_directory;

static inline void remove_fuzz_directory(void) { remove_tree(fuzz_directory.root); }

/* This process's directory, made at the first call and removed at exit. */
static inline const fuzz_paths *fuzz_here(void) {
    fuzz_paths *paths = &fuzz_directory;
    if (paths->root[0]) return paths;
    snprintf(paths->root, sizeof paths->root, "%s/rocketpy-fuzz-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    CHECK(mkdtemp(paths->root) != NULL);
    atexit(remove_fuzz_directory);
    snprintf(paths->log, sizeof paths->log, "%s/commitlog", paths->root);
    snprintf(paths->queues, sizeof paths->queues, "%s/consumequeue", paths->root);
    snprintf(paths->index, sizeof paths->index, "%s/index", paths->root);
    snprintf(paths->control, sizeof paths->control, "%s/control", paths->root);
    CHECK(mkdir(paths->log, 0755) == 0 && mkdir(paths->queues, 0755) == 0 && mkdir(paths->index, 0755) == 0);
    return paths;
}

/* A file of `full_size` bytes that starts with `bytes`; an older one is replaced. */
static inline void put_file(const char *directory, uint64_t start, const uint8_t *bytes, size_t size,
                            size_t full_size) {
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%020" PRIu64, directory, start);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    CHECK(fd >= 0 && (size == 0 || write(fd, bytes, size) == (ssize_t)size) && ftruncate(fd, (off_t)full_size) == 0);
    close(fd);
}

static inline void drop_file(const char *directory, uint64_t start) {
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%020" PRIu64, directory, start);
    unlink(path);
}

/* The log's files, zero behind `image`. Bit i of `missing`: file i is not there. Returns the size of what is. */
static inline uint64_t put_log(const char *directory, const uint8_t *image, size_t size, unsigned missing) {
    if (size > LOG_SIZE) size = LOG_SIZE;
    for (size_t i = 0; i < LOG_FILES; i++) {
        size_t at = i * LOG_FILE_SIZE, rest = size > at ? size - at : 0;
        if ((i && !rest) || (missing >> i & 1))
            drop_file(directory, at);
        else
            put_file(directory, at, image + at, rest < LOG_FILE_SIZE ? rest : LOG_FILE_SIZE, LOG_FILE_SIZE);
    }
    return size;
}

static inline uint32_t head16(const uint8_t *data, unsigned at) { return (uint32_t)data[at] << 8 | data[at + 1]; }

/* --- damage that gets further --- */

static inline const uint8_t *pick_text(random_source *source, const char *const *texts, uint32_t count,
                                       uint32_t *size) {
    const char *text = texts[random_below(source, count)];
    *size = (uint32_t)strlen(text);
    return (const uint8_t *)text;
}

/* A record as a broker writes it into `out` (400 bytes), at offset `at` of the log. */
static inline uint32_t make_record(random_source *source, uint64_t at, uint8_t *out) {
    static const char *const topics[] = {"T", "U", "SCHEDULE_TOPIC_XXXX", "../x", ".", "a\001b"};
    static const char *const properties[] = {"",
                                             "TAGS\001A",
                                             "UNIQ_KEY\001u\002KEYS\001a b  c",
                                             "DELAY\0013\002TAGS\001B",
                                             "KEYS\001   \002",
                                             "DELAY\00199999999999",
                                             "\002\002\001"};
    static const uint64_t offsets[] = {0, 1, 2, 3, 19, 20, 21, 39, 1000, INT64_MAX, UINT64_MAX, UINT64_MAX / 20};
    static const int32_t flags[] = {0, 0, 0, 4, 8, 12, 0x10, 0x30};
    uint8_t body[128];
    memset(body, (int)random_below(source, 256), sizeof body);
    rp_record record = {.queue_id = (int32_t)random_below(source, 5) - 1,
                        .phy_offset = at,
                        .body = body,
                        .queue_offset = offsets[random_below(source, sizeof offsets / sizeof *offsets)],
                        .sys_flag = flags[random_below(source, 8)],
                        .body_size = random_below(source, sizeof body),
                        .store_timestamp_ms = 1700000000000,
                        .born_host = {.family = 4},
                        .store_host = {.family = 4}};
    if (record.sys_flag & 0x10) record.born_host.family = 6;
    if (record.sys_flag & 0x20) record.store_host.family = 6;
    record.topic = pick_text(source, topics, sizeof topics / sizeof *topics, &record.topic_size);
    record.properties = pick_text(source, properties, sizeof properties / sizeof *properties, &record.properties_size);
    return rp_record_encode(&record, out);
}

/* Where the sound records at the start of the log end. */
static inline size_t log_end(const uint8_t *log, size_t size) {
    rp_record_view view;
    size_t at = 0;
    while (at < size) {
        size_t rest = LOG_FILE_SIZE - at % LOG_FILE_SIZE;
        rp_status status = rp_record_decode(log + at, rest < size - at ? rest : size - at, 0, &view);
        if (status == RP_END_OF_FILE)
            at += rest;
        else if (status == RP_OK)
            at += view.size;
        else
            break;
    }
    return at < size ? at : size;
}

/* Put CRC and own offset of every whole record right. */
static inline void repair_log(uint8_t *log, size_t size) {
    rp_record_view view;
    for (size_t at = 0; at + 8 <= size;) {
        if (rp_record_decode(log + at, size - at, 0, &view) != RP_OK) {
            at++;
            continue;
        }
        rp_store32(log + at + 8, rp_crc32(0, view.body, view.body_size) & 0x7FFFFFFF);
        rp_store64(log + at + 28, at);
        at += view.size;
    }
}

/* Append a record where the log ends; where it does not fit, a blank, and the record in the next file. */
static inline size_t append_record(random_source *source, uint8_t *log, size_t size, size_t max_size) {
    uint8_t record[512];
    size_t at = log_end(log, size), rest = LOG_FILE_SIZE - at % LOG_FILE_SIZE;
    uint32_t record_size = make_record(source, at, record);
    if (record_size + 8 > rest) {
        if (at + rest + record_size > max_size || rest < 8) return size;
        memset(log + at, 0, rest);
        rp_store32(log + at, (uint32_t)rest);
        rp_store32(log + at + 4, (uint32_t)RP_BLANK_MAGIC);
        at += rest;
        record_size = make_record(source, at, record);
    }
    if (at + record_size > max_size) return size;
    memcpy(log + at, record, record_size);
    return at + record_size > size ? at + record_size : size;
}

/* Change one field of one record. */
static inline void spoil_field(random_source *source, uint8_t *log, size_t size) {
    static const struct {
        uint8_t at, size;
    } fields[] = {{0, 4}, {4, 4}, {8, 4}, {12, 4}, {20, 8}, {28, 8}, {36, 4}, {56, 8}, {84, 4}};
    static const uint64_t values[] = {
        0,         1, 2, 7, 8, 90, 91, 4096, INT32_MAX, UINT32_MAX, INT64_MAX, (uint64_t)INT64_MIN, (uint64_t)INT32_MIN,
        UINT64_MAX};
    size_t at = 0;
    rp_record_view view;
    for (uint32_t skip = random_below(source, 8); skip-- > 0;) {
        if (at >= size || rp_record_decode(log + at, size - at, 0, &view) != RP_OK) break;
        at += view.size;
    }
    uint32_t field = random_below(source, sizeof fields / sizeof *fields);
    if (at + fields[field].at + fields[field].size > size) return;
    uint64_t value = values[random_below(source, sizeof values / sizeof *values)];
    if (fields[field].size == 8)
        rp_store64(log + at + fields[field].at, value);
    else
        rp_store32(log + at + fields[field].at, (uint32_t)value);
}

/* For inputs that are HEAD bytes and something, with a log from `log_at` on. */
static inline size_t mutate_log(uint8_t *data, size_t size, size_t max_size, unsigned seed, size_t log_at) {
    random_source source = {seed * 0x9E3779B97F4A7C15ull + 1};
    if (size < log_at) {
        memset(data + size, 0, log_at - size);
        size = log_at;
    }
    uint8_t *log = data + log_at;
    switch (random_below(&source, 8)) {
        case 0:
        case 1: return log_at + append_record(&source, log, size - log_at, max_size - log_at);
        case 2:
        case 3: spoil_field(&source, log, size - log_at); return size;
        case 4: repair_log(log, size - log_at); return size;
        case 5: LLVMFuzzerMutate(data, HEAD, HEAD); return size;
        default:
            size = LLVMFuzzerMutate(data, size, max_size);
            if (size > log_at && random_below(&source, 2)) repair_log(log, size - log_at);
            return size;
    }
}
#endif
