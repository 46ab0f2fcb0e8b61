#ifndef ROCKETPY_TRANSACTION_MESSAGES_H
#define ROCKETPY_TRANSACTION_MESSAGES_H
/* END_TRANSACTION on its way to the send worker, from codecs and from the manager (worker_messages.h). */
#include <stdint.h>
#include "ipc/worker_messages.h"

/* What is to be done with a half message. COMMIT and ROLLBACK are commitOrRollback of the request; the others come from
 * the manager alone. */
enum {
    RP_END_DISCARD = 1, /* store it in TRANS_CHECK_MAX_TIME_TOPIC */
    RP_END_UNREADABLE = 2, /* end it without a look at its record */
    RP_END_RENEW = 3, /* store it again at the end of the half queue: it stays open there */
    RP_END_COMMIT = 8,
    RP_END_ROLLBACK = 12
};
typedef struct rp_msg_end_transaction {
    rp_origin origin;
    int32_t opaque;
    int32_t code;
    int32_t version;
    uint32_t flags; /* RP_REQUEST_ONEWAY, RP_REQUEST_ROCKETMQ */
    int32_t action; /* RP_END_*; any other value: nothing is done, and nothing answered */
    uint32_t group_size;
    int64_t queue_offset; /* of the half message: tranStateTableOffset */
    int64_t phy_offset; /* of the half message: commitLogOffset */
    uint64_t token; /* of a request of the manager: returned in PUT_RESULT */
    /* producer group */
} rp_msg_end_transaction;
#endif
