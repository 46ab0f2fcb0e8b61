/* A damaged index file that is gone on with. Input: HEAD, then the file (its end may be missing).
 *
 *   0  1 there is no file, 2 the file is longer, 4 its name is the largest that counts    1  keys to put
 *   2  hash of the first   6  offset in the log, byte 6 shifted up   8  store time, byte 8 shifted up   10  is_redo */
#define _GNU_SOURCE
#include "store/index/index_file.h"
#include "fuzz_store.h"

enum {
    SLOTS = 504,
    UNITS = 102,
    UNITS_AT = RP_INDEX_HEADER_SIZE + SLOTS * RP_INDEX_SLOT_SIZE,
    FILE_SIZE = UNITS_AT + UNITS * RP_INDEX_UNIT_SIZE,
    NAME_MAX_CHARS = 17
};
_Static_assert(FILE_SIZE == (int)PAGE_SIZE, "the guard begins where the file ends");

static char newest[PATH_MAX];
static int64_t newest_name;

static int take_newer(const char *path, const struct stat *info, int type, struct FTW *where) {
    (void)info;
    int64_t name = type == FTW_F ? strtoll(path + where->base, NULL, 10) : -1;
    if (name <= newest_name) return 0;
    newest_name = name;
    snprintf(newest, sizeof newest, "%s", path);
    return 0;
}

/* The newest file as a reader finds it: the key heads its chain, and the header says so. `is_new`: it was entered, not
 * found to be there with whatever the damage left behind it. */
static void check_newest(const char *directory, int32_t hash, uint64_t phy_offset, int is_new) {
    uint8_t file[FILE_SIZE], *slot = file + RP_INDEX_HEADER_SIZE + (uint32_t)hash % SLOTS * RP_INDEX_SLOT_SIZE;
    newest_name = -1;
    nftw(directory, take_newer, 4, FTW_PHYS);
    int fd = open(newest, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && pread(fd, file, FILE_SIZE, 0) == FILE_SIZE);
    close(fd);
    uint32_t count = rp_load32(file + 36), head = rp_load32(slot);
    CHECK(head >= 1 && head < count && count <= UNITS);
    const uint8_t *unit = file + UNITS_AT + head * RP_INDEX_UNIT_SIZE;
    CHECK((int32_t)rp_load32(unit) == hash && rp_load64(unit + 4) == phy_offset);
    if (is_new) CHECK(rp_load32(unit + 16) < head && rp_load32(unit + 12) <= INT32_MAX);
}

static void put_index(const fuzz_paths *here, const uint8_t *data, size_t size) {
    char path[PATH_MAX];
    remove_tree(here->index);
    CHECK(mkdir(here->index, 0755) == 0);
    if (data[0] & 1) return;
    snprintf(path, sizeof path, "%s/%s", here->index, data[0] & 4 ? "99999999999999999" : "20200101000000000");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    size_t rest = size - HEAD < FILE_SIZE ? size - HEAD : FILE_SIZE;
    CHECK(fd >= 0 && write(fd, data + HEAD, rest) == (ssize_t)rest);
    if (data[0] & 2) CHECK(ftruncate(fd, FILE_SIZE + 1) == 0);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const fuzz_paths *here = fuzz_here();
    int64_t synced_ms = 0;
    if (size < HEAD) return 0;
    put_index(here, data, size);
    rp_index *index = rp_index_open(here->index, SLOTS, UNITS);
    CHECK((index == NULL) == ((data[0] & 3) == 2));
    if (!index) return 0;
    int32_t hash = (int32_t)(rp_load32(data + 2) & INT32_MAX);
    uint64_t phy_offset = (uint64_t)data[6] << 56 | data[7];
    int64_t store_ms = (int64_t)((uint64_t)data[8] << 56 | data[9]);
    for (int i = 0; i < data[1]; i++) {
        CHECK(rp_index_put(index, hash, phy_offset, store_ms, data[10] & 1) == RP_OK);
        if (i == 0 || i + 1 == data[1]) check_newest(here->index, hash, phy_offset, !(data[10] & 1));
        if (!(data[10] & 1)) CHECK(rp_index_end(index) == phy_offset);
        hash = (int32_t)((uint32_t)hash + (data[11] & 1 ? SLOTS : 1)) & INT32_MAX; /* one chain, or many */
        phy_offset++;
        store_ms = (int64_t)((uint64_t)store_ms + ((uint64_t)data[12] << 52));
    }
    rp_index_limit(index, data[13]);
    CHECK(rp_index_end(index) <= data[13]);
    CHECK(rp_index_sync_full(index, &synced_ms) == RP_OK && rp_index_sync(index) == RP_OK);
    rp_index_close(index);
    return 0;
}

/* Numbers where the format has numbers: counts, slots, units. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    static const uint32_t values[] = {0, 1, 2, 3, UNITS - 1, UNITS, UNITS + 1, INT32_MAX, 1u << 31, UINT32_MAX};
    random_source source = {seed * 0x9E3779B97F4A7C15ull + 1};
    if (random_below(&source, 3) == 0) return LLVMFuzzerMutate(data, size, max_size);
    if (size < HEAD + 44 || max_size < HEAD + FILE_SIZE) return LLVMFuzzerMutate(data, size, max_size);
    if (size < HEAD + FILE_SIZE && random_below(&source, 2)) {
        memset(data + size, 0, HEAD + FILE_SIZE - size);
        size = HEAD + FILE_SIZE;
    }
    uint8_t *slot = data + HEAD + 40 + rp_load32(data + 2) % INT32_MAX % SLOTS * 4,
            *places[] = {data + HEAD,
                         data + HEAD + 8,
                         data + HEAD + 24,
                         data + HEAD + 32,
                         data + HEAD + 36,
                         slot,
                         data + HEAD + UNITS_AT + random_below(&source, UNITS) * RP_INDEX_UNIT_SIZE + 16};
    uint8_t *place = places[random_below(&source, sizeof places / sizeof *places)];
    if (place + 4 <= data + size) rp_store32(place, values[random_below(&source, sizeof values / sizeof *values)]);
    return size;
}
