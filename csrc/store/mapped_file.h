#ifndef ROCKETPY_MAPPED_FILE_H
#define ROCKETPY_MAPPED_FILE_H
/* Files of the CommitLog: named by the 20 digits of their start, exactly `size` bytes from the moment they are seen,
 * blocks reserved, so that writing through a mapping cannot meet a full disk. */
#include <stdint.h>
#include "base/status.h"

/* Write "<directory>/<20 digits>" to `out` (`out_size` bytes). Returns 0, or -1 with errno ENAMETOOLONG. */
int rp_mapped_file_path(char *out, uint64_t out_size, const char *directory, uint64_t start);
/* Create the file that starts at `start`. RP_OK, also if it is there already; RP_NO_SPACE, RP_IO_ERROR. */
rp_status rp_mapped_file_create(const char *directory, uint64_t start, uint64_t size);
/* Map it whole; for writing, with blocks reserved where it has holes. RP_OK; RP_NOT_FOUND; RP_NO_SPACE;
 * RP_CORRUPT if its size is another; RP_NO_MEMORY, RP_IO_ERROR. */
rp_status rp_mapped_file_map(const char *directory, uint64_t start, uint64_t size, int writable, uint8_t **base);
#endif
