#include "ipc/backlog.h"

#include <stdlib.h>
#include <string.h>

int rp_backlog_init(rp_backlog *backlog, rp_ring_writer *writer) {
    *backlog = (rp_backlog){.writer = writer, .bytes_max = RP_BACKLOG_BYTES};
    return rp_map_init(&backlog->shares, 16);
}

void rp_backlog_destroy(rp_backlog *backlog) {
    while (backlog->first) rp_backlog_pop(backlog);
    rp_map_destroy(&backlog->shares, NULL);
}

static uint64_t share_of(const rp_backlog *backlog, uint64_t connection) {
    return (uintptr_t)rp_map_get(&backlog->shares, &connection, sizeof connection);
}

int rp_backlog_has(const rp_backlog *backlog, uint64_t connection) {
    return backlog->first && share_of(backlog, connection) != 0;
}

int rp_backlog_has_room(const rp_backlog *backlog, uint32_t size) {
    return backlog->internal_bytes + sizeof(rp_backlog_entry) + size <= RP_BACKLOG_INTERNAL_BYTES;
}

/* Add `bytes` to what the connection has, or take them away; 0, or -1 without memory (then nothing was added). */
static int count_bytes(rp_backlog *backlog, uint64_t connection, int64_t bytes) {
    int failed = 0;
    if (connection >= RP_CONNECTION_INTERNAL) {
        backlog->internal_bytes += (uint64_t)bytes;
        return 0;
    }
    uint64_t share = share_of(backlog, connection) + (uint64_t)bytes;
    if (share)
        rp_map_put(&backlog->shares, &connection, sizeof connection, (void *)(uintptr_t)share, &failed);
    else
        rp_map_remove(&backlog->shares, &connection, sizeof connection);
    if (failed) return -1;
    backlog->bytes += (uint64_t)bytes;
    return 0;
}

static int is_within_bounds(const rp_backlog *backlog, uint64_t connection, uint64_t bytes) {
    if (connection >= RP_CONNECTION_INTERNAL) return backlog->internal_bytes + bytes <= RP_BACKLOG_INTERNAL_BYTES;
    if (backlog->bytes + bytes > backlog->bytes_max) return 0;
    uint64_t share = share_of(backlog, connection);
    return !share || share + bytes <= backlog->bytes_max - backlog->bytes;
}

rp_status rp_backlog_keep(rp_backlog *backlog, uint64_t connection, uint16_t type, const rp_span *spans,
                          uint32_t span_count) {
    uint64_t size = 0, bytes;
    for (uint32_t i = 0; i < span_count; i++) size += spans[i].size;
    bytes = sizeof(rp_backlog_entry) + size;
    if (!is_within_bounds(backlog, connection, bytes)) return RP_FULL;
    rp_backlog_entry *entry = malloc(bytes);
    if (!entry || count_bytes(backlog, connection, (int64_t)bytes) != 0) {
        free(entry);
        return RP_NO_MEMORY;
    }
    *entry = (rp_backlog_entry){.connection = connection, .size = (uint32_t)size, .type = type};
    uint8_t *at = entry->data;
    for (uint32_t i = 0; i < span_count; i++) {
        if (spans[i].size) memcpy(at, spans[i].data, spans[i].size);
        at += spans[i].size;
    }
    if (backlog->last)
        backlog->last->next = entry;
    else
        backlog->first = entry;
    backlog->last = entry;
    return RP_OK;
}

rp_status rp_backlog_put(rp_backlog *backlog, uint64_t connection, uint16_t type, const rp_span *spans,
                         uint32_t span_count) {
    if (!backlog->first) {
        rp_status status = rp_ring_write(backlog->writer, type, spans, span_count);
        if (status != RP_FULL) return status;
    }
    return rp_backlog_keep(backlog, connection, type, spans, span_count);
}

void rp_backlog_pop(rp_backlog *backlog) {
    rp_backlog_entry *entry = backlog->first;
    backlog->first = entry->next;
    if (!backlog->first) backlog->last = NULL;
    (void)count_bytes(backlog, entry->connection, -(int64_t)(sizeof *entry + entry->size));
    free(entry);
}

void rp_backlog_flush(rp_backlog *backlog) {
    for (rp_backlog_entry *entry; (entry = backlog->first); rp_backlog_pop(backlog)) {
        rp_span span = {entry->data, entry->size};
        if (rp_ring_write(backlog->writer, entry->type, &span, 1) != RP_OK) return;
    }
}
