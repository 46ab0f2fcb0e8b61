/* See unit.h. */
#include "store/queues/unit.h"
#include <string.h>
#include "base/numbers.h"
#include "store/log/timer_properties.h"

enum { UNKNOWN_LEVEL_DELAY_MS = 1000 };
static const uint8_t SCHEDULE_TOPIC[] = "SCHEDULE_TOPIC_XXXX";
enum { SCHEDULE_TOPIC_SIZE = sizeof SCHEDULE_TOPIC - 1 };

/* A decimal property as Java's Integer.parseInt would take it; 0 if it is none. */
static int64_t number_of(const uint8_t *text, uint32_t size) {
    int64_t value = 0;
    for (uint32_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9' || value > INT32_MAX) return 0;
        value = value * 10 + (text[i] - '0');
    }
    return value;
}

static uint32_t property(const rp_record_view *record, const char *name, const uint8_t **value) {
    return rp_property_find(record->properties, record->properties_size, name, value);
}

int64_t rp_unit_tags_code(const rp_record_view *record, const int64_t *delay_level_ms, uint32_t delay_level_count) {
    const uint8_t *value;
    uint32_t size;
    if (record->topic_size == SCHEDULE_TOPIC_SIZE && memcmp(record->topic, SCHEDULE_TOPIC, SCHEDULE_TOPIC_SIZE) == 0 &&
        (size = property(record, "DELAY", &value))) {
        int64_t level = number_of(value, size), delay_ms = UNKNOWN_LEVEL_DELAY_MS;
        if (level > delay_level_count) level = delay_level_count;
        if (level > 0) delay_ms = delay_level_ms[level - 1];
        if (number_of(value, size) > 0) return record->store_timestamp_ms + delay_ms;
    }
    int64_t due_ms;
    if (rp_timer_is_timer(record) && (size = property(record, RP_TIMER_OUT_MS, &value)) &&
        rp_parse_int64(value, size, &due_ms) == RP_OK)
        return due_ms;
    return (size = property(record, "TAGS", &value)) ? rp_string_hash(value, size) : 0;
}
