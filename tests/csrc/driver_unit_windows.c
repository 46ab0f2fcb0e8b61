/* Units that go to a mapped page of their queue's file: which pages are mapped, and which queues keep their window when
 * there are more queues than windows. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "store/control/control_block.h"
#include "store/queues/unit_windows.h"
#include "check.h"

enum { UNIT = 20, WINDOWS = 4096, MANY = 262144 };
#define PAGE ((uint64_t)sysconf(_SC_PAGESIZE))
#define FILE_SIZE (3 * PAGE - 1000)
#define START (7 * FILE_SIZE)

static int fd;
static const char UNIT_BYTES[UNIT + 1] = "a unit of 20 bytes..";

static void follow(rp_unit_windows *windows, uint32_t queue, uint64_t at, uint64_t size) {
    rp_unit_windows_follow(windows, queue, fd, START, FILE_SIZE, at, size);
}

/* 1 if it was written, and the file shows it. */
static int put(rp_unit_windows *windows, uint32_t queue, uint64_t at) {
    char found[UNIT] = "", before[UNIT] = "";
    CHECK(pread(fd, before, UNIT, (off_t)at) >= 0);
    int is_written = rp_unit_windows_write(windows, queue, START + at, UNIT_BYTES, UNIT);
    CHECK(pread(fd, found, UNIT, (off_t)at) >= 0 && !memcmp(found, is_written ? UNIT_BYTES : before, UNIT));
    return is_written;
}

static void test_pages(rp_unit_windows *windows) {
    CHECK(!put(windows, 3, 0));
    follow(windows, 3, 0, UNIT);
    CHECK(put(windows, 3, UNIT) && put(windows, 3, PAGE - UNIT) && !put(windows, 4, UNIT));
    CHECK(!put(windows, 3, PAGE - UNIT + 1) && !put(windows, 3, PAGE)); /* in part or wholly in the next page */
    CHECK(!rp_unit_windows_write(windows, 3, UNIT, UNIT_BYTES, UNIT)); /* of another file of the queue */
    follow(windows, 3, PAGE - UNIT + 1, UNIT);
    CHECK(put(windows, 3, PAGE + 1) && !put(windows, 3, UNIT));
    follow(windows, 3, 2 * PAGE, UNIT);
    CHECK(put(windows, 3, FILE_SIZE - UNIT - 1) && !put(windows, 3, FILE_SIZE - UNIT)); /* it sets the file's time */
    rp_unit_windows_drop(windows, 3);
    rp_unit_windows_drop(windows, 4);
    CHECK(!put(windows, 3, FILE_SIZE - UNIT - 1));
}

/* Fault: A unit was stored behind the end of a file that had been cut short, and no reader saw it. */
static void test_worthwhile(rp_unit_windows *windows) {
    follow(windows, 5, 0, 400); /* a large write fills pages by itself */
    follow(windows, 5, PAGE - UNIT, UNIT); /* nothing was written to the next page: it may be a hole */
    follow(windows, 5, PAGE - 4 * UNIT, UNIT); /* soon full */
    CHECK(!put(windows, 5, 400) && !put(windows, 5, PAGE) && !put(windows, 5, PAGE - 3 * UNIT));
    CHECK(ftruncate(fd, (off_t)(2 * PAGE + 2 * UNIT)) == 0);
    follow(windows, 5, 2 * PAGE, UNIT);
    CHECK(!put(windows, 5, 2 * PAGE + UNIT));
    CHECK(ftruncate(fd, (off_t)FILE_SIZE) == 0);
}

/* Strangers come, each queue once, when there is no free window. Returns how many of them got one. */
static uint32_t meet_strangers(rp_unit_windows *windows, uint32_t first) {
    uint32_t count = 0;
    for (uint32_t i = first; i < first + WINDOWS; i++) {
        follow(windows, i, 0, UNIT);
        count += (uint32_t)put(windows, i, UNIT);
    }
    return count;
}

/* Fault: With messages to more than twice as many queues in turn as there are windows, each message moved one. */
static void test_turns(rp_unit_windows *windows) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < WINDOWS; i++) follow(windows, i, 0, UNIT);
    for (uint32_t i = 0; i < WINDOWS; i++) CHECK(put(windows, i, UNIT));
    for (uint32_t turn = 1; turn < 5; turn++) CHECK(meet_strangers(windows, turn * WINDOWS) == 0);
    for (uint32_t i = 0; i < RP_CONTROL_QUEUES_MAX; i++) rp_unit_windows_write(windows, WINDOWS, START, "", 0);
    for (uint32_t i = 0; i < WINDOWS; i += 2) CHECK(put(windows, i, UNIT));
    rp_unit_windows_drop(windows, 1); /* the window stays the queue's, and empty */
    CHECK(meet_strangers(windows, WINDOWS) == WINDOWS / 2); /* those of the idle ones */
    for (uint32_t i = 0; i < WINDOWS; i++) kept += (uint32_t)put(windows, i, UNIT);
    CHECK(kept == WINDOWS / 2);
}

static unsigned long writable_kib(void) {
    char line[256];
    unsigned long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file);
    while (fgets(line, sizeof line, file) && sscanf(line, "VmData: %lu", &kib) != 1) {
    }
    fclose(file);
    return kib;
}

/* Fault: With a large vm.max_map_count a store did not open under RLIMIT_DATA: the addresses of all windows counted. */
static void test_addresses(void) {
    unsigned long before = writable_kib();
    rp_unit_windows *windows = rp_unit_windows_open(MANY);
    CHECK(windows && writable_kib() - before < MANY * (PAGE / 1024) / 8);
    rp_unit_windows_close(windows);
}

int main(void) {
    char path[] = "/tmp/rocketpy-unit-windows-XXXXXX";
    CHECK((fd = mkstemp(path)) >= 0 && unlink(path) == 0 && ftruncate(fd, (off_t)FILE_SIZE) == 0);
    rp_unit_windows *windows = rp_unit_windows_open(WINDOWS);
    CHECK(windows);
    test_pages(windows);
    test_worthwhile(windows);
    rp_unit_windows_close(windows);
    CHECK((windows = rp_unit_windows_open(WINDOWS)));
    test_turns(windows);
    rp_unit_windows_close(windows);
    test_addresses();
    close(fd);
    puts("unit windows: ok");
    return 0;
}
