/* barco._native, who may produce what: the table of users, as the upper layer has heard it, and
 * what was refused to them. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "admission/access.h"
#include "admission/refusals.h"
#include "python/py_codec.h"
#include "python/py_reactor.h"

static PyObject *Reactor_set_access(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    const char *table;
    Py_ssize_t len;
    if (reactor == NULL || !PyArg_ParseTuple(args, "z#", &table, &len))
        return NULL;
    if (!access_set(reactor, (const uint8_t *)table, table != NULL ? (size_t)len : 0))
        return PyErr_Format(PyExc_ValueError, "a table of users is malformed, or too large");
    Py_RETURN_NONE;
}

static PyObject *number_of(uint32_t user)
{
    return user == NO_USER ? Py_NewRef(Py_None) : PyLong_FromUnsignedLong(user);
}

static PyObject *text_of(const char *text, size_t len)
{
    return PyUnicode_DecodeLatin1(text, (Py_ssize_t)len, NULL);
}

static PyObject *told(const struct refusal *kept)
{
    return Py_BuildValue("(sLNHsNNs)", kept->id, (long long)kept->wall_us, number_of(kept->user),
                         kept->status, kept->why, text_of(kept->method, kept->method_len),
                         text_of(kept->path, kept->path_len), kept->from);
}

static PyObject *Reactor_refusals(PyObject *self, PyObject *none)
{
    struct reactor *reactor = reactor_of(self);
    if (reactor == NULL)
        return NULL;
    const struct refusals *refusals = reactor->refusals;
    PyObject *lines = PyList_New(0), *more = PyList_New(0);
    for (uint32_t i = 0; lines != NULL && refusals != NULL && i < refusals->count; i++)
        py_append(&lines, told(&refusals->kept[i]));
    for (uint32_t user = 0; more != NULL && refusals != NULL && refusals->any &&
                            user <= refusals->users; user++)
        if (refusals->tallies[user].more > 0)
            py_append(&more, Py_BuildValue("(NK)",
                                           number_of(user < refusals->users ? user : NO_USER),
                                           (unsigned long long)refusals->tallies[user].more));
    if (lines == NULL || more == NULL) {
        Py_XDECREF(lines);
        Py_XDECREF(more);
        return NULL;
    }
    if (refusals != NULL)
        refusals_taken(reactor);
    return Py_BuildValue("(NN)", lines, more);
}

static PyObject *Reactor_write_format(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    unsigned char format;
    if (reactor == NULL || !PyArg_ParseTuple(args, "b", &format))
        return NULL;
    reactor->log_format = format;
    Py_RETURN_NONE;
}

static PyObject *Reactor_take_certificates(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    int on;
    if (reactor == NULL || !PyArg_ParseTuple(args, "p", &on))
        return NULL;
    reactor->by_certificate = on;
    Py_RETURN_NONE;
}

PyMethodDef reactor_access_methods[] = {
    {"set_access", Reactor_set_access, METH_VARARGS,
     "set_access(table): from now on each request has to show whose it is; None: not known yet."},
    {"take_certificates", Reactor_take_certificates, METH_VARARGS,
     "take_certificates(on): whether one of a client says who asks, where no token does."},
    {"write_format", Reactor_write_format, METH_VARARGS,
     "write_format(format): the newest format of logs that may be written."},
    {"refusals", Reactor_refusals, METH_NOARGS,
     "refusals() -> (those that were kept, how many more by user), since they were last taken."},
    {NULL, NULL, 0, NULL},
};
