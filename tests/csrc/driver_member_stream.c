/* A follower's end of the stream with automatic failover, against a master that sends good frames, wrong ones and
 * noise: only bytes of whole, right frames go on, each after its epoch is known, and no more is confirmed than is
 * published. driver_member_stream [FRAMES] */
#include <sys/socket.h>
#include <unistd.h>
#include "base/crc32.h"
#include "base/endian.h"
#include "ipc/worker_messages.h"
#include "check.h"
#include "replication/frames.h"
#include "replication/slave_stream.h"
#include "shared_memory.h"

enum { RING = 1 << 18, LOG = 1 << 20, EPOCH = 9, BODY_MAX = 3000, FRAME_MAX = RP_HA_HEADER_MAX + BODY_MAX };
static const rp_epoch EPOCHS[] = {{0, 1, 0}, {200000, 3, 0}, {200000, 4, 0}, {500000, 9, 0}};
static random_source source = {4};
static uint32_t below(uint32_t limit) { return random_below(&source, limit); }

static struct {
    rp_member *member;
    rp_master_link *master_link;
    rp_worker *worker, *send;
    rp_ring *ring;
    rp_ring_reader *reader;
    rp_control control;
    rp_slave_stream *stream;
    int ours, theirs;
    uint64_t passed, known; /* the end of what went on; epochs that begin before it are known */
    uint32_t streams, ended[RP_STREAM_END_FENCED + 1], asked;
} rig;

static uint8_t byte_at(uint64_t position) { return (uint8_t)(position * 131 + position / 251); }

static void leave(void) {
    rp_slave_stream_close(rig.stream);
    close(rig.ours);
    close(rig.theirs);
}

static void join(void) {
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    rig.ours = pair[0];
    rig.theirs = pair[1];
    rig.known = EPOCHS[1].start;
    while (rig.known <= rig.passed && rig.known < EPOCHS[3].start) rig.known = EPOCHS[3].start;
    if (rig.known <= rig.passed) rig.known = UINT64_MAX;
    rig.stream = rp_slave_stream_open(&(rp_slave_stream_config){.worker = rig.worker,
                                                                .control = &rig.control,
                                                                .master_link = rig.master_link,
                                                                .to_send = rig.ring,
                                                                .socket = rig.ours,
                                                                .is_rocketpy = 1,
                                                                .phy_offset = rig.passed,
                                                                .member = rig.member,
                                                                .orders_version = rig.member->version,
                                                                .epoch = EPOCH,
                                                                .epochs = EPOCHS,
                                                                .epoch_count = 4,
                                                                .epochs_from = rig.known,
                                                                .report_interval_ns = INT64_MAX,
                                                                .silence_max_ns = INT64_MAX});
    CHECK(rig.stream);
    rig.streams++;
}

/* A frame that may be wrong in one place. */
static uint32_t make_frame(uint8_t *out, uint64_t position) {
    uint32_t way = below(40), kind = below(10), size = 1 + below(BODY_MAX);
    uint64_t end;
    int32_t epoch = rp_epochs_at(EPOCHS, 4, position, &end);
    if (size > end - position) size = (uint32_t)(end - position);
    if (kind == 0) { /* a heartbeat */
        rp_store32(out, 1 + RP_HA_SIZE_HEARTBEAT + (way == 1));
        out[4] = RP_HA_TYPE_HEARTBEAT;
        rp_store64(out + 5, position);
        rp_store64(out + 13, below(4) ? position : UINT64_MAX);
        rp_store32(out + 21, way == 2 ? EPOCH - 1 : EPOCH);
        rp_store64(out + 25, 1);
        return RP_HA_SIZE_FRAME_HEADER + RP_HA_SIZE_HEARTBEAT;
    }
    if (way == 3) {
        rp_store32(out, 1 + RP_HA_SIZE_FENCED);
        out[4] = RP_HA_TYPE_FENCED;
        rp_store32(out + 5, below(20));
        return RP_HA_SIZE_FRAME_HEADER + RP_HA_SIZE_FENCED;
    }
    uint8_t *body = out + RP_HA_SIZE_FRAME_HEADER + RP_HA_SIZE_DATA_HEADER;
    for (uint32_t i = 0; i < size; i++) body[i] = byte_at(position + i);
    rp_store32(out, 1 + RP_HA_SIZE_DATA_HEADER + (way == 4 ? below(2) * UINT32_MAX : size));
    out[4] = way == 5 ? (uint8_t)below(12) : RP_HA_TYPE_DATA;
    rp_store64(out + 5, way == 6 ? position + 1 : position);
    rp_store64(out + 13, position + size);
    rp_store32(out + 21, (uint32_t)(way == 7 ? epoch + 1 : epoch));
    rp_store32(out + 25, rp_crc32(0, body, size));
    if (way == 8) body[below(size)] ^= 1;
    return RP_HA_SIZE_FRAME_HEADER + RP_HA_SIZE_DATA_HEADER + size;
}

/* What has gone on is the log, without a gap, and of known epochs. */
static void drain(void) {
    const uint8_t *data;
    uint32_t size;
    uint16_t type;
    for (; rp_ring_read(rig.reader, &data, &size, &type) == RP_OK; rp_ring_release(rig.reader)) {
        rp_msg_log head;
        CHECK(type == RP_MSG_LOG && size > sizeof head);
        memcpy(&head, data, sizeof head);
        CHECK(head.phy_offset == rig.passed);
        for (uint32_t i = (uint32_t)sizeof head; i < size; i++) CHECK(data[i] == byte_at(rig.passed++));
        CHECK(rig.passed < rig.known);
    }
    if (below(2)) rig.control.published_phy_offset = rig.passed;
    CHECK(rig.control.confirmed_phy_offset <= rig.control.published_phy_offset);
}

/* Run the stream; 0: it has ended. */
static int run(void) {
    for (;;) {
        rp_stream_event event = rp_slave_stream_run(rig.stream, 0);
        drain();
        if (event == RP_STREAM_NEEDS_EPOCH) {
            uint64_t reaches = rig.stream->needs_epochs_to;
            CHECK(reaches >= rig.known);
            rig.known = reaches >= EPOCHS[3].start ? UINT64_MAX : EPOCHS[3].start;
            rig.stream->config.epochs_from = rig.known;
            rig.stream->needs_epochs_to = 0;
            rig.asked++;
        } else if (event == RP_STREAM_ORDERS) {
            rig.stream->config.orders_version = rig.member->version;
        } else if (event == RP_STREAM_ENDED) {
            rig.ended[rig.stream->end]++;
            return 0;
        } else {
            CHECK(event == RP_STREAM_IDLE);
            return 1;
        }
    }
}

static void play(uint32_t frames) {
    uint8_t frame[FRAME_MAX], sink[4096];
    for (uint32_t i = 0; i < frames && rig.passed < LOG - BODY_MAX; i++) {
        uint32_t size = make_frame(frame, rig.passed), sent = 0;
        if (below(60) == 0) rp_member_order(rig.member, &(rp_member_orders){.epoch = (int32_t)below(100)});
        while (sent < size) {
            uint32_t piece = 1 + below(below(3) ? FRAME_MAX : 12);
            if (piece > size - sent) piece = size - sent;
            CHECK(send(rig.theirs, frame + sent, piece, MSG_NOSIGNAL) == (ssize_t)piece);
            sent += piece;
            if (!run()) {
                leave();
                join();
                break;
            }
            while (recv(rig.theirs, sink, sizeof sink, 0) > 0) {
            }
        }
    }
}

int main(int argc, char **argv) {
    uint32_t frames = argc > 1 ? (uint32_t)atoi(argv[1]) : 6000;
    CHECK((rig.member = create_member()) && (rig.master_link = rp_shared_create(sizeof(rp_master_link))));
    CHECK((rig.worker = create_worker(0)) && (rig.send = create_worker(1)));
    CHECK((rig.ring = rp_ring_create(RING, rig.worker, rig.send)) && (rig.reader = rp_ring_reader_open(rig.ring)));
    rig.control.commitlog_file_size = LOG;
    join();
    play(frames);
    leave();
    printf("member stream: %u streams, %llu bytes went on, %u epochs asked for, %u misplaced, %u damaged, %u fenced\n",
           rig.streams, (unsigned long long)rig.passed, rig.asked, rig.ended[RP_STREAM_END_MISPLACED],
           rig.ended[RP_STREAM_END_DAMAGED], rig.ended[RP_STREAM_END_FENCED]);
    CHECK(rig.passed > EPOCHS[3].start && rig.asked >= 2 && rig.ended[RP_STREAM_END_MISPLACED] &&
          rig.ended[RP_STREAM_END_DAMAGED] && rig.ended[RP_STREAM_END_FENCED] && rig.control.confirmed_phy_offset);
    rp_ring_reader_close(rig.reader);
    remove_ring(rig.ring);
    return 0;
}
