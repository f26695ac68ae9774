/* Events that wait until they are due: which of them are next, and a batch of those that are. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string.h>

#include "format/pick.h"
#include "python/py_codec.h"
#include "python/py_reactor.h"

/* When an event is due, and its place among those that are due then. */
struct key {
    int64_t due;
    uint64_t offset;
};

static int key_argument(PyObject *given, void *into)
{
    struct key *key = into;
    long long due;
    unsigned long long offset;
    if (!PyTuple_Check(given) || !PyArg_ParseTuple(given, "LK", &due, &offset)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a key is a pair of numbers");
        return 0;
    }
    *key = (struct key){due, offset};
    return 1;
}

static bool is_before(const struct key *one, const struct key *other)
{
    return one->due != other->due ? one->due < other->due : one->offset < other->offset;
}

static PyObject *key_pair(const struct key *key)
{
    return Py_BuildValue("(LK)", (long long)key->due, (unsigned long long)key->offset);
}

static PyObject *py_times_between(PyObject *module, PyObject *args)
{
    Py_buffer times;
    struct key low, high, least = {INT64_MAX, UINT64_MAX};
    unsigned long long first;
    if (!PyArg_ParseTuple(args, "y*KO&O&", &times, &first, key_argument, &low, key_argument,
                          &high))
        return NULL;
    PyObject *found = PyList_New(0), *beyond = NULL;
    bool any = false;
    for (Py_ssize_t i = 0; found != NULL && i < times.len / 8; i++) {
        struct key key = {.offset = first + (uint64_t)i};
        memcpy(&key.due, (const uint8_t *)times.buf + i * 8, 8);
        if (is_before(&key, &low))
            continue;
        if (is_before(&key, &high))
            py_append(&found, key_pair(&key));
        else if (!any || is_before(&key, &least))
            least = key, any = true;
    }
    PyBuffer_Release(&times);
    if (found != NULL)
        beyond = any ? key_pair(&least) : Py_NewRef(Py_None);
    if (beyond == NULL) {
        Py_XDECREF(found);
        return NULL;
    }
    return Py_BuildValue("(NN)", found, beyond);
}

static struct chunk_sealer *own_sealer; /* The interpreter lock serializes its users. */

/* The places of the offsets in the chunk; false with an exception. */
static bool places_of(PyObject *offsets, const struct chunk_view *view, uint32_t *places)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(offsets); i++) {
        const unsigned long long offset =
            PyLong_AsUnsignedLongLong(PyList_GET_ITEM(offsets, i));
        if (PyErr_Occurred())
            return false;
        if (offset < view->base_offset || offset - view->base_offset >= view->count) {
            PyErr_SetString(PyExc_ValueError, "an offset is not in the chunk");
            return false;
        }
        places[i] = (uint32_t)(offset - view->base_offset);
    }
    return true;
}

static PyObject *picked(const struct chunk_view *view, PyObject *offsets)
{
    const Py_ssize_t count = PyList_GET_SIZE(offsets);
    PyObject *result = NULL;
    uint8_t *batch = NULL;
    if (count < 1 || count > view->count)
        return PyErr_Format(PyExc_ValueError, "%zd events of %u", count, view->count);
    uint32_t *places = PyMem_Malloc((size_t)count * sizeof *places);
    if (places == NULL)
        return PyErr_NoMemory();
    if (places_of(offsets, view, places)) {
        const size_t len = chunk_pick(own_sealer, view, places, (uint32_t)count, &batch);
        if (len > 0)
            result = PyBytes_FromStringAndSize((const char *)batch, (Py_ssize_t)len);
        else
            PyErr_SetString(PyExc_ValueError, "the chunk is damaged");
    }
    free(batch);
    PyMem_Free(places);
    return result;
}

static PyObject *py_chunk_batch(PyObject *module, PyObject *args)
{
    Py_buffer buf;
    struct chunk_view view;
    PyObject *offsets, *result = NULL;
    if (!PyArg_ParseTuple(args, "y*O!", &buf, &PyList_Type, &offsets))
        return NULL;
    if (own_sealer == NULL && (own_sealer = chunk_sealer_new(1)) == NULL)
        PyErr_NoMemory();
    else if (chunk_open(buf.buf, (size_t)buf.len, &view) < 0 || chunk_verify(&view) < 0)
        PyErr_SetString(PyExc_ValueError, "the chunk is damaged");
    else
        result = picked(&view, offsets);
    PyBuffer_Release(&buf);
    return result;
}

static PyObject *Reactor_take_delays(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    long long most_us;
    if (reactor == NULL || !PyArg_ParseTuple(args, "L", &most_us))
        return NULL;
    reactor->delay_us_max = most_us;
    Py_RETURN_NONE;
}

static void add_stream(PyObject **list, const struct stream *stream)
{
    if (stream == NULL || stream->next_offset == 0)
        return; /* made for a call that was refused, or is not written yet */
    const struct topic *topic = stream->topic;
    py_append(list, Py_BuildValue("(s#IKK)", topic->name, (Py_ssize_t)topic->name_len,
                                  stream->slice, (unsigned long long)stream->start_offset,
                                  (unsigned long long)stream->stable_offset));
}

static PyObject *streams_of(const struct shard *shard)
{
    PyObject *list = PyList_New(0);
    for (uint32_t t = 0; list != NULL && t < shard->delayed_count; t++)
        for (uint32_t s = 0; list != NULL && s < shard->slice_count; s++)
            add_stream(&list, shard->topics[shard->delayed[t]]->streams[s]);
    return list;
}

static PyObject *Reactor_delayed_news(PyObject *self, PyObject *none)
{
    struct reactor *reactor = reactor_of(self);
    if (reactor == NULL)
        return NULL;
    struct shard *shard = reactor->shard;
    const struct delayed_news news = shard->news;
    shard->news.count = 0;
    if (news.count > DELAYED_NEWS_MAX)
        return streams_of(shard);
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < news.count; i++)
        add_stream(&list, shard_stream_get(shard, shard->topics[news.of[i].topic],
                                           news.of[i].slice));
    return list;
}

static PyObject *Reactor_delayed_streams(PyObject *self, PyObject *none)
{
    struct reactor *reactor = reactor_of(self);
    return reactor == NULL ? NULL : streams_of(reactor->shard);
}

/* barco/_native.pyi says what they do. */
PyMethodDef reactor_delays_methods[] = {
    {"take_delays", Reactor_take_delays, METH_VARARGS, NULL},
    {"delayed_news", Reactor_delayed_news, METH_NOARGS, NULL},
    {"delayed_streams", Reactor_delayed_streams, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef functions[] = {
    {"times_between", py_times_between, METH_VARARGS, NULL},
    {"chunk_batch", py_chunk_batch, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int py_delays_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
