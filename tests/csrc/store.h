#ifndef ROCKETPY_TESTS_STORE_H
#define ROCKETPY_TESTS_STORE_H
/* A store in a temporary directory, with the writer of its log and its dispatch, for the C drivers. */
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "store/control/control_block.h"
#include "store/dispatch/dispatch.h"
#include "store/log/commitlog.h"
#include "store/log/record.h"
#include "store/queues/consume_queue.h"
#include "check.h"
#include "directory.h"

struct store {
    char root[DIRECTORY_SIZE], control[PATH_MAX], log[PATH_MAX], queues[PATH_MAX], index[PATH_MAX];
    uint64_t file_size, queue_file_size, ext_file_size;
    uint32_t slot_num, index_num, is_extended;
    rp_control_block *block;
    rp_commitlog *writer;
    rp_dispatch *dispatch;
};

/* Open what make_store has made; close_store may be followed by another open_store, as after a restart. */
static inline void open_store(struct store *store) {
    CHECK(store->block = rp_control_open(store->control, store->file_size));
    CHECK(store->writer = rp_commitlog_open(store->log, rp_control_header(store->block)));
    rp_dispatch_config config = {.commitlog_directory = store->log,
                                 .consume_queue_directory = store->queues,
                                 .index_directory = store->index,
                                 .consume_queue_file_size = store->queue_file_size,
                                 .consume_queue_files_max = 64,
                                 .index_enable = 1,
                                 .hash_slot_num = store->slot_num,
                                 .index_num = store->index_num,
                                 .consume_queue_ext_enable = store->is_extended,
                                 .consume_queue_ext_file_size = store->ext_file_size};
    CHECK(store->dispatch = rp_dispatch_open(store->block, &config));
}

static inline void close_store(struct store *store) {
    rp_dispatch_close(store->dispatch);
    rp_commitlog_close(store->writer);
    rp_control_close(store->block);
}

/* The settings and the directory of a store; files of the log have `file_size` bytes. */
static inline void make_store(struct store *store, const char *name, uint64_t file_size) {
    memset(store, 0, sizeof *store);
    make_directory(store->root, name);
    snprintf(store->control, PATH_MAX, "%s/control", store->root);
    snprintf(store->log, PATH_MAX, "%s/commitlog", store->root);
    snprintf(store->queues, PATH_MAX, "%s/consumequeue", store->root);
    snprintf(store->index, PATH_MAX, "%s/index", store->root);
    store->file_size = file_size;
    store->queue_file_size = 50 * RP_CQ_UNIT_SIZE;
    store->ext_file_size = 1024;
    store->slot_num = 100;
    store->index_num = 400;
}

static inline void remove_store(struct store *store) { remove_directory(store->root); }

/* Append a message with a body of zeros, and publish it. Returns its position. */
static inline uint64_t put(struct store *store, const char *topic, uint32_t queue_id, const char *properties,
                           uint32_t body_size) {
    static uint8_t body[65536];
    rp_queue *queue = rp_control_add(store->block, (const uint8_t *)topic, (uint32_t)strlen(topic), queue_id);
    CHECK(queue);
    rp_record record = {.queue_id = (int32_t)queue_id,
                        .queue_offset = queue->next_offset,
                        .store_timestamp_ms = 1700000000000,
                        .born_host = {.family = 4},
                        .store_host = {.family = 4},
                        .body = body,
                        .body_size = body_size,
                        .topic = (const uint8_t *)topic,
                        .topic_size = (uint32_t)strlen(topic),
                        .properties = (const uint8_t *)properties,
                        .properties_size = (uint32_t)strlen(properties)};
    uint8_t *at;
    uint32_t size = rp_record_size(&record);
    CHECK(size && rp_commitlog_reserve(store->writer, size, &at, &record.phy_offset) == RP_OK);
    CHECK(rp_record_encode(&record, at) == size);
    rp_commitlog_publish(store->writer, size, record.store_timestamp_ms);
    queue->next_offset++;
    return record.phy_offset;
}
#endif
