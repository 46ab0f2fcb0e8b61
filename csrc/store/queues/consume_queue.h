#ifndef ROCKETPY_CONSUME_QUEUE_H
#define ROCKETPY_CONSUME_QUEUE_H
/* Consume queue units: 8 bytes offset, 4 size, 8 tags code, big-endian; unit n of a queue is at byte 20 n of it.
 * Queues are not mapped: files are opened on use and kept in a bounded cache of descriptors. */
#include <stdint.h>
#include "base/status.h"
#include "store/control/control_block.h"
#include "store/log/record.h"

enum { RP_CQ_UNIT_SIZE = 20 };
typedef struct rp_queue_files rp_cq_reader; /* queue_files.h: to remove and to sync, too */

/* 1 if `offset` is a possible queue offset: its byte position must fit a file name. Others come from damaged records.
 */
int rp_cq_is_offset(uint64_t offset);
/* The tags code of the record's unit: hash of its tags; for a delayed message its delivery time (ms).
 * `delay_level_ms[0]` is level 1; a level above the highest counts as the highest. */
int64_t rp_unit_tags_code(const rp_record_view *record, const int64_t *delay_level_ms, uint32_t delay_level_count);

rp_cq_reader *rp_cq_reader_open(rp_control_block *block, const char *directory, uint64_t file_size, uint32_t files_max);
void rp_cq_close(rp_cq_reader *reader); /* or an rp_cq_writer */
/* Read up to `count` raw units from `offset` on, not beyond their file or max_offset. Returns the number of units read;
 * 0 if there is none; -1 with errno. */
int32_t rp_cq_read(rp_cq_reader *reader, const rp_queue *queue, uint64_t offset, uint32_t count, uint8_t *units);
/* 0 if rp_cq_read would wait for the disk; 1 if not, or if the kernel does not say. */
int rp_cq_in_memory(rp_cq_reader *reader, const rp_queue *queue, uint64_t offset);
/* Close removed files, so that their disk space becomes free; call about once a second. */
void rp_cq_release(rp_cq_reader *reader);

uint64_t rp_cq_units_per_file(const rp_cq_reader *reader);

/* The one writer: dispatch. `file_size` is a multiple of 20. */
typedef struct rp_queue_files rp_cq_writer;
rp_cq_writer *rp_cq_writer_open(rp_control_block *block, const char *directory, uint64_t file_size, uint32_t files_max);
/* Write `count` units from `offset` on, across files if necessary. A missing file is created in full size with these
 * units; units before `offset` in it become pre-blank units (0, 0x7FFFFFFF, 0). RP_OK; RP_NO_SPACE, RP_IO_ERROR: repeat
 * the same call later. */
rp_status rp_cq_write(rp_cq_writer *writer, const rp_queue *queue, uint64_t offset, uint32_t count,
                      const uint8_t *units);
/* 1 if the unit at `offset`, below max_offset or not, points to the record of `size` bytes at `phy_offset`; else 0. */
int rp_cq_holds(rp_cq_writer *writer, const rp_queue *queue, uint64_t offset, uint64_t phy_offset, uint32_t size);
#endif
