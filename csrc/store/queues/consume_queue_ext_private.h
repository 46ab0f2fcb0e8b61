#ifndef ROCKETPY_CONSUME_QUEUE_EXT_PRIVATE_H
#define ROCKETPY_CONSUME_QUEUE_EXT_PRIVATE_H
/* Shared by consume_queue_ext.c, which reads extension units, and consume_queue_ext_writer.c. */
#include "store/queues/consume_queue_ext.h"
#include "store/queues/queue_files.h"

static inline uint64_t ext_real_offset(int64_t address) { return (uint64_t)address ^ 1ull << 63; }
static inline int64_t ext_address_of(uint64_t offset) { return (int64_t)(offset ^ 1ull << 63); }
/* The extension files of all queues. NULL with errno. */
rp_queue_files *rp_ext_open_files(rp_control_block *block, const char *consume_queue_directory, uint64_t file_size,
                                  int is_writer);
/* The unit at real offset `offset`, checked. RP_OK, RP_NOT_FOUND, RP_IO_ERROR. */
rp_status rp_ext_read_unit(rp_queue_files *files, uint64_t file_size, const rp_queue *queue, uint64_t offset,
                           rp_cq_ext_unit *unit);
#endif
