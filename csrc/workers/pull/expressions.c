/* See expressions.h. */
#include "workers/pull/expressions.h"
#include <stddef.h>
#include <stdlib.h>

enum { MAP_CAPACITY = 16 };

int rp_expressions_init(rp_expressions *expressions) {
    expressions->bytes = 0;
    return rp_map_init(&expressions->by_text, MAP_CAPACITY);
}

void rp_expressions_destroy(rp_expressions *expressions) { rp_map_destroy(&expressions->by_text, rp_tags_free); }

/* An rp_tags without hashes. NULL: the program is not sound, or no memory. */
static rp_tags *tags_of(const uint8_t *program, uint32_t size) {
    rp_tags *tags = calloc(1, sizeof *tags);
    if (!tags) return NULL;
    tags->flags = RP_SUBSCRIPTION_ALL;
    tags->filter = rp_filter_open(program, size);
    if (tags->filter) return tags;
    free(tags);
    return NULL;
}

void rp_expressions_add(rp_expressions *expressions, const uint8_t *data, uint32_t size) {
    const rp_msg_expression *message = (const rp_msg_expression *)data;
    const uint8_t *text = data + sizeof *message;
    if (size < sizeof *message || (uint64_t)message->text_size + message->program_size > size - sizeof *message) return;
    if (!expressions->by_text.entries && rp_expressions_init(expressions) != 0) return;
    uint64_t bytes = sizeof(rp_tags) + (uint64_t)message->text_size + message->program_size;
    if (rp_map_get(&expressions->by_text, text, message->text_size)) return;
    if (expressions->by_text.live == RP_EXPRESSIONS_MAX || expressions->bytes + bytes > RP_EXPRESSIONS_BYTES_MAX) {
        rp_expressions_destroy(expressions);
        if (rp_expressions_init(expressions) != 0) return;
    }
    int failed = 0;
    rp_tags *tags = tags_of(text + message->text_size, message->program_size);
    if (!tags) return;
    rp_map_put(&expressions->by_text, text, message->text_size, tags, &failed);
    if (failed)
        rp_tags_free(tags);
    else
        expressions->bytes += bytes;
}

const rp_tags *rp_expressions_find(const rp_expressions *expressions, const uint8_t *text, uint32_t size) {
    return expressions->by_text.entries ? rp_map_get(&expressions->by_text, text, size) : NULL;
}
