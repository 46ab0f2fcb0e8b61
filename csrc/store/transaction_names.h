#ifndef ROCKETPY_TRANSACTION_NAMES_H
#define ROCKETPY_TRANSACTION_NAMES_H
/* The topics and properties of transactions; rocketpy/message/names.py has them, too. C only. */
#define RP_HALF_TOPIC "RMQ_SYS_TRANS_HALF_TOPIC"
#define RP_OP_TOPIC "RMQ_SYS_TRANS_OP_HALF_TOPIC"
#define RP_DISCARD_TOPIC "TRANS_CHECK_MAX_TIME_TOPIC"
enum { RP_OP_BODY_MAX = 20 /* digits of a queue offset */ };
#endif
