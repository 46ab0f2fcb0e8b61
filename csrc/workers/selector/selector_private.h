#ifndef ROCKETPY_SELECTOR_PRIVATE_H
#define ROCKETPY_SELECTOR_PRIVATE_H
/* The selector, shared by its files. Calls go one way:
 *
 *   selector.c (the loop, waits) -> selector_input.c, selector_output.c
 *   -> selector_limits.c (connections that cost too much) -> selector_connection.c (stalls, TLS, close)
 *   -> throttle.c (pauses, limits of addresses), connection.c */
#include "workers/selector/selector.h"

#include "base/atomic.h"
#include "workers/selector/connection.h"
#include "workers/selector/spin.h"

enum {
    CONNECTIONS_LIMIT = 1 << 24, /* the slot has 24 bits of a connection's number */
    SELECTOR_BUFFER_SIZE = 256 * 1024,
    STOP_S = 5 /* the longest that a selector told to leave waits for its output */
};
#define NS_PER_S 1000000000ull
_Static_assert(sizeof(rp_connection) <= RP_SELECTOR_CONNECTION_SIZE, "the documented cost of an idle connection");

/* The ring into one codec; the frames of a connection go to the same one always. */
typedef struct codec_input {
    rp_ring_writer *writer; /* NULL: the codec is in this process */
    uint32_t first_stalled; /* connections that wait for room in it, in order */
    uint32_t last_stalled;
} codec_input;

/* Connections that are not read for a while, by time (throttle.c). */
enum { RP_WHEEL_SLOTS = 64 };
typedef struct rp_wheel {
    uint32_t first[RP_WHEEL_SLOTS];
    uint32_t last[RP_WHEEL_SLOTS];
    uint32_t count;
    uint64_t tick; /* up to which they were looked at */
} rp_wheel;

struct rp_selector {
    rp_selector_config config; /* with its defaults */
    rp_connections connections;
    codec_input *codec_inputs;
    uint32_t codec_input_count;
    struct rp_codec *codec;
    rp_ring_reader **replies;
    uint32_t reply_count;
    int epoll;
    uint32_t first_dirty;
    uint32_t replies_taken; /* in this turn */
    rp_spin spin;
    rp_wait_kind wait_kind; /* what the next wait is for */
    int is_lone;            /* the last turn that moved something moved one request or reply */
    uint32_t now_s;
    uint64_t now_ns;
    uint64_t stop_ns;  /* when the stop was noticed; 0: serving */
    rp_wheel wheel;
    int is_paused; /* only the rest of half requests is read */
    uint64_t leave_ns; /* when the order to leave was noticed */
    uint32_t acknowledged_slots; /* slots below it have no acknowledged output left to report */
    uint8_t *buffer;
};

static inline void count(rp_selector *selector, uint32_t counter, uint64_t n) {
    rp_add(&selector->config.worker->counters[counter], n);
}

static inline rp_connection *at_slot(rp_selector *selector, uint32_t slot) {
    return &selector->connections.slots[slot];
}

static inline uint32_t slot_of(const rp_selector *selector, const rp_connection *connection) {
    return (uint32_t)(connection - selector->connections.slots);
}

static inline uint64_t number_of(const rp_selector *selector, const rp_connection *connection) {
    return (uint64_t)selector->config.index << 56 | (uint64_t)slot_of(selector, connection) << 32 |
           connection->generation;
}

static inline codec_input *codec_input_of(rp_selector *selector, const rp_connection *connection) {
    return &selector->codec_inputs[slot_of(selector, connection) % selector->codec_input_count];
}

static inline rp_origin origin_of(const rp_selector *selector, const rp_connection *connection, uint64_t received_ns) {
    return (rp_origin){.connection = number_of(selector, connection),
                       .received_ns = received_ns,
                       .peer = connection->peer,
                       .listener = connection->listener};
}

/* selector_connection.c */

/* The open connection with this number, or NULL if it was closed. */
rp_connection *rp_selector_find(rp_selector *selector, uint64_t number);
/* Update the events that epoll reports for the connection. */
void rp_selector_update_interest(rp_selector *selector, rp_connection *connection);
/* Wait for room in the ring to the codec. */
void rp_selector_stall(rp_selector *selector, rp_connection *connection);
/* Other connections wait there already: reading more would be useless. */
int rp_selector_codec_is_full(rp_selector *selector, const rp_connection *connection);
/* Tell the codec that the connection has gone. RP_OK, RP_FULL. */
rp_status rp_selector_pass_closed(rp_selector *selector, const rp_connection *connection);
/* The peer takes no more output (it has closed or reset the connection). Drop the output, and go on reading to the end
 * of what the peer has sent: sends that expect no answer may be among it. */
void rp_selector_end_output(rp_selector *selector, rp_connection *connection);
/* The first byte has come: pass a connection that begins with a TLS handshake to a TLS worker. 1: it is plain or has
 * ended, and is to be read here. 0: there is no byte yet, it was passed on, or it was refused and closed. */
int rp_selector_settle_first_byte(rp_selector *selector, rp_connection *connection);
/* Close with FIN if all output was written, else with a reset, so that the peer does not wait for the rest. */
void rp_selector_close_connection(rp_selector *selector, rp_connection *connection);
void rp_selector_close_socket(int fd, int is_orderly);
/* Make the kernel reset the connection if this process dies (docs/adr/0044). */
void rp_selector_reset_at_death(int fd);

/* selector_input.c */
void rp_selector_read(rp_selector *selector, rp_connection *connection);
/* Read it if the limits of its address allow that now. */
void rp_selector_read_limited(rp_selector *selector, rp_connection *connection);
/* Continue with stalled connections, in the order in which they stalled, while there is room. */
void rp_selector_resume_stalled(rp_selector *selector);

/* selector_limits.c */
/* Close connections that have kept a deleted log file on the disk for too long. Called once per run, because it checks
 * the files. */
void rp_selector_close_pinning(rp_selector *selector);
/* Close idle connections; also those with the oldest incomplete frames or the largest unsent output, while the sum
 * exceeds its limit.
 */
void rp_selector_close_costly(rp_selector *selector);

/* throttle.c */
void rp_wheel_open(rp_wheel *wheel);
uint64_t rp_wheel_due_ns(const rp_wheel *wheel);
/* Count a connection, whose client is known now, in the limits. 0: it is to be closed. */
int rp_selector_join_limits(rp_selector *selector, rp_connection *connection);
/* Count it no more. */
void rp_selector_leave_limits(rp_selector *selector, rp_connection *connection);
/* Do not read it for a while; the caller updates its interest. */
void rp_selector_throttle(rp_selector *selector, rp_connection *connection, uint64_t until_ns);
/* Do not read it for a second at most (1), or read it again (0): while its sends are on the slow path.
 * The caller updates its interest. */
void rp_selector_pause(rp_selector *selector, rp_connection *connection, int is_paused);
/* A connection whose time has come, taken out of those that wait; NULL: there is none. */
rp_connection *rp_selector_next_due(rp_selector *selector);
/* Take what was read or passed on, since the counters of frames and bytes were these, out of the buckets of a row. */
void rp_selector_spend(rp_selector *selector, uint32_t row, uint64_t frames_before, uint64_t bytes_before);

/* selector_output.c */
/* Queue the messages of the reply rings and write them; 1 if a ring still has more. */
int rp_selector_drain_replies(rp_selector *selector);
/* Write queued output, as far as the socket accepts it; may close the connection. */
void rp_selector_flush(rp_selector *selector, rp_connection *connection);
#endif
