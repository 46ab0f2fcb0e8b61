#ifndef ROCKETPY_QUERY_WORKERS_H
#define ROCKETPY_QUERY_WORKERS_H
/* Which query worker serves the next query. */
#include <stdint.h>
#include "ipc/ring.h"

/* The query worker for the next query. Queries belong to nobody: the first worker, counted from `turn` on, that has
 * none waiting in its ring of `rings` or for its tasks; if all have, that of `turn`. So a worker that stands still
 * delays few queries while another is free. 0 < count. */
uint32_t rp_query_workers_next(rp_ring *const *rings, uint32_t count, uint32_t turn);
#endif
