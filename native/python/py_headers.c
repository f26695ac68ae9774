/* Columns of headers: as chunks and batches have them, and as Arrow's lists of names and values. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "format/format.h"
#include "format/headers.h"
#include "python/py_codec.h"

/* Offsets of a column of bytes, all of which lead into so many: their number less one, or -1. */
static Py_ssize_t offsets_valid(const Py_buffer *offsets, Py_ssize_t end)
{
    const int32_t *at = offsets->buf;
    const Py_ssize_t entries = offsets->len / 4;
    if (offsets->len % 4 != 0 || entries < 1 || ((uintptr_t)offsets->buf & 3) != 0 || at[0] < 0)
        return -1;
    for (Py_ssize_t i = 1; i < entries; i++)
        if (at[i] < at[i - 1])
            return -1;
    return at[entries - 1] <= end ? entries - 1 : -1;
}

/* What is made: offsets of lists, names and values, and their bytes. */
struct lists {
    PyObject *made[5];
    int32_t *list_at, *name_at, *value_at;
    uint8_t *names, *values;
};

static void *room(struct lists *lists, int which, size_t bytes)
{
    lists->made[which] = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes);
    return lists->made[which] ? PyBytes_AS_STRING(lists->made[which]) : NULL;
}

/* How many there are, and bytes of names and values. False: one is malformed. */
static bool measure(const int32_t *at, Py_ssize_t rows, const uint8_t *data, size_t *count,
                    size_t *name_bytes, size_t *value_bytes)
{
    *count = *name_bytes = *value_bytes = 0;
    for (Py_ssize_t i = 0; i < rows; i++) {
        const uint8_t *from = data + at[i];
        const size_t len = (size_t)(at[i + 1] - at[i]);
        if (len == 0)
            continue;
        if (!headers_valid(from, len))
            return false;
        for (uint32_t left = headers_begin(&from); left > 0; left--) {
            const struct header header = headers_next(&from);
            *name_bytes += header.name_len;
            *value_bytes += header.value_len;
            ++*count;
        }
    }
    return true;
}

static void fill(struct lists *to, const int32_t *at, Py_ssize_t rows, const uint8_t *data)
{
    int32_t count = 0, name_end = 0, value_end = 0;
    to->list_at[0] = to->name_at[0] = to->value_at[0] = 0;
    for (Py_ssize_t i = 0; i < rows; i++) {
        const uint8_t *from = data + at[i];
        uint32_t left = at[i + 1] > at[i] ? headers_begin(&from) : 0;
        for (; left > 0; left--) {
            const struct header header = headers_next(&from);
            memcpy(to->names + name_end, header.name, header.name_len);
            memcpy(to->values + value_end, header.value, header.value_len);
            to->name_at[++count] = name_end += (int32_t)header.name_len;
            to->value_at[count] = value_end += (int32_t)header.value_len;
        }
        to->list_at[i + 1] = count;
    }
}

static PyObject *lists_of(const Py_buffer *offsets, const Py_buffer *data)
{
    const int32_t *at = offsets->buf;
    const Py_ssize_t rows = offsets_valid(offsets, data->len);
    size_t count, name_bytes, value_bytes;
    struct lists to = {{NULL}, NULL, NULL, NULL, NULL, NULL};
    PyObject *result = NULL;
    if (rows < 0 || !measure(at, rows, data->buf, &count, &name_bytes, &value_bytes))
        return PyErr_Format(PyExc_ValueError, "the headers of a chunk are damaged");
    if ((to.list_at = room(&to, 0, ((size_t)rows + 1) * 4)) != NULL &&
        (to.name_at = room(&to, 1, (count + 1) * 4)) != NULL &&
        (to.names = room(&to, 2, name_bytes)) != NULL &&
        (to.value_at = room(&to, 3, (count + 1) * 4)) != NULL &&
        (to.values = room(&to, 4, value_bytes)) != NULL) {
        fill(&to, at, rows, data->buf);
        result = Py_BuildValue("(OOOOO)", to.made[0], to.made[1], to.made[2], to.made[3],
                               to.made[4]);
    }
    for (int i = 0; i < 5; i++)
        Py_XDECREF(to.made[i]);
    return result;
}

static PyObject *py_headers_lists(PyObject *module, PyObject *args)
{
    Py_buffer offsets, data;
    if (!PyArg_ParseTuple(args, "y*y*", &offsets, &data))
        return NULL;
    PyObject *result = lists_of(&offsets, &data);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&data);
    return result;
}

/* ---- and the other way ---- */

/* lists, names and their offsets, values and their offsets */
enum { LISTS, NAME_AT, NAMES, VALUE_AT, VALUES, GIVEN };

/* One row's headers to out, of HEADERS_STORED_MAX bytes; -1: an event can not have them. */
static int64_t pack_row(const Py_buffer given[GIVEN], int32_t first, int32_t last, uint8_t *out)
{
    struct headers_draft draft = {.out = out};
    const int32_t *name_at = given[NAME_AT].buf, *value_at = given[VALUE_AT].buf;
    const uint8_t *names = given[NAMES].buf, *values = given[VALUES].buf;
    for (int32_t i = first; i < last; i++) {
        const struct header header = {names + name_at[i], values + value_at[i],
                                      (uint32_t)(name_at[i + 1] - name_at[i]),
                                      (uint32_t)(value_at[i + 1] - value_at[i])};
        if (!headers_add(&draft, &header))
            return -1;
    }
    return (int64_t)draft.len;
}

static PyObject *pack(const Py_buffer given[GIVEN])
{
    const Py_ssize_t names = offsets_valid(&given[NAME_AT], given[NAMES].len);
    const Py_ssize_t values = offsets_valid(&given[VALUE_AT], given[VALUES].len);
    const Py_ssize_t rows = offsets_valid(&given[LISTS], names);
    if (names < 0 || names != values || rows < 0)
        return PyErr_Format(PyExc_ValueError, "the columns of headers do not fit each other");
    /* Each has up to five bytes of numbers, and each row one more. */
    const size_t most = (size_t)given[NAMES].len + (size_t)given[VALUES].len +
                        (size_t)names * 5 + (size_t)rows;
    if (most > SECTION_RAW_MAX * 16ull)
        return PyErr_Format(PyExc_ValueError, "the headers of some rows are over 1 GiB");
    const int32_t *at = given[LISTS].buf;
    int32_t *ends = malloc(((size_t)rows + 1) * 4);
    uint8_t *out = malloc(most + HEADERS_STORED_MAX);
    PyObject *result = NULL;
    Py_ssize_t bad = -1;
    int64_t end = 0;
    for (Py_ssize_t i = 0; ends != NULL && out != NULL && i < rows && bad < 0; i++) {
        ends[i] = (int32_t)end;
        const int64_t len = pack_row(given, at[i], at[i + 1], out + end);
        bad = len < 0 ? i : -1;
        end += len;
    }
    if (ends == NULL || out == NULL) {
        PyErr_NoMemory();
    } else {
        ends[rows] = (int32_t)(bad < 0 ? end : 0);
        result = Py_BuildValue("(ny#y#)", bad, (const char *)ends, ((Py_ssize_t)rows + 1) * 4,
                               (const char *)out, (Py_ssize_t)(bad < 0 ? end : 0));
    }
    free(ends);
    free(out);
    return result;
}

static PyObject *py_headers_pack(PyObject *module, PyObject *args)
{
    Py_buffer given[GIVEN];
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*", &given[LISTS], &given[NAME_AT], &given[NAMES],
                          &given[VALUE_AT], &given[VALUES]))
        return NULL;
    PyObject *result = pack(given);
    for (int i = 0; i < GIVEN; i++)
        PyBuffer_Release(&given[i]);
    return result;
}

/* barco/_native.pyi says what they do. */
static PyMethodDef functions[] = {
    {"headers_lists", py_headers_lists, METH_VARARGS, NULL},
    {"headers_pack", py_headers_pack, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int py_headers_init(PyObject *module);

int py_headers_init(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
