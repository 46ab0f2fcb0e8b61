#ifndef ROCKETPY_MAPPED_FILE_H
#define ROCKETPY_MAPPED_FILE_H
/* Files of the CommitLog: named by the 20 digits of their start, they have exactly `size` bytes from the moment they
 * are visible, with all blocks reserved, so that a write through a mapping cannot fail because of a full disk. */
#include <stdint.h>
#include "base/status.h"

/* Write "<directory>/<20 digits>" to `out` (`out_size` bytes). Returns 0, or -1 with errno ENAMETOOLONG. */
int rp_mapped_file_path(char *out, uint64_t out_size, const char *directory, uint64_t start);
/* Create the file that starts at `start`. RP_OK, also if it exists already; RP_NO_SPACE, RP_IO_ERROR. */
rp_status rp_mapped_file_create(const char *directory, uint64_t start, uint64_t size);
/* Map the whole file; for writing, reserve blocks for its holes. RP_OK; RP_NOT_FOUND; RP_NO_SPACE; RP_CORRUPT if its
 * size is wrong; RP_NO_MEMORY, RP_IO_ERROR. */
rp_status rp_mapped_file_map(const char *directory, uint64_t start, uint64_t size, int writable, uint8_t **base);
#endif
