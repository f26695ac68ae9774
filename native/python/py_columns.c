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
    uint64_t column_bytes[COLUMN_COUNT], end; /* the bytes of what is asked for */
    uint32_t largest;
};

/* The bytes of a column of bytes that is asked for. */
static uint64_t raw_of(const struct reading *r, const struct chunk_view *view, uint32_t index)
{
    const struct column *column = &columns_table[index];
    if (column->kind != COLUMN_BYTES || !(r->columns & column->bit))
        return 0;
    const struct chunk_section *s = chunk_section_get(view->sections, view->section_count,
                                                      column->id);
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
        raw += 16 * (uint64_t)view->count;
        for (uint32_t i = 0; i < COLUMN_COUNT; i++)
            raw += raw_of(r, view, i);
        if (r->count > 0 && raw > r->bytes_max)
            break;
        for (uint32_t i = 0; i < COLUMN_COUNT; i++)
            r->column_bytes[i] += raw_of(r, view, i);
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
    PyObject *offsets[COLUMN_COUNT], *validity[COLUMN_COUNT], *data[COLUMN_COUNT];
    struct arrow_columns columns;
};

static void *new_bytes(PyObject **object, size_t bytes)
{
    *object = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes);
    return *object == NULL ? NULL : PyBytes_AS_STRING(*object);
}

static void room_free(struct room *room)
{
    for (uint32_t i = 0; i < COLUMN_COUNT; i++) {
        Py_CLEAR(room->offsets[i]);
        Py_CLEAR(room->validity[i]);
        Py_CLEAR(room->data[i]);
    }
    PyMem_RawFree(room->columns.scratch);
}

static bool room_for_bytes(struct room *room, const struct reading *r, uint32_t index)
{
    struct arrow_bytes *b = &room->columns.bytes[index];
    b->offsets = new_bytes(&room->offsets[index], (r->rows + 1) * 4);
    b->data = new_bytes(&room->data[index], r->column_bytes[index]);
    if (b->offsets == NULL || b->data == NULL)
        return false;
    b->offsets[0] = 0;
    b->validity = new_bytes(&room->validity[index], (r->rows + 7) / 8);
    if (b->validity != NULL)
        memset(b->validity, 0, (r->rows + 7) / 8);
    return b->validity != NULL;
}

static bool room_make(struct room *room, const struct reading *r)
{
    struct arrow_columns *c = &room->columns;
    c->scratch = PyMem_RawMalloc((size_t)r->largest * 4 + 4);
    if (c->scratch == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (uint32_t i = 0; i < COLUMN_COUNT; i++) {
        const struct column *column = &columns_table[i];
        if (!(r->columns & column->bit))
            continue;
        if (column->kind == COLUMN_LOW &&
            (c->numbers[i] = new_bytes(&room->data[i], r->rows * 8)) == NULL)
            return false;
        if (column->kind == COLUMN_BYTES && !room_for_bytes(room, r, i))
            return false;
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
        py_append(&list, Py_BuildValue("(KK)", (unsigned long long)r->views[i].epoch, rows));
    }
    return list;
}

static PyObject *or_none(PyObject *object)
{
    return object == NULL ? Py_None : object;
}

/* What says which rows there are; of what mostly all are, only if some are not. */
static PyObject *validity_of(const struct room *room, uint32_t place)
{
    const bool whole = columns_table[place].always && room->columns.bytes[place].nulls == 0;
    return or_none(whole ? NULL : room->validity[place]);
}

/* {name: (nulls, validity, offsets, data)} of what was asked for; numbers have no offsets. */
static PyObject *columns_of(const struct room *room)
{
    PyObject *found = PyDict_New();
    for (uint32_t i = 0; found != NULL && i < COLUMN_COUNT; i++) {
        if (room->data[i] == NULL)
            continue;
        PyObject *item = Py_BuildValue("(nOOO)", (Py_ssize_t)room->columns.bytes[i].nulls,
                                       validity_of(room, i), or_none(room->offsets[i]),
                                       room->data[i]);
        if (item == NULL || PyDict_SetItemString(found, columns_table[i].name, item) < 0)
            Py_CLEAR(found);
        Py_XDECREF(item);
    }
    return found;
}

/* What was read, or NULL with an exception. */
static PyObject *answer(const struct reading *r, const struct room *room)
{
    PyObject *epochs = epochs_of(r), *columns = columns_of(room), *result = NULL;
    if (epochs != NULL && columns != NULL)
        result = Py_BuildValue(
            "(nKnOO)", r->position,
            (unsigned long long)(r->count > 0 ? r->views[0].base_offset : r->from),
            (Py_ssize_t)r->rows, epochs, columns);
    Py_XDECREF(epochs);
    Py_XDECREF(columns);
    return result;
}

static PyObject *build(const struct reading *r)
{
    struct room room = {0};
    PyObject *result = NULL;
    for (uint32_t i = 0; i < COLUMN_COUNT; i++)
        if (r->column_bytes[i] > ARROW_BYTES_MAX)
            return PyErr_Format(PyExc_ValueError, "a column of one chunk has more than 1 GiB");
    if (room_make(&room, r)) {
        Py_ssize_t bad = fill(&room, r);
        if (bad >= 0)
            PyErr_Format(PyExc_ValueError, "the chunk at offset %llu fails its checksum",
                         (unsigned long long)r->views[bad].base_offset);
        else
            result = answer(r, &room);
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

/* barco/_native.pyi says what they do. */
static PyMethodDef functions[] = {
    {"chunks_project", py_chunks_project, METH_VARARGS, NULL},
    {"chunk_place", py_chunk_place, METH_O, NULL},
    {"chunks_columns", WITH_NAMES(py_chunks_columns), METH_VARARGS | METH_KEYWORDS, NULL},
    {NULL, NULL, 0, NULL},
};

/* COLUMNS: each column's bit, by its name. */
static int add_names(PyObject *module)
{
    PyObject *names = PyDict_New();
    for (uint32_t i = 0; names != NULL && i < COLUMN_COUNT; i++) {
        PyObject *bit = PyLong_FromLong(columns_table[i].bit);
        if (bit == NULL || PyDict_SetItemString(names, columns_table[i].name, bit) < 0)
            Py_CLEAR(names);
        Py_XDECREF(bit);
    }
    int status = names == NULL ? -1 : PyModule_AddObjectRef(module, "COLUMNS", names);
    Py_XDECREF(names);
    return status;
}

int py_columns_init(PyObject *module)
{
    if (add_names(module) < 0)
        return -1;
    return PyModule_AddFunctions(module, functions);
}
