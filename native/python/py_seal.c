/* The Python face of TLS between brokers: what a broker shows, and one session. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "loop/seal.h"
#include "python/py_seal.h"

int py_seal_init(PyObject *module);

typedef struct {
    PyObject_HEAD
    SSL_CTX *context;
} SealsObject;

typedef struct {
    PyObject_HEAD
    struct seal *seal;
} SealObject;

static PyTypeObject *seals_type, *seal_type;

static struct seal *seal_of(PyObject *self) { return ((SealObject *)self)->seal; }

/* ---- as an argument ---- */

static int seal_in(PyObject *object, struct seal **out)
{
    *out = NULL;
    if (object == Py_None)
        return 1;
    if (!Py_IS_TYPE(object, seal_type)) {
        PyErr_SetString(PyExc_TypeError, "a Seal, or None");
        return 0;
    }
    struct seal *seal = seal_of(object);
    if (!seal->established || seal->failed || seal->ssl == NULL) {
        PyErr_SetString(PyExc_ValueError, "the seal has no session");
        return 0;
    }
    *out = seal;
    return 1;
}

int py_seal_used(PyObject *object, void *out) { return seal_in(object, out); }

int py_seal_given(PyObject *object, void *out)
{
    size_t unsent = 0;
    struct seal **seal = out;
    if (!seal_in(object, seal))
        return 0;
    if (*seal != NULL)
        seal_unsent(*seal, &unsent);
    if (unsent > 0)
        PyErr_SetString(PyExc_ValueError, "something of the handshake was not sent");
    return unsent == 0;
}

PyObject *py_seal_taken(ssize_t result)
{
    if (result >= 0)
        return PyLong_FromSsize_t(result);
    errno = (int)-result;
    return PyErr_SetFromErrno(PyExc_OSError);
}

/* ---- Seals ---- */

static PyObject *Seals_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    struct tls_options options = {0};
    Py_ssize_t certificate_len, key_len, ca_len;
    char why[TLS_WHY_BYTES];
    if (!PyArg_ParseTuple(args, "y#y#y#", &options.certificate, &certificate_len, &options.key,
                          &key_len, &options.client_ca, &ca_len))
        return NULL;
    options.certificate_len = (size_t)certificate_len;
    options.key_len = (size_t)key_len;
    options.client_ca_len = (size_t)ca_len;
    SSL_CTX *context = seal_context(&options, why);
    if (context == NULL)
        return PyErr_Format(PyExc_ValueError, "%s", why);
    SealsObject *self = (SealsObject *)type->tp_alloc(type, 0);
    if (self == NULL)
        SSL_CTX_free(context);
    else
        self->context = context;
    return (PyObject *)self;
}

static void Seals_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    SSL_CTX_free(((SealsObject *)self)->context);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *Seals_begin(PyObject *self, PyObject *args)
{
    int client;
    const char *name;
    Py_ssize_t len;
    if (!PyArg_ParseTuple(args, "py#", &client, &name, &len))
        return NULL;
    if (len < 1 || len > (Py_ssize_t)SEAL_NAME_BYTES_MAX)
        return PyErr_Format(PyExc_ValueError, "a name has 1 to %u bytes", SEAL_NAME_BYTES_MAX);
    SealObject *made = (SealObject *)seal_type->tp_alloc(seal_type, 0);
    if (made == NULL)
        return NULL;
    made->seal = seal_new(((SealsObject *)self)->context, client, (const uint8_t *)name,
                          (size_t)len);
    if (made->seal != NULL)
        return (PyObject *)made;
    Py_DECREF(made);
    return PyErr_NoMemory();
}

/* barco/_native.pyi says what they do. */
static PyMethodDef seals_methods[] = {
    {"begin", Seals_begin, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot seals_slots[] = {
    {Py_tp_new, Seals_new},
    {Py_tp_dealloc, Seals_dealloc},
    {Py_tp_methods, seals_methods},
    {Py_tp_doc, "Seals(certificate, key, ca): what a broker shows to others, and of whom it"
                " believes them; PEM. ValueError: what is wrong with it."},
    {0, NULL},
};

static PyType_Spec seals_spec = {
    .name = "barco._native.Seals",
    .basicsize = sizeof(SealsObject),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = seals_slots,
};

/* ---- Seal ---- */

static void Seal_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    seal_drop(seal_of(self));
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *Seal_unsent(PyObject *self, PyObject *none)
{
    struct seal *seal = seal_of(self);
    size_t len;
    const uint8_t *bytes = seal_unsent(seal, &len);
    PyObject *out = PyBytes_FromStringAndSize((const char *)bytes, (Py_ssize_t)len);
    if (out != NULL)
        seal_sent(seal, len);
    return out;
}

static PyObject *Seal_shake(PyObject *self, PyObject *args)
{
    struct seal *seal = seal_of(self);
    const char *record;
    Py_ssize_t len;
    char why[TLS_WHY_BYTES];
    if (!PyArg_ParseTuple(args, "y#", &record, &len))
        return NULL;
    if (seal->established || seal->failed)
        return PyErr_Format(PyExc_ValueError, "the handshake is over");
    if (!seal_shake(seal, (const uint8_t *)record, (size_t)len, why))
        return PyErr_Format(PyExc_ValueError, "%s", why);
    return Seal_unsent(self, NULL);
}

static PyObject *Seal_done(PyObject *self, void *none)
{
    return PyBool_FromLong(seal_of(self)->established);
}

static PyObject *Seal_identity(PyObject *self, void *none)
{
    char identity[SEAL_IDENTITY_BYTES_MAX];
    const struct seal *seal = seal_of(self);
    const size_t len =
        seal->established && seal->ssl != NULL ? seal_identity(seal, identity) : 0;
    return PyUnicode_DecodeASCII(identity, (Py_ssize_t)len, NULL);
}

static PyObject *Seal_send(PyObject *self, PyObject *args)
{
    struct seal *seal = NULL;
    Py_buffer head, data;
    unsigned long long sent;
    int fd;
    if (!py_seal_used(self, &seal) || !PyArg_ParseTuple(args, "iy*y*K", &fd, &head, &data, &sent))
        return NULL;
    const uint64_t head_sent = sent < (uint64_t)head.len ? sent : (uint64_t)head.len;
    const uint64_t rest = sent - head_sent;
    const uint64_t data_sent = rest < (uint64_t)data.len ? rest : (uint64_t)data.len;
    struct iovec parts[2] = {{(char *)head.buf + head_sent, (size_t)head.len - head_sent},
                             {(char *)data.buf + data_sent, (size_t)data.len - data_sent}};
    const struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    const ssize_t result = seal_or_send(seal, fd, &message);
    PyBuffer_Release(&head);
    PyBuffer_Release(&data);
    return py_seal_taken(result);
}

static PyObject *Seal_flush(PyObject *self, PyObject *args)
{
    int fd;
    if (!PyArg_ParseTuple(args, "i", &fd))
        return NULL;
    const int result = seal_flush(seal_of(self), fd);
    return result < 0 ? py_seal_taken(result) : PyBool_FromLong(result);
}

static PyMethodDef seal_methods[] = {
    {"shake", Seal_shake, METH_VARARGS, NULL},
    {"unsent", Seal_unsent, METH_NOARGS, NULL},
    {"send", Seal_send, METH_VARARGS, NULL},
    {"flush", Seal_flush, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef seal_getters[] = {
    {"done", Seal_done, NULL, "Whether the handshake has come to a good end.", NULL},
    {"identity", Seal_identity, NULL,
     "The one URI barco:… in the certificate of the other end; '': it is not so.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot seal_slots[] = {
    {Py_tp_dealloc, Seal_dealloc},
    {Py_tp_methods, seal_methods},
    {Py_tp_getset, seal_getters},
    {Py_tp_doc, "A session of TLS between two brokers (Seals.begin)."},
    {0, NULL},
};

static PyType_Spec seal_spec = {
    .name = "barco._native.Seal",
    .basicsize = sizeof(SealObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = seal_slots,
};

int py_seal_init(PyObject *module)
{
    seals_type = (PyTypeObject *)PyType_FromSpec(&seals_spec);
    seal_type = (PyTypeObject *)PyType_FromSpec(&seal_spec);
    if (seals_type == NULL || seal_type == NULL ||
        PyModule_AddObjectRef(module, "Seals", (PyObject *)seals_type) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "Seal", (PyObject *)seal_type);
}
