/* The selector under sanitizers: many clients over socket pairs send good frames cut anywhere, garbage, half frames,
 * and go; replies of all sizes come back, late ones too; clients read slowly or not at all; the codec ring is small.
 * One thread turns everything, from one seed. Invariants (abort): frames arrive whole, in order, once; CLOSED follows
 * each connection that sent one, exactly once; they are those of whom the connection's PROXY header names; what a
 * client receives is a prefix of what was replied to it; every connection goes in the end. driver_selector [TURNS
 * [SEED]] */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/endian.h"
#include "store/log/log_view.h"
#include "workers/selector/selector.h"
#include "check.h"
#include "handoff.h"
#include "shared_memory.h"

enum { CLIENTS = 48, NUMBERS = 1 << 20, LOG_SIZE = 1 << 20 };

struct client {
    int fd;
    uint64_t connection;      /* 0 until the first frame came through */
    uint32_t sent, seen;      /* frames sent whole; frames that the codec got */
    int is_bad;               /* has sent garbage: nothing is expected any more */
    uint8_t *out;             /* bytes of a frame that is being sent */
    uint32_t out_size, out_at;
    uint64_t replied, read;   /* bytes of the reply stream */
    int reads;                /* whether it reads at all */
    int is_header;            /* what is being sent is the PROXY header */
};

struct world {
    rp_worker *worker, *codec, *processor;
    rp_ring *frames, *replies;
    rp_ring_reader *reader;
    rp_ring_writer *writer;
    rp_selector *selector;
    rp_log_view *view;
    int handoff[2];
    uint64_t random;
    uint32_t next_name, opened, closed_seen;
    struct client clients[CLIENTS];
    uint64_t greeted[CLIENTS];      /* by slot: the connection that has sent frames and is not closed */
    struct client *owners[NUMBERS]; /* by the name that is in each frame */
    uint8_t *log;
};

static uint64_t draw(struct world *world, uint64_t below) {
    world->random ^= world->random << 13;
    world->random ^= world->random >> 7;
    world->random ^= world->random << 17;
    return world->random % below;
}

/* Byte `at` of every reply stream: what a client reads can be checked without keeping it. */
static uint8_t pattern(uint64_t at) { return (uint8_t)(at * 31 + (at >> 8)); }

static void open_client(struct world *world, struct client *client) {
    int pair[2];
    uint8_t listener = (uint8_t)draw(world, 2);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    int small = 4096;
    CHECK(setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0);
    CHECK(fcntl(pair[1], F_SETFL, O_NONBLOCK) == 0);
    hand_over(world->handoff[0], pair[0], listener);
    static const char line[] = "PROXY TCP4 192.0.2.7 10.0.0.1 51234 10911\r\n";
    static const char binary[] = "\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0C\xC0\0\2\7\x0A\0\0\1\xC8\x22\x2A\x9F";
    int first = draw(world, 2) == 0;
    *client = (struct client){.fd = pair[1], .reads = draw(world, 4) != 0, .is_header = 1};
    client->out_size = (uint32_t)(first ? sizeof line : sizeof binary) - 1;
    client->out = exact_copy(first ? line : binary, client->out_size);
    world->opened++;
}

static void forget(struct world *world, struct client *client) {
    if (client->fd >= 0) close(client->fd);
    free(client->out);
    for (uint32_t name = 0; name < world->next_name; name++)
        if (world->owners[name] == client) world->owners[name] = NULL;
    *client = (struct client){.fd = -1};
}

/* A frame: JSON, header of 2 bytes, body = name(4) number(4) filler. */
static void next_frame(struct world *world, struct client *client) {
    static const uint32_t fillers[] = {0, 1, 30, 300, 3000, 20000, 70000, 400000};
    uint32_t filler = fillers[draw(world, sizeof fillers / sizeof *fillers)];
    uint32_t size = 4 + 4 + 2 + 8 + filler;
    if (world->next_name == NUMBERS) return;
    uint8_t *frame = malloc(size);
    CHECK(frame);
    rp_store32(frame, size - 4);
    rp_store32(frame + 4, 2);
    memcpy(frame + 8, "{}", 2);
    rp_store32(frame + 10, world->next_name);
    rp_store32(frame + 14, client->sent);
    memset(frame + 18, (int)(client->sent & 0xFF), filler);
    world->owners[world->next_name++] = client;
    client->out = frame;
    client->out_size = size;
    client->out_at = 0;
}

static void speak(struct world *world, struct client *client) {
    if (client->is_bad) return;
    if ((client->out == NULL || client->out_at == 0) && draw(world, 200) == 0) {
        static const char garbage[][9] = {"\x16\x03\x01\x02", "GET / HT", "\0\0\0\0\0\0\0\0", "\0\xFF\xFF\xFF",
                                          "\0\0\0\x08\0\0\0\x09"};
        (void)!write(client->fd, garbage[draw(world, 5)], 8);
        client->is_bad = 1;
        return;
    }
    if (client->out == NULL) next_frame(world, client);
    if (client->out == NULL) return;
    uint32_t rest = client->out_size - client->out_at;
    uint32_t piece = draw(world, 3) == 0 ? 1 + (uint32_t)draw(world, rest) : rest;
    ssize_t went = write(client->fd, client->out + client->out_at, piece);
    if (went > 0) client->out_at += (uint32_t)went;
    if (client->out_at == client->out_size) {
        client->sent += !client->is_header;
        client->is_header = 0;
        free(client->out);
        client->out = NULL;
    }
}

static void listen_to(struct client *client) {
    uint8_t bytes[8192];
    ssize_t got = read(client->fd, bytes, sizeof bytes);
    for (ssize_t i = 0; i < got; i++) CHECK(bytes[i] == pattern(client->read++));
    CHECK(client->read <= client->replied);
}

static void reply(struct world *world, struct client *client, uint64_t connection) {
    static const uint32_t sizes[] = {1, 100, 250, 2100, 9000, 66000, 300000};
    uint32_t size = sizes[draw(world, sizeof sizes / sizeof *sizes)];
    uint64_t at = client->replied;
    uint8_t *bytes = malloc(size);
    CHECK(bytes);
    for (uint32_t i = 0; i < size; i++) bytes[i] = pattern(at + i);
    if (size > 200 && draw(world, 2)) { /* the tail of it from the log, in two slices */
        uint32_t body = size - 100, base = (uint32_t)draw(world, LOG_SIZE - body);
        memcpy(world->log + base, bytes + 100, body);
        rp_msg_pull_reply head = {.connection = connection, .head_size = 100, .slice_count = 2};
        rp_slice slices[2] = {{base, body / 2}, {base + body / 2, body - body / 2}};
        rp_span spans[3] = {{&head, sizeof head}, {slices, sizeof slices}, {bytes, 100}};
        /* Queued slices point into the log: only a client without any may get others, as the log is rewritten here. */
        if (client->read == client->replied && rp_ring_write(world->writer, RP_MSG_PULL_REPLY, spans, 3) == RP_OK) {
            client->replied += size;
            while (rp_ring_pump(world->writer) != RP_OK) CHECK(rp_selector_run(world->selector, 0) == RP_OK);
            for (int i = 0; client->read < client->replied && i < 100000; i++) {
                CHECK(rp_selector_run(world->selector, 0) == RP_OK);
                listen_to(client);
            }
        }
    } else {
        rp_msg_reply head = {.connection = connection, .size = size};
        rp_span spans[2] = {{&head, sizeof head}, {bytes, size}};
        if (rp_ring_write(world->writer, RP_MSG_REPLY, spans, 2) == RP_OK) client->replied += size;
    }
    free(bytes);
}

/* Have the selector pause or resume a connection, as the send worker does. */
static void steer(struct world *world, const struct client *client) {
    rp_msg_reply order = {.connection = client->connection,
                          .flags = draw(world, 8) == 0 ? RP_REPLY_PAUSE : RP_REPLY_RESUME};
    rp_span span = {&order, sizeof order};
    (void)rp_ring_write(world->writer, RP_MSG_REPLY, &span, 1);
}

static void take_frame(struct world *world, const rp_origin *origin, const uint8_t *frame, uint32_t size) {
    CHECK(size >= 14);
    struct client *client = world->owners[rp_load32(frame + 6)];
    if (client == NULL) return; /* the client has gone meanwhile */
    CHECK(rp_load32(frame + 10) == client->seen);
    for (uint32_t i = 14; i < size; i++) CHECK(frame[i] == (uint8_t)client->seen);
    CHECK(client->connection == 0 || client->connection == origin->connection);
    client->connection = origin->connection;
    client->seen++;
    if (draw(world, 2)) reply(world, client, origin->connection);
}

static void play_codec(struct world *world, uint32_t records_max) {
    const uint8_t *data;
    uint32_t size;
    uint16_t type;
    while (records_max-- > 0 && rp_ring_read(world->reader, &data, &size, &type) == RP_OK) {
        rp_origin origin;
        CHECK(size >= sizeof origin);
        memcpy(&origin, data, sizeof origin);
        uint64_t *greeted = &world->greeted[origin.connection >> 32 & 0xFFFFFF];
        CHECK((origin.connection >> 32 & 0xFFFFFF) < CLIENTS && origin.connection >> 56 == 1);
        CHECK(origin.peer.port == 51234 && memcmp(origin.peer.address, "\xC0\0\2\7", 4) == 0);
        if (type == RP_MSG_FRAME) {
            CHECK(*greeted == 0 || *greeted == origin.connection);
            *greeted = origin.connection;
            take_frame(world, &origin, data + sizeof origin, size - (uint32_t)sizeof origin);
        } else {
            CHECK(type == RP_MSG_CLOSED && size == sizeof origin && *greeted == origin.connection);
            *greeted = 0;
            world->closed_seen++;
        }
        rp_ring_release(world->reader);
    }
}

static void open_world(struct world *world, const char *directory, uint64_t seed) {
    char path[256];
    world->random = seed * 2 + 1;
    CHECK(world->worker = create_worker(0));
    CHECK(world->codec = create_worker(1));
    CHECK(world->processor = create_worker(2));
    CHECK(world->frames = rp_ring_create(65536, world->worker, world->codec));
    CHECK(world->replies = rp_ring_create(262144, world->processor, world->worker));
    CHECK(world->reader = rp_ring_reader_open(world->frames));
    CHECK(world->writer = rp_ring_writer_open(world->replies));
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, world->handoff) == 0);
    snprintf(path, sizeof path, "%s/%020d", directory, 0);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && ftruncate(fd, LOG_SIZE) == 0);
    world->log = mmap(NULL, LOG_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(world->log != MAP_FAILED);
    close(fd);
    CHECK(world->view = rp_log_view_open(directory, LOG_SIZE, 4));
    static rp_network everybody = {.bits = 0}; /* borrowed; unix sockets: all of them speak for others */
    rp_selector_config config = {.worker = world->worker,
                                 .index = 1,
                                 .handoff = world->handoff[1],
                                 .reply_count = 1,
                                 .codec_count = 1,
                                 .replies = &world->replies,
                                 .codecs = &world->frames,
                                 .log = world->view,
                                 .connections_max = CLIENTS,
                                 .high_water_bytes = 100000,
                                 .proxy_count = 1,
                                 .proxies = &everybody};
    CHECK(world->selector = rp_selector_open(&config));
    for (int i = 0; i < CLIENTS; i++) world->clients[i].fd = -1;
}

static void close_world(struct world *world) {
    rp_selector_close(world->selector);
    rp_log_view_close(world->view);
    munmap(world->log, LOG_SIZE);
    rp_ring_reader_close(world->reader);
    rp_ring_writer_close(world->writer);
    remove_ring(world->frames);
    remove_ring(world->replies);
    close(world->handoff[0]);
    close(world->handoff[1]);
    rp_worker *workers[] = {world->worker, world->codec, world->processor};
    for (int i = 0; i < 3; i++) remove_worker(workers[i]);
}

static void turn(struct world *world) {
    struct client *client = &world->clients[draw(world, CLIENTS)];
    if (client->fd < 0)
        open_client(world, client);
    else if (draw(world, 150) == 0)
        forget(world, client);
    else
        speak(world, client);
    steer(world, &world->clients[draw(world, CLIENTS)]);
    for (int i = 0; i < CLIENTS; i++)
        if (world->clients[i].fd >= 0 && world->clients[i].reads) listen_to(&world->clients[i]);
    CHECK(rp_selector_run(world->selector, 0) == RP_OK);
    rp_ring_pump(world->writer);
    rp_ring_wake(world->writer);
    if (draw(world, 3) == 0) play_codec(world, (uint32_t)draw(world, 40));
}

/* 1: no connection is open, and the codec was told of each. A full ring keeps CLOSED back when the socket is closed. */
static int is_done(const struct world *world) {
    for (int slot = 0; slot < CLIENTS; slot++)
        if (world->greeted[slot] != 0) return 0;
    return rp_selector_connection_count(world->selector) == 0;
}

int main(int argc, char **argv) {
    uint64_t turns = argc > 1 ? strtoull(argv[1], NULL, 10) : 20000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    char directory[] = "/tmp/driver_selector.XXXXXX", path[256];
    struct world *world = calloc(1, sizeof *world);
    signal(SIGPIPE, SIG_IGN); /* clients write to connections that were closed for their garbage */
    CHECK(world && mkdtemp(directory));
    open_world(world, directory, seed);
    for (uint64_t i = 0; i < turns; i++) turn(world);
    for (int i = 0; i < CLIENTS; i++) forget(world, &world->clients[i]);
    for (int i = 0; i < 10000 && (i < 100 || !is_done(world)); i++) {
        CHECK(rp_selector_run(world->selector, i < 100 ? 0 : 1000000) == RP_OK); /* pauses end */
        rp_ring_pump(world->writer);
        play_codec(world, 1000);
    }
    CHECK(is_done(world));
    uint64_t *counters = world->worker->counters;
    CHECK(counters[RP_COUNT_CONNECTIONS_OPENED] + counters[RP_COUNT_CONNECTIONS_REFUSED] == world->opened);
    CHECK(counters[RP_COUNT_CONNECTIONS_CLOSED] == counters[RP_COUNT_CONNECTIONS_OPENED]);
    printf("seed %llu: %llu frames, %llu replies, %u connections, %u closed told, %llu bad, %llu stalls: ok\n",
           (unsigned long long)seed, (unsigned long long)counters[RP_COUNT_FRAMES_IN],
           (unsigned long long)counters[RP_COUNT_FRAMES_OUT], world->opened, world->closed_seen,
           (unsigned long long)counters[RP_COUNT_FRAMES_BAD], (unsigned long long)counters[RP_COUNT_STALLS]);
    close_world(world);
    snprintf(path, sizeof path, "%s/%020d", directory, 0);
    unlink(path);
    rmdir(directory);
    free(world);
    return 0;
}
