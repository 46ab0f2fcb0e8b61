#ifndef ROCKETPY_COLUMNS_H
#define ROCKETPY_COLUMNS_H
/* Fill the buffers of one Arrow column from rows, in Arrow's layout: little-endian numbers, bitmaps with the first row
 * in bit 0, 32-bit offsets. Malformed UTF-8 becomes U+FFFD, as Python's "replace" writes it.
 *
 * Owner: all buffers are the caller's and are borrowed until return. Lock: none. Nothing is allocated. A bitmap has
 * (count + 7) / 8 bytes and is written whole. Every function returns or checks a size before it writes. */
#include <stdint.h>
#include "base/status.h"
#include "arrow/rows.h"

typedef enum rp_column {
    /* numbers of 4 bytes */
    RP_COLUMN_QUEUE_ID,
    RP_COLUMN_FLAG,
    RP_COLUMN_SYS_FLAG,
    RP_COLUMN_RECONSUME_TIMES,
    RP_COLUMN_STORE_SIZE,
    RP_COLUMN_BODY_CRC,
    /* numbers of 8 bytes */
    RP_COLUMN_QUEUE_OFFSET,
    RP_COLUMN_PHY_OFFSET,
    RP_COLUMN_PREPARED_OFFSET,
    /* times of 8 bytes, in microseconds; null outside of the years 1 to 9999 */
    RP_COLUMN_BORN_TIME,
    RP_COLUMN_STORE_TIME,
    /* texts and bytes */
    RP_COLUMN_BODY,
    RP_COLUMN_TOPIC,
    RP_COLUMN_TAGS,
    RP_COLUMN_KEYS,
    RP_COLUMN_MSG_ID,
    RP_COLUMN_OFFSET_MSG_ID,
    RP_COLUMN_BORN_HOST,
    RP_COLUMN_STORE_HOST,
    RP_COLUMNS_END
} rp_column;

/* Numbers and times: `out` has 4 or 8 bytes for each row. Returns the number of nulls. */
uint32_t rp_column_numbers(rp_column column, const rp_row *rows, uint32_t count, void *out, uint8_t *valid);
/* Bytes that rp_column_texts may write for these rows: an upper bound. */
uint64_t rp_column_texts_room(rp_column column, const rp_row *rows, uint32_t count);
/* Texts and bytes: `offsets` has count + 1 entries, `data` has `room` bytes. RP_OK with *nulls; RP_TOO_LARGE: `room`
 * is too small, or beyond 2^31 - 1 bytes. */
rp_status rp_column_texts(rp_column column, const rp_row *rows, uint32_t count, int32_t *offsets, uint8_t *data,
                          uint64_t room, uint8_t *valid, uint32_t *nulls);

/* The properties as a map. Of several values of one name the last counts, at its place. */
typedef struct rp_pairs_room {
    uint64_t pairs; /* upper bounds */
    uint64_t bytes; /* of names, and of values */
} rp_pairs_room;
void rp_column_pairs_room(const rp_row *rows, uint32_t count, rp_pairs_room *room);
/* `offsets` has count + 1 entries and counts pairs; `name_offsets` and `value_offsets` have room->pairs + 1 entries,
 * `names` and `values` room->bytes bytes each. RP_OK with *pairs; RP_TOO_LARGE: as rp_column_texts. */
rp_status rp_column_pairs(const rp_row *rows, uint32_t count, const rp_pairs_room *room, int32_t *offsets,
                          int32_t *name_offsets, uint8_t *names, int32_t *value_offsets, uint8_t *values,
                          uint64_t *pairs);
#endif
