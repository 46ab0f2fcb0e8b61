/* Half messages (docs/adr/0100).
 *
 * A half message keeps its topic and queue in REAL_TOPIC and REAL_QID, and is stored in the half queue. send_end.c ends
 * it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/transactions/transaction_names.h"
#include "workers/send/send_private.h"

enum { LOG_MAPPINGS = 4 };

rp_status rp_send_halves_open(rp_send *send) {
    if (!send->config.half_states) return RP_OK;
    if (!send->config.consume_queue_directory ||
        rp_half_states_open(send->config.half_states, send->control->published_phy_offset) != RP_OK)
        return RP_INVALID;
    send->half_tail = malloc(HALF_TAIL_MAX + send->cluster_size);
    send->half_records =
        rp_log_view_open(send->config.commitlog_directory, send->control->commitlog_file_size, LOG_MAPPINGS);
    send->half_reads = rp_half_reads_open(send->config.worker, send->config.block, send->config.commitlog_directory,
                                          send->config.consume_queue_directory, send->config.consume_queue_file_size);
    rp_send_find_half_queues(send);
    if (!send->half_tail || !send->half_records || !send->half_reads) return RP_NO_MEMORY;
    return rp_half_places_open(&send->half_places, send->config.block, send->config.consume_queue_directory,
                               send->config.consume_queue_file_size);
}

void rp_send_halves_close(rp_send *send) {
    rp_half_reads_close(send->half_reads);
    rp_half_places_close(&send->half_places);
    if (send->half_records) rp_log_view_close(send->half_records);
    free(send->half_tail);
}

void rp_send_halves_release(rp_send *send) {
    if (!send->half_records) return;
    rp_log_view_trim(send->half_records, rp_load_acquire(&send->control->min_phy_offset));
    rp_half_places_release(&send->half_places);
}

static rp_queue *live_queue(const rp_send *send, const char *topic) {
    rp_queue *queue = rp_control_find(send->config.block, (const uint8_t *)topic, (uint32_t)strlen(topic), 0);
    return queue && queue->state == RP_QUEUE_LIVE ? queue : NULL;
}

void rp_send_find_half_queues(rp_send *send) {
    send->half_queue = live_queue(send, RP_HALF_TOPIC);
    send->op_queue = live_queue(send, RP_OP_TOPIC);
}

int rp_send_takes_halves(const rp_send *send) {
    return send->half_records && !send->rejects_transactions && send->half_queue && send->op_queue;
}

void rp_send_redirect_half(rp_send *send, rp_put *put) {
    const rp_msg_send *request = put->request;
    const char *wait = !(request->flags & RP_REQUEST_HAS_WAIT) ? ""
                       : request->flags & RP_REQUEST_NO_WAIT   ? "WAIT\x01"
                                                                 "false\x02"
                                                               : "WAIT\x01true\x02";
    int size =
        snprintf((char *)send->half_tail, HALF_TAIL_MAX, RP_REAL_TOPIC "\x01%.*s\x02" RP_REAL_QUEUE_ID "\x01%d\x02%s",
                 (int)put->topic_size, (const char *)put->topic, (int)put->queue_id, wait);
    memcpy(send->half_tail + size, put->properties_tail, put->properties_tail_size);
    put->properties_tail = send->half_tail;
    put->properties_tail_size += (uint32_t)size;
    put->topic = (const uint8_t *)RP_HALF_TOPIC;
    put->topic_size = sizeof RP_HALF_TOPIC - 1;
    put->queue = send->half_queue;
    put->queue_id = 0;
    put->dropped_sys_flag = RP_TRANSACTION_MASK;
}
