/* The reactor's commits: batches that were checked when they were staged, appended with a mark. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "broker/answer.h"
#include "python/py_reactor.h"

#define COMMIT_BATCHES_MAX 65536

static PyObject *problem_error(uint16_t problem)
{
    switch (problem) {
    case PROBLEM_BUSY:
    case PROBLEM_NOT_READY:
    case PROBLEM_DISK_FULL:
    case PROBLEM_OLD_BROKERS:
        return PyErr_Format(PyExc_RuntimeError, "%s", answer_title(problem));
    case PROBLEM_EVENT_TOO_LARGE: PyErr_SetString(PyExc_OverflowError, "an event is too large");
        return NULL;
    case PROBLEM_BODY_TOO_LARGE: PyErr_SetString(PyExc_OverflowError, "the batch is too large");
        return NULL;
    case PROBLEM_NO_EVENTS: PyErr_SetString(PyExc_ValueError, "there are no events in it");
        return NULL;
    case PROBLEM_BAD_SLICE:
        PyErr_SetString(PyExc_ValueError, "a key belongs to another slice");
        return NULL;
    case PROBLEM_BAD_TIMESTAMP: PyErr_SetString(PyExc_ValueError, "a timestamp is out of range");
        return NULL;
    default: PyErr_SetString(PyExc_ValueError, "it is malformed, or fails its checksums");
        return NULL;
    }
}

static bool own_slice(const struct reactor *reactor, unsigned slice)
{
    if (shard_has(reactor->shard, slice))
        return true;
    PyErr_Format(PyExc_ValueError, "slice %u belongs to another worker", slice);
    return false;
}

static PyObject *Reactor_check_batch(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    struct batch_outline outline;
    unsigned slice;
    int taken = 0;
    Py_buffer batch;
    if (reactor == NULL || !PyArg_ParseTuple(args, "Iy*|p", &slice, &batch, &taken))
        return NULL;
    uint16_t problem = PROBLEM_BAD_SLICE;
    if (own_slice(reactor, slice))
        problem = batch_check(reactor, slice, batch.buf, (size_t)batch.len, taken, &outline);
    PyBuffer_Release(&batch);
    if (PyErr_Occurred() || problem != PROBLEM_NONE)
        return PyErr_Occurred() ? NULL : problem_error(problem);
    return Py_BuildValue("(IILLL)", outline.count, outline.bytes, (long long)outline.token_min,
                         (long long)outline.token_max, (long long)outline.max_timestamp);
}

/* A tuple (batch, count, bytes, token_min, token_max, max_timestamp). The buffer stays held. */
static bool take_batch(PyObject *item, struct commit_batch *batch, Py_buffer *view)
{
    struct batch_outline *o = &batch->outline;
    long long low, high, latest;
    if (!PyTuple_Check(item)) {
        PyErr_SetString(PyExc_TypeError, "a batch is a tuple of six");
        return false;
    }
    if (!PyArg_ParseTuple(item, "y*IILLL", view, &o->count, &o->bytes, &low, &high, &latest))
        return false;
    o->token_min = low;
    o->token_max = high;
    o->max_timestamp = latest;
    batch->bytes = view->buf;
    batch->len = (size_t)view->len;
    return true;
}

static uint16_t append_all(struct reactor *reactor, struct commit *commit, PyObject *list)
{
    Py_ssize_t count = PyList_GET_SIZE(list), held = 0;
    struct commit_batch *batches = PyMem_Calloc((size_t)count + 1, sizeof *batches);
    Py_buffer *views = PyMem_Calloc((size_t)count + 1, sizeof *views);
    uint16_t problem = PROBLEM_BUSY;
    if (batches != NULL && views != NULL) {
        while (held < count &&
               take_batch(PyList_GET_ITEM(list, held), &batches[held], &views[held]))
            held++;
        commit->batches = batches;
        commit->batch_count = (uint32_t)count;
        if (held == count)
            problem = commit_append(reactor, commit);
        while (held > 0)
            PyBuffer_Release(&views[--held]);
    }
    PyMem_Free(batches);
    PyMem_Free(views);
    return problem;
}

static PyObject *Reactor_append_commit(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    struct commit commit = {0};
    unsigned long long tag;
    const char *topic, *mark, *key, *value;
    Py_ssize_t topic_len, mark_len, key_len, value_len;
    PyObject *list;
    if (reactor == NULL ||
        !PyArg_ParseTuple(args, "Ks#IO!s#y#y#", &tag, &topic, &topic_len, &commit.slice,
                          &PyList_Type, &list, &mark, &mark_len, &key, &key_len, &value,
                          &value_len) ||
        !own_slice(reactor, commit.slice))
        return NULL;
    if (PyList_GET_SIZE(list) > COMMIT_BATCHES_MAX || key_len > (Py_ssize_t)KEY_BYTES_MAX ||
        value_len > (Py_ssize_t)CHUNK_VALUES_TARGET)
        return PyErr_Format(PyExc_OverflowError, "the commit is too large");
    commit.tag = tag;
    commit.topic = shard_topic_make(reactor->shard, topic, (size_t)topic_len);
    commit.mark_topic = shard_topic_make(reactor->shard, mark, (size_t)mark_len);
    if (commit.topic == NULL || commit.mark_topic == NULL)
        return PyErr_Format(PyExc_RuntimeError, "not taken: there are too many topics");
    commit.key = (const uint8_t *)key;
    commit.key_len = (uint32_t)key_len;
    commit.value = (const uint8_t *)value;
    commit.value_len = (uint32_t)value_len;
    uint16_t problem = append_all(reactor, &commit, list);
    if (PyErr_Occurred())
        return NULL;
    if (problem != PROBLEM_NONE)
        return problem_error(problem);
    Py_RETURN_NONE;
}

/* barco/_native.pyi says what they do. */
PyMethodDef reactor_commit_methods[] = {
    {"check_batch", Reactor_check_batch, METH_VARARGS, NULL},
    {"append_commit", Reactor_append_commit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
