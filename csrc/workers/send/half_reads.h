#ifndef ROCKETPY_HALF_READS_H
#define ROCKETPY_HALF_READS_H
/* Ends of transactions whose half message is not in memory. A thread reads it from the disk, so that no send waits for
 * that; then the send worker serves the end (docs/adr/0100). C only; the send worker. */
#include <stdint.h>
#include "base/status.h"
#include "ipc/worker.h"
#include "ipc/worker_messages.h"
#include "store/control/control_block.h"

enum { RP_HALF_READS_MAX = 192 /* ends that wait; a disk that reads one at a time needs some seconds for them */ };

typedef struct rp_half_reads rp_half_reads;

/* The strings are copied. The thread starts with the first end. NULL without memory. */
rp_half_reads *rp_half_reads_open(rp_worker *worker, rp_control_block *block, const char *commitlog_directory,
                                  const char *consume_queue_directory, uint64_t consume_queue_file_size);
void rp_half_reads_close(rp_half_reads *reads); /* NULL: nothing */
/* 1 if all bytes of a mapping are in memory. */
int rp_half_reads_in_memory(const uint8_t *at, uint64_t size);
/* Have the unit of an end in `queue` read and, if it is of the place that the request names, up to `record_max` bytes
 * of the half message there; the request is copied. RP_FULL: RP_HALF_READS_MAX wait; RP_NO_MEMORY: no memory or no
 * thread. */
rp_status rp_half_reads_add(rp_half_reads *reads, const rp_queue *queue, const rp_msg_end_transaction *request,
                            uint64_t record_max);
/* The first end whose half message was read, or NULL. Valid until rp_half_reads_drop_first. */
const rp_msg_end_transaction *rp_half_reads_first(rp_half_reads *reads);
void rp_half_reads_drop_first(rp_half_reads *reads);
int rp_half_reads_are_waiting(const rp_half_reads *reads);
#endif
