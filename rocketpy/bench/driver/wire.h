#ifndef BENCH_WIRE_H
#define BENCH_WIRE_H
/* The few bytes of the protocol that the loop touches itself. */
#include <stdint.h>
#include "load.h"

enum {
    WIRE_FRAME_SIZE_MAX = 16777216,
    WIRE_OPAQUE_FIRST = 100000000, /* always 9 digits, so that a JSON header keeps its length */
    WIRE_OPAQUE_RANGE = 800000000
};

typedef struct wire_head {
    int32_t code;
    uint32_t opaque;
    const uint8_t *header;
    uint32_t header_size;
    const uint8_t *body;
    uint32_t body_size;
} wire_head;

/* Size of the whole frame that starts `data`, 0 when not known yet, UINT32_MAX when it cannot be a frame. */
uint32_t wire_frame_size(const uint8_t *data, uint64_t size);
/* Read the head of one whole answer. 0, or -1 if it is none. */
int wire_read(const uint8_t *frame, uint32_t size, wire_head *head);
/* A decimal field of a JSON header by its quoted name; -1 if absent. */
int64_t wire_json_field(const wire_head *head, const char *quoted_name);

/* The place in the log that the msgId of a JSON header names. 0, or -1 if there is none. */
int wire_json_message_id(const wire_head *head, uint64_t *phy_offset);

typedef struct wire_record {
    uint32_t size;
    uint64_t queue_offset;
    const uint8_t *body;
    uint32_t body_size;
} wire_record;
/* Read the stored message that starts `data`. 0, or -1 if torn. */
int wire_record_read(const uint8_t *data, uint64_t size, wire_record *record);
uint64_t wire_load64(const uint8_t *at);
#endif
