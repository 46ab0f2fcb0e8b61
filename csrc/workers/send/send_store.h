#ifndef ROCKETPY_SEND_STORE_H
#define ROCKETPY_SEND_STORE_H
/* Stores a send request as records in the log. C only; used by the send worker. */
#include <stdint.h>
#include "ipc/worker_messages.h"
#include "store/log/commitlog.h"
#include "store/log/record.h"
#include "store/timers/delivery_marks.h"

enum {
    RP_BATCH_ENTRY_MIN = 22,
    RP_BATCH_ENTRIES_MAX = 1 << 15 /* of a batch: no other send is served while it is stored */
};

/* A parsed SEND message; its pointers point into the message. */
typedef struct rp_put {
    const rp_msg_send *request;
    const uint8_t *topic;
    const uint8_t *properties;
    const uint8_t *body;
    const uint8_t *properties_tail; /* added by the broker; or NULL */
    uint32_t topic_size;
    uint32_t properties_tail_size;
    rp_queue *queue;
    int32_t queue_id;
    int32_t answer_queue_id;      /* for the reply: the queue that the client asked for */
    int32_t extra_sys_flag;       /* MULTI_TAGS of the topic */
    int32_t dropped_sys_flag;     /* the transaction bits of a half message */
    int is_delivery;
    rp_delivery delivery;         /* the delayed message, if the put is a delivery */
    int ends_timer;
    uint64_t timer;               /* number of the timer that it cancels or moves */
    rp_host store_host;
    int64_t store_timestamp_ms;
} rp_put;

typedef struct rp_stored {
    uint64_t phy_offset;      /* of the first record */
    uint64_t end_phy_offset;  /* after the last */
    uint64_t queue_offset;    /* of the first record */
    uint32_t size;            /* bytes of all records */
    uint32_t message_count;
    const uint8_t *records;   /* in the log; valid until the next append */
} rp_stored;

/* Called when the records are complete and before they are published; all fields of `stored` are set. */
typedef void (*rp_before_publish)(void *context, const rp_put *put, const rp_stored *stored);

/* Parse the SEND message at `data`; `put` borrows it. 0 if its sizes do not add up to `size`. */
int rp_put_open(const uint8_t *data, uint32_t size, rp_put *put);
/* Number of messages in the request: 1, or the entries of a batch; 0 if the batch is malformed or empty, or if a record
 * would exceed the limits of the format. *total is the size of all records in bytes. A batch of more than
 * RP_BATCH_ENTRIES_MAX counts one more than that, and is measured no further. */
uint32_t rp_put_measure(const rp_put *put, uint64_t *total);
/* Append all its messages or none. RP_OK, or the status of rp_commitlog_reserve. `total` is from rp_put_measure. */
rp_status rp_put_append(rp_commitlog *log, const rp_put *put, uint64_t total, uint32_t count,
                        rp_before_publish before_publish, void *context, rp_stored *stored);
enum { RP_MESSAGE_ID_MAX = 57 }; /* bytes of one id and its comma */
/* The comma-joined message ids of the stored messages; `out` has room for RP_MESSAGE_ID_MAX each. Returns the size. */
uint32_t rp_put_message_ids(const rp_put *put, const rp_stored *stored, uint8_t *out);
#endif
