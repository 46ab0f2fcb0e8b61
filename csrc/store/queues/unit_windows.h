#ifndef ROCKETPY_UNIT_WINDOWS_H
#define ROCKETPY_UNIT_WINDOWS_H
/* The pages of queue files that units are being added to, mapped: one page of each queue, of so many queues as a
 * process may map. A unit costs a tenth of a pwrite then, and no descriptor.
 *
 * A page is mapped only after a pwrite into it, on a file system where it has its block from then on: a store to a hole
 * of a file on a full disk would end the process. The last unit of a file is no store: searches by time choose files by
 * their modification time, which stores change at page faults alone. C only. Not thread-safe. */
#include <stdint.h>

typedef struct rp_unit_windows rp_unit_windows;

/* `windows_max` 0: as many as the kernel allows (vm.max_map_count). NULL with errno. */
rp_unit_windows *rp_unit_windows_open(uint32_t windows_max);
void rp_unit_windows_close(rp_unit_windows *windows);
/* Write to the queue, if all of it lies in the queue's window. `at`: bytes from the begin of file 0. 1 if so. */
int rp_unit_windows_write(rp_unit_windows *windows, uint32_t queue, uint64_t at, const void *data, uint64_t size);
/* `size` bytes were written to `at` in the file `fd`, whose `file_size` bytes begin at `start` in the queue: map the
 * page that will be written next, if that is worthwhile. */
void rp_unit_windows_follow(rp_unit_windows *windows, uint32_t queue, int fd, uint64_t start, uint64_t file_size,
                            uint64_t at, uint64_t size);
/* The queue's files are being removed, or this one soon, because the next one begins: a mapping would keep the disk
 * space of its file. */
void rp_unit_windows_drop(rp_unit_windows *windows, uint32_t queue);
#endif
