#ifndef ROCKETPY_KEY_HASHES_H
#define ROCKETPY_KEY_HASHES_H
/* The hashes under which a record is in the index: of topic#UNIQ_KEY, then of topic#key for the first
 * RP_INDEX_KEYS_MAX of KEYS. C only. */
#include <stdint.h>
#include "store/log/record.h"

/* An iterator. Large: keep it outside of the stack. */
typedef struct rp_key_hashes {
    rp_keys keys; /* into the properties */
    uint32_t prefix_size;
    uint32_t room;
    int is_cut_short; /* there are more keys than the index takes */
    uint8_t text[RP_TOPIC_SIZE_V2_MAX + 1 + RP_PROPERTIES_SIZE_MAX];
} rp_key_hashes;

/* 1 if the index takes the keys of such a record: all but rollbacks and records without properties. */
int rp_key_hashes_wants(int32_t sys_flag, uint32_t properties_size);
/* Begin with the keys of a record; the properties are borrowed until the end. */
void rp_key_hashes_begin(rp_key_hashes *hashes, const uint8_t *topic, uint32_t topic_size, const uint8_t *properties,
                         uint32_t properties_size);
/* 1 with *hash; 0 at the end. */
int rp_key_hashes_next(rp_key_hashes *hashes, int32_t *hash);
#endif
