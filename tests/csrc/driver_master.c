/* A master and its slaves over socket pairs, in random order: slaves of the reference and of rocketpy that copy, lie,
 * stop reading, send pieces and leave, a log that grows, and time that passes. What a slave reads is always a row of
 * whole frames of the log without a gap, and nothing counts as replicated that no slave has reported truthfully.
 *
 * The driver plays Python's part: it hands over connections whose handshake, or first report, is over. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/crc32.h"
#include "base/endian.h"
#include "store/log/mapped_file.h"
#include "check.h"
#include "replication/master.h"
#include "replication/slave_connection.h"
#include "shared_memory.h"

enum { FILE_SIZE = 16384, FILES = 24, LOG = FILE_SIZE * FILES, SLAVES = 6, STEPS = 120000, INPUT = 40000 };
enum { HEADER = RP_HA_SIZE_FRAME_HEADER };

static char directory[] = "/tmp/driver_master_XXXXXX";
static uint64_t now_ns = 1000000000000;
static uint64_t clock_ns(void) { return now_ns; }

struct peer {
    int fd; /* -1: not connected */
    uint64_t has;       /* it has the log below this */
    uint8_t input[INPUT];
    uint32_t input_size;
    int is_rocketpy;
};

static uint64_t welcomed, own_whole;

static uint8_t *log_bytes;

static char *path_of(const char *name) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static void make_log(random_source *random) {
    log_bytes = malloc(LOG);
    CHECK(log_bytes);
    for (uint32_t i = 0; i < LOG; i++) log_bytes[i] = (uint8_t)random_below(random, 256);
    for (uint64_t start = 0; start < LOG; start += FILE_SIZE) {
        uint8_t *image;
        CHECK(rp_mapped_file_create(directory, start, FILE_SIZE) == RP_OK);
        CHECK(rp_mapped_file_map(directory, start, FILE_SIZE, 1, &image) == RP_OK);
        memcpy(image, log_bytes + start, FILE_SIZE);
    }
}

static void leave(struct peer *peer) {
    if (peer->fd >= 0) close(peer->fd);
    *peer = (struct peer){.fd = -1};
}

/* A slave that has the log below `has`. */
static void join(rp_master *master, rp_slave_table *table, struct peer *peer, uint64_t has, int is_rocketpy) {
    int pair[2], small = 4608;
    leave(peer);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    int32_t row = 0;
    while (row < RP_SLAVE_ROWS && table->rows[row].state != RP_SLAVE_FREE) row++;
    CHECK(row < RP_SLAVE_ROWS);
    table->rows[row] = (rp_slave_row){.state = RP_SLAVE_CONNECTED, .epoch = -1};
    *peer = (struct peer){.fd = pair[0], .has = has, .is_rocketpy = is_rocketpy};
    rp_master_add(master, (uint32_t)row, pair[1], is_rocketpy, has, is_rocketpy ? 0 : has, now_ns);
    welcomed += (uint64_t)is_rocketpy;
}

static void report(struct peer *peer, uint64_t position, uint32_t size) {
    uint8_t bytes[8];
    rp_store64(bytes, position);
    if (send(peer->fd, bytes, size, MSG_NOSIGNAL) < 0) leave(peer);
}

/* ------------------------------------------------------------------ slaves of rocketpy */

static void say_ack(struct peer *peer, uint64_t position, uint8_t type, uint32_t size) {
    uint8_t bytes[HEADER + RP_HA_SIZE_ACK] = {0};
    rp_store32(bytes, size);
    bytes[4] = type;
    rp_store64(bytes + HEADER, position);
    if (send(peer->fd, bytes, sizeof bytes, MSG_NOSIGNAL) < 0) leave(peer);
}

/* One whole frame of the master has come. */
static void take_own_frame(struct peer *peer, uint8_t type, const uint8_t *payload, uint32_t size, uint64_t published) {
    if (type == RP_HA_TYPE_DATA) {
        uint32_t bytes = size - RP_HA_SIZE_DATA_HEADER;
        CHECK(bytes <= FILE_SIZE && rp_load64(payload) == peer->has && !rp_load32(payload + 16));
        CHECK(bytes && peer->has + bytes <= rp_load64(payload + 8) && rp_load64(payload + 8) <= published);
        CHECK(peer->has / FILE_SIZE == (peer->has + bytes - 1) / FILE_SIZE);
        CHECK(memcmp(payload + RP_HA_SIZE_DATA_HEADER, log_bytes + peer->has, bytes) == 0);
        CHECK(rp_crc32(0, payload + RP_HA_SIZE_DATA_HEADER, bytes) == rp_load32(payload + 20));
        peer->has += bytes;
    } else {
        CHECK(type == RP_HA_TYPE_HEARTBEAT && size == RP_HA_SIZE_HEARTBEAT && rp_load64(payload) <= published);
    }
}

static void take_own_frames(struct peer *peer, uint64_t published) {
    uint32_t at = 0;
    while (peer->input_size - at >= HEADER) {
        uint32_t size = rp_load32(peer->input + at);
        CHECK(size >= 1 && size <= 1 + RP_HA_SIZE_DATA_HEADER + FILE_SIZE);
        if (peer->input_size - at < 4 + size) break;
        take_own_frame(peer, peer->input[at + 4], peer->input + at + HEADER, size - 1, published);
        at += 4 + size;
    }
    memmove(peer->input, peer->input + at, peer->input_size - at);
    peer->input_size -= at;
}

/* Send an ACK, which is poison at times. */
static void act_own(struct peer *peer, random_source *random, uint64_t published, uint64_t *truth) {
    uint32_t choice = random_below(random, 100);
    if (choice == 0)
        return say_ack(peer, published + 1 + random_below(random, 1000), RP_HA_TYPE_ACK, 1 + RP_HA_SIZE_ACK);
    if (choice == 1) return say_ack(peer, peer->has, (uint8_t)random_below(random, RP_HA_TYPE_ACK), 1 + RP_HA_SIZE_ACK);
    if (choice == 2) return say_ack(peer, peer->has, RP_HA_TYPE_ACK, random_below(random, 1 + RP_HA_SIZE_ACK));
    if (peer->has > *truth) *truth = peer->has;
    say_ack(peer, peer->has, RP_HA_TYPE_ACK, 1 + RP_HA_SIZE_ACK);
    own_whole += peer->has == published;
}

/* ------------------------------------------------------------------ slaves of the reference */

static void take_frames(struct peer *peer) {
    uint32_t at = 0;
    while (peer->input_size - at >= 12) {
        uint64_t position = rp_load64(peer->input + at);
        uint32_t size = rp_load32(peer->input + at + 8);
        CHECK(size <= 4096 && position == peer->has && position + size <= LOG);
        CHECK(position / FILE_SIZE == (position + (size ? size - 1 : 0)) / FILE_SIZE);
        if (peer->input_size - at < 12 + size) break;
        CHECK(memcmp(peer->input + at + 12, log_bytes + position, size) == 0);
        peer->has += size;
        at += 12 + size;
    }
    memmove(peer->input, peer->input + at, peer->input_size - at);
    peer->input_size -= at;
}

static void read_some(struct peer *peer, uint32_t most, uint64_t published) {
    if (most > INPUT - peer->input_size) most = INPUT - peer->input_size;
    ssize_t size = recv(peer->fd, peer->input + peer->input_size, most, 0);
    if (size == 0 || (size < 0 && errno != EAGAIN)) {
        leave(peer);
        return;
    }
    if (size > 0) peer->input_size += (uint32_t)size;
    if (peer->is_rocketpy)
        take_own_frames(peer, published);
    else
        take_frames(peer);
}

static void act(rp_master *master, rp_slave_table *table, struct peer *peer, random_source *random, uint64_t published,
                uint64_t *truth) {
    uint32_t choice = random_below(random, 100);
    if (peer->fd < 0 || choice == 0) {
        int is_rocketpy = random_below(random, 2) != 0;
        join(master, table, peer, random_below(random, (uint32_t)published + 1), is_rocketpy);
        if (!is_rocketpy && peer->has > *truth) *truth = peer->has;
    } else if (choice == 1) {
        leave(peer);
    } else if (peer->is_rocketpy && choice < 40) {
        act_own(peer, random, published, truth);
    } else if (peer->is_rocketpy) {
        read_some(peer, 1 + random_below(random, 9000), published);
    } else if (choice == 2) {
        report(peer, published + 1 + random_below(random, 1000), 8);
    } else if (choice == 3) {
        report(peer, ((uint64_t)random_below(random, UINT32_MAX) << 32) | 0x8000000000000000u, 8);
    } else if (choice == 4) {
        report(peer, 0, 1 + random_below(random, 7)); /* the stream is out of step from here on */
        leave(peer);
    } else if (choice < 40) {
        if (peer->has > *truth) *truth = peer->has;
        report(peer, peer->has, 8);
    } else {
        read_some(peer, 1 + random_below(random, 9000), published);
    }
}

static void check_table(const rp_slave_table *table, const rp_control *control, uint64_t truth) {
    CHECK(control->replicated_phy_offset <= truth && truth <= control->published_phy_offset);
    CHECK(table->available <= SLAVES && table->available_phy_offset <= truth);
    for (uint32_t i = 0; i < RP_SLAVE_ROWS; i++)
        CHECK(table->rows[i].state == RP_SLAVE_FREE || table->rows[i].acked_phy_offset <= truth);
}

static rp_master *open_master(rp_master_config *config) {
    rp_master *master = rp_master_open(config);
    CHECK(master);
    return master;
}

/* The rest of a frame cannot be mapped, and a heartbeat is due: the slave waits for a while, and the loop sleeps.
 * Fault: A master that could not map the rest of a half-sent frame used a whole core. */
static void check_lack_of_descriptors(void) {
    int pair[2], small = 4608;
    uint32_t why;
    static uint8_t input[INPUT];
    rp_slave_connection slave;
    rp_slave_row row = {0};
    rp_master_config config = {
        .frame_max = FILE_SIZE, .heartbeat_ns = 5000000000, .housekeeping_ns = 20000000000, .stall_ns = 30000000000};
    rp_slave_rules rules = {.config = &config, .file_size = FILE_SIZE};
    rp_log_view *view = rp_log_view_open(directory, FILE_SIZE, 1);
    CHECK(view && socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    rp_slave_connection_open(&slave, &rules, pair[1], &row, 0, 0, 0, now_ns, now_ns);
    CHECK(rp_slave_connection_write(&slave, &rules, view, LOG, LOG, now_ns, &why) == RP_OK && slave.is_blocked);
    CHECK(rp_transfer_is_inside(&slave.transfer));
    rp_log_view_trim(view, LOG); /* nothing is mapped now */
    while (recv(pair[0], input, sizeof input, 0) > 0);
    slave.is_blocked = 0;
    now_ns += (uint64_t)config.heartbeat_ns;
    struct rlimit before, none = {0};
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none.rlim_max = before.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    uint64_t sent = row.sent_bytes, due;
    CHECK(rp_slave_connection_write(&slave, &rules, view, LOG, LOG, now_ns, &why) == RP_OK && row.sent_bytes == sent);
    CHECK((due = rp_slave_connection_due_ns(&slave, &rules, LOG)) > now_ns && due < now_ns + 1000000000);
    CHECK(rp_slave_connection_write(&slave, &rules, view, LOG, LOG, due - 1, &why) == RP_OK && row.sent_bytes == sent);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(rp_slave_connection_write(&slave, &rules, view, LOG, LOG, due, &why) == RP_OK && row.sent_bytes > sent);
    rp_log_view_close(view);
    close(pair[0]);
    close(pair[1]);
}

int main(void) {
    random_source random = {11};
    CHECK(mkdtemp(directory));
    make_log(&random);
    check_lack_of_descriptors();
    rp_control_block *block = rp_control_open(path_of("control"), FILE_SIZE);
    CHECK(block);
    rp_control *control = rp_control_header(block);
    rp_slave_table *table = rp_shared_create(sizeof(rp_slave_table));
    rp_worker *worker = create_worker(0), *send = create_worker(1);
    CHECK(table && worker && send);
    rp_master_config config = {.worker = worker,
                               .send = send,
                               .block = block,
                               .table = table,
                               .commitlog_directory = directory,
                               .handshakes = -1,
                               .frame_max = 4096,
                               .heartbeat_ns = 5000000000,
                               .housekeeping_ns = 20000000000,
                               .stall_ns = 3000000000,
                               .clock_ns = clock_ns};
    static struct peer peers[SLAVES];
    for (uint32_t i = 0; i < SLAVES; i++) peers[i].fd = -1;
    rp_master *master = open_master(&config);
    rp_slave_closed closed;
    uint64_t truth = 0, whole = 0;
    for (uint32_t step = 0; step < STEPS; step++) {
        if (control->published_phy_offset < LOG && random_below(&random, 8) == 0) {
            uint64_t more = random_below(&random, 60);
            control->published_phy_offset += more < LOG - control->published_phy_offset ? more : 0;
        }
        if (random_below(&random, 50) == 0) now_ns += (uint64_t)random_below(&random, 4000) * 1000000;
        if (random_below(&random, 2000) == 0) now_ns += 25000000000;
        struct peer *peer = &peers[random_below(&random, SLAVES)];
        act(master, table, peer, &random, control->published_phy_offset, &truth);
        whole += peer->has == control->published_phy_offset;
        rp_master_run(master, 0);
        while (rp_master_closed(master, &closed)) CHECK(closed.reason < RP_SLAVE_REASONS);
        check_table(table, control, truth);
        if (random_below(&random, 3000) == 0) {
            rp_master_close(master);
            for (uint32_t i = 0; i < SLAVES; i++) leave(&peers[i]);
            master = open_master(&config);
        }
    }
    CHECK(table->closed[RP_SLAVE_LONGER] && table->closed[RP_SLAVE_IMPLAUSIBLE] && table->closed[RP_SLAVE_SILENT]);
    CHECK(whole > 100 && control->replicated_phy_offset > 0);
    CHECK(welcomed > 100 && own_whole > 100);
    printf("master: %llu connections since it was opened, %llu of them slaves of rocketpy\n",
           (unsigned long long)table->opened, (unsigned long long)welcomed);
    for (uint32_t i = 0; i < SLAVES; i++) leave(&peers[i]);
    rp_master_close(master);
    rp_control_close(block);
    char path[4200];
    for (uint64_t start = 0; start < LOG; start += FILE_SIZE) {
        CHECK(rp_mapped_file_path(path, sizeof path, directory, start) == 0);
        unlink(path);
    }
    unlink(path_of("control"));
    CHECK(rmdir(directory) == 0);
    free(log_bytes);
    return 0;
}
