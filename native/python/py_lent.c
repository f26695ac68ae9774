/* Lent: stored chunks in the arena as an object that answers are made of. Whoever looks into it, as
 * into any buffer, has them moved out first: what Python holds must stay where it is. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <structmember.h>

#include "python/py_lent.h"

typedef struct {
    PyObject_HEAD
    struct lent *lent;
    PyObject *weak_references;
} LentObject;

static PyTypeObject *lent_type;

struct lent *py_lent_of(PyObject *object)
{
    return Py_IS_TYPE(object, lent_type) ? ((LentObject *)object)->lent : NULL;
}

PyObject *py_lent_new(struct lent *lent)
{
    LentObject *object = PyObject_New(LentObject, lent_type);
    if (object == NULL) {
        lent_free(lent);
        return NULL;
    }
    object->lent = lent;
    object->weak_references = NULL;
    return (PyObject *)object;
}

static void Lent_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    if (((LentObject *)self)->weak_references != NULL)
        PyObject_ClearWeakRefs(self);
    lent_free(((LentObject *)self)->lent);
    PyObject_Free(self);
    Py_DECREF(type);
}

static Py_ssize_t Lent_length(PyObject *self) { return ((LentObject *)self)->lent->source.len; }

static int Lent_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    struct lent *lent = ((LentObject *)self)->lent;
    if (!lent_own(lent)) {
        view->obj = NULL;
        PyErr_NoMemory();
        return -1;
    }
    return PyBuffer_FillInfo(view, self, lent->source.copy, lent->source.len, 1, flags);
}

static PyObject *Lent_head(PyObject *self, PyObject *none)
{
    const struct lent *lent = ((LentObject *)self)->lent;
    if (lent->source.lost)
        return PyErr_NoMemory();
    if (lent->source.copy != NULL)
        return py_chunk_head(lent->source.copy, lent->source.len, 0);
    return py_chunk_head(lent->pieces[0].iov_base, lent->pieces[0].iov_len, 0);
}

static PyObject *Lent_begin(PyObject *self, PyObject *none)
{
    const struct lent *lent = ((LentObject *)self)->lent;
    if (lent->source.lost)
        return PyErr_NoMemory();
    if (lent->source.copy != NULL)
        return py_chunk_begin(lent->source.copy, lent->source.len);
    return py_chunk_begin(lent->pieces[0].iov_base, lent->pieces[0].iov_len);
}

enum { PIECES_MAX = 1024 /* of one message: UIO_MAXIOV */ };

/* Where the bytes of a part lie; how many pieces that are, 0: too many, -1: it is no part. Nobody
 * moves them before they are sent: that is one call, and the list has the object. */
static Py_ssize_t find_pieces(PyObject *part, struct iovec *pieces, size_t room)
{
    const struct lent *lent = py_lent_of(part);
    if (lent != NULL && lent->source.copy == NULL && !lent->source.lost) {
        if (lent->count > room)
            return 0;
        memcpy(pieces, lent->pieces, lent->count * sizeof *pieces);
        return lent->count;
    }
    Py_buffer view;
    if (room == 0)
        return 0;
    if (PyObject_GetBuffer(part, &view, PyBUF_SIMPLE) < 0)
        return -1;
    *pieces = (struct iovec){view.buf, (size_t)view.len};
    PyBuffer_Release(&view);
    return 1;
}

static PyObject *send_parts(PyObject *module, PyObject *args)
{
    int fd;
    PyObject *parts;
    if (!PyArg_ParseTuple(args, "iO!", &fd, &PyList_Type, &parts))
        return NULL;
    struct iovec pieces[PIECES_MAX];
    size_t count = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(parts); i++) {
        const Py_ssize_t found =
            find_pieces(PyList_GET_ITEM(parts, i), pieces + count, PIECES_MAX - count);
        if (found < 0)
            return NULL;
        if (found == 0)
            break;
        count += (size_t)found;
    }
    const struct msghdr message = {.msg_iov = pieces, .msg_iovlen = count};
    const ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN && errno != EINTR)
        return PyErr_SetFromErrno(PyExc_OSError);
    return PyLong_FromSsize_t(sent < 0 ? 0 : sent);
}

static PyMethodDef functions[] = {
    {"send_parts", send_parts, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

/* barco/_native.pyi says what they do. */
static PyMethodDef lent_methods[] = {
    {"head", Lent_head, METH_NOARGS, NULL},
    {"begin", Lent_begin, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef lent_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(LentObject, weak_references), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot lent_slots[] = {
    {Py_tp_dealloc, Lent_dealloc},
    {Py_tp_methods, lent_methods},
    {Py_tp_members, lent_members},
    {Py_sq_length, Lent_length},
    {Py_bf_getbuffer, Lent_getbuffer},
    {Py_tp_doc, "Stored chunks back to back, sent from where the log has them; a buffer."},
    {0, NULL},
};

static PyType_Spec lent_spec = {
    .name = "barco._native.Lent",
    .basicsize = sizeof(LentObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = lent_slots,
};

int py_lent_init(PyObject *module)
{
    lent_type = (PyTypeObject *)PyType_FromSpec(&lent_spec);
    if (PyModule_AddFunctions(module, functions) < 0)
        return -1;
    return lent_type ? PyModule_AddObjectRef(module, "Lent", (PyObject *)lent_type) : -1;
}
