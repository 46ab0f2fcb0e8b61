#ifndef ROCKETPY_STATUS_H
#define ROCKETPY_STATUS_H
/* Return codes of every C function that can do anything but succeed. Values >= 0 are expected outcomes, values < 0
 * are faults; Python knows them as rocketpy/native/__init__.py.
 * Short: one list for all rooms. */
typedef enum rp_status {
    RP_OK = 0,
    RP_EMPTY = 1,        /* nothing to read now */
    RP_FULL = 2,         /* no room now, nothing was done: retry when the other side has made room */
    RP_END_OF_FILE = 3,  /* a blank was read or written: continue in the next file */
    RP_INCOMPLETE = 4,   /* more bytes are needed */
    RP_UNSUPPORTED = 5,  /* not supported in C, possibly valid: the slow path decides */
    RP_NOT_FOUND = 6,
    RP_STOPPED = 7,      /* the worker was asked to stop */
    RP_INVALID = -1,     /* malformed input */
    RP_TOO_LARGE = -2,
    RP_CORRUPT = -3,
    RP_NO_SPACE = -4,
    RP_IO_ERROR = -5,    /* errno says which */
    RP_NO_MEMORY = -6
} rp_status;
#endif
