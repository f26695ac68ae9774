/* barco._native, server-sent events: feeds, listeners, and the form of what they hear. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "broker/feed.h"
#include "broker/slots.h"
#include "python/py_codec.h"
#include "python/py_reactor.h"
#include "read/events.h"

static PyObject *Reactor_feed_open(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    const char *id;
    Py_ssize_t len;
    if (reactor == NULL || !PyArg_ParseTuple(args, "s#", &id, &len))
        return NULL;
    const int number = feed_open(reactor, id, (size_t)len);
    return number >= 0 ? PyLong_FromLong(number) : Py_NewRef(Py_None);
}

static struct feed *feed_given(struct reactor *reactor, unsigned number)
{
    struct feed *feed = feed_at(reactor, number);
    if (feed == NULL)
        PyErr_Format(PyExc_ValueError, "there is no feed %u", number);
    return feed;
}

static PyObject *Reactor_feed_close(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    unsigned number;
    if (reactor == NULL || !PyArg_ParseTuple(args, "I", &number) ||
        feed_given(reactor, number) == NULL)
        return NULL;
    feed_close(reactor, number);
    Py_RETURN_NONE;
}

static PyObject *feed_range(const struct feed *feed)
{
    return Py_BuildValue("(KK)", (unsigned long long)feed->first->base,
                         (unsigned long long)feed_end(feed));
}

static PyObject *Reactor_feed_push(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    unsigned number;
    const char *id, *text;
    Py_ssize_t id_len, len;
    if (reactor == NULL ||
        !PyArg_ParseTuple(args, "Is#y#", &number, &id, &id_len, &text, &len) ||
        feed_given(reactor, number) == NULL)
        return NULL;
    if (len == 0 || id_len > (Py_ssize_t)FEED_ID_BYTES_MAX)
        return PyErr_Format(PyExc_ValueError, "no text, or too long an id");
    if (!feed_push(reactor, number, id, (size_t)id_len, (const uint8_t *)text, (size_t)len))
        Py_RETURN_NONE;
    return feed_range(feed_at(reactor, number));
}

/* The connection of a request; NULL: it is gone. */
static struct conn *conn_of(struct reactor *reactor, unsigned long long request)
{
    struct conn *conn = loop_conn(&reactor->loop, request >> 24);
    return conn != NULL && !conn->closed ? conn : NULL;
}

/* The connection of a listener; NULL: it is gone. */
static struct conn *heard_by(struct reactor *reactor, unsigned long long request)
{
    struct conn *conn = conn_of(reactor, request);
    return conn != NULL && is_guest(conn) && client_of(conn)->hearer != NULL ? conn : NULL;
}

static PyObject *Reactor_stream(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    unsigned long long request;
    const char *headers;
    Py_ssize_t len;
    if (reactor == NULL || !PyArg_ParseTuple(args, "Ky#", &request, &headers, &len))
        return NULL;
    struct conn *conn = conn_of(reactor, request);
    struct slot *slot = conn != NULL ? conn_slot(conn, client_of(conn)->slot_first) : NULL;
    if (slot == NULL || slot->kind != SLOT_OPEN || client_of(conn)->hearer != NULL ||
        (client_of(conn)->slot_first & 0xffffff) != (request & 0xffffff))
        Py_RETURN_FALSE; /* gone, or its turn has not come */
    struct output *first = output_new((size_t)len);
    if (first == NULL || !hearer_begin(conn, request)) {
        outputs_free(first);
        return PyErr_NoMemory();
    }
    memcpy(first->own, headers, (size_t)len);
    first->len = (uint32_t)len;
    slot->kind = SLOT_STREAM;
    slot->status = 200;
    slot->first = slot->last = first;
    conn_answer(conn, slot);
    Py_RETURN_TRUE;
}

static PyObject *Reactor_stream_write(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    unsigned long long request;
    const char *text;
    Py_ssize_t len;
    if (reactor == NULL || !PyArg_ParseTuple(args, "Ky#", &request, &text, &len))
        return NULL;
    struct conn *conn = heard_by(reactor, request);
    if (conn == NULL)
        Py_RETURN_FALSE;
    if (client_of(conn)->hearer->feed != NULL)
        return PyErr_Format(PyExc_ValueError, "it has joined a feed");
    if (len > 0)
        hearer_write(conn, (const uint8_t *)text, (size_t)len);
    Py_RETURN_TRUE;
}

static PyObject *Reactor_stream_join(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    unsigned long long request, from;
    unsigned number;
    if (reactor == NULL || !PyArg_ParseTuple(args, "KIK", &request, &number, &from))
        return NULL;
    struct conn *conn = heard_by(reactor, request);
    if (conn == NULL || client_of(conn)->hearer->feed != NULL)
        Py_RETURN_FALSE;
    return PyBool_FromLong(hearer_join(conn, number, from));
}

static PyObject *Reactor_stream_end(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    unsigned long long request;
    if (reactor == NULL || !PyArg_ParseTuple(args, "K", &request))
        return NULL;
    struct conn *conn = heard_by(reactor, request);
    if (conn != NULL)
        conn_close(conn);
    Py_RETURN_NONE;
}

PyMethodDef reactor_feed_methods[] = {
    {"feed_open", Reactor_feed_open, METH_VARARGS,
     "feed_open(id) -> its number, or None: there are too many."},
    {"feed_close", Reactor_feed_close, METH_VARARGS,
     "feed_close(feed): its listeners' connections end."},
    {"feed_push", Reactor_feed_push, METH_VARARGS,
     "feed_push(feed, id_before, text) -> (where its text begins, and ends); None: no room now."},
    {"stream", Reactor_stream, METH_VARARGS,
     "stream(request_id, headers) -> whether it listens now; else gone, or its turn is to come."},
    {"stream_write", Reactor_stream_write, METH_VARARGS,
     "stream_write(request_id, text) -> whether it is there. A 'hearer' upcall tells when sent."},
    {"stream_join", Reactor_stream_join, METH_VARARGS,
     "stream_join(request_id, feed, place) -> whether it hears the feed from there on."},
    {"stream_end", Reactor_stream_end, METH_VARARGS, "stream_end(request_id): hangs up."},
    {NULL, NULL, 0, NULL},
};

static PyObject *py_frame_events(PyObject *module, PyObject *args)
{
    const char *text;
    Py_ssize_t len, before_len, behind_len;
    uint64_t offset;
    unsigned epoch;
    int listed;
    struct event_id id;
    if (!PyArg_ParseTuple(args, "y#O&Is#s#p", &text, &len, py_u64_argument, &offset, &epoch,
                          &id.before, &before_len, &id.behind, &behind_len, &listed))
        return NULL;
    if (before_len > (Py_ssize_t)FEED_ID_BYTES_MAX || behind_len > (Py_ssize_t)FEED_ID_BYTES_MAX)
        return PyErr_Format(PyExc_ValueError, "the ends of an id are too long");
    id.before_len = (size_t)before_len;
    id.behind_len = (size_t)behind_len;
    id.listed = listed;
    size_t lines = 0;
    for (const char *at = text; (at = memchr(at, '\n', (size_t)(text + len - at))) != NULL; at++)
        lines++;
    const size_t each = EVENT_FRAME_BYTES + id.before_len + id.behind_len;
    PyObject *framed = PyBytes_FromStringAndSize(NULL, len + (Py_ssize_t)(lines * each));
    if (framed == NULL)
        return NULL;
    const size_t used = frame_events(text, (size_t)len, offset, epoch, &id,
                                     PyBytes_AS_STRING(framed));
    _PyBytes_Resize(&framed, (Py_ssize_t)used);
    return framed;
}

static PyMethodDef functions[] = {
    {"frame_events", py_frame_events, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int py_feed_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
