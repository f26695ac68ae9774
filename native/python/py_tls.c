/* The Python face of TLS: a worker's certificate, and a look at one before anybody uses it. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <string.h>

#include "loop/tls.h"
#include "loop/tls_context.h"
#include "loop/tls_kernel.h"
#include "python/py_reactor.h"

int py_tls_init(PyObject *module);

static PyObject *Reactor_set_tls(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    struct tls_options options;
    Py_ssize_t certificate_len, key_len, client_ca_len, ticket_keys_len;
    const char *ticket_keys;
    char why[TLS_WHY_BYTES] = "there is no memory";
    long long handshake_ms;
    int kernel;
    if (reactor == NULL ||
        !PyArg_ParseTuple(args, "y#y#y#y#ILp", &options.certificate, &certificate_len, &options.key,
                          &key_len, &options.client_ca, &client_ca_len, &ticket_keys,
                          &ticket_keys_len, &options.handshakes_per_s, &handshake_ms, &kernel))
        return NULL;
    if (ticket_keys_len != TLS_TICKET_KEYS_BYTES || options.handshakes_per_s == 0 ||
        options.handshakes_per_s > TLS_HANDSHAKES_PER_S_MAX || handshake_ms <= 0)
        return PyErr_Format(PyExc_ValueError,
                            "keys of tickets have %d bytes, and of handshakes there are 1 to %u a "
                            "second, each within some time",
                            TLS_TICKET_KEYS_BYTES, TLS_HANDSHAKES_PER_S_MAX);
    options.certificate_len = (size_t)certificate_len;
    options.key_len = (size_t)key_len;
    options.client_ca_len = (size_t)client_ca_len;
    options.ticket_keys = (const uint8_t *)ticket_keys;
    options.handshake_ms = handshake_ms;
    options.kernel = kernel != 0;
    if (!tls_set(&reactor->loop, &options, why))
        return PyErr_Format(PyExc_ValueError, "%s", why);
    Py_RETURN_NONE;
}

static PyObject *Reactor_tls_reason(PyObject *self, PyObject *none)
{
    struct reactor *reactor = reactor_of(self);
    if (reactor == NULL)
        return NULL;
    const struct tls_figures *figures = tls_figures(&reactor->loop);
    return PyUnicode_FromString(figures != NULL && figures->reason != NULL ? figures->reason : "");
}

static PyObject *dates(PyObject *module, PyObject *args)
{
    struct tls_options options = {0};
    Py_ssize_t certificate_len, key_len, client_ca_len;
    int64_t from_s, until_s;
    char why[TLS_WHY_BYTES];
    if (!PyArg_ParseTuple(args, "y#y#y#", &options.certificate, &certificate_len, &options.key,
                          &key_len, &options.client_ca, &client_ca_len))
        return NULL;
    options.certificate_len = (size_t)certificate_len;
    options.key_len = (size_t)key_len;
    options.client_ca_len = (size_t)client_ca_len;
    if (!tls_dates(&options, &from_s, &until_s, why))
        return PyErr_Format(PyExc_ValueError, "%s", why);
    return Py_BuildValue("(LL)", (long long)from_s, (long long)until_s);
}

static PyObject *kernel_seals(PyObject *module, PyObject *none)
{
    if (tls_kernel_is_there())
        return PyUnicode_FromString("");
    return PyUnicode_FromString(strerror(errno));
}

/* barco/_native.pyi says what they do. */
PyMethodDef reactor_tls_methods[] = {
    {"set_tls", Reactor_set_tls, METH_VARARGS, NULL},
    {"tls_reason", Reactor_tls_reason, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef functions[] = {
    {"tls_dates", dates, METH_VARARGS, NULL},
    {"tls_kernel", kernel_seals, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int py_tls_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
