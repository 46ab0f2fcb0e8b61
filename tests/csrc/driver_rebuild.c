/* Units and keys of damaged logs: every image ends where its memory ends. What was collected adds up, whatever the
 * bytes say, and a sound log gives every record's unit in its run. */
#include "base/endian.h"
#include "store/log/record.h"
#include "store/queues/consume_queue.h"
#include "store/recovery/rebuild.h"
#include "check.h"

enum { RECORDS = 40, ROUNDS = 4000, REOPEN = 500 /* rounds */, IMAGE = RECORDS * 400 };

static uint32_t make_image(random_source *source, uint8_t *image, uint64_t start) {
    static const char *const properties[] = {"", "TAGS\001a\002KEYS\001k1 k2 k3\002UNIQ_KEY\0010A0B",
                                             "KEYS\001a a  a \002TAGS\001\303\050", "DELAY\0013\002UNIQ_KEY\001x"};
    static const char *const topics[] = {"T", "SCHEDULE_TOPIC_XXXX", "a/b"};
    uint8_t body[200] = {0};
    uint64_t ends[3] = {0};
    uint32_t end = 0;
    for (uint32_t i = 0; i < RECORDS; i++) {
        const char *chosen = properties[random_below(source, 4)];
        uint32_t topic = random_below(source, 3);
        if (random_below(source, 20) == 0) ends[topic] = random_next(source) >> random_below(source, 64);
        rp_record record = {.queue_offset = ends[topic]++,
                            .phy_offset = start + end,
                            .body = body,
                            .body_size = random_below(source, sizeof body),
                            .topic = (const uint8_t *)topics[topic],
                            .topic_size = (uint32_t)strlen(topics[topic]),
                            .properties = (const uint8_t *)chosen,
                            .properties_size = (uint32_t)strlen(chosen),
                            .sys_flag = (int32_t)random_below(source, 16),
                            .store_timestamp_ms = 1700000000000,
                            .born_host = {.family = 4},
                            .store_host = {.family = 6}};
        end += rp_record_encode(&record, image + end);
    }
    return end;
}

static void check_batch(rp_rebuild *rebuild) {
    rp_rebuild_totals totals = rebuild->totals;
    const uint8_t *units = rp_rebuild_units(rebuild);
    const rp_rebuild_run *runs = rebuild->runs;
    uint64_t at = 0;
    for (uint32_t i = 0; i < totals.batch_runs; i++) {
        const uint8_t *first = units + at * RP_CQ_UNIT_SIZE;
        CHECK(runs[i].count > 0 && runs[i].queue < totals.queues);
        CHECK(rp_load64(first) == runs[i].phy_offset);
        at += runs[i].count;
        const uint8_t *last = units + (at - 1) * RP_CQ_UNIT_SIZE;
        CHECK(rp_load64(last) + rp_load32(last + 8) == runs[i].phy_end);
        const rp_rebuild_queue *queue = rebuild->queues[runs[i].queue];
        CHECK(queue->topic_size > 0 && queue->queue_id >= 0);
    }
    CHECK(at == totals.batch_units);
    const rp_index_key *keys = rebuild->keys;
    for (uint32_t i = 1; i < totals.batch_keys; i++) CHECK(keys[i - 1].phy_offset <= keys[i].phy_offset);
}

int main(void) {
    random_source source = {139};
    int64_t delays[2] = {1000, 5000};
    uint8_t image[IMAGE];
    rp_rebuild *rebuild = NULL;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint64_t start = random_below(&source, 2) ? 0 : 1ull << 40, position = start;
        uint32_t size = make_image(&source, image, start);
        uint32_t damages = random_below(&source, 4);
        for (uint32_t i = 0; i < damages; i++) image[random_below(&source, size)] = (uint8_t)random_next(&source);
        if (random_below(&source, 3) == 0) size = random_below(&source, size) + 1;
        uint8_t *copy = exact_copy(image, size);
        if (round % REOPEN == 0) {
            rp_rebuild_close(rebuild);
            rebuild = rp_rebuild_open(delays, 2, round / REOPEN % 2);
            CHECK(rebuild);
        }
        while (position < start + size) {
            uint64_t stop = position + random_below(&source, size) + 1;
            rp_status status =
                rp_rebuild_log(rebuild, copy, size, start, &position, stop < start + size ? stop : start + size);
            CHECK(position <= start + size);
            if (random_below(&source, 3) == 0) {
                check_batch(rebuild);
                rp_rebuild_clear(rebuild);
            }
            if (status != RP_OK) break;
        }
        check_batch(rebuild);
        rp_rebuild_clear(rebuild);
        free(copy);
    }
    rp_rebuild_close(rebuild);
    return 0;
}
