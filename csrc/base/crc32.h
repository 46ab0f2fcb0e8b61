#ifndef ROCKETPY_CRC32_H
#define ROCKETPY_CRC32_H
/* CRC-32 (IEEE 802.3, the one of zlib): carry-less multiply where the CPU has it, a table elsewhere. */
#include <stdint.h>

/* CRC of `size` bytes; start with `crc` 0, or go on from an earlier result. Never blocks or allocates. */
uint32_t rp_crc32(uint32_t crc, const uint8_t *data, uint64_t size);
/* CRC by table only: the fallback, kept callable so that tests compare the two. */
uint32_t rp_crc32_table(uint32_t crc, const uint8_t *data, uint64_t size);
/* 1 if rp_crc32 uses carry-less multiply on this CPU, 0 if the table. */
int rp_crc32_is_accelerated(void);
#endif
