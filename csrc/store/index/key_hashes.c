/* See key_hashes.h. */
#include "store/index/key_hashes.h"
#include <string.h>

int rp_key_hashes_wants(int32_t sys_flag, uint32_t properties_size) {
    return (sys_flag & RP_TRANSACTION_MASK) != RP_SYS_FLAG_TRANSACTION_ROLLBACK && properties_size;
}

void rp_key_hashes_begin(rp_key_hashes *hashes, const uint8_t *topic, uint32_t topic_size, const uint8_t *properties,
                         uint32_t properties_size) {
    rp_keys_begin(&hashes->keys, properties, properties_size);
    memcpy(hashes->text, topic, topic_size);
    hashes->text[topic_size] = '#';
    hashes->prefix_size = topic_size + 1;
    hashes->room = RP_INDEX_KEYS_MAX + (hashes->keys.unique != NULL);
    hashes->is_cut_short = 0;
}

int rp_key_hashes_next(rp_key_hashes *hashes, int32_t *hash) {
    const uint8_t *key;
    uint32_t size;
    if (!rp_keys_next(&hashes->keys, &key, &size)) return 0;
    if (!hashes->room) {
        hashes->is_cut_short = 1;
        return 0;
    }
    hashes->room--;
    memcpy(hashes->text + hashes->prefix_size, key, size);
    *hash = rp_index_hash(hashes->text, hashes->prefix_size + size);
    return 1;
}
