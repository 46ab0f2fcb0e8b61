#include "workers/send/diverted.h"

#include <string.h>

int rp_diverted_init(rp_diverted *diverted, rp_ring_writer *writer) {
    diverted->writer = writer;
    return rp_backlog_init(&diverted->waiting, writer) == 0 && rp_map_init(&diverted->tokens, 16) == 0 ? 0 : -1;
}

void rp_diverted_destroy(rp_diverted *diverted) {
    rp_backlog_destroy(&diverted->waiting);
    rp_map_destroy(&diverted->tokens, NULL);
}

int rp_diverted_find(const rp_diverted *diverted, uint64_t connection) {
    return rp_map_get(&diverted->tokens, &connection, sizeof connection) != NULL ||
           rp_backlog_has(&diverted->waiting, connection);
}

/* The token is a ring position. It grows with every send, so that completing one send completes all earlier ones.
 */
static void enter(rp_diverted *diverted, uint64_t connection, uint64_t token) {
    int failed;
    rp_map_put(&diverted->tokens, &connection, sizeof connection, (void *)(uintptr_t)token, &failed);
}

rp_status rp_diverted_put(rp_diverted *diverted, const uint8_t *data, uint32_t size,
                          void (*set_resume_point)(void *context, uint64_t position), void *context) {
    rp_msg_send request = *(const rp_msg_send *)data;
    rp_span spans[2] = {{&request, sizeof request}, {data + sizeof request, size - (uint32_t)sizeof request}};
    rp_status status = RP_FULL;
    if (rp_backlog_is_empty(&diverted->waiting)) {
        uint8_t *room = rp_ring_reserve(diverted->writer, size);
        request.token = rp_ring_tail_after(diverted->writer, 0);
        if (room) {
            memcpy(room, &request, sizeof request);
            memcpy(room + sizeof request, spans[1].data, spans[1].size);
            set_resume_point(context, rp_ring_tail_after(diverted->writer, size));
            rp_ring_commit(diverted->writer, size, RP_MSG_SEND);
            status = RP_OK;
        } else if (rp_ring_pump(diverted->writer) == RP_OK) { /* it moves the tail, so before the token is taken */
            request.token = rp_ring_tail_after(diverted->writer, 0);
            status = rp_ring_write(diverted->writer, RP_MSG_SEND, spans, 2); /* full, or large: no resume point */
        }
        if (status == RP_OK) enter(diverted, request.origin.connection, request.token);
    }
    if (status != RP_FULL) return status;
    return rp_backlog_keep(&diverted->waiting, request.origin.connection, RP_MSG_SEND, spans, 2);
}

void rp_diverted_flush(rp_diverted *diverted) {
    for (rp_backlog_entry *entry; (entry = diverted->waiting.first); rp_backlog_pop(&diverted->waiting)) {
        if (rp_ring_pump(diverted->writer) != RP_OK) return;
        rp_msg_send *request = (rp_msg_send *)entry->data;
        rp_span span = {entry->data, entry->size};
        request->token = rp_ring_tail_after(diverted->writer, 0);
        if (rp_ring_write(diverted->writer, RP_MSG_SEND, &span, 1) != RP_OK) return;
        enter(diverted, entry->connection, request->token);
    }
}

const rp_msg_send *rp_diverted_first(const rp_diverted *diverted) {
    return diverted->waiting.first ? (const rp_msg_send *)diverted->waiting.first->data : NULL;
}

void rp_diverted_drop_first(rp_diverted *diverted) { rp_backlog_pop(&diverted->waiting); }

int rp_diverted_complete(rp_diverted *diverted, const rp_msg_completed *completed) {
    uint64_t connection = completed->origin.connection;
    uintptr_t last = (uintptr_t)rp_map_get(&diverted->tokens, &connection, sizeof connection);
    if (!last || last > completed->token) return 0;
    rp_map_remove(&diverted->tokens, &connection, sizeof connection);
    return !rp_backlog_has(&diverted->waiting, connection);
}

void rp_diverted_forget(rp_diverted *diverted, uint64_t position) {
    for (uint64_t i = 0; i <= diverted->tokens.mask; i++) {
        const rp_map_entry *entry = &diverted->tokens.entries[i];
        if (entry->value && (uintptr_t)entry->value <= position)
            rp_map_remove(&diverted->tokens, entry->key, entry->key_size);
    }
}
