#ifndef ROCKETPY_POOLS_H
#define ROCKETPY_POOLS_H
/* Fills the free places between Python's small objects. A forked process would copy a page for each place that it
 * uses; without them its new objects lie side by side in pages of its own.
 *
 * CPython keeps blocks of up to 512 bytes in pools of 16 KiB, one size each, whose header counts the blocks in use
 * (pycore_obmalloc.h). A block that is alone in its pool has begun it, as no other pool of this size has room.
 *
 * Compiled with the glue of cffi, because C tests have no interpreter.
 * Short: the interpreter's allocator, of which no other C file knows anything. */
#include <Python.h>
#include <stdint.h>
#include <sys/mman.h>

enum { RP_POOL_BYTES = 16384, RP_POOL_BLOCK_MAX = 512, RP_POOL_BLOCK_STEP = 16 };

typedef struct {
    union {
        void *padding;
        unsigned count;
    } used;
    void *links[3];
    unsigned arena, size_index, next, last;
} rp_pool;

/* The pool of a block, or NULL: the interpreter has another allocator. */
static const rp_pool *rp_pool_of(const void *block, size_t size) {
    const rp_pool *pool = (const rp_pool *)((uintptr_t)block & ~(uintptr_t)(RP_POOL_BYTES - 1));
    unsigned char is_resident;
    if (!block || mincore((void *)pool, 1, &is_resident)) return NULL; /* it is not mapped */
    return pool->size_index == (size - 1) / RP_POOL_BLOCK_STEP ? pool : NULL;
}

/* Take all free places. They are never given back. */
static void rp_python_fill_pools(void) {
    PyGILState_STATE state = PyGILState_Ensure();
    for (size_t size = RP_POOL_BLOCK_STEP; size <= RP_POOL_BLOCK_MAX; size += RP_POOL_BLOCK_STEP) {
        const rp_pool *pool;
        void *block;
        do {
            block = PyObject_Malloc(size);
            pool = rp_pool_of(block, size);
        } while (pool && pool->used.count > 1);
        PyObject_Free(block);
    }
    PyGILState_Release(state);
}
#endif
