#ifndef ROCKETPY_TIMER_PROPERTIES_H
#define ROCKETPY_TIMER_PROPERTIES_H
/* Names that make a message a timer, and what a stored timer looks like. C only.
 * Short: inline code for codecs, sends, queues and timers; record.h, which cffi reads, has no room for it. */
#include <stdint.h>
#include "base/utf8.h"
#include "store/log/record.h"

#define RP_TIMER_TOPIC "rmq_sys_wheel_timer"
#define RP_TIMER_OUT_MS "TIMER_OUT_MS" /* of a stored timer: its time; of a delivered one: the time it had */
/* In the order of their precedence; of 5.x clients, and of ONS clients. */
static const char *const RP_TIMER_PROPERTIES[] = {"TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS",
                                                  "__STARTDELIVERTIME"};
/* The unique key of the timer that a message cancels or moves. The manager serves such messages. */
#define RP_TIMER_CANCEL "TIMER_DEL_UNIQKEY"
#define RP_TIMER_MOVE "TIMER_MOVE_UNIQKEY"
enum { RP_TIMER_DELAY_SEC = 0, RP_TIMER_DELAY_MS = 1, RP_TIMER_PROPERTY_COUNT = 4 }; /* places in it */

static inline int rp_timer_is_property(const uint8_t *name, uint32_t size) {
    if (size < 14 || (name[0] != 'T' && name[0] != '_')) return 0;
    for (uint32_t i = 0; i < RP_TIMER_PROPERTY_COUNT; i++)
        if (rp_text_is(name, size, RP_TIMER_PROPERTIES[i])) return 1;
    return 0;
}

static inline int rp_timer_is_change_property(const uint8_t *name, uint32_t size) {
    return rp_text_is(name, size, RP_TIMER_CANCEL) || rp_text_is(name, size, RP_TIMER_MOVE);
}

/* A record that ends a timer names its place in the log, in the field that names the half message of a commit: the
 * timer's position plus 1; 0 means none. So do deliveries and renewals and, in the timer topic, cancellations and moved
 * timers. */
static inline int64_t rp_timer_place_field(uint64_t phy_offset) { return (int64_t)phy_offset + 1; }
/* 1 if `record` may end a timer: *phy_offset is its place. Whether a timer is there has to be looked up. */
static inline int rp_timer_place(const rp_record_view *record, uint64_t *phy_offset) {
    *phy_offset = (uint64_t)record->prepared_transaction_offset - 1;
    return record->prepared_transaction_offset != 0;
}

/* 1 if the record is in the timer topic. */
static inline int rp_timer_is_timer(const rp_record_view *record) {
    return rp_text_is(record->topic, record->topic_size, RP_TIMER_TOPIC);
}
#endif
