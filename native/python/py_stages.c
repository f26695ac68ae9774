/* How long the stages of a produce take, for Python: as counts, and what the counts are of. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "python/py_codec.h"
#include "python/py_reactor.h"

/* The counts without the empty buckets behind the last one that is not. */
static PyObject *counts_of(const struct histogram *histogram)
{
    uint32_t used = HISTOGRAM_BUCKETS;
    while (used > 0 && histogram->counts[used - 1] == 0)
        used--;
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < used; i++)
        py_append(&list, PyLong_FromUnsignedLongLong(histogram->counts[i]));
    return list;
}

static PyObject *Reactor_stages(PyObject *self, PyObject *none)
{
    struct reactor *reactor = reactor_of(self);
    if (reactor == NULL)
        return NULL;
    PyObject *dict = PyDict_New();
    for (int i = 0; dict != NULL && i < STAGES; i++) {
        const struct histogram *histogram = &reactor->stages.of[i];
        PyObject *counts = counts_of(histogram), *pair = NULL;
        if (counts != NULL)
            pair = Py_BuildValue("KN", (unsigned long long)histogram->sum, counts);
        if (pair == NULL || PyDict_SetItemString(dict, stage_name((enum stage)i), pair) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(pair);
    }
    return dict;
}

static PyObject *histogram_bounds(PyObject *module, PyObject *none)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < HISTOGRAM_BUCKETS - 1; i++)
        py_append(&list, PyLong_FromUnsignedLongLong(histogram_bound(i)));
    return list;
}

/* barco/_native.pyi says what they do. */
PyMethodDef reactor_stages_methods[] = {
    {"stages", Reactor_stages, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef functions[] = {
    {"histogram_bounds", histogram_bounds, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int py_stages_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
