/* A producer and a consumer thread on one ring, for the thread and address sanitizers: wrap-around, a full ring, both
 * sides asleep, records in parts, ends that are opened anew in the middle. Every record is numbered and filled by its
 * number, so what is lost, doubled, torn or out of order aborts.
 * driver_ring_threads [RECORDS] */
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <unistd.h>
#include "ipc/ring.h"
#include "check.h"
#include "shared_memory.h"

enum { CAPACITY = 65536, SMALL_MAX = CAPACITY / 4, REOPEN_EVERY = 5000 };

struct test {
    rp_worker *producer, *consumer;
    rp_ring *ring;
    uint64_t records;
    int sleepy; /* the consumer sleeps before every record, the producer wakes after every one */
    int large;  /* how many of a hundred records cross in parts */
};

static uint64_t mix(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static uint32_t size_of(const struct test *test, uint64_t number) {
    uint64_t random = mix(number);
    if (random % 100 < (uint64_t)test->large) return SMALL_MAX + 1 + (uint32_t)(random >> 32) % (3 * CAPACITY);
    return 8 + (uint32_t)(random >> 32) % (random % 7 == 0 ? SMALL_MAX - 8 : 300);
}

static void write_record(struct test *test, rp_ring_writer *writer, uint64_t number, uint8_t *scratch) {
    uint32_t size = size_of(test, number);
    for (;;) {
        uint8_t *room = number % 2 ? rp_ring_reserve(writer, size) : NULL;
        uint8_t *at = room ? room : scratch;
        memset(at, (int)(number & 0xFF), size);
        memcpy(at, &number, sizeof number);
        if (room) {
            rp_ring_commit(writer, size, (uint16_t)number);
            return;
        }
        rp_span spans[2] = {{scratch, 8}, {scratch + 8, size - 8}};
        if (rp_ring_write(writer, (uint16_t)number, spans, 2) == RP_OK) return;
        rp_ring_wake(writer);
        rp_worker_sleep(test->producer, -1); /* rung when half of the ring is free */
    }
}

static void *produce(void *context) {
    struct test *test = context;
    uint8_t *scratch = malloc(4 * CAPACITY);
    rp_ring_writer *writer = rp_ring_writer_open(test->ring);
    CHECK(scratch && writer);
    for (uint64_t number = 0; number < test->records; number++) {
        write_record(test, writer, number, scratch);
        if (test->sleepy || number % 13 == 0) rp_ring_wake(writer);
        if (number % REOPEN_EVERY == REOPEN_EVERY - 1 && rp_ring_pump(writer) == RP_OK) {
            rp_ring_wake(writer);
            rp_ring_writer_close(writer);
            CHECK(writer = rp_ring_writer_open(test->ring));
        }
    }
    while (rp_ring_pump(writer) != RP_OK) {
        rp_ring_wake(writer);
        rp_worker_sleep(test->producer, -1);
    }
    rp_ring_wake(writer);
    rp_ring_writer_close(writer);
    free(scratch);
    return NULL;
}

static void check(struct test *test, const uint8_t *data, uint32_t size, uint16_t type, uint64_t number) {
    uint64_t found;
    CHECK(((uintptr_t)data & 7) == 0);
    CHECK(size == size_of(test, number));
    CHECK(type == (uint16_t)number);
    memcpy(&found, data, sizeof found);
    CHECK(found == number);
    for (uint32_t i = 8; i < size; i++) CHECK(data[i] == (uint8_t)number);
}

static void *consume(void *context) {
    struct test *test = context;
    rp_ring_reader *reader = rp_ring_reader_open(test->ring);
    CHECK(reader);
    for (uint64_t number = 0; number < test->records;) {
        const uint8_t *data;
        uint32_t size;
        uint16_t type;
        if (rp_ring_read(reader, &data, &size, &type) == RP_OK) {
            check(test, data, size, type, number++);
            rp_ring_release(reader);
            if (number % REOPEN_EVERY == 0 && test->large == 0) {
                rp_ring_reader_close(reader);
                CHECK(reader = rp_ring_reader_open(test->ring));
            }
            if (!test->sleepy) continue;
        }
        rp_worker_prepare_sleep(test->consumer);
        if (rp_ring_is_empty(reader) && number < test->records)
            rp_worker_sleep(test->consumer, -1);
        else
            rp_worker_end_sleep(test->consumer);
    }
    CHECK(rp_ring_is_empty(reader));
    rp_ring_reader_close(reader);
    return NULL;
}

static void run(uint64_t records, int sleepy, int large) {
    struct test test = {.producer = create_worker(0),
                        .consumer = create_worker(1),
                        .records = records,
                        .sleepy = sleepy,
                        .large = large};
    pthread_t threads[2];
    CHECK(test.producer && test.consumer);
    CHECK(test.ring = rp_ring_create(CAPACITY, test.producer, test.consumer));
    CHECK(pthread_create(&threads[0], NULL, produce, &test) == 0);
    CHECK(pthread_create(&threads[1], NULL, consume, &test) == 0);
    CHECK(pthread_join(threads[0], NULL) == 0);
    CHECK(pthread_join(threads[1], NULL) == 0);
    CHECK(rp_ring_depth(test.ring) == 0);
    remove_ring(test.ring);
    remove_worker(test.producer);
    remove_worker(test.consumer);
    printf("%" PRIu64 " records, sleepy %d, large %d%%: ok\n", records, sleepy, large);
}

int main(int argc, char **argv) {
    uint64_t records = argc > 1 ? strtoull(argv[1], NULL, 10) : 40000;
    run(records, 0, 0);
    run(records / 2, 1, 0);
    run(records / 20, 0, 10);
    run(records / 20, 1, 3);
    return 0;
}
