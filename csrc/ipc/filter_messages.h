#ifndef ROCKETPY_FILTER_MESSAGES_H
#define ROCKETPY_FILTER_MESSAGES_H
/* Messages between workers: subscriptions and SQL92 expressions, from the manager to the pull workers and the store
 * worker.
 *
 * Short: worker_messages.h, which includes it, has all other messages. */
#include <stdint.h>

/* The online subscription of a group to a topic; also how a compiled tag set reaches the fast path. */
enum { RP_TAGS_MAX = 16384 /* of the expression that a pull brings */ };
enum {
    RP_SUBSCRIPTION_ALL = 2,
    RP_SUBSCRIPTION_SLOW = 4 /* no tag expression, and no SQL92 expression that can be evaluated: the manager refuses */
};
/* Where a subscription's filter bits are: the positions of its bits among those of a message, and the filter mark that
 * says from where on in the log messages have them (filter_marks.h). */
typedef struct rp_filter_place {
    uint64_t id; /* of the subscription, as the mark has it; 0: it has no bits */
    uint32_t mark; /* number of the mark */
    uint32_t bit_count; /* of all filter bits of a message */
    uint32_t count; /* positions that are used */
    uint32_t positions[8];
    uint32_t reserved;
} rp_filter_place;

typedef struct rp_msg_subscription {
    int64_t sub_version;
    uint32_t flags;
    uint32_t group_size;
    uint32_t topic_size;
    uint32_t tag_count;
    uint32_t program_size; /* of a SQL92 expression; 0: tags alone */
    uint32_t reserved;
    rp_filter_place place;
    /* tag_count x int32_t tag hashes, group, topic, program */
} rp_msg_subscription;

/* The program of a SQL92 expression (rocketpy/filter/program.py). */
typedef struct rp_msg_expression {
    uint32_t text_size;
    uint32_t program_size;
    /* text, program */
} rp_msg_expression;

/* The filter bits of `group` for the messages of `topic`; replaces those of the same names. RP_TABLE_REMOVE: no more.
 * Without topic and group: all filters are removed, and a TABLES_END will follow. */
typedef struct rp_msg_filter {
    uint32_t flags;
    uint32_t group_size;
    uint32_t topic_size;
    uint32_t program_size;
    rp_filter_place place;
    /* group, topic, program */
} rp_msg_filter;
#endif
