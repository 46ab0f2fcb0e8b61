#include "store/log/received_log.h"
#include <string.h>
#include "base/crash_point.h"
#include "store/log/record.h"

/* The master may allow larger messages than this slave, and may have done so before. */
enum { BODY_MAX = 16 << 20, OTHERS_MAX = 128 << 10 };

void rp_received_log_init(rp_received_log *received, rp_commitlog *log, rp_control *control, int check_crc,
                          uint32_t body_max) {
    uint32_t record_max = (body_max > BODY_MAX ? body_max : BODY_MAX) + OTHERS_MAX;
    *received = (rp_received_log){.log = log, .control = control, .check_crc = check_crc, .record_max = record_max};
}

/* Zero the part of a record that the previous stream has left: the new one may bring other bytes. */
static rp_status begin_stream(rp_received_log *received, uint64_t stream, uint64_t phy_offset) {
    uint8_t *at;
    uint64_t end = received->control->published_phy_offset, room;
    if (received->received > end) {
        rp_status status = rp_commitlog_window(received->log, &at, &end, &room);
        if (status != RP_OK) return status;
        memset(at, 0, received->received - end);
        RP_CRASH_POINT("receive.zeroed");
    }
    if (phy_offset > end && rp_commitlog_begin_at(received->log, phy_offset) == RP_OK) end = phy_offset;
    received->stream = stream;
    received->received = end;
    return RP_OK;
}

/* Publish the whole records among the `have` bytes at `at`, which is followed by `room` - `have` more bytes of file. */
static rp_status publish(rp_received_log *received, const uint8_t *at, uint64_t phy_offset, uint64_t have,
                         uint64_t room) {
    while (have >= RP_END_FILE_MIN_BLANK) {
        rp_record_view record;
        rp_status status = rp_record_decode(at, have, received->check_crc, &record);
        if (status == RP_INCOMPLETE) /* a blank is no larger: it stands where a record had no room */
            return record.size > room || record.size > received->record_max ? RP_CORRUPT : RP_OK;
        int is_blank = status == RP_END_OF_FILE && record.size == room;
        if (!is_blank && (status != RP_OK || record.phy_offset != phy_offset)) return RP_CORRUPT;
        rp_commitlog_publish(received->log, record.size,
                             is_blank ? received->control->last_store_timestamp_ms : record.store_timestamp_ms);
        received->records += !is_blank;
        at += record.size;
        phy_offset += record.size;
        have -= record.size;
        room -= record.size;
    }
    return have && have == room ? RP_CORRUPT : RP_OK; /* no room for a blank */
}

rp_status rp_received_log_take(rp_received_log *received, uint64_t stream, uint64_t phy_offset, const uint8_t *data,
                               uint32_t size) {
    rp_status status = stream == received->stream ? RP_OK : begin_stream(received, stream, phy_offset);
    if (status != RP_OK) return status;
    if (phy_offset > received->received) return RP_INVALID;
    uint64_t known = received->received - phy_offset, left = size > known ? size - known : 0;
    data += size - left;
    while (left && status == RP_OK) {
        uint8_t *at;
        uint64_t end, room;
        status = rp_commitlog_window(received->log, &at, &end, &room);
        if (status != RP_OK) return status;
        uint64_t have = received->received - end, part = room - have < left ? room - have : left;
        if (!part) return RP_CORRUPT; /* a record that goes on in the next file */
        status = rp_commitlog_write(received->log, have, data, part);
        if (status != RP_OK) return status;
        RP_CRASH_POINT("receive.copied");
        received->received += part;
        data += part;
        left -= part;
        status = publish(received, at, end, have + part, room);
    }
    return status;
}
