/* A slave's log (docs/adr/0124): chunks of the master's log are appended, and a stream that fails is refused. The
 * replicator begins another one then, at the published position.
 *
 * Short: rp_received_log checks and publishes the records. */
#include <string.h>
#include "workers/send/send_private.h"

static void refuse_stream(rp_send *send, uint64_t stream, uint32_t reason) {
    rp_master_link *master_link = send->config.master_link;
    master_link->refused_reason = reason;
    master_link->refused_phy_offset = send->control->published_phy_offset;
    rp_store_release(&master_link->refused_stream, stream); /* both, with it */
    rp_full_fence(); /* orders the store of refused_stream before the load of `asleep` */
    rp_worker_wake(send->config.replicator, 0);
}

rp_status rp_send_take_log(rp_send *send, const uint8_t *data, uint32_t size) {
    rp_msg_log head;
    memcpy(&head, data, sizeof head);
    if (!send->config.master_link || head.stream <= send->config.master_link->refused_stream) return RP_OK;
    uint64_t records = send->received.records, published = send->control->published_phy_offset;
    rp_status status = rp_received_log_take(&send->received, head.stream, head.phy_offset, data + sizeof head,
                                            size - (uint32_t)sizeof head);
    send->appended += send->control->published_phy_offset != published;
    count(send, RP_COUNT_MESSAGES_PUT, send->received.records - records);
    count(send, RP_COUNT_BYTES_PUT, send->control->published_phy_offset - published);
    if (status == RP_CORRUPT) refuse_stream(send, head.stream, RP_REFUSED_BAD_RECORD);
    if (status == RP_INVALID) refuse_stream(send, head.stream, RP_REFUSED_GAP);
    if (status == RP_OK || status == RP_CORRUPT || status == RP_INVALID) return RP_OK;
    rp_send_tell_fault(send, status);
    return RP_FULL;
}
