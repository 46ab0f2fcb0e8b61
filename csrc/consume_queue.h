#ifndef ROCKETPY_CONSUME_QUEUE_H
#define ROCKETPY_CONSUME_QUEUE_H
/* Consume queue units: 8 bytes offset, 4 size, 8 tags code, big-endian. Queues are not mapped: files are opened on
 * use and kept in a bounded cache of descriptors. */
#include <stdint.h>
#include "control_block.h"
#include "status.h"

enum { RP_CQ_UNIT_SIZE = 20 };
typedef struct rp_cq_reader rp_cq_reader;

rp_cq_reader *rp_cq_reader_open(rp_control_block *block, const char *directory, uint64_t file_size, uint32_t files_max);
void rp_cq_reader_close(rp_cq_reader *reader);
/* Up to `count` units from `offset` on, raw, to the end of their file at the most, and below max_offset.
 * Returns how many were read; 0 if none can be; -1 with errno. */
int32_t rp_cq_read(rp_cq_reader *reader, const rp_queue *queue, uint64_t offset, uint32_t count, uint8_t *units);
#endif
