#ifndef ROCKETPY_FRAMES_H
#define ROCKETPY_FRAMES_H
/* The bytes on the HA port. All integers are big-endian; a position is a byte offset in the CommitLog.
 *
 * With a broker of the reference (4.9), from the first byte on:
 *
 *   slave to master   position(8)                    the end of the slave's log: request and acknowledgement
 *   master to slave   position(8) size(4) bytes      bytes of the log, within one file. Size 0 is a
 *                                                    heartbeat; its position is the next one to be sent
 *
 * Between brokers of rocketpy the slave begins with ff 52 50 48 41 00 00 02 (ff, RPHA, its lowest version), which as a
 * position would be negative. Then both sides send frames: size(4) type(1) payload; size counts type and payload. In
 * this order:
 *
 *   CHALLENGE  master  JSON: version, nonce, lowest, highest
 *   HELLO      slave   JSON: version, cluster, brokerName, brokerId, member, incarnation, fileSize, begin, end, tail
 *                      (begin and crc of the last bytes of its log, up to RP_HA_TAIL_MAX), epochs, nonce, proof
 *   WELCOME    master  JSON: version, begin, end, epochs, start, truncate, proof; DATA begins at `start`, if the slave
 *                      need not cut its log (truncate)
 *   REFUSE     master  JSON: code, reason; the master closes
 *   DATA       master  position(8) confirmed(8) epoch(4) crc(4) bytes    within one file and one epoch; crc is the
 *                      CRC-32 of the bytes
 *   HEARTBEAT  master  position(8) confirmed(8) epoch(4) time(8)         end of the master's log; its wall clock in ms
 *   ACK        slave   position(8) epoch(4)                              below it the slave has everything
 *   FENCED     either  epoch(4)                                          the newer epoch
 *
 * In plain mode (without failover) epoch is 0 and confirmed is the master's end; FENCED is not sent. Otherwise the
 * epoch of DATA is that of its bytes, and all others name that of the master. The JSON fields, versions and the
 * proof are in docs/understand/replication-protocol.md. Python reads and writes the frames of a handshake, CHALLENGE to
 * REFUSE (rocketpy/replication/frames.py); C those of the stream. */
#include <stdint.h>

enum {
    RP_HA_SIZE_REPORT = 8,         /* bytes of a report of a 4.9 slave, and of the magic */
    RP_HA_SIZE_HEADER = 12,        /* bytes before the body of a 4.9 frame */
    RP_HA_SIZE_FRAME_HEADER = 5,   /* size and type */
    RP_HA_SIZE_DATA_HEADER = 24,   /* payload of DATA before its bytes */
    RP_HA_SIZE_HEARTBEAT = 28,     /* payload of HEARTBEAT */
    RP_HA_SIZE_ACK = 12,           /* payload of ACK */
    RP_HA_SIZE_FENCED = 4,         /* payload of FENCED */
    RP_HA_HEADER_MAX = 37,         /* bytes of a frame before its bytes of the log */
    RP_HA_DATA_MAX = 131072, /* bytes of the log in one DATA: a slave holds them all until it has compared their CRC */
    RP_HA_JSON_MAX = 65536, /* payload of CHALLENGE, HELLO, WELCOME, REFUSE */
    RP_HA_TAIL_MAX = 65536,
    RP_HA_VERSION_LOWEST = 2, /* in the magic of our slaves */
    RP_HA_VERSION = 3 /* the highest */
};

/* Types of frames. */
enum {
    RP_HA_TYPE_CHALLENGE = 1,
    RP_HA_TYPE_HELLO = 2,
    RP_HA_TYPE_WELCOME = 3,
    RP_HA_TYPE_REFUSE = 4,
    RP_HA_TYPE_DATA = 5,
    RP_HA_TYPE_HEARTBEAT = 6,
    RP_HA_TYPE_ACK = 7,
    RP_HA_TYPE_FENCED = 9
};
#endif
