#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H
/* A load on a broker: many connections, one thread, pre-encoded requests (docs in load.c). */
#include <stdint.h>

/* LOAD_FILTERED: pulls of a subscription; each queue is followed by the offsets in its answers, one pull at a time. */
enum load_mode { LOAD_SEND = 0, LOAD_PULL = 1, LOAD_END_TO_END = 2, LOAD_FILTERED = 3 };
enum { LOAD_OFFSET_DIGITS_MAX = 10, LOAD_CODES_MAX = 64 };

/* One encoded request and where it is patched; 0 means "no such hole" (no frame starts with one). */
typedef struct load_template {
    const uint8_t *bytes;
    uint32_t size;
    uint32_t opaque_at;        /* 9 decimal digits, or 4 bytes when opaque_is_binary */
    uint32_t opaque_is_binary;
    uint32_t offset_at;        /* pulls: offset_digits decimal digits */
    uint32_t offset_digits;
    uint32_t stamp_at;         /* 8 bytes: the intended send time, big-endian nanoseconds of CLOCK_MONOTONIC */
    uint32_t stamp_step;       /* a batch: from the stamp of one message to that of the next */
    uint32_t messages;         /* a batch holds many */
    uint32_t key_count;
    const uint32_t *key_at;    /* 16 hexadecimal digits each: the tail of a unique message id */
} load_template;

/* END_TRANSACTION (one-way), sent after each acknowledged half message; all numbers are decimal digits of fixed width.
 */
enum { LOAD_END_DIGITS = 19 };
typedef struct load_end {
    const uint8_t *bytes;
    uint32_t size; /* 0: messages are no half messages */
    uint32_t queue_offset_at;
    uint32_t phy_offset_at;
} load_end;

typedef struct load_config {
    const char *host;          /* numeric IPv4 */
    uint32_t port;
    uint32_t mode;             /* LOAD_* */
    uint32_t producers;        /* connections */
    uint32_t consumers;        /* connections */
    uint32_t in_flight;        /* per connection; of an end-to-end consumer: one suspended pull per queue */
    uint32_t queue_count;
    uint32_t pull_count;       /* messages asked for in one pull */
    uint32_t is_tls;           /* 1: by TLS; not with `reconnect` */
    uint32_t reconnect;        /* 1: a lost connection is opened again; 0: it stays lost */
    uint32_t random_pages;     /* 1: LOAD_PULL asks for pages in random order, each once before any comes again */
    uint32_t is_filtered;      /* 1: consumers of LOAD_END_TO_END follow a subscription to a part of the messages */
    uint32_t record_acks;      /* 1: remember every acknowledged send (JSON replies only) */
    int64_t stamp_shift_ns;    /* added to the stamps: the delay of delayed messages, whose lateness counts */
    double rate;               /* requests per second of all producers; 0: closed loop */
    uint64_t requests_max;     /* 0: no limit */
    uint64_t key_first;        /* first unique id tail */
    int64_t timeout_ns;        /* a request without answer for so long is counted and forgotten */
    const load_template *send; /* queue_count templates */
    const load_template *pull; /* queue_count x LOAD_OFFSET_DIGITS_MAX templates, by number of digits */
    load_end end;
    const uint64_t *offsets;   /* per queue; LOAD_END_TO_END: where to begin; other pulls: its end (walked from 0) */
} load_config;

typedef struct load_stats {
    uint64_t requests_sent;
    uint64_t requests_ok;      /* answered with code 0 and, for pulls, a sound body */
    uint64_t requests_failed;  /* answered with another code */
    uint64_t messages_ok;      /* acknowledged, or pulled; end to end: acknowledged */
    uint64_t messages_received;/* end to end: seen by the consumer */
    uint64_t bytes_received;   /* message records in pull replies */
    uint64_t bad_replies;      /* pull replies whose records are torn, out of order or not what was asked for */
    uint64_t short_replies;    /* pulls answered with fewer messages than asked for and available */
    uint64_t empty_replies;    /* suspended pulls whose time was over */
    uint64_t units_passed;     /* filtered pulls, end to end: queue offsets that the answers moved on by */
    uint64_t timeouts;
    uint64_t unmatched;        /* answers to nothing: late ones after a timeout */
    uint64_t connections_lost;
    uint64_t requests_lost;    /* in flight on a connection when it was lost */
    uint64_t gap_max_ns;       /* longest time between two successes, of all connections together */
    uint64_t code_count;
    int32_t codes[64];         /* error codes seen, and how often */
    uint64_t code_counts[64];
} load_stats;

typedef struct load_ack {
    uint64_t key;
    uint64_t queue_offset;
    uint32_t queue;
    uint32_t reserved;
} load_ack;

typedef struct load_connection_stats {
    uint64_t ok;
    uint64_t gap_max_ns;
    uint64_t lost; /* how often the connection was lost */
} load_connection_stats;

enum load_result { LOAD_RUNNING = 0, LOAD_DONE = 1, LOAD_STOPPED = 2, LOAD_DEAD = -1, LOAD_FAULT = -2 };

typedef struct load load;

/* Connect everything. NULL with errno. The templates, keys and offsets stay the caller's and are read until close. */
load *load_open(const load_config *config);
void load_close(load *l);
/* Run until `until_ns` (CLOCK_MONOTONIC). With `drain`, send nothing new and return once all is answered.
 * LOAD_RUNNING time is up; LOAD_DONE nothing is left to do; LOAD_STOPPED; LOAD_DEAD every connection is lost and
 * stays so; LOAD_FAULT with errno. */
int load_run(load *l, int64_t until_ns, int drain);
/* From any thread: have load_run return, now and when it is called again (1), or no more (0). */
void load_stop(load *l, uint32_t stop);
/* From any thread while load_run runs: messages so far (acknowledged or pulled), and error replies so far. */
uint64_t load_messages(const load *l);
uint64_t load_errors(const load *l);
/* Forget counters and histograms, keep what is in flight: the end of a warm-up. */
void load_reset(load *l);
void load_stats_get(const load *l, load_stats *stats);
void load_connection_stats_get(const load *l, uint32_t index, load_connection_stats *stats);
const load_ack *load_acks(const load *l, uint64_t *count);
int64_t load_now_ns(void);

/* The histograms: which 0 request latency, 1 end to end. Values in ns: bucket i counts values in
 * [load_bucket_low(i), load_bucket_low(i + 1)). */
uint32_t load_bucket_count(void);
uint64_t load_bucket_low(uint32_t bucket);
const uint64_t *load_histogram(const load *l, uint32_t which);
uint64_t load_histogram_max_ns(const load *l, uint32_t which);

/* What the loop does with one frame, callable for tests: patch, and read an answer's head. 0 or -1. */
void load_patch(const load_template *t, uint8_t *frame, uint32_t opaque, uint64_t key, uint64_t offset,
                int64_t stamp_ns);
int load_read_head(const uint8_t *frame, uint32_t size, int32_t *code, uint32_t *opaque);
uint32_t load_bucket(uint64_t value_ns);

/* Pages of a file of `size` bytes that are in the page cache; -1 with errno. */
int64_t load_cached_pages(const char *path, uint64_t size);
#endif
