/* The checks of `rocketpy store verify`, and what the repair of an index keeps, on sound bytes and on the same bytes
 * damaged. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/endian.h"
#include "store/index/index_file.h"
#include "store/log/record.h"
#include "store/recovery/verify.h"
#include "check.h"
#include "directory.h"

enum { FILE_SIZE = 16384, SLOTS = 10, UNITS = 60, INDEX_SIZE = 40 + 4 * SLOTS + 20 * UNITS, ROUNDS = 4000 };

static random_source source = {7};
static uint32_t next_random(uint32_t limit) { return random_below(&source, limit); }

static uint32_t fill(uint8_t *image) {
    uint32_t at = 0, count = 0;
    for (;; count++) {
        static const uint8_t body[200];
        rp_record record = {.queue_id = (int32_t)(count % 3),
                            .queue_offset = count / 3,
                            .phy_offset = at,
                            .store_timestamp_ms = 1700000000000,
                            .born_host.family = 4,
                            .store_host.family = 6,
                            .body = body,
                            .body_size = count % 200,
                            .topic = (const uint8_t *)"TopicTest",
                            .topic_size = 9,
                            .properties = (const uint8_t *)"KEYS\001a b\002TAGS\001TagA",
                            .properties_size = 18};
        uint32_t size = rp_record_size(&record);
        if (at + size + 8 > FILE_SIZE) break;
        rp_record_encode(&record, image + at);
        at += size;
    }
    rp_store32(image + at, FILE_SIZE - at);
    rp_store32(image + at + 4, (uint32_t)RP_BLANK_MAGIC);
    return count;
}

static uint64_t walk(const uint8_t *image, rp_status *status) {
    rp_verify *verify = rp_verify_open();
    rp_verify_totals totals;
    uint64_t position = 0;
    CHECK(verify);
    while ((*status = rp_verify_log(verify, image, FILE_SIZE, 0, &position, position + 1000, UINT64_MAX, 1)) == RP_OK)
        if (position >= FILE_SIZE) break;
    totals = verify->totals;
    for (uint32_t i = 0; i < totals.tallies; i++) CHECK(verify->tallies[i]->topic_size <= INT16_MAX);
    rp_verify_close(verify);
    return totals.records;
}

static void log_checks(void) {
    uint8_t *image = calloc(1, FILE_SIZE), *damaged = malloc(FILE_SIZE);
    rp_status status;
    uint32_t count = fill(image);
    CHECK(walk(image, &status) == count && status == RP_END_OF_FILE);
    for (int round = 0; round < ROUNDS; round++) {
        memcpy(damaged, image, FILE_SIZE);
        for (uint32_t i = next_random(4) + 1; i; i--)
            damaged[next_random(FILE_SIZE)] ^= (uint8_t)(1 + next_random(255));
        CHECK(walk(damaged, &status) <= count);
        rp_units sum = {0};
        rp_verify_units(damaged, FILE_SIZE / 20, 3, 5, 90, 100, &sum);
        uint32_t unit = 1;
        rp_verify_keys(damaged, &unit, FILE_SIZE / 20, 0, damaged, FILE_SIZE, 0);
    }
    free(image);
    free(damaged);
}

static void index_checks(void) {
    char directory[] = "/tmp/rocketpy-verify-XXXXXX", path[256], command[300];
    uint8_t image[INDEX_SIZE], damaged[INDEX_SIZE];
    rp_index_check check;
    CHECK(mkdtemp(directory));
    rp_index *index = rp_index_open(directory, SLOTS, UNITS);
    CHECK(index);
    for (int i = 0; i < 50; i++)
        CHECK(rp_index_put(index, (int32_t)next_random(1000), (uint64_t)i * 100, 1700000000000 + i, 0) == RP_OK);
    rp_index_close(index);
    snprintf(command, sizeof command, "mv %s/* %s/file", directory, directory);
    CHECK(system(command) == 0);
    snprintf(path, sizeof path, "%s/file", directory);
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0 && pread(fd, image, sizeof image, 0) == sizeof image);
    CHECK(rp_verify_index(image, sizeof image, SLOTS, UNITS, &check) == RP_OK && check.faults == 0 &&
          check.units == 50);
    CHECK(rp_verify_index(image, sizeof image - 1, SLOTS, UNITS, &check) == RP_INVALID);
    for (int round = 0; round < ROUNDS; round++) {
        uint8_t newest[4 * SLOTS] = {0};
        memcpy(damaged, image, sizeof damaged);
        for (uint32_t i = next_random(4) + 1; i; i--)
            damaged[next_random(INDEX_SIZE)] ^= (uint8_t)(1 + next_random(255));
        rp_verify_index(damaged, sizeof damaged, SLOTS, UNITS, &check);
        uint32_t kept = rp_index_follow(damaged, SLOTS, UNITS, UINT64_MAX, newest);
        CHECK(kept >= 1 && kept <= UNITS);
        rp_store32(damaged + 36, kept);
        memcpy(damaged + 40, newest, sizeof newest);
        CHECK(rp_verify_index(damaged, sizeof damaged, SLOTS, UNITS, &check) == RP_OK && check.faults == 0);
    }
    close(fd);
    remove_directory(directory);
}

int main(void) {
    log_checks();
    index_checks();
    return 0;
}
