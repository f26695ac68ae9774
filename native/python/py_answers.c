/* What the upper layer answers, and what it produces on behalf of who asks. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

#include "broker/checked.h"
#include "broker/made.h"
#include "broker/slots.h"
#include "python/py_lent.h"
#include "python/py_reactor.h"

static void release_buffer(void *owner)
{
    /* Called from inside run(), without the GIL. */
    PyGILState_STATE state = PyGILState_Ensure();
    PyBuffer_Release(owner);
    PyMem_RawFree(owner);
    PyGILState_Release(state);
}

static void release_object(void *owner)
{
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF((PyObject *)owner);
    PyGILState_Release(state);
}

static int add_piece(struct output **first, struct output **last, PyObject *object)
{
    struct lent *lent = py_lent_of(object);
    if (lent != NULL) {
        conn_write_source(first, last, &lent->source, release_object, Py_NewRef(object));
        return 0;
    }
    Py_buffer *view = PyMem_RawMalloc(sizeof *view);
    if (view == NULL || PyObject_GetBuffer(object, view, PyBUF_SIMPLE) < 0) {
        PyMem_RawFree(view);
        return -1;
    }
    if (view->len == 0 || view->len > UINT32_MAX) {
        int status = view->len == 0 ? 0 : -1;
        if (status < 0)
            PyErr_SetString(PyExc_ValueError, "a piece of a body is larger than 4 GiB");
        PyBuffer_Release(view);
        PyMem_RawFree(view);
        return status;
    }
    conn_write_foreign(first, last, view->buf, (size_t)view->len, release_buffer, view);
    return 0;
}

static int add_body(struct output **first, struct output **last, PyObject *body)
{
    if (!PyList_Check(body))
        return add_piece(first, last, body);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(body); i++)
        if (add_piece(first, last, PyList_GET_ITEM(body, i)) < 0)
            return -1;
    return 0;
}

/* outputs_free() would take the GIL again through release_buffer: that is fine, it is reentrant. */
static PyObject *Reactor_respond(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    unsigned long long id;
    int status;
    const char *headers;
    Py_ssize_t headers_len;
    PyObject *body;
    if (reactor == NULL ||
        !PyArg_ParseTuple(args, "Kiy#O", &id, &status, &headers, &headers_len, &body))
        return NULL;
    struct output *first = output_new((size_t)headers_len), *last = first;
    if (first == NULL)
        return PyErr_NoMemory();
    memcpy(first->own, headers, (size_t)headers_len);
    first->len = (uint32_t)headers_len;
    if (add_body(&first, &last, body) < 0) {
        outputs_free(first);
        return NULL;
    }
    struct conn *conn;
    uint32_t number;
    struct slot *slot = slot_of_request(reactor, id, &conn, &number);
    if (slot == NULL) {
        outputs_free(first);
        Py_RETURN_FALSE; /* the client is gone */
    }
    slot->kind = SLOT_PYTHON;
    slot->status = (uint16_t)status;
    slot->first = first;
    slot->last = last;
    conn_answer(conn, slot);
    Py_RETURN_TRUE;
}

static PyObject *Reactor_connected(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    unsigned long long id;
    if (reactor == NULL || !PyArg_ParseTuple(args, "K", &id))
        return NULL;
    const struct conn *conn = loop_conn(&reactor->loop, id >> 24);
    return PyBool_FromLong(conn != NULL && !conn->closed && !conn->peer_eof);
}

/* ---- produces ---- */

static PyObject *Reactor_produce_made(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    unsigned long long id;
    const char *topic;
    Py_ssize_t topic_len;
    Py_buffer batch;
    int known_only;
    long long at = -1; /* any slice */
    if (reactor == NULL || !PyArg_ParseTuple(args, "Ks#y*p|L", &id, &topic, &topic_len, &batch,
                                             &known_only, &at))
        return NULL;
    const uint16_t problem = made_produce(reactor, id, topic, (size_t)topic_len, known_only,
                                          at, batch.buf, (size_t)batch.len);
    PyBuffer_Release(&batch);
    return py_problem(problem);
}

/* ---- what is looked at before it is produced ---- */

static PyObject *Reactor_produce_checked(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    unsigned long long id;
    Py_buffer body;
    int told;
    if (reactor == NULL || !PyArg_ParseTuple(args, "Ky*p", &id, &body, &told))
        return NULL;
    const uint16_t problem = checked_produce(reactor, id, told, body.buf, (size_t)body.len);
    PyBuffer_Release(&body);
    return py_problem(problem);
}

PyMethodDef reactor_answer_methods[] = {
    {"respond", Reactor_respond, METH_VARARGS, NULL},
    {"connected", Reactor_connected, METH_VARARGS, NULL},
    {"produce_made", Reactor_produce_made, METH_VARARGS, NULL},
    {"produce_checked", Reactor_produce_checked, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
