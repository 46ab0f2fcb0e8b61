#ifndef ROCKETPY_RECEIVED_LOG_H
#define ROCKETPY_RECEIVED_LOG_H
/* A slave's log: bytes of the master's log, checked and published record by record (docs/adr/0124).
 *
 * The send worker owns it, as the only writer. Bytes come as the streams of connections to the master. A stream begins
 * at the published position, and each chunk continues where the last one ended. A part of a record stays after the
 * published position until the rest has come. A record that fails a check is never published. C only. */
#include <stdint.h>
#include "base/status.h"
#include "store/log/commitlog.h"

typedef struct rp_received_log {
    rp_commitlog *log; /* borrowed */
    rp_control *control;
    uint64_t stream;   /* number of the current stream; 0: none yet */
    uint64_t received; /* after the last byte of it */
    uint64_t records;  /* published since the start */
    int check_crc;     /* compare bodies with their CRC */
    uint32_t record_max; /* bytes of a record; no more than that is zeroed in one step */
} rp_received_log;

/* `body_max`: bytes of the body of a message. A record that is larger than a message can be is damaged. */
void rp_received_log_init(rp_received_log *received, rp_commitlog *log, rp_control *control, int check_crc,
                          uint32_t body_max);
/* Take the chunk at `phy_offset` of the stream with this number. Bytes that are in the log already are passed over: a
 * restarted worker takes a chunk again. An empty log begins where the first chunk does, if that is the start of a file.
 * Returns RP_OK; RP_INVALID: the chunk does not continue the stream; RP_CORRUPT: the record at the published position
 * is damaged; RP_NO_SPACE, RP_IO_ERROR, RP_NO_MEMORY: the file cannot be created or written now, take the chunk
 * again later. */
rp_status rp_received_log_take(rp_received_log *received, uint64_t stream, uint64_t phy_offset, const uint8_t *data,
                               uint32_t size);
#endif
