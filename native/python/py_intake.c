/* The Python face of the intake: what replicas send, and the groups taken without a word. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "python/py_reactor.h"
#include "python/py_seal.h"

static PyObject *Reactor_adopt_replica(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    int fd;
    unsigned group_bytes_max;
    struct seal *seal = NULL;
    if (reactor == NULL ||
        !PyArg_ParseTuple(args, "iI|O&", &fd, &group_bytes_max, py_seal_given, &seal))
        return NULL;
    const struct conn *conn = reactor_adopt_replica(reactor, fd, group_bytes_max, seal);
    return conn != NULL ? PyLong_FromUnsignedLongLong(conn_id(conn)) : PyErr_NoMemory();
}

static PyObject *Reactor_pause_replica(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    unsigned long long id;
    int paused;
    if (reactor == NULL || !PyArg_ParseTuple(args, "Kp", &id, &paused))
        return NULL;
    struct conn *conn = loop_conn(&reactor->loop, id);
    if (conn != NULL && !conn->closed) {
        conn->paused = paused;
        conn->since_ms = reactor->loop.now_ms; /* nobody is slow who had to wait */
        conn_mark_dirty(conn);
    }
    Py_RETURN_NONE;
}

static PyObject *Reactor_close_replica(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    unsigned long long id;
    if (reactor == NULL || !PyArg_ParseTuple(args, "K", &id))
        return NULL;
    struct conn *conn = loop_conn(&reactor->loop, id);
    if (conn != NULL)
        conn_close(conn);
    Py_RETURN_NONE;
}

static PyObject *Reactor_arm_intake(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    unsigned long long id, gseq, committed;
    unsigned header_crc;
    int fd;
    struct seal *seal = NULL;
    if (reactor == NULL || !PyArg_ParseTuple(args, "KiKIK|O&", &id, &fd, &gseq, &header_crc,
                                             &committed, py_seal_used, &seal))
        return NULL;
    return PyBool_FromLong(intake_arm(reactor, id, fd, seal, gseq, header_crc, committed));
}

static PyObject *Reactor_disarm_intake(PyObject *self, PyObject *none)
{
    struct reactor *reactor = reactor_of(self);
    if (reactor == NULL)
        return NULL;
    intake_disarm(reactor);
    Py_RETURN_NONE;
}

static PyObject *Reactor_intake_news(PyObject *self, PyObject *none)
{
    struct reactor *reactor = reactor_of(self);
    if (reactor == NULL)
        return NULL;
    const struct intake_news news = reactor->intake.news;
    if (!news.any)
        Py_RETURN_NONE;
    reactor->intake.news = (struct intake_news){0};
    return Py_BuildValue("(KKIKIK)", (unsigned long long)news.epoch,
                         (unsigned long long)news.taken, news.taken_crc,
                         (unsigned long long)news.stable, news.stable_crc,
                         (unsigned long long)news.committed);
}

/* barco/_native.pyi says what they do. */
PyMethodDef reactor_intake_methods[] = {
    {"adopt_replica", Reactor_adopt_replica, METH_VARARGS, NULL},
    {"pause_replica", Reactor_pause_replica, METH_VARARGS, NULL},
    {"close_replica", Reactor_close_replica, METH_VARARGS, NULL},
    {"arm_intake", Reactor_arm_intake, METH_VARARGS, NULL},
    {"disarm_intake", Reactor_disarm_intake, METH_NOARGS, NULL},
    {"intake_news", Reactor_intake_news, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
