#ifndef ROCKETPY_EXPRESSIONS_H
#define ROCKETPY_EXPRESSIONS_H
/* The SQL92 expressions that pulls bring with them, by their text, as the manager has compiled them. A few, for clients
 * that pull again and again with the same one: when there are too many, all are forgotten, and the next pull with each
 * takes the slow path once more. C only. */
#include <stdint.h>
#include "base/map.h"
#include "workers/pull/subscription.h"

enum { RP_EXPRESSIONS_MAX = 512, RP_EXPRESSIONS_BYTES_MAX = 4 << 20 };

typedef struct rp_expressions {
    rp_map by_text; /* values: rp_tags */
    uint64_t bytes;
} rp_expressions;

int rp_expressions_init(rp_expressions *expressions); /* 0, or -1 without memory */
void rp_expressions_destroy(rp_expressions *expressions);
/* Keep the expression of an EXPRESSION message; without memory, or if it is not sound, it is not kept. */
void rp_expressions_add(rp_expressions *expressions, const uint8_t *data, uint32_t size);
/* Borrowed until the next message; NULL: it is not known. */
const rp_tags *rp_expressions_find(const rp_expressions *expressions, const uint8_t *text, uint32_t size);
#endif
