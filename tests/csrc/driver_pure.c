/* The pure functions under the sanitizers: golden vectors, every truncation, mutated and random input. That results
 * are right is the business of tests/unit/native and tests/property; here it is that no byte is touched that is not
 * the function's, and that what is said about any input holds together. */
#include "base/crc32.h"
#include "wire/reply.h"
#include "invariants.h"

enum { ROUNDS = 200000, IMAGE_SIZE_MAX = 4096 };

static const char SEND_HEADER[] =
    "{\"code\":310,\"extFields\":{\"a\":\"please_rename_unique_group_name\",\"b\":\"TopicTest\",\"c\":\"TBW102\","
    "\"d\":\"4\",\"e\":\"2\",\"f\":\"0\",\"g\":\"1700000000000\",\"h\":\"0\",\"i\":\"KEYS\\u0001k1\\u0002TAGS\\u0001"
    "\\ud834\\udd1e\",\"j\":\"0\",\"k\":\"false\",\"l\":0,\"m\":false,\"n\":\"\xe8\xae\xa2\"},\"flag\":0,"
    "\"language\":\"JAVA\",\"opaque\":7,\"remark\":\"a\\tb\",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":409}";
static const uint8_t ROCKETMQ_HEADER[] = {0x00, 0x1e, 0x00, 0x01, 0x99, 0x00, 0x00, 0x00, 0x4d, 0x00, 0x00, 0x00,
                                          0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x1b, 0x00, 0x05, 't',
                                          'o',  'p',  'i',  'c',  0x00, 0x00, 0x00, 0x02, 'J',  'T',  0x00, 0x07,
                                          'q',  'u',  'e',  'u',  'e',  'I',  'd',  0x00, 0x00, 0x00, 0x01, '0'};

typedef rp_status (*check_function)(const uint8_t *data, uint32_t size);

static rp_status as_json(const uint8_t *data, uint32_t size) { return check_header(RP_SERIALIZE_JSON, data, size); }
static rp_status as_rocketmq(const uint8_t *data, uint32_t size) {
    return check_header(RP_SERIALIZE_ROCKETMQ, data, size);
}
static rp_status as_frame(const uint8_t *data, uint32_t size) { return check_frame(data, size, IMAGE_SIZE_MAX); }
static rp_status as_record(const uint8_t *data, uint32_t size) { return check_record(data, size, 1); }
static rp_status as_record_unchecked(const uint8_t *data, uint32_t size) { return check_record(data, size, 0); }

/* The original is good, each of its truncations is looked at, and then ROUNDS mutations. */
static void torture(const char *name, check_function check, const void *original, uint32_t size) {
    random_source source = {0x9E3779B97F4A7C15ull};
    uint32_t good = 0;
    CHECK(check(original, size) == RP_OK);
    for (uint32_t cut = 0; cut < size; cut++) CHECK(check(original, cut) != RP_OK);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint8_t image[2 * IMAGE_SIZE_MAX + 8];
        uint32_t mutated = size;
        memcpy(image, original, size);
        mutate(&source, image, &mutated);
        good += check(image, mutated) == RP_OK;
    }
    CHECK(good > 0 && good < ROUNDS); /* else the mutations are no test */
    printf("%s: %d mutations, %u still good\n", name, ROUNDS, good);
}

static rp_record sample_record(void) {
    return (rp_record){
        .queue_id = 3,
        .phy_offset = 1073741824,
        .born_timestamp_ms = 1700000000000,
        .born_host = {.address = {192, 168, 1, 10}, .port = 50000, .family = 4},
        .store_host = {.address = {0x20, 1, 0xd, 0xb8}, .port = 10911, .family = 6},
        .body = (const uint8_t *)"hello rocketpy",
        .topic = (const uint8_t *)"TopicTest",
        .properties = (const uint8_t *)"KEYS\001order-1\002TAGS\001TagA",
        .properties_tail = (const uint8_t *)"CLUSTER\001DefaultCluster",
        .body_size = 14,
        .topic_size = 9,
        .properties_size = 22,
        .properties_tail_size = 22,
    };
}

static void check_records(void) {
    rp_record record = sample_record();
    uint32_t size = rp_record_size(&record);
    CHECK(size == 103 + 14 + 9 + 22 + 1 + 22);
    uint8_t *image = malloc(size); /* not a byte more */
    CHECK(image != NULL && rp_record_encode(&record, image) == size);
    torture("record", as_record, image, size);
    torture("record without CRC", as_record_unchecked, image, size);
    free(image);

    rp_record nothing = {.born_host.family = 4, .store_host.family = 4};
    uint8_t smallest[91];
    CHECK(rp_record_encode(&nothing, smallest) == sizeof smallest && as_record(smallest, sizeof smallest) == RP_OK);
    nothing.topic_size = RP_TOPIC_SIZE_MAX + 1;
    CHECK(rp_record_size(&nothing) == 0 && rp_record_encode(&nothing, smallest) == 0);
    nothing.topic_size = 0;
    nothing.body_size = UINT32_MAX;
    CHECK(rp_record_size(&nothing) == 0);
}

static void check_frames(void) {
    uint8_t frame[8 + sizeof ROCKETMQ_HEADER + 5] = {0, 0, 0, 4 + sizeof ROCKETMQ_HEADER + 5,
                                                     1, 0, 0, sizeof ROCKETMQ_HEADER};
    memcpy(frame + 8, ROCKETMQ_HEADER, sizeof ROCKETMQ_HEADER);
    torture("frame", as_frame, frame, sizeof frame);
}

static void check_crc(void) {
    random_source source = {1};
    CHECK(rp_crc32(0, (const uint8_t *)"123456789", 9) == 0xCBF43926u);
    CHECK(rp_crc32(0, NULL, 0) == 0 && rp_crc32_table(7, NULL, 0) == 7);
    for (uint32_t size = 0; size < 1000; size++) {
        uint8_t *data = malloc(size + 3);
        CHECK(data != NULL);
        for (uint32_t i = 0; i < size + 3; i++) data[i] = (uint8_t)random_next(&source);
        uint32_t start = (uint32_t)random_next(&source);
        for (uint32_t shift = 0; shift <= 3; shift++) /* the last ends where the memory ends */
            CHECK(rp_crc32(start, data + shift, size) == rp_crc32_table(start, data + shift, size));
        uint32_t half = size / 2;
        CHECK(rp_crc32(rp_crc32(start, data, half), data + half, size - half) == rp_crc32(start, data, size));
        free(data);
    }
    printf("crc: %s\n", rp_crc32_is_accelerated() ? "folding" : "table");
}

static void check_replies(void) {
    for (uint8_t type = RP_SERIALIZE_JSON; type <= RP_SERIALIZE_ROCKETMQ; type++) {
        rp_send_reply send = {.serialize_type = type,
                              .version = 409,
                              .queue_offset = INT64_MAX,
                              .opaque = INT32_MIN,
                              .message_ids = (const uint8_t *)"7F00",
                              .message_ids_size = 4,
                              .region = (const uint8_t *)"R",
                              .region_size = 1};
        rp_pull_reply pull = {.serialize_type = type,
                              .suggest_which_broker_id = INT64_MIN,
                              .body_size = 9,
                              .remark = (const uint8_t *)"FOUND",
                              .remark_size = 5};
        uint32_t send_size = 0, pull_size = 0;
        for (uint32_t capacity = 0; capacity < 512; capacity++) {
            uint8_t *out = malloc(capacity > 0 ? capacity : 1);
            CHECK(out != NULL);
            uint32_t size = rp_send_reply_encode(&send, out, capacity);
            CHECK(send_size == 0 || size == send_size); /* once it fits it stays so */
            send_size = size;
            if (size > 0) CHECK(check_frame(out, size, 512) == RP_OK && check_header(type, out + 8, size - 8) == RP_OK);
            size = rp_pull_reply_encode(&pull, out, capacity);
            CHECK(pull_size == 0 || size == pull_size);
            pull_size = size;
            if (size > 0)
                CHECK(check_frame(out, size, 512) == RP_INCOMPLETE && check_header(type, out + 8, size - 8) == RP_OK);
            free(out);
        }
        CHECK(send_size > 100 && pull_size > 100);
    }
}

int main(void) {
    check_crc();
    check_records();
    check_frames();
    torture("JSON header", as_json, SEND_HEADER, sizeof SEND_HEADER - 1);
    torture("ROCKETMQ header", as_rocketmq, ROCKETMQ_HEADER, sizeof ROCKETMQ_HEADER);
    check_replies();
    return 0;
}
