/* Formats as the core writes and reads them, for tests: sealed chunks, headers of groups, the two
 * messages of fixed size. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "base/murmur3.h"
#include "core/append_frame.h"
#include "format/batch.h"
#include "format/group.h"

int faces_codec_init(PyObject *module);

/* The whole ring if an event has no key. */
static void note_tokens(struct chunk_columns *c)
{
    const uint8_t *key = c->keys;
    c->token_min = INT64_MAX;
    c->token_max = INT64_MIN;
    for (uint32_t i = 0; i < c->count; i++) {
        if (c->key_len == NULL || c->key_len[i] == KEY_NULL) {
            c->token_min = INT64_MIN;
            c->token_max = INT64_MAX;
            return;
        }
        const int64_t token = murmur3_token(key, c->key_len[i]);
        c->token_min = token < c->token_min ? token : c->token_min;
        c->token_max = token > c->token_max ? token : c->token_max;
        key += c->key_len[i];
    }
}

static PyObject *seal(struct chunk_columns *c, int compress)
{
    for (uint32_t i = 0; i < c->count; i++) {
        const int64_t at = c->base_timestamp_us + (int64_t)column_delta(&c->columns, i);
        c->max_timestamp_us = at > c->max_timestamp_us ? at : c->max_timestamp_us;
    }
    note_tokens(c);
    const size_t bound = chunk_bound(c);
    struct chunk_sealer *sealer = compress ? chunk_sealer_new(1) : NULL;
    uint8_t *out = PyMem_Malloc(bound);
    PyObject *result = NULL;
    if (out == NULL || (compress && sealer == NULL))
        PyErr_NoMemory();
    else
        result = PyBytes_FromStringAndSize((const char *)out,
                                           (Py_ssize_t)chunk_seal(sealer, c, out, bound));
    PyMem_Free(out);
    chunk_sealer_free(sealer);
    return result;
}

static PyObject *chunk_of_batch(PyObject *self, PyObject *args)
{
    Py_buffer buf;
    struct chunk_columns c = {.topic = NULL};
    struct batch_view view;
    Py_ssize_t topic_len;
    unsigned long long epoch, base_offset;
    int compress;
    if (!PyArg_ParseTuple(args, "y*s#IKKp", &buf, &c.topic, &topic_len, &c.slice, &epoch,
                          &base_offset, &compress))
        return NULL;
    PyObject *result = NULL;
    uint8_t *scratch = NULL;
    c.topic_len = (uint8_t)topic_len;
    c.epoch = epoch;
    c.base_offset = base_offset;
    if (batch_open(buf.buf, (size_t)buf.len, &view) == 0) {
        const size_t bytes = batch_scratch_bytes(&view);
        c.base_timestamp_us = c.max_timestamp_us = view.base_timestamp_us;
        scratch = PyMem_Malloc(bytes);
        if (scratch != NULL && batch_unpack(&view, UINT32_MAX, scratch, bytes, &c.columns) == 0)
            result = seal(&c, compress);
    }
    if (result == NULL && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "not a batch");
    PyMem_Free(scratch);
    PyBuffer_Release(&buf);
    return result;
}

#define HEADER_FIELDS(h)                                                                           \
    &(h).flags, &uuid, &uuid_len, &(h).token, &(h).epoch, &(h).session, &(h).gseq, &(h).prev_crc,  \
        &(h).body_crc, &(h).durable_upto, &(h).committed, &(h).wall_us, &(h).body_bytes,           \
        &(h).chunk_count, &(h).group_bytes, &(h).segment_index, &(h).blank_sectors, &(h).log_us

static PyObject *group_header_pack(PyObject *self, PyObject *args)
{
    struct group_header h;
    const char *uuid;
    Py_ssize_t uuid_len;
    uint8_t out[GROUP_HEADER_BYTES];
    if (!PyArg_ParseTuple(args, "Hy#LKKKIIKKKIIIIIK", HEADER_FIELDS(h)))
        return NULL;
    if (uuid_len != sizeof h.cluster_uuid)
        return PyErr_Format(PyExc_ValueError, "a cluster's name has 16 bytes");
    memcpy(h.cluster_uuid, uuid, sizeof h.cluster_uuid);
    group_header_write(&h, out);
    return PyBytes_FromStringAndSize((const char *)out, sizeof out);
}

static PyObject *group_header_parse(PyObject *self, PyObject *arg)
{
    struct group_header h;
    Py_buffer buf;
    if (PyObject_GetBuffer(arg, &buf, PyBUF_SIMPLE) < 0)
        return NULL;
    const int status = group_header_read(buf.buf, (size_t)buf.len, &h);
    PyBuffer_Release(&buf);
    if (status < 0)
        Py_RETURN_NONE;
    return Py_BuildValue(
        "Hy#LKKKIIKKKIIIIIKI", h.flags, (const char *)h.cluster_uuid,
        (Py_ssize_t)sizeof h.cluster_uuid, (long long)h.token, (unsigned long long)h.epoch,
        (unsigned long long)h.session, (unsigned long long)h.gseq, h.prev_crc, h.body_crc,
        (unsigned long long)h.durable_upto, (unsigned long long)h.committed,
        (unsigned long long)h.wall_us, h.body_bytes, h.chunk_count, h.group_bytes,
        h.segment_index, h.blank_sectors, (unsigned long long)h.log_us, h.header_crc);
}

static PyObject *append_parse(PyObject *self, PyObject *arg)
{
    struct append_message m;
    Py_buffer buf;
    if (PyObject_GetBuffer(arg, &buf, PyBUF_SIMPLE) < 0)
        return NULL;
    const bool read = append_message_read(buf.buf, (size_t)buf.len, &m);
    PyBuffer_Release(&buf);
    if (!read)
        Py_RETURN_NONE;
    return Py_BuildValue("LKKKKIII", (long long)m.token, (unsigned long long)m.epoch,
                         (unsigned long long)m.session, (unsigned long long)m.gseq,
                         (unsigned long long)m.committed, m.prev_crc, m.header_crc, m.bytes);
}

static PyObject *appended_pack(PyObject *self, PyObject *args)
{
    struct appended_frame frame;
    if (!PyArg_ParseTuple(args, "LKKK", &frame.token, &frame.epoch, &frame.session, &frame.gseq))
        return NULL;
    appended_frame_seal(&frame);
    return PyBytes_FromStringAndSize((const char *)&frame, sizeof frame);
}

static PyMethodDef functions[] = {
    {"chunk_of_batch", chunk_of_batch, METH_VARARGS,
     "chunk_of_batch(batch, topic, slice, epoch, base_offset, compress) -> bytes\n\n"
     "A stored chunk of a batch's events, as the broker writes it."},
    {"group_header_pack", group_header_pack, METH_VARARGS,
     "group_header_pack(*fields) -> bytes\n\n"
     "A group's header of its fields: those of scan.GroupHeader from flags to log_us."},
    {"group_header_parse", group_header_parse, METH_O,
     "group_header_parse(buf) -> tuple | None\n\n"
     "The fields of the header that buf begins with, and its crc; None if there is none."},
    {"append_parse", append_parse, METH_O,
     "append_parse(buf) -> tuple | None\n\n"
     "token, epoch, session, gseq, committed, prev_crc, header_crc, bytes; None: no APPEND."},
    {"appended_pack", appended_pack, METH_VARARGS,
     "appended_pack(token, epoch, session, gseq) -> bytes\n\n"
     "An APPENDED with the lengths before it."},
    {NULL, NULL, 0, NULL},
};

int faces_codec_init(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
