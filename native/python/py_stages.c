/* How long the stages of a produce take, for Python: as counts, what the counts are of, and of
 * single requests that are traced. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "core/spans.h"
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

static PyObject *Reactor_trace(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    double ratio;
    if (reactor == NULL || !PyArg_ParseTuple(args, "d", &ratio))
        return NULL;
    if (!(ratio >= 0 && ratio <= 1))
        return PyErr_Format(PyExc_ValueError, "a ratio is from 0 to 1");
    if (!spans_begin(reactor, (uint64_t)(ratio * 4294967296.0)))
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* Of the wall clock; 0 stays 0. */
static long long wall(const struct loop *loop, int64_t at_us)
{
    return at_us == 0 ? 0 : (long long)(at_us - loop->monotonic_us + loop->wall_us);
}

static PyObject *span_told(const struct loop *loop, const struct span *span)
{
    const struct span_group *group = &span->group;
    return Py_BuildValue("(y#y#y#Oss#HKLLLLLLL)", span->trace, (Py_ssize_t)SPAN_TRACE_BYTES,
                         span->parent, (Py_ssize_t)(span->has_parent ? SPAN_PARENT_BYTES : 0),
                         span->handed_as, (Py_ssize_t)(span->handed_on ? SPAN_PARENT_BYTES : 0),
                         span->handed_in ? Py_True : Py_False, span->id,
                         span->topic, (Py_ssize_t)span->topic_len, span->status,
                         (unsigned long long)span->events, wall(loop, span->begun_us),
                         wall(loop, span->received_us), wall(loop, group->built_us),
                         wall(loop, group->written_us), wall(loop, group->replicated_us),
                         wall(loop, span->handed_us), wall(loop, span->answered_us));
}

static PyObject *Reactor_spans(PyObject *self, PyObject *none)
{
    struct reactor *reactor = reactor_of(self);
    if (reactor == NULL)
        return NULL;
    const struct spans *spans = reactor->spans;
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && spans != NULL && i < spans->count; i++)
        py_append(&list, span_told(&reactor->loop, &spans->kept[i]));
    if (list == NULL)
        return NULL;
    if (spans != NULL)
        spans_taken(reactor);
    return Py_BuildValue("(NK)", list, (unsigned long long)(spans == NULL ? 0 : spans->lost));
}

/* barco/_native.pyi says what they do. */
PyMethodDef reactor_stages_methods[] = {
    {"stages", Reactor_stages, METH_NOARGS, NULL},
    {"trace", Reactor_trace, METH_VARARGS, NULL},
    {"spans", Reactor_spans, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef functions[] = {
    {"histogram_bounds", histogram_bounds, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int py_stages_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
