/* A slave's log under sanitizers: the stream of a played master goes through slave_stream, the ring and the send worker
 * into files. The master sends frames in pieces of any size, damaged records, wrong headers, and breaks off; the send
 * worker dies now and then. Whatever comes, the log is a prefix of the master's, and at last all of it.  driver_slave
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/atomic.h"
#include "base/endian.h"
#include "ipc/worker_messages.h"
#include "store/log/log_view.h"
#include "workers/send/send.h"
#include "check.h"
#include "directory.h"
#include "replication/slave_stream.h"
#include "shared_memory.h"

enum { FILE_SIZE = 16384, FILES = 12, LOG = FILE_SIZE * FILES, ROUNDS = 60, STEPS_MAX = 400000, BODY_MAX = 3000 };
enum { HEADER = 12, MAGIC_AT = 4, OWN_OFFSET_AT = 28, BODY_AT = 88 };

static random_source source = {21};
static uint32_t below(uint32_t limit) { return random_below(&source, limit); }

/* The log of the master. */
static uint8_t image[LOG];
static uint32_t places[LOG / RP_RECORD_SIZE_MIN], sizes[LOG / RP_RECORD_SIZE_MIN], record_count, log_begin;

static struct {
    char directory[DIRECTORY_SIZE], log[PATH_SIZE], control[PATH_SIZE];
    rp_control_block *block;
    rp_control *control_header;
    rp_worker *worker, *store, *replicator;
    rp_ring *from_manager, *to_manager, *to_send;
    rp_master_link *master_link;
    rp_send *send;
    rp_log_view *view;
    uint64_t checked; /* the log is the master's below it */
} slave;

static struct {
    rp_slave_stream *stream; /* NULL: not connected */
    int master, socket;
    uint8_t log[LOG]; /* what this connection sends */
    uint32_t next; /* of the log, to be sent */
    int is_damaged; /* a record of it */
    uint8_t frame[HEADER + LOG];
    uint32_t frame_size, frame_sent;
    uint8_t report[8];
    uint32_t report_size;
    uint64_t reported;
    int is_misplaced; /* a wrong header was sent */
} line;

static struct {
    uint32_t streams, restarts, ended[RP_STREAM_END_REFUSED + 1], refused[RP_REFUSED_GAP + 1];
} seen;

static uint32_t put_record(uint32_t at, uint32_t body_size) {
    static uint8_t body[BODY_MAX];
    for (uint32_t i = 0; i < body_size; i++) body[i] = (uint8_t)below(256);
    rp_record record = {.topic = (const uint8_t *)"T",
                        .topic_size = 1,
                        .queue_offset = record_count,
                        .phy_offset = at,
                        .born_timestamp_ms = 1700000000000,
                        .store_timestamp_ms = 1700000000000 + record_count,
                        .born_host = {.family = 4},
                        .store_host = {.family = 4},
                        .body = body,
                        .body_size = body_size};
    uint32_t size = rp_record_size(&record), room = FILE_SIZE - at % FILE_SIZE;
    if (size + RP_END_FILE_MIN_BLANK > room) return 0;
    CHECK(rp_record_encode(&record, image + at) == size);
    places[record_count] = at;
    sizes[record_count++] = size;
    return size;
}

static void make_log(void) {
    memset(image, 0, sizeof image);
    record_count = 0;
    for (uint32_t at = log_begin; at < LOG;) {
        uint32_t room = FILE_SIZE - at % FILE_SIZE, size = put_record(at, below(4) ? below(BODY_MAX) : below(3));
        if (!size) { /* a blank to the end of the file */
            rp_store32(image + at, size = room);
            rp_store32(image + at + 4, (uint32_t)RP_BLANK_MAGIC);
        }
        at += size;
    }
}

static void open_send(void) {
    rp_send_config config = {.worker = slave.worker,
                             .store = slave.store,
                             .replicator = slave.replicator,
                             .block = slave.block,
                             .commitlog_directory = slave.log,
                             .from_manager = slave.from_manager,
                             .to_manager = slave.to_manager,
                             .store_host = {.family = 4},
                             .region = "region",
                             .max_message_size = 1 << 20,
                             .is_slave = 1,
                             .check_crc = 1,
                             .master_link = slave.master_link,
                             .from_replicator = slave.to_send};
    CHECK(slave.send = rp_send_open(&config));
}

static void open_slave(void) {
    make_directory(slave.directory, "slave");
    path_in(slave.log, slave.directory, "commitlog");
    path_in(slave.control, slave.directory, "control");
    CHECK(slave.block = rp_control_open(slave.control, FILE_SIZE));
    slave.control_header = rp_control_header(slave.block);
    rp_control_mark_boot(slave.block);
    slave.worker = create_worker(0), slave.store = create_worker(1), slave.replicator = create_worker(2);
    rp_worker *manager = create_worker(3);
    slave.from_manager = rp_ring_create(65536, manager, slave.worker);
    slave.to_manager = rp_ring_create(65536, slave.worker, manager);
    slave.to_send = rp_ring_create(65536, slave.replicator, slave.worker);
    slave.master_link = rp_shared_create(sizeof(rp_master_link));
    CHECK(slave.from_manager && slave.to_manager && slave.to_send && slave.master_link);
    slave.checked = log_begin;
    open_send();
    CHECK(slave.view = rp_log_view_open(slave.log, FILE_SIZE, 2));
}

static void close_slave(void) {
    rp_send_close(slave.send);
    rp_log_view_close(slave.view);
    rp_control_close(slave.block);
    remove_directory(slave.directory);
}

static uint64_t published(void) { return slave.control_header->published_phy_offset; }

static void leave(void) {
    if (!line.stream) return;
    rp_slave_stream_close(line.stream);
    close(line.socket);
    close(line.master);
    line.stream = NULL;
}

static void join(void) {
    int pair[2], small = 4608;
    leave();
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    uint64_t from = published() ? published() : log_begin;
    uint32_t adds_zero = from == 0 && below(2); /* a slave that is empty asks for the byte behind the first */
    rp_slave_stream_config config = {.worker = slave.replicator,
                                     .control = slave.control_header,
                                     .master_link = slave.master_link,
                                     .to_send = slave.to_send,
                                     .socket = pair[0],
                                     .phy_offset = from + adds_zero,
                                     .report_least = adds_zero,
                                     .adds_zero = adds_zero,
                                     .report_interval_ns = 1000000,
                                     .silence_max_ns = below(6) ? INT64_MAX : 1};
    if (rp_ring_depth(slave.to_send)) rp_send_run(slave.send, 0); /* room for the zero */
    line.stream = rp_slave_stream_open(&config);
    CHECK(line.stream);
    line.socket = pair[0];
    line.master = pair[1];
    line.next = (uint32_t)config.phy_offset;
    line.is_damaged = 0;
    line.frame_size = line.frame_sent = line.report_size = 0;
    line.reported = 0;
    line.is_misplaced = 0;
    memcpy(line.log, image, LOG);
    seen.streams++;
}

/* One of the bytes that a slave checks. */
static void damage(void) {
    uint32_t record = below(record_count), at = places[record];
    if (at <= line.next || line.is_damaged) return;
    uint32_t offsets[] = {1, MAGIC_AT + below(4), OWN_OFFSET_AT + below(8), BODY_AT};
    uint32_t which = below(sizes[record] > RP_RECORD_SIZE_MIN + 1 ? 4 : 3);
    line.log[at + offsets[which]] ^= (uint8_t)(1 + below(255));
    line.is_damaged = 1;
}

static void next_frame(void) {
    uint32_t left = LOG - line.next, size = below(3) ? below(6000) : below(FILE_SIZE + 1);
    if (size > left) size = left;
    uint64_t position = line.next;
    uint32_t said = size, way = below(100);
    if (way == 0) position += below(2) ? 1 : (uint64_t)-1;
    if (way == 1) said = FILE_SIZE + 1 + below(1000);
    if (way == 2) said = 0x80000000u | below(1000);
    line.is_misplaced |= way < 3;
    rp_store64(line.frame, position);
    rp_store32(line.frame + 8, said);
    memcpy(line.frame + HEADER, line.log + line.next, size);
    line.frame_size = HEADER + size;
    line.frame_sent = 0;
    line.next += size;
}

/* The master: send a piece, read what is reported. */
static void act(void) {
    if (line.frame_sent == line.frame_size) next_frame();
    uint32_t left = line.frame_size - line.frame_sent, most = below(5) ? 5000 : 20, piece = 1 + below(most);
    ssize_t sent = send(line.master, line.frame + line.frame_sent, piece < left ? piece : left, MSG_NOSIGNAL);
    if (sent > 0) line.frame_sent += (uint32_t)sent;
    for (;;) {
        ssize_t got = recv(line.master, line.report + line.report_size, 8 - line.report_size, 0);
        if (got <= 0) break;
        if ((line.report_size += (uint32_t)got) < 8) continue;
        uint64_t position = rp_load64(line.report);
        CHECK(position >= line.reported && (position <= published() || position == 1));
        line.reported = position;
        line.report_size = 0;
    }
}

static void run_stream(void) {
    if (rp_slave_stream_run(line.stream, 0) != RP_STREAM_ENDED) return;
    int32_t end = line.stream->end;
    CHECK(end > 0 && end <= RP_STREAM_END_REFUSED && (end != RP_STREAM_END_MISPLACED || line.is_misplaced));
    if (end == RP_STREAM_END_REFUSED) {
        CHECK(slave.master_link->refused_reason == RP_REFUSED_BAD_RECORD ||
              slave.master_link->refused_reason == RP_REFUSED_GAP);
        seen.refused[slave.master_link->refused_reason]++;
    }
    seen.ended[end]++;
    leave();
}

static void check_log(void) {
    uint64_t end = published();
    if (end < log_begin) return;
    CHECK(end <= LOG && end >= slave.checked);
    while (slave.checked < end) {
        uint64_t size = FILE_SIZE - slave.checked % FILE_SIZE;
        if (size > end - slave.checked) size = end - slave.checked;
        const uint8_t *at = rp_log_view_acquire(slave.view, slave.checked, size);
        CHECK(at && memcmp(at, image + slave.checked, size) == 0);
        rp_log_view_release(slave.view, slave.checked);
        slave.checked += size;
    }
}

static void play(void) {
    uint32_t steps = 0, hostility = below(3) ? 500 : 60;
    while (published() < LOG && steps++ < STEPS_MAX) {
        if (!line.stream || below(400) == 0) join();
        if (below(hostility) == 0) damage();
        if (below(200) == 0) shutdown(line.master, SHUT_RDWR);
        if (below(6)) act();
        if (below(2)) run_stream();
        if (below(3) == 0) CHECK(rp_send_run(slave.send, 0) == RP_OK);
        if (below(200) == 0) {
            rp_send_close(slave.send);
            open_send();
            seen.restarts++;
        }
        check_log();
    }
    CHECK(published() == LOG);
}

int main(void) {
    for (uint32_t round = 0; round < ROUNDS; round++) {
        log_begin = round % 4 == 3 ? 2 * FILE_SIZE : 0;
        make_log();
        open_slave();
        play();
        leave();
        close_slave();
    }
    printf("slave: %u logs in %u streams, %u refused for damage and %u for a gap, %u misplaced, %u closed, %u silent\n",
           ROUNDS, seen.streams, seen.refused[RP_REFUSED_BAD_RECORD], seen.refused[RP_REFUSED_GAP],
           seen.ended[RP_STREAM_END_MISPLACED], seen.ended[RP_STREAM_END_CLOSED], seen.ended[RP_STREAM_END_SILENT]);
    fflush(stdout);
    CHECK(seen.ended[RP_STREAM_END_CLOSED] && seen.ended[RP_STREAM_END_SILENT] && seen.ended[RP_STREAM_END_MISPLACED]);
    CHECK(seen.refused[RP_REFUSED_BAD_RECORD] && seen.refused[RP_REFUSED_GAP]);
    return 0;
}
