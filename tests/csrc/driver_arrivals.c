/* Arrivals: dispatch tells the pull workers once of each queue that a suspended pull waits for, over real rings. */
#define _GNU_SOURCE
#include "ipc/ring.h"
#include "ipc/worker_messages.h"
#include "check.h"
#include "shared_memory.h"
#include "store.h"

/* Everyone who waits is told once, also through a ring that is too small for all of them, and again after a restart. */
static void check_arrivals(void) {
    enum { QUEUES = 6000 };
    struct store store;
    const uint8_t *data;
    uint32_t size, told = 0, fulls = 0;
    uint16_t type;
    make_store(&store, "arrivals", 1 << 20);
    open_store(&store);
    rp_worker *us = create_worker(0), *pull = create_worker(1);
    rp_ring *ring = rp_ring_create(65536, us, pull);
    rp_ring_writer *writer = rp_ring_writer_open(ring);
    rp_ring_reader *reader = rp_ring_reader_open(ring);
    rp_dispatch_set_pulls(store.dispatch, &writer, 1);
    for (uint32_t i = 0; i < QUEUES; i++) {
        put(&store, "Waited", i, "", 10);
        rp_control_find(store.block, (const uint8_t *)"Waited", 6, i)->watched = 1;
    }
    rp_status status;
    do {
        status = rp_dispatch_run(store.dispatch, 1 << 30);
        CHECK(status == RP_OK || status == RP_EMPTY || status == RP_FULL);
        fulls += status == RP_FULL;
        if (status == RP_OK) continue;
        while (rp_ring_read(reader, &data, &size, &type) == RP_OK) {
            rp_msg_arrival arrival;
            CHECK(type == RP_MSG_ARRIVAL && size == sizeof arrival);
            memcpy(&arrival, data, sizeof arrival);
            const rp_queue *queue = rp_control_queue(store.block, arrival.queue);
            CHECK(queue->queue_id == told && queue->max_offset == 1 && queue->watched == 0);
            told++;
            rp_ring_release(reader);
        }
    } while (status != RP_EMPTY);
    CHECK(told == QUEUES && fulls > 0);
    rp_control_header(store.block)->dispatched_phy_offset -=
        91 + 6 + 10; /* killed after the unit, before the position */
    CHECK(rp_dispatch_run(store.dispatch, 1 << 30) == RP_EMPTY);
    CHECK(rp_ring_read(reader, &data, &size, &type) == RP_OK && ((const rp_msg_arrival *)data)->queue == QUEUES - 1);
    rp_ring_release(reader);
    rp_ring_reader_close(reader);
    rp_ring_writer_close(writer);
    remove_ring(ring);
    close_store(&store);
    remove_store(&store);
}

/* A pull worker that stands still, its ring full, keeps neither the queues of another from being dispatched nor its
 * own.

 * Fault: One pull worker that stood still kept all queues from being dispatched for 10 s. */
static void check_arrivals_of_two_workers(void) {
    enum { QUEUES = 12000 };
    struct store store;
    const uint8_t *data;
    uint32_t size, told = 0, stuck = 0;
    uint16_t type;
    make_store(&store, "two", 1 << 20);
    open_store(&store);
    rp_worker *us = create_worker(0), *pulls[2] = {create_worker(1), create_worker(2)};
    rp_ring *rings[2] = {rp_ring_create(65536, us, pulls[0]), rp_ring_create(65536, us, pulls[1])};
    rp_ring_writer *writers[2] = {rp_ring_writer_open(rings[0]), rp_ring_writer_open(rings[1])};
    rp_ring_reader *reader = rp_ring_reader_open(rings[1]);
    rp_dispatch_set_pulls(store.dispatch, writers, 2);
    for (uint32_t i = 0; i < QUEUES; i++) {
        put(&store, "Waited", i, "", 10);
        rp_control_find(store.block, (const uint8_t *)"Waited", 6, i)->watched = 1;
        if (i % 1000 != 999) continue;
        rp_status status;
        while ((status = rp_dispatch_run(store.dispatch, 1 << 30)) == RP_OK) {
        }
        CHECK(status == RP_EMPTY);
        for (; rp_ring_read(reader, &data, &size, &type) == RP_OK; told++) rp_ring_release(reader);
    }
    for (uint32_t i = 0; i < QUEUES; i++) {
        const rp_queue *queue = rp_control_find(store.block, (const uint8_t *)"Waited", 6, i);
        CHECK(queue->max_offset == 1);
        stuck += queue->watched;
    }
    CHECK(told == QUEUES / 2 && stuck == QUEUES / 2 - 65536 / 16);
    rp_ring_reader_close(reader);
    for (int i = 0; i < 2; i++) {
        rp_ring_writer_close(writers[i]);
        remove_ring(rings[i]);
    }
    close_store(&store);
    remove_store(&store);
}
int main(void) {
    check_arrivals();
    check_arrivals_of_two_workers();
    puts("driver_arrivals: ok");
    return 0;
}
