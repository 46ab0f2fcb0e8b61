#ifndef ROCKETPY_WORKER_MESSAGES_H
#define ROCKETPY_WORKER_MESSAGES_H
/* Messages between workers, which cross the rings. Native byte order; every message begins with one of the structs
 * below, followed by its strings back to back. docs/understand/architecture.md shows the workers. */
#include "base/host.h"
#include "ipc/filter_messages.h"
#include "ipc/ring.h"
#include "ipc/worker_counters.h"

/* Types of messages: who sends one to whom, its struct if that has another name, and what the receiver does. */
enum {
    /* selector -> codec: a frame as it was received; the codec reads its header and says whom it is for */
    RP_MSG_FRAME = 1,
    /* selector -> codec -> pull, manager: a connection is gone; forget what waits for it */
    RP_MSG_CLOSED = 2,
    /* codec -> manager, query: a frame that is no send or pull; serve it */
    RP_MSG_COMMAND = 3,
    /* codec -> send: append it and reply; if it needs a decision, the manager gets it first, and hands it back with
     * RP_REQUEST_RESOLVED */
    RP_MSG_SEND = 4,
    /* codec -> pull: reply with messages, or suspend it; if it needs a decision, likewise */
    RP_MSG_PULL = 5,
    /* any -> selector: write this frame to the connection */
    RP_MSG_REPLY = 6,
    /* pull -> selector: the same with slices of the log for a body */
    RP_MSG_PULL_REPLY = 7,
    /* send -> manager: what became of an internal put, by its token */
    RP_MSG_PUT_RESULT = 8,
    /* pull -> manager: a pull carried an offset; store it */
    RP_MSG_COMMIT_OFFSET = 9,
    /* store -> pull: a queue that is watched has new messages; look at its suspended pulls again */
    RP_MSG_ARRIVAL = 10,
    /* manager -> send, pull: an entry of a table, new, changed or removed */
    RP_MSG_TOPIC = 11,
    RP_MSG_GROUP = 12,
    RP_MSG_SUBSCRIPTION = 13,
    /* manager -> send, pull, store: the tables are whole; before, decide nothing by them */
    RP_MSG_TABLES_END = 14,
    /* manager -> send, pull: settings that hold for all topics */
    RP_MSG_BROKER = 15,
    /* manager -> store: drop the topic's queues, then answer CLEANED */
    RP_MSG_CLEAN_TOPIC = 16,
    /* store -> manager: rp_msg_clean_topic: that is done */
    RP_MSG_CLEANED = 17,
    /* manager -> send: a SEND of the slow path has been completed; later ones of its connection may follow */
    RP_MSG_COMPLETED = 18,
    /* manager -> store: rp_msg_clean_topic: drop the files of queues whose records are all gone, then answer CLEANED */
    RP_MSG_CLEAN_EXPIRED = 19,
    /* manager -> store: `key=value` lines of what was changed at run time */
    RP_MSG_SETTINGS = 20,
    /* manager -> send: answer the end of the log, as a PUT_RESULT with this token */
    RP_MSG_POSITION = 21,
    /* send, pull -> manager: sums of a queue, for statistics */
    RP_MSG_TRAFFIC = 22,
    /* store -> send: deliver or renew this timer, unless timer_marks.h says that it has ended */
    RP_MSG_TIMER = 23,
    /* codec, manager -> send: commit, roll back or discard a half message, and reply */
    RP_MSG_END_TRANSACTION = 24,
    /* manager -> pull: a SQL92 expression, before a PULL that brings it */
    RP_MSG_EXPRESSION = 25,
    /* manager -> store: a subscription for which filter bits are written */
    RP_MSG_FILTER = 26,
    /* codec -> manager: the COMMAND of a heartbeat; it is not urgent */
    RP_MSG_HEARTBEAT = 27 | RP_RING_UNHURRIED,
    /* replicator -> send: bytes of the master's log; append them */
    RP_MSG_LOG = 28,
    /* manager -> send: deliver these delayed messages, and answer a PUT_RESULT with this token */
    RP_MSG_DELIVER = 29,
    /* send, pull -> manager: a request was answered; write its line of the request log */
    RP_MSG_SERVED = 30
};

/* Where a request came from. connection = selector index << 56 | slot << 32 | generation; a reply with an old
 * generation is dropped by the selector. The generation is the selector's epoch << RP_GENERATION_BITS | uses of the
 * slot. A selector that dies sends no CLOSED; by the epoch, other workers recognise its connections.
 * RP_CONNECTION_INTERNAL: the request was made by the manager; the answer is a PUT_RESULT.
 * RP_CONNECTION_TIMER: only in rp_worker.serving and suspect, for a TIMER. */
#define RP_CONNECTION_INTERNAL 0xFF00000000000000ull
#define RP_CONNECTION_TIMER 0xFF00000000000001ull
enum { RP_GENERATION_BITS = 20, RP_EPOCH_MASK = 0xFFF };
typedef struct rp_origin {
    uint64_t connection;
    uint64_t received_ns; /* CLOCK_MONOTONIC when the selector had received the whole frame */
    rp_host peer;
    uint32_t listener; /* 0 main port, 1 VIP port (listenPort - 2) */
} rp_origin;

/* FRAME, COMMAND, HEARTBEAT: rp_origin, then the frame without its 4 length bytes. CLOSED: rp_origin alone. */

enum { /* rp_msg_send.flags, rp_msg_pull.flags */
       RP_REQUEST_ONEWAY = 1,
       RP_REQUEST_ROCKETMQ = 2, /* answer in the ROCKETMQ serialisation */
       RP_REQUEST_BATCH = 4,
       RP_REQUEST_NO_WAIT = 8, /* WAIT=false: answer without waiting for flush or slave */
       RP_REQUEST_SPECIAL = 16, /* for the manager to validate: %RETRY%, a batch in a transaction, a change of a timer,
                                   DELAY with HALF or TIMER */
       RP_REQUEST_RESOLVED = 32, /* from the manager: checked and changed where needed; append unchanged */
       RP_REQUEST_HAS_MAX_RECONSUME = 64,
       RP_REQUEST_FIRST_TRY_DONE = 128, /* pull: do not suspend again, do not commit again */
       RP_REQUEST_ADD_CLUSTER = 256, /* send: append the CLUSTER property; set by the codec, cleared by a rewrite */
       RP_REQUEST_DELIVERY = 512, /* internal put: an rp_delivery (delivery_marks.h) stands in the group's place */
       RP_REQUEST_HAS_WAIT = 1024, /* send: the client gave WAIT, whatever its value */
       RP_REQUEST_HALF = 2048, /* send: a half message (TRAN_MSG=true), which is stored in the half queue */
       RP_REQUEST_END = 4096, /* of an END_TRANSACTION whose reply waits for the disk (send_private.h) */
       RP_REQUEST_TIMER = 8192, /* send: it has a property that makes it a timer (send_timer.h) */
       RP_REQUEST_ENDS_TIMER = 16384, /* internal put: ends the timer whose number stands in the group's place */
       RP_REQUEST_UNCHECKED = 32768, /* for access control; descriptor and header of the frame, and the body
                                        of a pull, stand behind the strings */
       RP_REQUEST_COUNTED = 65536, /* with it: the limits of its account have it already */
       RP_REQUEST_DELAY = 131072 /* send: it has a delay level (send_delay.h) */
};

/* A bit of rp_msg_send.version: the manager of another member has passed the send on to here; it goes no further. */
enum { RP_VERSION_PASSED_ON = 0x40000000 };

typedef struct rp_msg_send {
    rp_origin origin; /* peer is the born host */
    int32_t opaque;
    int32_t code;
    int32_t version;
    uint32_t flags;
    int32_t queue_id;
    int32_t sys_flag;
    int32_t message_flag;
    int32_t reconsume_times;
    int32_t max_reconsume_times;
    int32_t default_topic_queue_nums;
    int64_t born_timestamp_ms;
    int64_t prepared_transaction_offset;
    uint64_t token; /* of an internal put: returned in PUT_RESULT; of a send on the slow path: in COMPLETED */
    uint32_t topic_size;
    uint32_t group_size;
    uint32_t default_topic_size;
    uint32_t properties_size; /* without WAIT; CLUSTER is appended where ADD_CLUSTER says so */
    uint32_t body_size;
    uint32_t unit_mode;
    /* topic, producer group, default topic, properties, body */
} rp_msg_send;

typedef struct rp_msg_pull {
    rp_origin origin;
    int32_t opaque;
    int32_t code;
    int32_t version;
    uint32_t flags;
    int32_t queue_id;
    int32_t max_msg_nums;
    int32_t sys_flag;
    int32_t reserved;
    int64_t queue_offset;
    int64_t commit_offset;
    int64_t sub_version;
    int64_t suspend_timeout_ms;
    uint32_t group_size;
    uint32_t topic_size;
    uint32_t subscription_size;
    uint32_t expression_type_size;
    /* consumer group, topic, subscription, expression type */
} rp_msg_pull;

typedef struct rp_msg_position {
    uint64_t token; /* returned in PUT_RESULT */
} rp_msg_position;

typedef struct rp_msg_completed {
    rp_origin origin;
    uint64_t token;
} rp_msg_completed;

/* All table entries have been sent. For the send worker also: its sends at ring positions below `sends_from` were lost
 * with the previous manager and will not be completed. The send worker with this `epoch` has no sends of a previous
 * send worker at the manager. */
typedef struct rp_msg_tables_end {
    uint64_t sends_from;
    uint32_t epoch; /* of the receiving worker; 0: it may still have some */
    uint32_t reserved;
} rp_msg_tables_end;

/* A frame for a connection: rp_msg_reply, then the whole frame. PAUSE and RESUME come without one. */
enum { /* rp_msg_reply.flags */
       RP_REPLY_CLOSE_AFTER = 1,
       RP_REPLY_PAUSE = 2, /* do not read the connection until RESUME, or for a second (throttle.c) */
       RP_REPLY_RESUME = 4
};
typedef struct rp_msg_reply {
    uint64_t connection;
    uint32_t flags;
    uint32_t size;
} rp_msg_reply;

/* A frame whose body lies in the CommitLog: rp_msg_pull_reply, `slice_count` slices, then the frame's head. */
typedef struct rp_slice {
    uint64_t phy_offset;
    uint64_t size; /* bytes; a slice lies in one file */
} rp_slice;
typedef struct rp_msg_pull_reply {
    uint64_t connection;
    uint32_t head_size;
    uint32_t slice_count;
    uint32_t message_count;
    uint32_t reserved;
} rp_msg_pull_reply;

enum { /* rp_msg_put_result.timer_state: what had become of a timer before the put that was to end it */
       RP_TIMER_STATE_PENDING = 0, /* nothing; also of a put that ends no timer */
       RP_TIMER_STATE_GONE = 1, /* it was delivered, or there is none with this number */
       RP_TIMER_STATE_CHANGED = 2, /* it was cancelled or moved lately */
       RP_TIMER_STATE_RENEWED = 3 /* it was stored again lately, under another number */
};
typedef struct rp_msg_put_result {
    uint64_t token;
    uint64_t phy_offset;
    uint64_t queue_offset;
    int64_t store_timestamp_ms;
    int32_t code; /* RP_RESPONSE_*; of a DELIVER as rp_due says. SUCCESS, FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE,
                     FLUSH_SLAVE_TIMEOUT: stored. MESSAGE_ILLEGAL, TOPIC_NOT_EXIST: refused for good. QUERY_NOT_FOUND:
                     the timer that it was to end is not pending. Any other: may be tried again */
    int32_t queue_id;
    uint32_t size;
    uint32_t timer_state; /* RP_TIMER_STATE_* */
} rp_msg_put_result;

typedef struct rp_msg_commit_offset {
    int64_t offset;
    int32_t queue_id;
    uint32_t group_size;
    uint32_t topic_size;
    uint32_t reserved;
    uint64_t received_ns; /* of the pull that carried it: an update that arrived later is newer, and stays */
    /* group, topic */
} rp_msg_commit_offset;

/* Messages stored in a queue by sends (no group), or got from it by the pulls of a group, since the last such message.
 */
typedef struct rp_msg_traffic {
    uint64_t messages;
    uint64_t bytes; /* of records */
    uint64_t requests; /* sends, or pulls that got messages */
    uint64_t wait_us; /* of these pulls together: from their arrival to the answer, unless they were suspended */
    uint64_t behind_bytes; /* of the last pull: from its last message to the end of the log */
    int32_t queue_id;
    uint32_t group_size;
    uint32_t topic_size;
    uint32_t reserved;
    /* group, topic */
} rp_msg_traffic;

/* A request of the sample that the request log has (workers/shared/request_log.h). */
typedef struct rp_msg_served {
    rp_origin origin;
    uint64_t answered_ns; /* CLOCK_MONOTONIC */
    int64_t queue_offset; /* of the message stored, or where the pull begins; -1: none */
    int32_t opaque;
    int32_t code;
    int32_t answer; /* RP_RESPONSE_* */
    int32_t queue_id; /* -1: none */
    uint32_t group_size;
    uint32_t topic_size;
    /* group, topic */
} rp_msg_served;

typedef struct rp_msg_arrival {
    uint32_t queue; /* index in the control block */
    uint32_t reserved;
} rp_msg_arrival;

/* A timer that is due, or that is to be stored again at the end of the log. Run files are rows of these, too
 * (timer_index.c). */
typedef struct rp_msg_timer {
    int64_t due_ms; /* of the broker's clock */
    uint64_t number; /* offset in the timer queue */
    uint64_t phy_offset; /* of its record */
    uint32_t size; /* of its record */
    uint32_t is_renewal; /* 1: store it again, unless it is due by now; 0 in files */
} rp_msg_timer;

/* Delayed messages of one level that are due, in the order of its queue. PUT_RESULT: queue_offset is that of the first
 * one that is not delivered, and code says why: SYSTEM_BUSY, it is not in memory; SYSTEM_ERROR, the manager has to
 * deliver it. */
typedef struct rp_due {
    uint64_t phy_offset;
    uint32_t size; /* of its record */
    uint32_t reserved;
} rp_due;
typedef struct rp_msg_deliver {
    uint64_t token;
    uint64_t queue_offset; /* of the first */
    uint32_t level; /* from 1 on */
    uint32_t count;
    /* count x rp_due */
} rp_msg_deliver;

/* A chunk of the master's log. */
typedef struct rp_msg_log {
    uint64_t stream; /* number of the stream that it belongs to (master_link.h) */
    uint64_t phy_offset;
    /* the bytes, to the end of the message */
} rp_msg_log;

/* CLEAN_TOPIC, CLEAN_EXPIRED (no topic); CLEANED brings the same bytes back when it is done. */
typedef struct rp_msg_clean_topic {
    uint64_t token; /* one per deletion; 0: CLEAN_EXPIRED */
    uint32_t topic_size;
    uint32_t reserved;
    /* topic */
} rp_msg_clean_topic;

enum { /* rp_msg_topic.flags */
       RP_TABLE_REMOVE = 1,
       RP_TOPIC_NO_SEND = 2, /* in the not-allowed-to-send set */
       RP_TOPIC_MULTI_TAG = 4,
       RP_TOPIC_SLOW = 8 /* every send to it takes the slow path (retry topics) */
};
typedef struct rp_msg_topic {
    uint32_t flags;
    int32_t perm;
    int32_t read_queue_nums;
    int32_t write_queue_nums;
    uint32_t topic_size;
    uint32_t reserved;
    /* topic */
} rp_msg_topic;

enum { RP_GROUP_CONSUME_ENABLE = 2, RP_GROUP_BROADCAST_ENABLE = 4, RP_GROUP_ONLINE = 8, RP_GROUP_BROADCASTING = 16 };
typedef struct rp_msg_group {
    uint32_t flags; /* RP_TABLE_REMOVE, RP_GROUP_* */
    int32_t broker_id;
    int32_t which_broker_when_slow;
    uint32_t group_size;
    /* group */
} rp_msg_group;

typedef struct rp_msg_broker {
    int32_t permission; /* brokerPermission */
    uint32_t max_message_size; /* bytes of body; 0: unchanged */
    uint32_t reject_transactions; /* rejectTransactionMessage */
} rp_msg_broker;

/* END_TRANSACTION on its way to the send worker, from codecs and from the manager. */

/* The action on a half message. COMMIT and ROLLBACK are commitOrRollback of the request; the others come from
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
