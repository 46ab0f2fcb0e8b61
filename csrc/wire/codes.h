#ifndef ROCKETPY_CODES_H
#define ROCKETPY_CODES_H
/* The request and response codes that C names. rocketpy/codes.py has all of them; a test compares the two.
 * Short: two lists, as in rocketpy/codes.py. */

typedef enum rp_request_code {
    RP_CODE_SEND_MESSAGE = 10, /* its header has the long field names; the other sends have letters */
    RP_CODE_HEART_BEAT = 34,
    RP_CODE_END_TRANSACTION = 37,
} rp_request_code;

typedef enum rp_response_code {
    RP_RESPONSE_SUCCESS = 0,
    RP_RESPONSE_SYSTEM_ERROR = 1,
    RP_RESPONSE_SYSTEM_BUSY = 2,
    RP_RESPONSE_FLUSH_DISK_TIMEOUT = 10,
    RP_RESPONSE_SLAVE_NOT_AVAILABLE = 11,
    RP_RESPONSE_FLUSH_SLAVE_TIMEOUT = 12,
    RP_RESPONSE_MESSAGE_ILLEGAL = 13,
    RP_RESPONSE_SERVICE_NOT_AVAILABLE = 14,
    RP_RESPONSE_TOPIC_NOT_EXIST = 17,
    RP_RESPONSE_PULL_NOT_FOUND = 19,
    RP_RESPONSE_PULL_RETRY_IMMEDIATELY = 20,
    RP_RESPONSE_PULL_OFFSET_MOVED = 21,
    RP_RESPONSE_QUERY_NOT_FOUND = 22
} rp_response_code;
#endif
