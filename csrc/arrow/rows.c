/* A scan decides about a record from its fields and, where asked, one walk over its properties. What a column needs is
 * kept in the row, so that each column is one loop over rows without decoding anything again. */
#include "arrow/rows.h"

#include <string.h>

#include "base/utf8.h"
#include "store/log/record.h"
#include "store/transactions/half_states.h"
#include "arrow/separators.h"

_Static_assert(RP_PROPERTIES_SIZE_MAX <= UINT16_MAX, "places in properties fit the fields of a row");
_Static_assert(RP_TOPIC_SIZE_V2_MAX <= UINT16_MAX, "sizes of topics fit the field of a row");

/* As memcmp, and the shorter of two texts is the lesser where it begins the longer. */
static int compare(const uint8_t *left, uint32_t left_size, const uint8_t *right, uint32_t right_size) {
    uint32_t common = left_size < right_size ? left_size : right_size;
    int order = common > 0 ? memcmp(left, right, common) : 0;
    return order ? order : (left_size > right_size) - (left_size < right_size);
}

static int has_text(const rp_text_set *set, const uint8_t *text, uint32_t size) {
    uint32_t low = 0, high = set->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2, begin = middle > 0 ? set->ends[middle - 1] : 0;
        int order = compare(text, size, set->bytes + begin, set->ends[middle] - begin);
        if (order == 0) return 1;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return 0;
}

static int is_committed(const rp_record_view *view) {
    int kind = view->sys_flag & RP_TRANSACTION_MASK;
    return kind != RP_SYS_FLAG_TRANSACTION_PREPARED && kind != RP_SYS_FLAG_TRANSACTION_ROLLBACK &&
           !rp_text_is(view->topic, view->topic_size, RP_HALF_TOPIC) &&
           !rp_text_is(view->topic, view->topic_size, RP_OP_TOPIC);
}

static int has_queue(const rp_rows_scan *scan, int32_t queue_id) {
    for (uint32_t i = 0; i < scan->queue_id_count; i++)
        if (scan->queue_ids[i] == queue_id) return 1;
    return scan->queue_id_count == 0;
}

static int is_selected(const rp_rows_scan *scan, const rp_record_view *view) {
    uint64_t work = 0;
    return scan->filter == NULL ||
           rp_filter_evaluate(scan->filter, view->properties, view->properties_size, &work) == RP_FILTER_TRUE;
}

static int is_wanted(const rp_rows_scan *scan, const rp_record_view *view) {
    return view->store_timestamp_ms >= scan->store_time_from && view->store_timestamp_ms < scan->store_time_to &&
           (int64_t)view->queue_offset >= scan->queue_offset_from &&
           (int64_t)view->queue_offset < scan->queue_offset_to && has_queue(scan, view->queue_id) &&
           (scan->topics.count == 0 || has_text(&scan->topics, view->topic, view->topic_size)) &&
           (!(scan->flags & RP_ROWS_COMMITTED) || is_committed(view)) && is_selected(scan, view);
}

/* Keep the value at `at` if the piece that begins at `piece` has this name and a value; the last of several wins. */
static void keep_value(const uint8_t *properties, const uint8_t *piece, const uint8_t *end, const char *name,
                       uint32_t name_size, uint16_t *at, uint16_t *size) {
    if ((uint64_t)(end - piece) <= (uint64_t)name_size + 1 || piece[name_size] != RP_NAME_VALUE_SEPARATOR) return;
    if (memcmp(piece, name, name_size) != 0) return;
    *at = (uint16_t)(piece - properties + name_size + 1);
    *size = (uint16_t)(end - piece - name_size - 1);
}

static void keep_known(const uint8_t *properties, const uint8_t *piece, const uint8_t *end, rp_row *row) {
    if (piece >= end) return;
    if (*piece == 'T') keep_value(properties, piece, end, "TAGS", 4, &row->tags_at, &row->tags_size);
    if (*piece == 'K') keep_value(properties, piece, end, "KEYS", 4, &row->keys_at, &row->keys_size);
    if (*piece == 'U') keep_value(properties, piece, end, "UNIQ_KEY", 8, &row->unique_at, &row->unique_size);
}

/* Find TAGS, KEYS and UNIQ_KEY, and count separators. Returns whether all bytes are ASCII. */
static int find_known_properties(const uint8_t *properties, uint32_t size, rp_row *row) {
    const uint8_t *piece = properties;
    uint32_t others = 0, separators = 0;
    for (uint32_t at = 0; at < size; at += SEPARATORS_STEP) {
        rp_separators found = rp_separators_at(properties + at, size - at);
        others |= found.others;
        for (uint32_t bits = found.pieces; bits != 0; bits &= bits - 1) {
            const uint8_t *end = properties + at + __builtin_ctz(bits);
            keep_known(properties, piece, end, row);
            piece = end + 1;
            separators++;
        }
    }
    keep_known(properties, piece, properties + size, row);
    row->separators = (uint16_t)separators;
    return others == 0;
}

static void fill_row(const rp_rows_scan *scan, const uint8_t *record, const rp_record_view *view, rp_row *row) {
    *row = (rp_row){.record = record,
                    .body = view->body,
                    .body_size = view->body_size,
                    .size = view->size,
                    .topic_at = (uint32_t)(view->topic - record),
                    .properties_at = (uint32_t)(view->properties - record),
                    .topic_size = (uint16_t)view->topic_size,
                    .properties_size = (uint16_t)view->properties_size,
                    .flags = view->sys_flag & RP_SYS_FLAG_COMPRESSED ? RP_ROW_COMPRESSED : 0};
    if (!(scan->flags & RP_ROWS_PROPERTIES)) return;
    int is_ascii = find_known_properties(view->properties, view->properties_size, row);
    if ((!is_ascii && !rp_utf8_is_valid(view->properties, view->properties_size)) ||
        !rp_utf8_is_valid(view->topic, view->topic_size))
        row->flags |= RP_ROW_MALFORMED;
}

/* Decode the record at scan->position. */
static rp_status take(const uint8_t *image, uint64_t size, const rp_rows_scan *scan, rp_record_view *view) {
    uint64_t left = size - scan->position;
    rp_status status = rp_record_decode(image + scan->position, left, (scan->flags & RP_ROWS_CRC) != 0, view);
    if (status != RP_OK) return status;
    if (view->size > scan->record_size_max) return RP_CORRUPT;
    if ((scan->flags & RP_ROWS_PLACE) && view->phy_offset != scan->start + scan->position) return RP_CORRUPT;
    return RP_OK;
}

rp_status rp_rows_find(const uint8_t *image, uint64_t size, uint64_t stop, rp_rows_scan *scan, rp_row *rows) {
    rp_record_view view;
    scan->records = scan->bytes = 0;
    scan->rows = scan->compressed = 0;
    if (stop > size) stop = size;
    while (scan->position < stop) {
        if (scan->rows == scan->rows_max || scan->bytes >= scan->bytes_max) return RP_FULL;
        rp_status status = take(image, size, scan, &view);
        if (status != RP_OK) return status;
        if (is_wanted(scan, &view)) {
            rp_row *row = &rows[scan->rows];
            fill_row(scan, image + scan->position, &view, row);
            if (scan->tags.count == 0 ||
                has_text(&scan->tags, row->record + row->properties_at + row->tags_at, row->tags_size)) {
                scan->rows++;
                scan->bytes += row->size;
                scan->compressed += row->flags & RP_ROW_COMPRESSED;
            }
        }
        scan->records++;
        scan->position += view.size;
    }
    return RP_OK;
}
