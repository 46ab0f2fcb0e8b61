#ifndef ROCKETPY_FILE_CACHE_H
#define ROCKETPY_FILE_CACHE_H
/* A bounded cache of open descriptors, least recently used closed first. For C only; single-threaded.
 * Keys are three numbers. A removed queue gets another generation, so its stale descriptors are never found again; they
 * age out, or rp_file_cache_release closes them, because an open file keeps its disk space. */
#include <stdint.h>

typedef struct rp_file_cache rp_file_cache;
typedef struct rp_file_key {
    uint32_t queue;
    uint32_t generation;
    uint64_t number; /* of the file in its queue */
} rp_file_key;

/* At most `files_max` descriptors, and never more than three quarters of RLIMIT_NOFILE. NULL with errno. */
rp_file_cache *rp_file_cache_open(uint32_t files_max);
void rp_file_cache_close(rp_file_cache *cache);
/* The descriptor, or -1. */
int rp_file_cache_find(rp_file_cache *cache, rp_file_key key);
/* Add an open descriptor; closes the least recently used one when full. */
void rp_file_cache_put(rp_file_cache *cache, rp_file_key key, int fd);
/* Close the descriptor if it is in the cache. */
void rp_file_cache_drop(rp_file_cache *cache, rp_file_key key);
/* Check the next `count` entries, round robin, and close files that were removed from their directories. */
void rp_file_cache_release(rp_file_cache *cache, uint32_t count);
#endif
