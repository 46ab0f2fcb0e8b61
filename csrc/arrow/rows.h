#ifndef ROCKETPY_ROWS_H
#define ROCKETPY_ROWS_H
/* From stored records to rows: which records of an image are wanted, and where their parts are. Columns of Arrow are
 * filled from rows (columns.h). The image is a log file or the body of a pull's answer; nothing here trusts it.
 *
 * Owner: the caller owns everything; a row points into the image, which must outlive it. Lock: none. Blocks: page
 * faults of the image only; nothing is allocated. */
#include <stdint.h>
#include "base/status.h"
#include "store/filters/filter.h"

/* One wanted record. A caller that inflates a body sets `body` and `body_size` to the result. */
typedef struct rp_row {
    const uint8_t *record;
    const uint8_t *body;
    uint32_t body_size;
    uint32_t size;
    uint32_t topic_at;       /* from `record`, in bytes */
    uint32_t properties_at;  /* from `record` */
    uint16_t topic_size;
    uint16_t properties_size;
    uint16_t tags_at;        /* TAGS, KEYS and UNIQ_KEY from the properties; size 0: there is none */
    uint16_t tags_size;
    uint16_t keys_at;
    uint16_t keys_size;
    uint16_t unique_at;
    uint16_t unique_size;
    uint16_t separators;     /* between pairs, in the properties; needs RP_ROWS_PROPERTIES */
    uint16_t flags;          /* RP_ROW_* */
} rp_row;
enum {
    RP_ROW_COMPRESSED = 1,   /* the body is as stored, compressed */
    RP_ROW_MALFORMED = 2     /* topic or properties are not UTF-8 throughout */
};

/* Texts in ascending order of their bytes, one after the other; text i ends at ends[i]. Without texts: all match. */
typedef struct rp_text_set {
    const uint8_t *bytes;
    const uint32_t *ends;
    uint32_t count;
} rp_text_set;

enum {
    RP_ROWS_CRC = 1,         /* compare bodies with their CRC */
    RP_ROWS_PLACE = 2,       /* a record's own phy offset must be its place */
    RP_ROWS_COMMITTED = 4,   /* leave out half messages, their marks, and rolled back ones */
    RP_ROWS_PROPERTIES = 8   /* find TAGS, KEYS and UNIQ_KEY, count pairs, and say whether texts are UTF-8 */
};

typedef struct rp_rows_scan {
    uint64_t start;          /* phy offset of the image */
    uint64_t bytes_max;      /* of records in rows, checked after each: one row may exceed it */
    uint32_t rows_max;       /* room in `rows` */
    uint32_t record_size_max;
    uint32_t flags;          /* RP_ROWS_* */
    int64_t store_time_from; /* ms; wanted are from <= time < to */
    int64_t store_time_to;
    int64_t queue_offset_from; /* likewise */
    int64_t queue_offset_to;
    rp_text_set topics;
    rp_text_set tags;        /* needs RP_ROWS_PROPERTIES */
    const rp_filter *filter; /* an SQL92 expression; NULL: all match */
    const int32_t *queue_ids;
    uint32_t queue_id_count; /* 0: all queues */
    /* results, set by every call */
    uint64_t position;       /* in: where to begin in the image; out: after the last record that was looked at */
    uint64_t records;        /* looked at */
    uint64_t bytes;          /* of records in rows */
    uint32_t rows;
    uint32_t compressed;     /* rows with RP_ROW_COMPRESSED */
} rp_rows_scan;

/* Look at the records that start at scan->position and before `stop`, and put the wanted ones into `rows`. A record is
 * read to its end, up to `size`. Returns: RP_OK at `stop`; RP_FULL when there are rows_max rows or bytes_max bytes;
 * RP_END_OF_FILE at a blank; RP_EMPTY at zeros; RP_INCOMPLETE, RP_CORRUPT: no valid record is at scan->position. */
rp_status rp_rows_find(const uint8_t *image, uint64_t size, uint64_t stop, rp_rows_scan *scan, rp_row *rows);
#endif
