#ifndef ROCKETPY_RECORD_H
#define ROCKETPY_RECORD_H
/* One message in the format of the CommitLog, which consumers receive as well. Offset table: record.c. */
#include <stdint.h>
#include "base/host.h"
#include "base/status.h"

enum {
    RP_MESSAGE_MAGIC_V1 = -626843481, /* DA A3 20 A7 */
    RP_MESSAGE_MAGIC_V2 = -626843477, /* DA A3 20 AB; 5.x only, read but never written */
    RP_BLANK_MAGIC = -875286124,    /* CB D4 31 94 */
    RP_END_FILE_MIN_BLANK = 8,
    RP_RECORD_SIZE_MIN = 91, /* without body, topic and properties, with addresses of IPv4 */
    RP_TOPIC_SIZE_MAX = 127,
    RP_TOPIC_SIZE_V2_MAX = 32767, /* in records of 5.x; beyond RP_TOPIC_SIZE_MAX they have no queue here */
    RP_PROPERTIES_SIZE_MAX = 32767,
    RP_TRANSACTION_MASK = 0xC, /* of sysFlag */
    RP_NAME_VALUE_SEPARATOR = 0x01, /* of properties: name 01 value 02 name 01 value */
    RP_PROPERTY_SEPARATOR = 0x02
};

/* Properties of a message that waits in another topic (delayed, timer, half message): its own topic and queue. */
#define RP_REAL_TOPIC "REAL_TOPIC"
#define RP_REAL_QUEUE_ID "REAL_QID"
/* The topic of delayed messages: a queue for each level. */
#define RP_SCHEDULE_TOPIC "SCHEDULE_TOPIC_XXXX"

/* The bits of sysFlag that C names; rocketpy/message/sys_flag.py has all of them, a test compares the two. */
typedef enum rp_sys_flag {
    RP_SYS_FLAG_COMPRESSED = 1,
    RP_SYS_FLAG_MULTI_TAGS = 2,
    RP_SYS_FLAG_TRANSACTION_PREPARED = 4,
    RP_SYS_FLAG_TRANSACTION_COMMIT = 8,
    RP_SYS_FLAG_TRANSACTION_ROLLBACK = 0xC,
    RP_SYS_FLAG_BORN_HOST_V6 = 0x10,
    RP_SYS_FLAG_STORE_HOST_V6 = 0x20
} rp_sys_flag;

/* The input of the encoder; all pointers are borrowed until return. Properties are the concatenation of `properties`
 * and `properties_tail` with one 0x02 between them where both are non-empty and the first does not end in one. The IPv6
 * bits of sys_flag are set by the encoder from the families. */
typedef struct rp_record {
    int32_t queue_id;
    int32_t flag;
    uint64_t queue_offset;
    uint64_t phy_offset;
    int32_t sys_flag;
    int32_t reconsume_times;
    int64_t born_timestamp_ms;
    int64_t store_timestamp_ms;
    int64_t prepared_transaction_offset;
    rp_host born_host;
    rp_host store_host;
    const uint8_t *body;
    const uint8_t *topic;
    const uint8_t *properties;
    const uint8_t *properties_tail;
    uint32_t body_size;
    uint32_t topic_size;
    uint32_t properties_size;
    uint32_t properties_tail_size;
} rp_record;

/* Size in bytes of the encoded record, or 0 if a field is beyond the format's limits (topic 127, properties 32767). */
uint32_t rp_record_size(const rp_record *record);
/* Encode into `out`, which has room for rp_record_size bytes; computes the body CRC. Returns the size. */
uint32_t rp_record_encode(const rp_record *record, uint8_t *out);

/* The fields of a stored record that readers use; spans point into the image. */
typedef struct rp_record_view {
    uint32_t size;
    int32_t magic;
    uint32_t body_crc;
    int32_t queue_id;
    int32_t flag;
    uint64_t queue_offset;
    uint64_t phy_offset;
    int32_t sys_flag;
    int64_t born_timestamp_ms;
    int64_t store_timestamp_ms;
    rp_host born_host;
    rp_host store_host;
    int32_t reconsume_times;
    int64_t prepared_transaction_offset;
    const uint8_t *body;
    const uint8_t *topic;
    const uint8_t *properties;
    uint32_t body_size;
    uint32_t topic_size;
    uint32_t properties_size;
} rp_record_view;

/* Decode the record that starts `image` (`size` readable bytes up to the end of the file).
 * Returns: RP_OK; RP_END_OF_FILE for the blank (view->size is the blank's size); RP_EMPTY for zeros (nothing was
 * written here); RP_INCOMPLETE if the size of the record exceeds `size`; RP_CORRUPT if magic code, an inner length or,
 * with check_crc, the body CRC is wrong. Never reads past `size`. */
rp_status rp_record_decode(const uint8_t *image, uint64_t size, int check_crc, rp_record_view *view);

/* Java String.hashCode over the UTF-16 units of UTF-8 `text` (invalid sequences count as U+FFFD). */
int32_t rp_string_hash(const uint8_t *text, uint32_t size);
/* Find the property `name` (a C string) in a property string. Returns the size of its value, and sets *value; 0: there
 * is none. Pieces without 0x01, with an empty name or an empty value do not count; the last of several wins. */
uint32_t rp_property_find(const uint8_t *properties, uint32_t size, const char *name, const uint8_t **value);
/* 1 if the property string has it. */
int rp_property_has(const uint8_t *properties, uint32_t size, const char *name);
/* The delay level that a property string asks for, as Java reads it; 0: none. It may be below 0 or beyond all levels.
 */
int32_t rp_delay_level(const uint8_t *properties, uint32_t size);
/* Read RP_REAL_TOPIC and RP_REAL_QUEUE_ID. 0 if one is missing, or the queue is no number from 0 on. */
int rp_real_queue(const uint8_t *properties, uint32_t size, const uint8_t **topic, uint32_t *topic_size,
                  int32_t *queue_id);
/* Iterator over the keys of a record: UNIQ_KEY, then the words of KEYS, separated by single spaces. The index stores
 * the first RP_INDEX_KEYS_MAX of KEYS only: a few messages with 16 000 keys each would fill an index file. */
enum { RP_INDEX_KEYS_MAX = 128 };
typedef struct rp_keys {
    const uint8_t *unique; /* NULL: none, or already returned */
    const uint8_t *rest;   /* the part of KEYS that is not returned yet */
    uint32_t unique_size;
    uint32_t rest_size;
} rp_keys;
void rp_keys_begin(rp_keys *keys, const uint8_t *properties, uint32_t size);
/* 1 with *key, *key_size (never 0); 0 at the end. `keys` points into the properties. */
int rp_keys_next(rp_keys *keys, const uint8_t **key, uint32_t *key_size);
/* The index's hash of a key string (topic#key): |hashCode|, 0 for the one value that has no absolute. */
int32_t rp_index_hash(const uint8_t *key, uint32_t size);
/* Upper-case hex of host address, port (4 bytes) and offset (8 bytes): 32 or 56 characters, returned; no terminator. */
uint32_t rp_message_id(const rp_host *store_host, uint64_t phy_offset, uint8_t *out);
#endif
