/* Sends left to the manager whose ring has room again only between two of them: each has a token of its own.
 *
 * Fault: Two large sends of one connection could get one token, so a later send could overtake the second. */
#include "workers/send/diverted.h"
#include "check.h"
#include "shared_memory.h"

enum { CAPACITY = 1 << 18, SMALL = 4096, LARGE = 100000, CONNECTION = 7 };

static void forget_position(void *context, uint64_t position) { (void)context, (void)position; }

static void leave(rp_diverted *diverted, uint64_t connection, uint32_t size) {
    uint8_t *data = calloc(1, size);
    CHECK(data);
    ((rp_msg_send *)data)->origin.connection = connection;
    CHECK(rp_diverted_put(diverted, data, size, forget_position, NULL) == RP_OK);
    free(data);
}

/* Read all there is; the large ones are written to `found`. Returns their number. */
static uint32_t take(rp_ring_reader *reader, rp_msg_completed *found, uint32_t count) {
    const uint8_t *data;
    uint32_t size;
    uint16_t type;
    for (; rp_ring_read(reader, &data, &size, &type) == RP_OK; rp_ring_release(reader)) {
        const rp_msg_send *request = (const rp_msg_send *)data;
        CHECK(type == RP_MSG_SEND);
        if (size == LARGE) found[count++] = (rp_msg_completed){.origin = request->origin, .token = request->token};
    }
    return count;
}

int main(void) {
    rp_worker *send = create_worker(0), *manager = create_worker(1);
    rp_ring *ring = rp_ring_create(CAPACITY, send, manager);
    CHECK(send && manager && ring);
    rp_ring_writer *writer = rp_ring_writer_open(ring);
    rp_ring_reader *reader = rp_ring_reader_open(ring);
    rp_diverted diverted;
    rp_msg_completed found[2];
    CHECK(writer && reader && rp_diverted_init(&diverted, writer) == 0);

    while (rp_ring_depth(ring) < CAPACITY - 4 * SMALL) leave(&diverted, CONNECTION + 1, SMALL);
    leave(&diverted, CONNECTION, LARGE); /* taken, but no part of it has room */
    uint32_t count = take(reader, found, 0);
    CHECK(count == 0);
    leave(&diverted, CONNECTION, LARGE);
    while (rp_ring_pump(writer) != RP_OK) count = take(reader, found, count);
    count = take(reader, found, count);
    CHECK(count == 2 && found[0].token < found[1].token);
    CHECK(!rp_diverted_complete(&diverted, &found[0]));
    CHECK(rp_diverted_has(&diverted, CONNECTION)); /* the second is not completed yet */
    CHECK(rp_diverted_complete(&diverted, &found[1]));
    CHECK(!rp_diverted_has(&diverted, CONNECTION));

    rp_diverted_destroy(&diverted);
    rp_ring_writer_close(writer);
    rp_ring_reader_close(reader);
    puts("diverted: two large sends of one connection were completed one by one");
    return 0;
}
