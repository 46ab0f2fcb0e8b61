/* Rows and columns of damaged images: every image and every buffer ends where its memory ends, so a byte read or
 * written too far is seen. Offsets of columns must ascend and end within their data. */
#include "store/log/record.h"
#include "arrow/columns.h"
#include "arrow/rows.h"
#include "check.h"

enum { ROWS = 7, RECORDS = 9, ROUNDS = 20000 };

static uint32_t make_image(random_source *source, uint8_t *image) {
    static const char *const properties[] = {
        "", "TAGS\001a\002KEYS\001k1 k2\002UNIQ_KEY\0010A0B",
        "a\001b\002a\001c\002\001x\002y\001\002z\002TAGS\001\303\050",
        "a\0011\002b\0012\002c\0013\002d\0014\002e\0015\002f\0016\002g\0017\002h\0018\002i\0019\002j\001a\002k\001b\002"
        "l\001c\002m\001d\002n\001e\002o\001f\002p\001g\002q\001h\002r\001i\002s\001j\002t\001k\002u\001l\002v\001m\002"
        "w\001n\002x\001o\002y\001p\002z\001q\002a\001r\002b\001s\002a\001t"};
    uint8_t body[300];
    uint32_t end = 0;
    memset(body, 'b', sizeof body);
    for (uint64_t i = 0; i < RECORDS; i++) {
        const char *chosen = properties[random_below(source, 4)];
        rp_record record = {.queue_offset = i,
                            .phy_offset = end,
                            .body = body,
                            .body_size = random_below(source, sizeof body),
                            .topic = (const uint8_t *)"T\370",
                            .topic_size = random_below(source, 2) + 1,
                            .properties = (const uint8_t *)chosen,
                            .properties_size = (uint32_t)strlen(chosen),
                            .sys_flag = (int32_t)random_below(source, 16),
                            .born_timestamp_ms = (int64_t)random_next(source) >> random_below(source, 60),
                            .store_timestamp_ms = 1700000000000,
                            .born_host = {.family = random_below(source, 2) ? 6 : 4, .port = 65535},
                            .store_host = {.family = random_below(source, 2) ? 6 : 4, .address = {255, 254}}};
        end += rp_record_encode(&record, image + end);
    }
    return end;
}

static void check_offsets(const int32_t *offsets, uint32_t count, uint64_t end) {
    CHECK(offsets[0] == 0);
    for (uint32_t i = 0; i < count; i++) CHECK(offsets[i] <= offsets[i + 1]);
    CHECK((uint64_t)offsets[count] <= end);
}

static void fill_columns(const rp_row *rows, uint32_t count) {
    uint8_t *valid = malloc((count + 7) / 8 + 1);
    int32_t *offsets = malloc(4 * (count + 1));
    for (rp_column column = 0; column < RP_COLUMN_BODY; column++) {
        void *out = malloc((column < RP_COLUMN_QUEUE_OFFSET ? 4 : 8) * count + 1);
        CHECK(rp_column_numbers(column, rows, count, out, valid) <= count);
        free(out);
    }
    for (rp_column column = RP_COLUMN_BODY; column < RP_COLUMNS_END; column++) {
        uint64_t room = rp_column_texts_room(column, rows, count);
        uint8_t *data = malloc(room + 1);
        uint32_t nulls;
        CHECK(rp_column_texts(column, rows, count, offsets, data, room, valid, &nulls) == RP_OK && nulls <= count);
        check_offsets(offsets, count, room);
        uint64_t used = (uint64_t)offsets[count];
        uint8_t *tight = malloc(used + 1);
        if (used > 0)
            CHECK(rp_column_texts(column, rows, count, offsets, tight, used - 1, valid, &nulls) == RP_TOO_LARGE);
        free(tight);
        free(data);
    }
    rp_pairs_room room;
    rp_column_pairs_room(rows, count, &room);
    int32_t *names_at = malloc(4 * (room.pairs + 1)), *values_at = malloc(4 * (room.pairs + 1));
    uint8_t *names = malloc(room.bytes + 1), *values = malloc(room.bytes + 1);
    uint64_t pairs;
    CHECK(rp_column_pairs(rows, count, &room, offsets, names_at, names, values_at, values, &pairs) == RP_OK);
    check_offsets(offsets, count, pairs);
    check_offsets(names_at, (uint32_t)pairs, room.bytes);
    check_offsets(values_at, (uint32_t)pairs, room.bytes);
    free(names), free(values), free(names_at), free(values_at), free(offsets), free(valid);
}

static void read_image(const uint8_t *image, uint32_t size, uint32_t flags, uint32_t is_damaged) {
    rp_row rows[ROWS];
    uint32_t topic_ends[] = {1};
    rp_rows_scan scan = {.rows_max = ROWS,
                         .bytes_max = 1500,
                         .record_size_max = 1 << 20,
                         .flags = flags,
                         .store_time_from = INT64_MIN,
                         .store_time_to = INT64_MAX,
                         .queue_offset_from = INT64_MIN,
                         .queue_offset_to = INT64_MAX,
                         .topics = {(const uint8_t *)"T", topic_ends, flags & 1}};
    uint64_t records = 0;
    for (;;) {
        uint64_t before = scan.position;
        rp_status status = rp_rows_find(image, size, size, &scan, rows);
        CHECK(scan.rows <= ROWS && scan.position <= size && scan.position >= before && scan.rows <= scan.records);
        records += scan.records;
        fill_columns(rows, scan.rows);
        if (status == RP_FULL) continue;
        CHECK(is_damaged || (status == RP_OK && records == RECORDS));
        if (status == RP_OK || status == RP_END_OF_FILE || status == RP_EMPTY) return;
        if (++scan.position >= size) return;
    }
}

int main(void) {
    random_source source = {20261122};
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint8_t image[2 * 8192 + 8];
        uint32_t size = make_image(&source, image), is_damaged = round % 4 != 0;
        CHECK(size <= 8192);
        if (is_damaged) mutate(&source, image, &size);
        uint8_t *copy = exact_copy(image, size);
        read_image(copy, size, random_below(&source, 8) | RP_ROWS_PROPERTIES, is_damaged);
        free(copy);
    }
    return 0;
}
