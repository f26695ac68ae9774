/* barco._native, states: what a generation begins with, beside the reactor's own, and outside of
 * Python's lock. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "format/group.h"
#include "log/shard.h"
#include "log/state.h"

#define SLICES_OF_STATE_MAX 65536u /* each is eight bytes for each topic */

typedef struct {
    PyObject_HEAD
    struct shard *shard;
    int64_t clock_us;
} ShardStateObject;

static PyObject *bytes_of(uint8_t *made, size_t len, const char *why)
{
    PyObject *bytes = NULL;
    if (made == NULL)
        PyErr_SetString(PyExc_ValueError, why);
    else
        bytes = PyBytes_FromStringAndSize((const char *)made, (Py_ssize_t)len);
    free(made);
    return bytes;
}

static PyObject *py_state_cut(PyObject *module, PyObject *args)
{
    Py_buffer state;
    unsigned first, count;
    uint8_t *made;
    size_t len = 0;
    const char *why = NULL;
    if (!PyArg_ParseTuple(args, "y*II", &state, &first, &count))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    made = state_cut(state.buf, (size_t)state.len, first, count, &len, &why);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&state);
    return bytes_of(made, len, why);
}

static PyObject *py_state_union(PyObject *module, PyObject *args)
{
    Py_buffer one, other;
    uint8_t *made;
    size_t len = 0;
    const char *why = NULL;
    if (!PyArg_ParseTuple(args, "y*y*", &one, &other))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    made = state_union(one.buf, (size_t)one.len, other.buf, (size_t)other.len, &len, &why);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&one);
    PyBuffer_Release(&other);
    return bytes_of(made, len, why);
}

/* ---- ShardState ---- */

static PyObject *ShardState_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    unsigned first, count;
    if (!PyArg_ParseTuple(args, "II", &first, &count))
        return NULL;
    if (count == 0 || count > SLICES_OF_STATE_MAX || first > UINT32_MAX - count)
        return PyErr_Format(PyExc_ValueError, "%u is no number of slices", count);
    ShardStateObject *self = (ShardStateObject *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->shard = shard_new(first, count);
    if (self->shard == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void ShardState_dealloc(PyObject *self)
{
    shard_free(((ShardStateObject *)self)->shard);
    Py_TYPE(self)->tp_free(self);
}

static void heard(ShardStateObject *self, int64_t time_us)
{
    if (time_us > self->clock_us)
        self->clock_us = time_us;
}

/* The slices of a snapshot are the parent's, whatever is led here. */
static bool fit(ShardStateObject *self, const Py_buffer *bytes)
{
    uint32_t first, count;
    if (!state_slices(bytes->buf, (size_t)bytes->len, &first, &count) ||
        (first == self->shard->slice_first && count == self->shard->slice_count))
        return true;
    struct shard *fresh = count <= SLICES_OF_STATE_MAX ? shard_new(first, count) : NULL;
    if (fresh == NULL)
        return false;
    shard_free(self->shard);
    self->shard = fresh;
    return true;
}

static PyObject *ShardState_restore(PyObject *object, PyObject *arg)
{
    ShardStateObject *self = (ShardStateObject *)object;
    Py_buffer bytes;
    int status = -1;
    if (PyObject_GetBuffer(arg, &bytes, PyBUF_SIMPLE) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    if (fit(self, &bytes))
        status = shard_restore(self->shard, bytes.buf, (size_t)bytes.len);
    Py_END_ALLOW_THREADS
    if (status == 0)
        heard(self, shard_snapshot_time(bytes.buf, (size_t)bytes.len));
    PyBuffer_Release(&bytes);
    if (status < 0)
        return PyErr_Format(PyExc_ValueError, "not a snapshot of this shard");
    Py_RETURN_NONE;
}

static PyObject *ShardState_apply_group(PyObject *object, PyObject *arg)
{
    ShardStateObject *self = (ShardStateObject *)object;
    Py_buffer bytes;
    struct group_header header;
    int status;
    if (PyObject_GetBuffer(arg, &bytes, PyBUF_SIMPLE) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = group_header_read(bytes.buf, (size_t)bytes.len, &header);
    if (status == 0)
        status = shard_apply(self->shard, bytes.buf, (size_t)bytes.len, header.gseq);
    Py_END_ALLOW_THREADS
    if (status == 0)
        heard(self, group_time(&header));
    PyBuffer_Release(&bytes);
    if (status < 0)
        return PyErr_Format(PyExc_ValueError, "the group does not hold valid chunks of this shard");
    Py_RETURN_NONE;
}

/* Where a walk along the groups of a generation has come to. */
struct walk {
    const uint8_t *uuid;
    long long token;
    unsigned long long epoch, session, gseq, tail;
    unsigned prev_crc;
    size_t used;
};

/* Whether it is the group that comes next: the first one begins with a state. */
static bool comes_next(const struct walk *walk, const struct group_header *h)
{
    if (memcmp(h->cluster_uuid, walk->uuid, sizeof h->cluster_uuid) != 0 ||
        h->token != walk->token || h->epoch != walk->epoch || h->session != walk->session)
        return false;
    if (walk->gseq == 0)
        return (h->flags & (GROUP_GEN_START | GROUP_SNAPSHOT)) != 0;
    return h->gseq == walk->gseq + 1 && h->prev_crc == walk->prev_crc;
}

/* Adds a group that is whole; its body is a state, or chunks. */
static bool add(ShardStateObject *self, const struct group_header *h, const uint8_t *group)
{
    uint8_t *body = (uint8_t *)group + GROUP_HEADER_BYTES;
    if (h->flags & (GROUP_GEN_START | GROUP_SNAPSHOT)) {
        const Py_buffer state = {.buf = body, .len = (Py_ssize_t)h->body_bytes};
        if (!fit(self, &state) || shard_restore(self->shard, body, h->body_bytes) != 0)
            return false;
        heard(self, shard_snapshot_time(body, h->body_bytes));
    } else if (h->chunk_count > 0) {
        if (shard_apply(self->shard, group, h->group_bytes, h->gseq) != 0)
            return false;
        heard(self, group_time(h));
    }
    return true;
}

/* One group more; false: it is not here, not whole, or not what follows. */
static bool walk_on(ShardStateObject *self, struct walk *walk, const Py_buffer *bytes)
{
    struct group_header h;
    const uint8_t *at = (const uint8_t *)bytes->buf + walk->used;
    const size_t left = (size_t)bytes->len - walk->used;
    if (left < GROUP_HEADER_BYTES || group_header_read(at, left, &h) != 0 ||
        !comes_next(walk, &h) || h.gseq > walk->tail || h.group_bytes > left ||
        group_body_verify(&h, at, left) != 0 || !add(self, &h, at))
        return false;
    walk->gseq = h.gseq;
    walk->prev_crc = h.header_crc;
    walk->used += h.group_bytes;
    return true;
}

static PyObject *ShardState_walk(PyObject *object, PyObject *args)
{
    Py_buffer bytes, uuid;
    struct walk walk = {0};
    if (!PyArg_ParseTuple(args, "y*y*LKKKIK", &bytes, &uuid, &walk.token, &walk.epoch,
                          &walk.session, &walk.gseq, &walk.prev_crc, &walk.tail))
        return NULL;
    walk.uuid = uuid.buf;
    if (uuid.len == 16) {
        Py_BEGIN_ALLOW_THREADS
        while (walk.gseq < walk.tail && walk_on((ShardStateObject *)object, &walk, &bytes))
            ;
        Py_END_ALLOW_THREADS
    }
    assert(walk.used <= (size_t)bytes.len);
    PyBuffer_Release(&bytes);
    PyBuffer_Release(&uuid);
    return Py_BuildValue("(nKI)", (Py_ssize_t)walk.used, walk.gseq, walk.prev_crc);
}

static PyObject *ShardState_snapshot(PyObject *object, PyObject *args)
{
    ShardStateObject *self = (ShardStateObject *)object;
    uint8_t *made;
    size_t len = 0;
    Py_BEGIN_ALLOW_THREADS
    made = shard_snapshot(self->shard, NULL, 0, self->clock_us, &len);
    Py_END_ALLOW_THREADS
    return bytes_of(made, len, "no memory");
}

/* barco/_native.pyi says what they do. */
static PyMethodDef methods[] = {
    {"restore", ShardState_restore, METH_O, NULL},
    {"apply_group", ShardState_apply_group, METH_O, NULL},
    {"walk", ShardState_walk, METH_VARARGS, NULL},
    {"snapshot", ShardState_snapshot, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject ShardStateType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "barco._native.ShardState",
    .tp_basicsize = sizeof(ShardStateObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = ShardState_new,
    .tp_dealloc = ShardState_dealloc,
    .tp_methods = methods,
};

static PyMethodDef functions[] = {
    {"state_cut", py_state_cut, METH_VARARGS, NULL},
    {"state_union", py_state_union, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int py_state_init(PyObject *module)
{
    if (PyType_Ready(&ShardStateType) < 0)
        return -1;
    Py_INCREF(&ShardStateType);
    if (PyModule_AddObject(module, "ShardState", (PyObject *)&ShardStateType) < 0) {
        Py_DECREF(&ShardStateType);
        return -1;
    }
    return PyModule_AddFunctions(module, functions);
}
