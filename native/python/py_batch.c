/* Batches of Arrow's columns, or of Python's sequences: one call for each, none for a row. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/murmur3.h"
#include "format/batch.h"
#include "format/headers.h"
#include "python/py_codec.h"

#define NO_MEMORY "there is no memory for it"

/* A column of byte strings as Arrow has it: count + 1 offsets into data. */
struct bytes_column {
    Py_buffer offsets, data_held;
    const int32_t *at; /* NULL: there is no such column */
    const uint8_t *data;
    uint32_t count;
};

static void column_release(struct bytes_column *column)
{
    if (column->offsets.obj != NULL)
        PyBuffer_Release(&column->offsets);
    if (column->data_held.obj != NULL)
        PyBuffer_Release(&column->data_held);
}

/* Every offset is checked: what Arrow says about a buffer is not believed. */
static bool column_valid(struct bytes_column *column)
{
    Py_ssize_t entries = column->offsets.len / 4;
    if (column->offsets.len % 4 != 0 || entries < 1 || entries - 1 > SECTION_RAW_MAX / 4 ||
        ((uintptr_t)column->offsets.buf & 3) != 0) {
        PyErr_Format(PyExc_ValueError, "offsets are 1 to %u aligned 32-bit integers",
                     SECTION_RAW_MAX / 4);
        return false;
    }
    column->at = column->offsets.buf;
    column->data = column->data_held.buf;
    column->count = (uint32_t)(entries - 1);
    int32_t last = column->at[0];
    bool sound = last >= 0;
    for (uint32_t i = 1; i <= column->count; i++) {
        sound = sound && column->at[i] >= last;
        last = column->at[i];
    }
    if (!sound || last > column->data_held.len)
        PyErr_SetString(PyExc_ValueError, "an offset is below the one before, or after the data");
    return sound && last <= column->data_held.len;
}

static PyObject *py_tokens(PyObject *module, PyObject *args)
{
    struct bytes_column keys = {0};
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*y*", &keys.offsets, &keys.data_held))
        return NULL;
    if (column_valid(&keys))
        result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)keys.count * 8);
    if (result != NULL) {
        uint8_t *out = (uint8_t *)PyBytes_AS_STRING(result);
        Py_BEGIN_ALLOW_THREADS
        for (uint32_t i = 0; i < keys.count; i++) {
            int64_t token = murmur3_token(keys.data + keys.at[i],
                                          (size_t)(keys.at[i + 1] - keys.at[i]));
            memcpy(out + (size_t)i * 8, &token, 8);
        }
        Py_END_ALLOW_THREADS
    }
    column_release(&keys);
    return result;
}

/* ---- columns to a batch ---- */

_Static_assert(COLUMN_BYTES_COUNT == 3, "fill() makes values, keys, headers of what was given");

/* A column of bytes as the caller gave it. */
struct given {
    struct bytes_column bytes;
    const uint8_t *valid; /* a byte for each event: whether it has any; or NULL: each has */
};

/* What the caller gave, and the columns made of it. */
struct batch_draft {
    struct given values, keys, headers;
    const int64_t *numbers[COLUMN_COUNT]; /* by place, of LOWs; NULL: none was given */
    struct chunk_columns c;
    uint8_t *memory, *out;
};

/* The first of the times, which the others are counted from. */
static const char *set_base(struct batch_draft *d, const int64_t *times)
{
    int64_t low = INT64_MAX, high = INT64_MIN;
    for (uint32_t i = 0; i < d->c.count; i++) {
        low = times[i] < low ? times[i] : low;
        high = times[i] > high ? times[i] : high;
    }
    d->c.base_timestamp_us = low != 0 ? low : -1; /* 0 says that there are none */
    d->c.max_timestamp_us = high;
    return low >= TIMESTAMP_US_MIN ? NULL : "a timestamp is before the year 1";
}

/* The halves of a column of numbers, in room for both. */
static void fill_halves(struct batch_draft *d, const struct column *column, int64_t base,
                        uint32_t *low, uint32_t *high)
{
    const int64_t *numbers = d->numbers[column - columns_table];
    uint64_t all = 0;
    for (uint32_t i = 0; i < d->c.count; i++) {
        const uint64_t number = (uint64_t)numbers[i] - (uint64_t)base;
        low[i] = (uint32_t)number;
        all |= number;
    }
    for (uint32_t i = 0; all > UINT32_MAX && i < d->c.count; i++)
        high[i] = (uint32_t)(((uint64_t)numbers[i] - (uint64_t)base) >> 32);
    column_set(&d->c.columns, column, all > 0 ? low : NULL);
    column_set(&d->c.columns, column_high(column), all > UINT32_MAX ? high : NULL);
}

static const char *fill_numbers(struct batch_draft *d, uint8_t *room)
{
    const size_t half = pad8((size_t)d->c.count * 4);
    for (uint32_t i = 0; i < COLUMN_COUNT; i++) {
        const bool timed = columns_table[i].id == SECTION_TS_DELTA;
        if (d->numbers[i] == NULL)
            continue;
        const char *wrong = timed ? set_base(d, d->numbers[i]) : NULL;
        if (wrong != NULL)
            return wrong;
        fill_halves(d, &columns_table[i], timed ? d->c.base_timestamp_us : 0,
                    (uint32_t *)(void *)room, (uint32_t *)(void *)(room + half));
        room += 2 * half;
    }
    return NULL;
}

/* Copied: Arrow may leave bytes behind where an event has none. Whether any has, in *any. */
static const char *fill_bytes(const struct given *from, uint32_t count, uint32_t most,
                              uint32_t *lens, uint8_t *room, uint32_t *filled, bool *any)
{
    *filled = 0;
    *any = false;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t len = (uint32_t)(from->bytes.at[i + 1] - from->bytes.at[i]);
        lens[i] = KEY_NULL;
        if (from->valid != NULL && !from->valid[i])
            continue;
        if (len > most)
            return "a key has more than 65,535 bytes";
        lens[i] = len;
        memcpy(room + *filled, from->bytes.data + from->bytes.at[i], len);
        *filled += len;
        *any = true;
    }
    return NULL;
}

static size_t given_bytes(const struct given *given)
{
    const struct bytes_column *bytes = &given->bytes;
    return bytes->at != NULL ? (size_t)(bytes->at[bytes->count] - bytes->at[0]) : 0;
}

/* Values are taken where they are, if each event has one. */
static void fill_values(struct batch_draft *d, uint32_t *lens, uint8_t *room)
{
    const struct bytes_column *values = &d->values.bytes;
    bool any;
    d->c.val_len = lens;
    d->c.vals = values->data + values->at[0];
    if (d->values.valid != NULL && memchr(d->values.valid, 0, d->c.count) != NULL) {
        fill_bytes(&d->values, d->c.count, SECTION_RAW_MAX, lens, room, &d->c.vals_bytes, &any);
        d->c.vals = room;
        return;
    }
    for (uint32_t i = 0; i < d->c.count; i++)
        lens[i] = (uint32_t)(values->at[i + 1] - values->at[i]);
    d->c.vals_bytes = (uint32_t)given_bytes(&d->values);
}

static const char *fill_headers(struct batch_draft *d, uint32_t *lens, uint8_t *room)
{
    bool any;
    const uint8_t *at = room;
    fill_bytes(&d->headers, d->c.count, SECTION_RAW_MAX, lens, room, &d->c.hdrs_bytes, &any);
    d->c.hdrs = room;
    d->c.hdr_len = any ? lens : NULL;
    for (uint32_t i = 0; any && i < d->c.count; i++) {
        if (lens[i] != KEY_NULL && !headers_valid(at, lens[i]))
            return "these are no headers that headers_encode() made";
        at += bytes_of(lens[i]);
    }
    return NULL;
}

static const char *fill(struct batch_draft *d)
{
    const uint32_t count = d->c.count = d->values.bytes.count;
    const size_t values = given_bytes(&d->values), keys = given_bytes(&d->keys),
                 headers = given_bytes(&d->headers), lengths = pad8((size_t)count * 4);
    if (count == 0)
        return "there must be at least one event";
    if (values > SECTION_RAW_MAX || keys > SECTION_RAW_MAX || headers > SECTION_RAW_MAX)
        return "a column is over its 64 MiB";
    size_t numbers = 0;
    for (uint32_t i = 0; i < COLUMN_COUNT; i++)
        numbers += d->numbers[i] != NULL ? 2 * lengths : 0;
    const size_t copied = d->values.valid != NULL ? values : 0;
    d->memory = malloc(3 * lengths + numbers + keys + headers + copied + 1);
    if (d->memory == NULL)
        return NO_MEMORY;
    uint32_t *lens[3];
    for (int i = 0; i < 3; i++)
        lens[i] = (uint32_t *)(void *)(d->memory + (size_t)i * lengths);
    uint8_t *room = d->memory + 3 * lengths + numbers;
    const char *wrong = fill_numbers(d, d->memory + 3 * lengths);
    fill_values(d, lens[0], room + keys + headers);
    if (wrong == NULL && d->keys.bytes.at != NULL) {
        bool any;
        wrong = fill_bytes(&d->keys, count, KEY_BYTES_MAX, lens[1], room, &d->c.keys_bytes, &any);
        d->c.keys = room;
        d->c.key_len = any ? lens[1] : NULL;
    }
    if (wrong == NULL && d->headers.bytes.at != NULL)
        wrong = fill_headers(d, lens[2], room + keys);
    return wrong;
}

/* Bytes written to d->out, 0 with *wrong set. Needs no interpreter. */
static size_t seal(struct batch_draft *d, struct chunk_sealer *sealer, const char **wrong)
{
    *wrong = fill(d);
    if (*wrong != NULL)
        return 0;
    size_t bound = chunk_bound(&d->c);
    d->out = malloc(bound);
    size_t written = d->out != NULL ? batch_seal(sealer, &d->c, d->out, bound) : 0;
    if (written == 0)
        *wrong = NO_MEMORY;
    return written;
}

static PyObject *sealed(struct batch_draft *d, size_t written, const char *wrong)
{
    PyObject *result = NULL;
    if (wrong != NULL)
        PyErr_SetString(PyExc_ValueError, wrong);
    else
        result = PyBytes_FromStringAndSize((const char *)d->out, (Py_ssize_t)written);
    free(d->memory);
    free(d->out);
    d->memory = d->out = NULL;
    return result;
}

/* [(name, numbers)] of a dict, or none of None. NULL with an exception. */
static PyObject *named_numbers(PyObject *given)
{
    if (given == Py_None)
        return PyList_New(0);
    if (PyDict_Check(given))
        return PyDict_Items(given);
    return PyErr_Format(PyExc_TypeError, "columns of numbers are a dict, not %.100s",
                        Py_TYPE(given)->tp_name);
}

/* The place of the column of numbers with this name; COLUMN_COUNT, with an exception, if there is
 * none. */
static uint32_t number_place(PyObject *name)
{
    uint32_t i = 0;
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    while (i < COLUMN_COUNT && (columns_table[i].kind != COLUMN_LOW || text == NULL ||
                                strcmp(columns_table[i].name, text) != 0))
        i++;
    if (i == COLUMN_COUNT && !PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, "there is no column of numbers %R", name);
    return i;
}

/* ---- Arrow's ---- */

/* The buffers of the columns of numbers, by place; to be released, also if it fails. */
static bool hold_numbers(PyObject *given, Py_buffer held[COLUMN_COUNT])
{
    PyObject *items = named_numbers(given);
    bool good = items != NULL;
    for (Py_ssize_t i = 0; good && i < PyList_GET_SIZE(items); i++) {
        PyObject *item = PyList_GET_ITEM(items, i);
        const uint32_t place = number_place(PyTuple_GET_ITEM(item, 0));
        good = place < COLUMN_COUNT && PyObject_GetBuffer(PyTuple_GET_ITEM(item, 1),
                                                          &held[place], PyBUF_SIMPLE) == 0;
    }
    Py_XDECREF(items);
    return good;
}

static const char *check_sizes(struct batch_draft *d, const Py_buffer valid[3],
                               const Py_buffer held[COLUMN_COUNT])
{
    const Py_ssize_t count = (Py_ssize_t)d->values.bytes.count;
    struct given *given[3] = {&d->values, &d->keys, &d->headers};
    for (int i = 0; i < 3; i++) {
        if (given[i]->bytes.at != NULL && given[i]->bytes.count != d->values.bytes.count)
            return "there are more or fewer keys or headers than values";
        if (valid[i].obj != NULL && valid[i].len != count)
            return "what says which are valid has one byte for each event";
        given[i]->valid = valid[i].buf;
    }
    for (uint32_t i = 0; i < COLUMN_COUNT; i++) {
        const Py_buffer *numbers = &held[i];
        if (numbers->obj == NULL)
            continue;
        if (numbers->len != count * 8 || ((uintptr_t)numbers->buf & 7) != 0)
            return "a column of numbers has one aligned 64-bit integer for each event";
        d->numbers[i] = numbers->buf;
    }
    return NULL;
}

static PyObject *columns_sealed(struct batch_draft *d, const Py_buffer valid[3],
                                const Py_buffer held[COLUMN_COUNT], int acceleration)
{
    const char *wrong = check_sizes(d, valid, held);
    size_t written = 0;
    if (wrong == NULL) {
        Py_BEGIN_ALLOW_THREADS
        struct chunk_sealer *sealer = acceleration > 0 ? chunk_sealer_new(acceleration) : NULL;
        written = seal(d, sealer, &wrong);
        chunk_sealer_free(sealer);
        Py_END_ALLOW_THREADS
    }
    return sealed(d, written, wrong);
}

static PyObject *py_batch_columns(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"value_offsets", "values",       "key_offsets",  "keys",
                            "key_valid",     "numbers",      "acceleration", "value_valid",
                            "header_offsets", "headers",     "header_valid", NULL};
    struct batch_draft d = {0};
    struct bytes_column *all[3] = {&d.values.bytes, &d.keys.bytes, &d.headers.bytes};
    Py_buffer valid[3] = {0};
    Py_buffer held[COLUMN_COUNT] = {0};
    PyObject *numbers = Py_None;
    int acceleration = 1;
    PyObject *result = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*y*|z*z*z*Oiz*z*z*z*", names, &all[0]->offsets,
                                     &all[0]->data_held, &all[1]->offsets, &all[1]->data_held,
                                     &valid[1], &numbers, &acceleration, &valid[0],
                                     &all[2]->offsets, &all[2]->data_held, &valid[2]))
        return NULL;
    bool good = hold_numbers(numbers, held);
    for (int i = 0; good && i < 3; i++)
        if (all[i]->offsets.obj != NULL && all[i]->data_held.obj != NULL)
            good = column_valid(all[i]);
    if (good)
        result = columns_sealed(&d, valid, held, acceleration);
    for (int i = 0; i < 3; i++) {
        column_release(all[i]);
        if (valid[i].obj != NULL)
            PyBuffer_Release(&valid[i]);
    }
    for (uint32_t i = 0; i < COLUMN_COUNT; i++)
        if (held[i].obj != NULL)
            PyBuffer_Release(&held[i]);
    return result;
}

/* ---- Python's ---- */

static struct chunk_sealer *own_sealer; /* The interpreter lock serializes its users. */

/* Bytes objects and Nones as a column, and which of them are there, in memory that bytes.at begins.
 * False with an exception set. */
static bool gather(PyObject *items, const char *what, struct given *given_column)
{
    const Py_ssize_t count = PyTuple_GET_SIZE(items);
    int64_t total = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PyTuple_GET_ITEM(items, i);
        if (!PyBytes_Check(item) && item != Py_None) {
            PyErr_Format(PyExc_TypeError, "%s %zd is %.100s, not bytes or None", what, i,
                         Py_TYPE(item)->tp_name);
            return false;
        }
        total += item == Py_None ? 0 : PyBytes_GET_SIZE(item);
    }
    if (count > SECTION_RAW_MAX / 4 || total > SECTION_RAW_MAX) {
        PyErr_Format(PyExc_ValueError, "%zd events, or the %ss of %lld bytes, exceed a batch",
                     count, what, (long long)total);
        return false;
    }
    int32_t *at = malloc((size_t)(count + 1) * 4 + (size_t)count + (size_t)total);
    if (at == NULL) {
        PyErr_NoMemory();
        return false;
    }
    uint8_t *given = (uint8_t *)(at + count + 1), *data = given + count;
    given_column->bytes = (struct bytes_column){.at = at, .data = data, .count = (uint32_t)count};
    given_column->valid = given;
    for (Py_ssize_t i = 0, end = at[0] = 0; i < count; i++) {
        PyObject *item = PyTuple_GET_ITEM(items, i);
        given[i] = item != Py_None;
        if (given[i]) {
            memcpy(data + end, PyBytes_AS_STRING(item), (size_t)PyBytes_GET_SIZE(item));
            end += PyBytes_GET_SIZE(item);
        }
        at[i + 1] = (int32_t)end;
    }
    return true;
}

static int64_t *integers_of(PyObject *items)
{
    const Py_ssize_t count = PyTuple_GET_SIZE(items);
    int64_t *numbers = malloc((size_t)count * 8 + 1);
    if (numbers == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; numbers != NULL && i < count; i++) {
        numbers[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(items, i));
        if (numbers[i] == -1 && PyErr_Occurred()) {
            free(numbers);
            numbers = NULL;
        }
    }
    return numbers;
}

/* A tuple of a sequence's items (a list could be changed by a __index__ under our hands), NULL for
 * None, and with an exception if it has not as many as there are values. */
static PyObject *items_of(PyObject *sequence, PyObject *values, const char *what)
{
    if (sequence == Py_None)
        return NULL;
    PyObject *items = PySequence_Tuple(sequence);
    if (items != NULL && values != NULL && PyTuple_GET_SIZE(items) != PyTuple_GET_SIZE(values)) {
        PyErr_Format(PyExc_ValueError, "%zd values but %zd %s", PyTuple_GET_SIZE(values),
                     PyTuple_GET_SIZE(items), what);
        Py_CLEAR(items);
    }
    return items;
}

/* The columns of numbers, by place, in memory that d->numbers begin. False with an exception. */
static bool gather_numbers(PyObject *given, PyObject *values, struct batch_draft *d)
{
    PyObject *items = named_numbers(given);
    bool good = items != NULL;
    for (Py_ssize_t i = 0; good && i < PyList_GET_SIZE(items); i++) {
        PyObject *item = PyList_GET_ITEM(items, i);
        const uint32_t place = number_place(PyTuple_GET_ITEM(item, 0));
        if (place == COLUMN_COUNT) {
            good = false;
            break;
        }
        char what[32];
        snprintf(what, sizeof what, "%ss", columns_table[place].name);
        PyObject *numbers = items_of(PyTuple_GET_ITEM(item, 1), values, what);
        if (numbers != NULL)
            d->numbers[place] = integers_of(numbers);
        good = !PyErr_Occurred();
        Py_XDECREF(numbers);
    }
    Py_XDECREF(items);
    return good;
}

/* given: values, keys, headers; NULL: none has any. */
static PyObject *encode(PyObject *const given[3], PyObject *numbers, bool compress)
{
    static const char *const what[3] = {"value", "key", "header"};
    struct batch_draft d = {0};
    struct given *columns[3] = {&d.values, &d.keys, &d.headers};
    PyObject *result = NULL;
    bool good = true;
    for (int i = 0; good && i < 3; i++)
        good = given[i] == NULL || gather(given[i], what[i], columns[i]);
    if (good && gather_numbers(numbers, given[0], &d)) {
        const char *wrong;
        const size_t written = seal(&d, compress ? own_sealer : NULL, &wrong);
        result = sealed(&d, written, wrong);
    }
    for (int i = 0; i < 3; i++)
        free((void *)columns[i]->bytes.at);
    for (uint32_t i = 0; i < COLUMN_COUNT; i++)
        free((void *)d.numbers[i]);
    return result;
}

static PyObject *py_batch_encode(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"values", "keys", "numbers", "compress", "headers", NULL};
    PyObject *given[4] = {NULL, Py_None, Py_None, Py_None}, *result = NULL;
    int compress = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OOpO", names, &given[0], &given[1], &given[2],
                                     &compress, &given[3]))
        return NULL;
    if (own_sealer == NULL && (own_sealer = chunk_sealer_new(1)) == NULL)
        return PyErr_NoMemory();
    PyObject *values = PySequence_Tuple(given[0]);
    if (values == NULL)
        return NULL;
    PyObject *keys = items_of(given[1], values, "keys");
    PyObject *headers = PyErr_Occurred() ? NULL : items_of(given[3], values, "headers");
    if (!PyErr_Occurred())
        result = encode((PyObject *[3]){values, keys, headers}, given[2], compress);
    Py_DECREF(values);
    Py_XDECREF(keys);
    Py_XDECREF(headers);
    return result;
}

/* barco/_native.pyi says what they do. */
static PyMethodDef functions[] = {
    {"batch_encode", WITH_NAMES(py_batch_encode), METH_VARARGS | METH_KEYWORDS, NULL},
    {"batch_columns", WITH_NAMES(py_batch_columns), METH_VARARGS | METH_KEYWORDS, NULL},
    {"tokens", py_tokens, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int py_batch_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
