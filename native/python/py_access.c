/* barco._native, who may produce what: the table of users, as the upper layer has heard it. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "broker/access.h"
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

PyMethodDef reactor_access_methods[] = {
    {"set_access", Reactor_set_access, METH_VARARGS,
     "set_access(table): from now on each request has to show whose it is; None: not known yet."},
    {NULL, NULL, 0, NULL},
};
