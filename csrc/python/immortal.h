#ifndef ROCKETPY_IMMORTAL_H
#define ROCKETPY_IMMORTAL_H
/* Makes Python objects immortal (PEP 683): their references are counted no more, so a forked process that uses them
 * does not write to their pages. CPython has no function for objects that something refers to.
 *
 * The first word of an object counts its references. In CPython 3.12 and 3.13 it is UINT32_MAX in None, and in such an
 * object Py_INCREF and Py_DECREF leave it alone (object.h). Where None has another word, nothing happens: 3.11 counts
 * its references as well; 3.14 remembers in code that has run which constants are counted, and counts those unseen up
 * until their count overflows; without a GIL the word is that of a thread.
 *
 * Compiled with the glue of cffi, because C tests have no interpreter. It uses the stable ABI of 3.11 alone. */
#include <Python.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    PyObject *kinds;         /* a set of types: what their instances own is memory and references */
    PyTypeObject *code;      /* the type of code */
    void *class_deallocator; /* tp_dealloc of all classes that Python code defines */
} rp_immortality;

static const uintptr_t RP_IMMORTAL = UINT32_MAX;

static int rp_is_immortal(PyObject *object) { return memcmp(object, &RP_IMMORTAL, sizeof RP_IMMORTAL) == 0; }

/* Return 1 if nothing has to happen when an instance ends: it has no __del__, and all that C defines of its type is one
 * of the kinds. */
static int rp_owns_memory_only(PyTypeObject *type, const rp_immortality *all) {
    if (PySet_Contains(all->kinds, (PyObject *)type) == 1) return 1;
    if (PyType_GetSlot(type, Py_tp_finalize)) return 0;
    while (PyType_GetSlot(type, Py_tp_dealloc) == all->class_deallocator) type = PyType_GetSlot(type, Py_tp_base);
    return PySet_Contains(all->kinds, (PyObject *)type) == 1;
}

static int rp_immortalize(PyObject *object, void *immortality);

/* Only tuples, dictionaries and code: the collector does not track all of them, passes over names in dictionaries, and
 * knows nothing of code. */
static void rp_immortalize_parts(PyObject *object, rp_immortality *all) {
    if (PyTuple_CheckExact(object)) {
        for (Py_ssize_t i = 0; i < PyTuple_Size(object); i++) rp_immortalize(PyTuple_GetItem(object, i), all);
    } else if (PyDict_CheckExact(object)) {
        PyObject *key, *value;
        for (Py_ssize_t at = 0; PyDict_Next(object, &at, &key, &value);) {
            rp_immortalize(key, all);
            rp_immortalize(value, all);
        }
    } else if (Py_TYPE(object) == all->code) {
        const char *fields[] = {"co_consts", "co_names"};
        for (int i = 0; i < 2; i++) {
            PyObject *field = PyObject_GetAttrString(object, fields[i]);
            if (field) rp_immortalize(field, all);
            Py_XDECREF(field);
        }
    }
}

/* A visitproc. An immortal object ends the recursion in cycles. */
static int rp_immortalize(PyObject *object, void *immortality) {
    rp_immortality *all = immortality;
    if (rp_is_immortal(object) || !rp_owns_memory_only(Py_TYPE(object), all)) return 0;
    memcpy(object, &RP_IMMORTAL, sizeof RP_IMMORTAL);
    rp_immortalize_parts(object, all);
    return 0;
}

/* Make the objects of a list immortal, and what they refer to; only those that own memory and references alone.
 *
 * objects: address of the list; the garbage collector tracks all of them. kinds: of a set of the types in C whose
 * instances own nothing else. code: of the type of code. No other thread may run Python. */
static void rp_python_make_immortal(uintptr_t objects, uintptr_t kinds, uintptr_t code) {
    if (sizeof RP_IMMORTAL < sizeof(uint64_t) || !rp_is_immortal(Py_None)) return;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *class = PyObject_CallFunction((PyObject *)&PyType_Type, "s(){}", "Class");
    if (class) {
        void *class_deallocator = PyType_GetSlot((PyTypeObject *)class, Py_tp_dealloc);
        rp_immortality all = {(PyObject *)kinds, (PyTypeObject *)code, class_deallocator};
        Py_ssize_t count = PyList_Size((PyObject *)objects);
        for (Py_ssize_t i = 0; i < count; i++) {
            PyObject *object = PyList_GetItem((PyObject *)objects, i);
            traverseproc traverse = (traverseproc)PyType_GetSlot(Py_TYPE(object), Py_tp_traverse);
            rp_immortalize(object, &all);
            if (traverse) traverse(object, rp_immortalize, &all);
        }
        Py_DECREF(class);
    }
    PyErr_Clear();
    PyGILState_Release(state);
}
#endif
