#ifndef ROCKETPY_TRANSACTION_NAMES_H
#define ROCKETPY_TRANSACTION_NAMES_H
/* The topics and properties of transactions; rocketpy/message/names.py has them, too. C only. */
#define RP_HALF_TOPIC "RMQ_SYS_TRANS_HALF_TOPIC"
#define RP_OP_TOPIC "RMQ_SYS_TRANS_OP_HALF_TOPIC"
#define RP_DISCARD_TOPIC "TRANS_CHECK_MAX_TIME_TOPIC"
/* Brokers write these, never clients: codecs drop them from what clients send. */
#define RP_PREPARED_QUEUE_OFFSET "TRAN_PREPARED_QUEUE_OFFSET"
#define RP_CHECK_TIMES "TRANSACTION_CHECK_TIMES"
/* Of a half message that was stored again: when it was stored first, in ms. Clients never write it. */
#define RP_FIRST_STORED "TRAN_FIRST_STORED_MS"
enum { RP_OP_BODY_MAX = 20 /* digits of a queue offset */ };
#endif
