/* The replicating half of the Python face: generations, a leader's groups, groups for followers. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <sys/socket.h>

#include "core/spans.h"
#include "format/group.h"
#include "loop/seal.h"
#include "python/py_reactor.h"
#include "python/py_seal.h"
#include "log/replica.h"

/* What the log told and Python has not heard yet is about the generation that ends. */
static void forget_upcalls(struct reactor *reactor)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < reactor->upcall_count; i++) {
        const uint8_t kind = reactor->upcalls[i].kind;
        if (kind != UPCALL_SEGMENT_WANTED && kind != UPCALL_SEGMENT_SEALED &&
            kind != UPCALL_BUILT && kind != UPCALL_LANDED)
            reactor->upcalls[kept++] = reactor->upcalls[i];
    }
    reactor->upcall_count = kept;
}

static PyObject *Reactor_begin_generation(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    unsigned long long epoch, session;
    int followers = true;
    if (reactor == NULL || !PyArg_ParseTuple(args, "KK|p", &epoch, &session, &followers))
        return NULL;
    if (!log_settled(reactor->log) || reactor->log->queue != NULL)
        return PyErr_Format(PyExc_RuntimeError, "appends of the generation before are under way");
    intake_disarm(reactor);
    log_begin(reactor->log, epoch, session, followers);
    forget_upcalls(reactor);
    reactor->last_landed = 0;
    reactor->opening = !followers;
    Py_RETURN_NONE;
}

static PyObject *Reactor_set_slices(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    unsigned first, last;
    if (reactor == NULL || !PyArg_ParseTuple(args, "II", &first, &last))
        return NULL;
    if (first > last || last >= reactor->options.slices)
        return PyErr_Format(PyExc_ValueError, "slices %u to %u are not of the %u of a token range",
                            first, last, reactor->options.slices);
    if (reactor_set_slices(reactor, first, last) < 0)
        return PyErr_Format(PyExc_RuntimeError, "a generation is open, or something of it is under"
                                                " way, or there is no memory");
    Py_RETURN_NONE;
}

static PyObject *Reactor_follow(PyObject *self, PyObject *none)
{
    struct reactor *reactor = reactor_of(self);
    if (reactor == NULL)
        return NULL;
    if (!reactor->log->gated || reactor->log->open)
        return PyErr_Format(PyExc_RuntimeError, "begin a generation first, and do not lead it");
    log_follow(reactor->log);
    Py_RETURN_NONE;
}

static PyObject *Reactor_take_group(PyObject *self, PyObject *args)
{
    static const char *const verdicts[] = {"taken", "wait", "gap", "strange", "damaged", "closed"};
    struct reactor *reactor = reactor_of(self);
    Py_buffer bytes;
    if (reactor == NULL || !PyArg_ParseTuple(args, "y*", &bytes))
        return NULL;
    intake_disarm(reactor); /* it may have begun to put another where this comes to stand */
    enum foreign verdict = log_take(reactor->log, bytes.buf, (size_t)bytes.len);
    PyBuffer_Release(&bytes);
    return PyUnicode_FromString(verdicts[verdict]);
}

static PyObject *Reactor_kept(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    unsigned long long gseq;
    if (reactor == NULL || !PyArg_ParseTuple(args, "K", &gseq))
        return NULL;
    log_kept(reactor->log, gseq);
    Py_RETURN_NONE;
}

static PyObject *Reactor_load_segment(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    unsigned index;
    int fd;
    unsigned long long capacity;
    if (reactor == NULL || !PyArg_ParseTuple(args, "IiK", &index, &fd, &capacity))
        return NULL;
    if (!reactor->log->gated || reactor->log->open || reactor->log->following)
        return PyErr_Format(PyExc_RuntimeError, "begin a generation first");
    log_load_segment(reactor->log, index, fd, capacity);
    Py_RETURN_NONE;
}

static PyObject *Reactor_load_group(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    Py_buffer bytes;
    if (reactor == NULL || !PyArg_ParseTuple(args, "y*", &bytes))
        return NULL;
    int status = log_load_group(reactor->log, bytes.buf, (size_t)bytes.len);
    reactor_slices_read(reactor);
    PyBuffer_Release(&bytes);
    if (status < 0)
        return PyErr_Format(PyExc_ValueError, "the group does not hold valid chunks of this shard");
    Py_RETURN_NONE;
}

static PyObject *Reactor_replicated(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    unsigned long long gseq;
    if (reactor == NULL || !PyArg_ParseTuple(args, "K", &gseq))
        return NULL;
    const int64_t now_us = monotonic_us();
    stages_replicated(&reactor->stages, reactor->log, gseq, now_us);
    if (reactor->spans != NULL)
        span_groups_replicated(reactor, gseq, now_us);
    log_replicated(reactor->log, gseq);
    Py_RETURN_NONE;
}

static PyObject *Reactor_drain_generation(PyObject *self, PyObject *none)
{
    struct reactor *reactor = reactor_of(self);
    if (reactor == NULL)
        return NULL;
    intake_disarm(reactor);
    log_drain(reactor->log);
    Py_RETURN_NONE;
}

static PyObject *Reactor_park(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    unsigned most_ms;
    if (reactor == NULL || !PyArg_ParseTuple(args, "I", &most_ms))
        return NULL;
    reactor->park.most_ms = most_ms;
    Py_RETURN_NONE;
}

static PyObject *Reactor_hold(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    unsigned ms;
    if (reactor == NULL || !PyArg_ParseTuple(args, "I", &ms))
        return NULL;
    park_hold(reactor, ms);
    return PyBool_FromLong(log_idle(reactor->log));
}

static PyObject *Reactor_tell_settled(PyObject *self, PyObject *none)
{
    struct reactor *reactor = reactor_of(self);
    if (reactor == NULL)
        return NULL;
    reactor->tells_settled = true;
    Py_RETURN_NONE;
}

static PyObject *Reactor_fence(PyObject *self, PyObject *none)
{
    struct reactor *reactor = reactor_of(self);
    if (reactor == NULL)
        return NULL;
    intake_disarm(reactor);
    reactor_fence(reactor);
    Py_RETURN_NONE;
}

/* Sends head, then the group, without a copy of it: the bytes are the socket's, or the seal's, when
 * this returns. */
static PyObject *Reactor_send_group(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    int fd;
    Py_buffer head;
    unsigned long long pos, bytes, sent;
    struct seal *seal = NULL;
    if (reactor == NULL || !PyArg_ParseTuple(args, "iy*KKK|O&", &fd, &head, &pos, &bytes, &sent,
                                             py_seal_used, &seal))
        return NULL;
    const struct log *log = reactor->log;
    uint64_t head_sent = sent < (uint64_t)head.len ? sent : (uint64_t)head.len;
    uint64_t body_sent = sent - head_sent;
    if (pos < log_memory_low(log) || bytes > log->head || pos > log->head - bytes ||
        body_sent > bytes) {
        PyBuffer_Release(&head);
        Py_RETURN_NONE;
    }
    struct iovec parts[2] = {
        {(char *)head.buf + head_sent, (size_t)head.len - head_sent},
        {(void *)log_memory(log, pos + body_sent), bytes - body_sent},
    };
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    const ssize_t result = seal_or_send(seal, fd, &message);
    PyBuffer_Release(&head);
    return py_seal_taken(result);
}

/* barco/_native.pyi says what they do. */
PyMethodDef reactor_replica_methods[] = {
    {"begin_generation", Reactor_begin_generation, METH_VARARGS, NULL},
    {"set_slices", Reactor_set_slices, METH_VARARGS, NULL},
    {"follow", Reactor_follow, METH_NOARGS, NULL},
    {"take_group", Reactor_take_group, METH_VARARGS, NULL},
    {"kept", Reactor_kept, METH_VARARGS, NULL},
    {"load_segment", Reactor_load_segment, METH_VARARGS, NULL},
    {"load_group", Reactor_load_group, METH_VARARGS, NULL},
    {"replicated", Reactor_replicated, METH_VARARGS, NULL},
    {"drain_generation", Reactor_drain_generation, METH_NOARGS, NULL},
    {"park", Reactor_park, METH_VARARGS, NULL},
    {"hold", Reactor_hold, METH_VARARGS, NULL},
    {"tell_settled", Reactor_tell_settled, METH_NOARGS, NULL},
    {"fence", Reactor_fence, METH_NOARGS, NULL},
    {"send_group", Reactor_send_group, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
