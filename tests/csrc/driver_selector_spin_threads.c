/* A selector that spins, sleeps and changes between the two, with a client that waits for each answer and a processor
 * that sleeps between requests: every request is answered. A wake-up that is lost ends the test, since nothing else
 * would wake the selector. driver_selector_spin_threads [REQUESTS] */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/endian.h"
#include "workers/selector/selector_private.h"
#include "check.h"
#include "handoff.h"
#include "shared_memory.h"

enum { CAPACITY = 65536, FRAME_SIZE = 4 + 4 + 2, LOST_S = 30, WINDOWS = 3 };

struct world {
    rp_worker *worker, *processor;
    rp_ring *frames, *replies;
    int client, handoff[2];
    uint64_t requests;
};

/* Free cores in all windows but every third; two kinds of waits that are always short enough. */
static uint64_t mostly_idle(rp_spin *spin) {
    static uint64_t windows, idle_ns;
    for (int kind = 0; kind < RP_WAIT_KINDS; kind++) spin->waited_ns[kind] = 0;
    if (windows++ % WINDOWS) idle_ns += (uint64_t)1 << 40;
    return idle_ns;
}

static void *serve(void *context) {
    struct world *world = context;
    rp_ring_reader *reader = rp_ring_reader_open(world->frames);
    rp_ring_writer *writer = rp_ring_writer_open(world->replies);
    const uint8_t *data;
    uint32_t size;
    uint16_t type;
    CHECK(reader && writer);
    for (uint64_t done = 0; done < world->requests;) {
        rp_worker_prepare_sleep(world->processor);
        if (rp_ring_is_empty(reader)) rp_worker_sleep(world->processor, -1);
        rp_worker_end_sleep(world->processor);
        while (rp_ring_read(reader, &data, &size, &type) == RP_OK) {
            if (type == RP_MSG_FRAME) {
                rp_msg_reply reply = {.connection = ((const rp_origin *)(const void *)data)->connection,
                                      .size = FRAME_SIZE};
                uint8_t frame[FRAME_SIZE] = {0, 0, 0, FRAME_SIZE - 4, 0, 0, 0, 2, '{', '}'};
                rp_span spans[2] = {{&reply, sizeof reply}, {frame, sizeof frame}};
                CHECK(rp_ring_write(writer, RP_MSG_REPLY, spans, 2) == RP_OK);
                done++;
            }
            rp_ring_release(reader);
        }
        rp_ring_wake(writer);
    }
    rp_ring_reader_close(reader);
    rp_ring_writer_close(writer);
    return NULL;
}

static void *ask(void *context) {
    struct world *world = context;
    const uint8_t frame[FRAME_SIZE] = {0, 0, 0, FRAME_SIZE - 4, 0, 0, 0, 2, '{', '}'};
    uint8_t answer[FRAME_SIZE];
    for (uint64_t i = 0; i < world->requests; i++) {
        CHECK(send(world->client, frame, sizeof frame, MSG_NOSIGNAL) == sizeof frame);
        CHECK(recv(world->client, answer, sizeof answer, MSG_WAITALL) == sizeof answer);
    }
    __atomic_store_n(&world->worker->stop, RP_STOP_LEAVE, __ATOMIC_RELEASE);
    rp_worker_wake(world->worker, 1);
    return NULL;
}

int main(int argc, char **argv) {
    struct world world = {.requests = argc > 1 ? strtoull(argv[1], NULL, 10) : 20000};
    const struct timeval lost = {.tv_sec = LOST_S};
    int pair[2];
    CHECK((world.worker = create_worker(0)) && (world.processor = create_worker(1)));
    CHECK(world.frames = rp_ring_create(CAPACITY, world.worker, world.processor));
    CHECK(world.replies = rp_ring_create(CAPACITY, world.processor, world.worker));
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, world.handoff) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    world.client = pair[1];
    CHECK(setsockopt(pair[1], SOL_SOCKET, SO_RCVTIMEO, &lost, sizeof lost) == 0);
    rp_selector_config config = {.worker = world.worker,
                                 .handoff = world.handoff[1],
                                 .reply_count = 1,
                                 .codec_count = 1,
                                 .replies = &world.replies,
                                 .codecs = &world.frames,
                                 .spin_us = 50};
    rp_selector *selector = rp_selector_open(&config);
    CHECK(selector);
    selector->spin.idle_ns = mostly_idle;
    selector->spin.bound_ns = 50000;
    for (int kind = 0; kind < RP_WAIT_KINDS; kind++) selector->spin.waited_ns[kind] = 0;
    hand_over(world.handoff[0], pair[0], 0);
    pthread_t processor, client;
    CHECK(pthread_create(&processor, NULL, serve, &world) == 0 && pthread_create(&client, NULL, ask, &world) == 0);
    CHECK(rp_selector_run(selector, -1) == RP_STOPPED);
    CHECK(pthread_join(client, NULL) == 0 && pthread_join(processor, NULL) == 0);
    printf("%llu requests, %llu sleeps\n", (unsigned long long)world.requests,
           (unsigned long long)world.worker->counters[RP_COUNT_SLEEPS]);
    rp_selector_close(selector);
    remove_ring(world.frames);
    remove_ring(world.replies);
    close(world.client);
    close(world.handoff[0]);
    close(world.handoff[1]);
    remove_worker(world.worker);
    remove_worker(world.processor);
    return 0;
}
