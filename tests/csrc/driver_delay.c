/* Marks of deliveries and the broker's clock under sanitizers: random marks and deaths against a plain model, and
 * clocks of any value, as a damaged control block has them.   driver_delay */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/shared.h"
#include "store/log/broker_clock.h"
#include "store/timers/delivery_marks.h"
#include "check.h"

static random_source source = {.state = 90};
static uint32_t some(void) { return (uint32_t)random_next(&source); }

enum { LEVELS = 18, ROUNDS = 200000 };

static void marks(void) {
    rp_delivery_marks *marks = rp_shared_create(sizeof *marks + LEVELS * sizeof(rp_delivery_slot));
    CHECK(marks);
    marks->level_max = LEVELS;
    /* by level: phy offset + 1 and queue offset of the last delivery that was stored */
    uint64_t published = 0, done[LEVELS + 2] = {0}, queue[LEVELS + 2] = {0};
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t level = some() % (LEVELS + 2);
        rp_delivery delivery = {.level = level,
                                .phy_offset = done[level] + some() % 3,
                                .queue_offset = queue[level] + some() % 3},
                    last;
        if (done[level] && some() % 4 == 0) delivery.phy_offset = done[level] - 1;
        int is_level = level >= 1 && level <= LEVELS;
        int is_done = is_level && delivery.phy_offset < done[level] && delivery.queue_offset <= queue[level];
        CHECK(rp_delivery_marks_has(marks, &delivery) == is_done);
        if (rp_delivery_marks_has(marks, &delivery)) continue;
        uint64_t end = published + 1 + some() % 1000;
        rp_delivery_marks_mark(marks, &delivery, end);
        if (some() % 8) { /* the record is published */
            published = end;
            done[level] = is_level ? delivery.phy_offset + 1 : 0;
            queue[level] = is_level ? delivery.queue_offset : 0;
        } else { /* whoever marked it has died before */
            rp_delivery_marks_open(marks, published, 0);
            published += some() % 2000;
        }
        CHECK(rp_delivery_marks_last(marks, level, published, &last) == (done[level] != 0));
        if (done[level]) CHECK(last.phy_offset == done[level] - 1 && last.queue_offset == queue[level]);
    }
}

static void clocks(void) {
    static rp_control control;
    rp_broker_clock clock;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint64_t wild[4];
        for (uint32_t i = 0; i < 4; i++) wild[i] = (uint64_t)some() << 32 | some();
        int64_t wall_ms = 1700000000000 + some(), boot_ms = some();
        memcpy(&control.clock_slow_base_ms, &wild[0], 8);
        memcpy(&control.clock_slowed_from_ms, &wild[1], 8);
        memcpy(&control.last_store_timestamp_ms, &wild[2], 8);
        rp_broker_clock_open(&clock, &control, wall_ms, boot_ms);
        int64_t before_ms = rp_broker_clock_tick(&clock, wall_ms, boot_ms);
        wall_ms -= some();
        CHECK(rp_broker_clock_tick(&clock, wall_ms, boot_ms + 1) >= before_ms || before_ms > INT64_MAX / 2);
    }
}

int main(void) {
    marks();
    clocks();
    puts("driver_delay: ok");
    return 0;
}
