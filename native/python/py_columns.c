/* barco._native, columns: chunks cut down to some of their columns, and chunks as Arrow buffers. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>

#include "read/arrow.h"
#include "python/py_codec.h"

enum { CHUNKS_MAX = 256, ARROW_BYTES_MAX = 1 << 30 };

static PyObject *damaged(Py_ssize_t at)
{
    return PyErr_Format(PyExc_ValueError, "the chunk at byte %zd is damaged", at);
}

/* -- chunks_project ---------------------------------------------------------------------------- */

/* The size of all parts, or -1 with an exception set. */
static Py_ssize_t project_size(const uint8_t *buf, size_t len, uint32_t parts)
{
    struct chunk_view view;
    size_t bytes = 0;
    for (size_t at = 0; at < len; at += view.stored_bytes) {
        if (chunk_open(buf + at, len - at, &view) < 0) {
            damaged((Py_ssize_t)at);
            return -1;
        }
        bytes += chunk_part_bytes(&view, parts);
    }
    return (Py_ssize_t)bytes;
}

static uint8_t *project_buffer(const uint8_t *buf, size_t len, uint32_t parts, uint8_t *out)
{
    struct chunk_view view;
    for (size_t at = 0; at < len; at += view.stored_bytes) {
        chunk_open(buf + at, len - at, &view);
        chunk_part_write(&view, parts, out);
        out += chunk_part_bytes(&view, parts);
    }
    return out;
}

static PyObject *project_all(PyObject *buffers, uint32_t parts)
{
    Py_ssize_t count = PyList_GET_SIZE(buffers), got = 0, bytes = 0;
    Py_buffer *views = PyMem_RawCalloc((size_t)count + 1, sizeof *views);
    PyObject *result = NULL;
    if (views == NULL)
        return PyErr_NoMemory();
    for (; got < count; got++) {
        if (PyObject_GetBuffer(PyList_GET_ITEM(buffers, got), &views[got], PyBUF_SIMPLE) < 0)
            break;
        Py_ssize_t size = project_size(views[got].buf, (size_t)views[got].len, parts);
        if (size < 0) {
            PyBuffer_Release(&views[got]);
            break;
        }
        bytes += size;
    }
    if (got == count && (result = PyBytes_FromStringAndSize(NULL, bytes)) != NULL) {
        uint8_t *out = (uint8_t *)PyBytes_AS_STRING(result);
        for (Py_ssize_t i = 0; i < count; i++)
            out = project_buffer(views[i].buf, (size_t)views[i].len, parts, out);
    }
    while (got > 0)
        PyBuffer_Release(&views[--got]);
    PyMem_RawFree(views);
    return result;
}

static PyObject *py_chunks_project(PyObject *module, PyObject *args)
{
    PyObject *given;
    unsigned int columns;
    if (!PyArg_ParseTuple(args, "OI", &given, &columns))
        return NULL;
    PyObject *buffers = PyList_Check(given) ? Py_NewRef(given) : PyList_New(1);
    if (buffers != NULL && buffers != given)
        PyList_SET_ITEM(buffers, 0, Py_NewRef(given));
    PyObject *result = buffers == NULL ? NULL : project_all(buffers, arrow_parts(columns));
    Py_XDECREF(buffers);
    return result;
}

static PyObject *py_chunk_place(PyObject *module, PyObject *arg)
{
    Py_buffer buf;
    struct chunk_view view;
    size_t bytes;
    if (PyObject_GetBuffer(arg, &buf, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *result = NULL;
    if (chunk_open_part(buf.buf, (size_t)buf.len, 0, &view, &bytes) < 0)
        damaged(0);
    else
        result = Py_BuildValue("(KIK)", (unsigned long long)view.base_offset, view.count,
                               (unsigned long long)view.epoch);
    PyBuffer_Release(&buf);
    return result;
}

/* -- chunks_columns ---------------------------------------------------------------------------- */

/* What is asked for, and the chunks that answer it. */
struct reading {
    Py_buffer buf;
    Py_ssize_t position;
    const char *topic;
    Py_ssize_t topic_len;
    unsigned int slice, columns;
    uint64_t from, to, bytes_max;
    int projected;
    struct chunk_view *views;
    size_t count, rows;
    uint64_t keys_bytes, values_bytes, end;
    uint32_t largest;
};

static uint64_t raw_of(const struct chunk_view *view, uint8_t id)
{
    const struct chunk_section *s = chunk_section_get(view->sections, view->section_count, id);
    return s == NULL ? 0 : s->raw_len;
}

/* Whether the chunk goes on where the last one ended; sets an exception if not. */
static bool continues(const struct reading *r, const struct chunk_view *view, Py_ssize_t at)
{
    if (view->slice != r->slice || view->topic_len != r->topic_len ||
        memcmp(view->topic, r->topic, view->topic_len) != 0) {
        PyErr_Format(PyExc_ValueError, "the chunk at byte %zd belongs to another slice", at);
        return false;
    }
    bool good = r->count == 0 ? view->base_offset <= r->from : view->base_offset == r->end;
    if (!good)
        PyErr_Format(PyExc_ValueError, "events are missing before offset %llu",
                     (unsigned long long)view->base_offset);
    return good;
}

static int open_next(const struct reading *r, struct chunk_view *view, size_t *bytes)
{
    const uint8_t *p = (const uint8_t *)r->buf.buf + r->position;
    size_t len = (size_t)(r->buf.len - r->position);
    if (r->projected)
        return chunk_open_part(p, len, arrow_parts(r->columns), view, bytes);
    int status = chunk_open(p, len, view);
    *bytes = view->stored_bytes;
    return status;
}

/* Collects chunks up to the limits: at least one, if there is any. */
static bool collect(struct reading *r)
{
    uint64_t raw = 0;
    while (r->position < r->buf.len && r->count < CHUNKS_MAX && (r->count == 0 || r->end < r->to)) {
        struct chunk_view *view = &r->views[r->count];
        size_t bytes;
        if (open_next(r, view, &bytes) < 0)
            return damaged(r->position) != NULL;
        if (r->count == 0 && view->base_offset + view->count <= r->from) {
            r->position += (Py_ssize_t)bytes; /* Wholly before what is asked for. */
            continue;
        }
        if (!continues(r, view, r->position))
            return false;
        uint64_t keys = r->columns & ARROW_KEY ? raw_of(view, SECTION_KEYS) : 0;
        uint64_t values = r->columns & ARROW_VALUE ? raw_of(view, SECTION_VALUES) : 0;
        raw += keys + values + 16 * (uint64_t)view->count;
        if (r->count > 0 && raw > r->bytes_max)
            break;
        r->keys_bytes += keys;
        r->values_bytes += values;
        r->rows += view->count;
        r->end = view->base_offset + view->count;
        r->largest = view->count > r->largest ? view->count : r->largest;
        r->position += (Py_ssize_t)bytes;
        r->count++;
    }
    return true;
}

/* The Python objects that hold the columns, and where in them to write. */
struct room {
    PyObject *timestamps, *key_offsets, *key_validity, *keys, *value_offsets, *values;
    struct arrow_columns columns;
};

static void *new_bytes(PyObject **object, size_t bytes)
{
    *object = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes);
    return *object == NULL ? NULL : PyBytes_AS_STRING(*object);
}

static void room_free(struct room *room)
{
    Py_CLEAR(room->timestamps);
    Py_CLEAR(room->key_offsets);
    Py_CLEAR(room->key_validity);
    Py_CLEAR(room->keys);
    Py_CLEAR(room->value_offsets);
    Py_CLEAR(room->values);
    PyMem_RawFree(room->columns.scratch);
}

static bool room_make(struct room *room, const struct reading *r)
{
    struct arrow_columns *c = &room->columns;
    c->scratch = PyMem_RawMalloc((size_t)r->largest * 4 + 4);
    if (c->scratch == NULL) {
        PyErr_NoMemory();
        return false;
    }
    size_t offsets = (r->rows + 1) * 4;
    if (r->columns & ARROW_TIMESTAMP &&
        (c->timestamps = new_bytes(&room->timestamps, r->rows * 8)) == NULL)
        return false;
    if (r->columns & ARROW_KEY) {
        c->key_offsets = new_bytes(&room->key_offsets, offsets);
        c->key_validity = new_bytes(&room->key_validity, (r->rows + 7) / 8);
        c->keys = new_bytes(&room->keys, r->keys_bytes);
        if (c->key_offsets == NULL || c->key_validity == NULL || c->keys == NULL)
            return false;
        memset(c->key_validity, 0, (r->rows + 7) / 8);
        c->key_offsets[0] = 0;
    }
    if (r->columns & ARROW_VALUE) {
        c->value_offsets = new_bytes(&room->value_offsets, offsets);
        c->values = new_bytes(&room->values, r->values_bytes);
        if (c->value_offsets == NULL || c->values == NULL)
            return false;
        c->value_offsets[0] = 0;
    }
    return true;
}

/* The index of the first chunk that is damaged, or -1. */
static Py_ssize_t fill(struct room *room, const struct reading *r)
{
    Py_ssize_t bad = -1;
    Py_BEGIN_ALLOW_THREADS
    for (size_t i = 0; i < r->count && bad < 0; i++)
        if (arrow_append(&room->columns, &r->views[i]) < 0)
            bad = (Py_ssize_t)i;
    Py_END_ALLOW_THREADS
    return bad;
}

/* [(epoch, rows)] of neighbouring chunks of one generation. */
static PyObject *epochs_of(const struct reading *r)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0, next; list != NULL && i < r->count; i = next) {
        unsigned long long rows = 0;
        for (next = i; next < r->count && r->views[next].epoch == r->views[i].epoch; next++)
            rows += r->views[next].count;
        PyObject *item = Py_BuildValue("(KK)", (unsigned long long)r->views[i].epoch, rows);
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *or_none(PyObject *object)
{
    return object == NULL ? Py_None : object;
}

static PyObject *build(struct reading *r)
{
    struct room room = {0};
    PyObject *result = NULL;
    if (r->keys_bytes > ARROW_BYTES_MAX || r->values_bytes > ARROW_BYTES_MAX)
        return PyErr_Format(PyExc_ValueError, "a column of one chunk has more than 1 GiB");
    if (room_make(&room, r)) {
        Py_ssize_t bad = fill(&room, r);
        PyObject *epochs = bad < 0 ? epochs_of(r) : NULL;
        if (bad >= 0)
            PyErr_Format(PyExc_ValueError, "the chunk at offset %llu fails its checksum",
                         (unsigned long long)r->views[bad].base_offset);
        else if (epochs != NULL)
            result = Py_BuildValue(
                "(nKnNOnOOOOO)", r->position,
                (unsigned long long)(r->count > 0 ? r->views[0].base_offset : r->from),
                (Py_ssize_t)r->rows, epochs, or_none(room.timestamps),
                (Py_ssize_t)room.columns.key_nulls, or_none(room.key_validity),
                or_none(room.key_offsets), or_none(room.keys), or_none(room.value_offsets),
                or_none(room.values));
    }
    room_free(&room);
    return result;
}

static PyObject *py_chunks_columns(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"buf",         "position",  "topic",   "slice",     "from_offset",
                            "to_offset",   "bytes_max", "columns", "projected", NULL};
    struct reading r = {0};
    PyObject *result = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*ns#IO&O&O&Ip", names, &r.buf, &r.position,
                                     &r.topic, &r.topic_len, &r.slice, py_u64_argument, &r.from,
                                     py_u64_argument, &r.to, py_u64_argument, &r.bytes_max,
                                     &r.columns, &r.projected))
        return NULL;
    r.bytes_max = r.bytes_max < ARROW_BYTES_MAX / 2 ? r.bytes_max : ARROW_BYTES_MAX / 2;
    r.views = PyMem_RawMalloc(CHUNKS_MAX * sizeof *r.views);
    if (r.views == NULL)
        PyErr_NoMemory();
    else if (r.position < 0 || r.position > r.buf.len)
        PyErr_Format(PyExc_ValueError, "position %zd is outside of the buffer", r.position);
    else if (collect(&r))
        result = build(&r);
    PyMem_RawFree(r.views);
    PyBuffer_Release(&r.buf);
    return result;
}

static PyMethodDef functions[] = {
    {"chunks_project", py_chunks_project, METH_VARARGS, "Chunks cut down to some columns."},
    {"chunk_place", py_chunk_place, METH_O, "Where the first chunk begins, by its head alone."},
    {"chunks_columns", (PyCFunction)(void (*)(void))py_chunks_columns,
     METH_VARARGS | METH_KEYWORDS, "Events of chunks as Arrow buffers."},
    {NULL, NULL, 0, NULL},
};

int py_columns_init(PyObject *module)
{
    if (PyModule_AddIntConstant(module, "COLUMN_KEY", ARROW_KEY) < 0 ||
        PyModule_AddIntConstant(module, "COLUMN_VALUE", ARROW_VALUE) < 0 ||
        PyModule_AddIntConstant(module, "COLUMN_TIMESTAMP", ARROW_TIMESTAMP) < 0)
        return -1;
    return PyModule_AddFunctions(module, functions);
}
