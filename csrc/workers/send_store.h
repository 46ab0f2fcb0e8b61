#ifndef ROCKETPY_SEND_STORE_H
#define ROCKETPY_SEND_STORE_H
/* From a send request to records in the log. C only; used by the send processor alone. */
#include <stdint.h>
#include "store/commitlog.h"
#include "store/delivered.h"
#include "store/record.h"
#include "ipc/worker_messages.h"

enum { RP_BATCH_ENTRY_MIN = 22, RP_TRANSACTION_BITS = 0xC, RP_TRANSACTION_PREPARED = 4, RP_TRANSACTION_ROLLBACK = 0xC };

/* A request laid open; pointers into its message between workers. */
typedef struct rp_put {
    const rp_send_request *request;
    const uint8_t *topic;
    const uint8_t *properties;
    const uint8_t *body;
    const char *cluster_property; /* or NULL */
    rp_queue *queue;
    int32_t queue_id;
    int32_t extra_sys_flag;       /* MULTI_TAGS of the topic */
    int is_delivery;
    rp_delivery delivery;         /* which one, if it is */
    rp_host store_host;
    int64_t store_timestamp_ms;
} rp_put;

typedef struct rp_stored {
    uint64_t phy_offset;      /* of the first record */
    uint64_t end_phy_offset;  /* behind the last */
    uint64_t queue_offset;    /* of the first record */
    uint32_t size;            /* bytes of all records */
    uint32_t message_count;
    const uint8_t *records;   /* in the log; valid until the next append */
} rp_stored;

/* Called when the records are complete and about to be published, with everything in `stored` set. */
typedef void (*rp_before_publish)(void *context, const rp_put *put, const rp_stored *stored);

/* Lay the SEND record at `data` open; `put` borrows it. 0 if its sizes do not add up to `size`. */
int rp_put_open(const uint8_t *data, uint32_t size, rp_put *put);
/* How many messages the request holds: 1, or the entries of a batch; 0 if the batch is malformed or empty, or some
 * record would be beyond the format's limits. *total is the size of all records in bytes. */
uint32_t rp_put_measure(const rp_put *put, uint64_t *total);
/* Append all its messages, all or none. RP_OK, or what rp_commitlog_reserve says. `total` is from rp_put_measure. */
rp_status rp_put_append(rp_commitlog *log, const rp_put *put, uint64_t total, uint32_t count,
                        rp_before_publish before_publish, void *context, rp_stored *stored);
enum { RP_MESSAGE_ID_MAX = 57 }; /* bytes of one id and its comma */
/* Comma-joined offset message ids of what was stored; `out` has room for RP_MESSAGE_ID_MAX each. Returns the size. */
uint32_t rp_put_message_ids(const rp_put *put, const rp_stored *stored, uint8_t *out);
#endif
