/* A master and its slaves over socket pairs, in random order: slaves that copy, lie, stop reading, send pieces and
 * leave, a log that grows, and time that passes. What a slave reads is always a row of whole frames of the log without
 * a gap, and nothing counts as replicated that no slave has reported truthfully. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/endian.h"
#include "store/mapped_file.h"
#include "check.h"
#include "replication/master.h"
#include "replication/slave.h"

enum { FILE_SIZE = 16384, FILES = 24, LOG = FILE_SIZE * FILES, SLAVES = 6, STEPS = 60000, INPUT = 40000 };

static char directory[] = "/tmp/driver_master_XXXXXX";
static uint64_t now_ns = 1000000000000;
static uint64_t clock_ns(void) { return now_ns; }

struct peer {
    int fd; /* -1: not connected */
    int has_reported;
    uint64_t has;       /* it has the log below this */
    uint8_t input[INPUT];
    uint32_t input_size;
};

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

static void join(rp_master *master, struct peer *peer) {
    int pair[2], small = 4608;
    leave(peer);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    if (rp_master_add(master, pair[1], "a slave") == RP_OK)
        peer->fd = pair[0];
    else {
        close(pair[0]);
        close(pair[1]);
    }
}

static void report(struct peer *peer, uint64_t position, uint32_t size) {
    uint8_t bytes[8];
    rp_store64(bytes, position);
    if (send(peer->fd, bytes, size, MSG_NOSIGNAL) < 0) leave(peer);
}

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

static void read_some(struct peer *peer, uint32_t most) {
    if (most > INPUT - peer->input_size) most = INPUT - peer->input_size;
    ssize_t size = recv(peer->fd, peer->input + peer->input_size, most, 0);
    if (size == 0 || (size < 0 && errno != EAGAIN)) {
        leave(peer);
        return;
    }
    if (size > 0) peer->input_size += (uint32_t)size;
    take_frames(peer);
}

static void act(rp_master *master, struct peer *peer, random_source *random, uint64_t published, uint64_t *truth) {
    uint32_t choice = random_below(random, 100);
    if (peer->fd < 0 || choice == 0) {
        join(master, peer);
    } else if (choice == 1) {
        leave(peer);
    } else if (choice == 2) {
        report(peer, published + 1 + random_below(random, 1000), 8);
    } else if (choice == 3) {
        report(peer, ((uint64_t)random_below(random, UINT32_MAX) << 32) | 0x8000000000000000u, 8);
    } else if (choice == 4) {
        report(peer, 0, 1 + random_below(random, 7)); /* the stream is out of step from here on */
        leave(peer);
    } else if (!peer->has_reported) {
        peer->has_reported = 1;
        peer->has = random_below(random, (uint32_t)published + 1);
        if (peer->has > *truth) *truth = peer->has;
        report(peer, peer->has, 8);
    } else if (choice < 40) {
        if (peer->has > *truth) *truth = peer->has;
        report(peer, peer->has, 8);
    } else {
        read_some(peer, 1 + random_below(random, 9000));
    }
}

static void check_table(const rp_slave_table *table, const rp_control *control, uint64_t truth) {
    CHECK(control->replicated_phy_offset <= truth && truth <= control->published_phy_offset);
    CHECK(table->usable <= SLAVES && table->usable_phy_offset <= truth);
    for (uint32_t i = 0; i < RP_SLAVES_MAX; i++)
        CHECK(table->rows[i].state == RP_SLAVE_FREE || table->rows[i].acked_phy_offset <= truth);
}

static rp_master *open_master(rp_master_config *config) {
    rp_master *master = rp_master_open(config);
    CHECK(master);
    return master;
}

/* The rest of a frame cannot be mapped, and a heartbeat is due: the slave waits for a while, and the loop sleeps. */
static void check_lack_of_descriptors(void) {
    int pair[2], small = 4608;
    uint32_t why;
    static uint8_t input[INPUT];
    rp_slave slave;
    rp_slave_row row = {0};
    rp_slave_rules rules = {.file_size = FILE_SIZE,
                            .frame_max = FILE_SIZE,
                            .heartbeat_ns = 5000000000,
                            .housekeeping_ns = 20000000000,
                            .stall_ns = 30000000000};
    rp_log_view *view = rp_log_view_open(directory, FILE_SIZE, 1);
    CHECK(view && socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    rp_slave_open(&slave, pair[1], &row, now_ns);
    CHECK(send(pair[0], (uint8_t[8]){0}, 8, 0) == 8);
    CHECK(rp_slave_read(&slave, &rules, 0, LOG, now_ns, &why) == RP_OK && slave.has_reported);
    CHECK(rp_slave_write(&slave, &rules, view, LOG, now_ns, &why) == RP_OK && slave.is_blocked);
    CHECK(rp_transfer_is_inside(&slave.transfer));
    rp_log_view_trim(view, LOG); /* nothing is mapped now */
    while (recv(pair[0], input, sizeof input, 0) > 0);
    slave.is_blocked = 0;
    now_ns += (uint64_t)rules.heartbeat_ns;
    struct rlimit before, none = {0};
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none.rlim_max = before.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    uint64_t sent = row.sent_bytes, due;
    CHECK(rp_slave_write(&slave, &rules, view, LOG, now_ns, &why) == RP_OK && row.sent_bytes == sent);
    CHECK((due = rp_slave_due_ns(&slave, &rules, LOG)) > now_ns && due < now_ns + 1000000000);
    CHECK(rp_slave_write(&slave, &rules, view, LOG, due - 1, &why) == RP_OK && row.sent_bytes == sent);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(rp_slave_write(&slave, &rules, view, LOG, due, &why) == RP_OK && row.sent_bytes > sent);
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
    rp_slave_table *table = rp_slave_table_create();
    rp_worker *worker = rp_worker_create(0), *send = rp_worker_create(1);
    CHECK(table && worker && send);
    rp_master_config config = {.worker = worker,
                               .send = send,
                               .block = block,
                               .table = table,
                               .commitlog_directory = directory,
                               .listener = -1,
                               .slaves_max = SLAVES - 1,
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
        act(master, peer, &random, control->published_phy_offset, &truth);
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
    printf("master: %llu connections, %llu bytes sent, %llu replicated of %llu\n", (unsigned long long)table->opened,
           (unsigned long long)table->sent_bytes, (unsigned long long)control->replicated_phy_offset,
           (unsigned long long)control->published_phy_offset);
    for (uint32_t i = 0; i < SLAVES; i++) leave(&peers[i]);
    rp_master_close(master);
    rp_slave_table_destroy(table);
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
