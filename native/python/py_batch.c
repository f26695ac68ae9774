/* Batches of Arrow's columns, or of Python's sequences: one call for each, none for a row. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/murmur3.h"
#include "format/batch.h"
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

_Static_assert(COLUMN_BYTES_COUNT == 2, "fill() makes values and keys of what was given");

/* What the caller gave, and the columns made of it. */
struct batch_draft {
    struct bytes_column values, keys;
    const uint8_t *valid; /* a byte for each event: whether it has a key; or NULL */
    const int64_t *numbers[COLUMN_COUNT]; /* by place, of LOWs; NULL: none was given */
    struct chunk_columns c;
    uint8_t *memory, *out;
    uint32_t *key_len, *val_len;
};

/* The first of the times, which the others are counted from. */
static const char *set_base(struct batch_draft *d, const int64_t *times)
{
    int64_t low = INT64_MAX, high = INT64_MIN;
    for (uint32_t i = 0; i < d->c.count; i++) {
        low = times[i] < low ? times[i] : low;
        high = times[i] > high ? times[i] : high;
    }
    d->c.base_timestamp_us = low;
    d->c.max_timestamp_us = high;
    return low > 0 ? NULL : "a timestamp is not positive";
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

/* Keys are copied: Arrow may leave bytes behind where a key is null. */
static const char *fill_keys(struct batch_draft *d, uint8_t *room)
{
    bool any = false;
    d->c.keys = room;
    for (uint32_t i = 0; i < d->c.count; i++) {
        uint32_t len = (uint32_t)(d->keys.at[i + 1] - d->keys.at[i]);
        if (d->valid != NULL && !d->valid[i]) {
            d->key_len[i] = KEY_NULL;
            continue;
        }
        if (len > KEY_BYTES_MAX)
            return "a key has more than 65,535 bytes";
        d->key_len[i] = len;
        memcpy(room + d->c.keys_bytes, d->keys.data + d->keys.at[i], len);
        d->c.keys_bytes += len;
        any = true;
    }
    d->c.key_len = any ? d->key_len : NULL;
    return NULL;
}

static const char *fill(struct batch_draft *d)
{
    uint32_t count = d->c.count = d->values.count;
    if (count == 0)
        return "there must be at least one event";
    if (d->values.at[count] - d->values.at[0] > (int32_t)SECTION_RAW_MAX ||
        (d->keys.at != NULL && d->keys.at[count] - d->keys.at[0] > (int32_t)SECTION_RAW_MAX))
        return "a column is over its 64 MiB";
    size_t lengths = pad8((size_t)count * 4);
    size_t keys = d->keys.at != NULL ? (size_t)(d->keys.at[count] - d->keys.at[0]) : 0;
    size_t numbers = 0;
    for (uint32_t i = 0; i < COLUMN_COUNT; i++)
        numbers += d->numbers[i] != NULL ? 2 * lengths : 0;
    d->memory = malloc(2 * lengths + numbers + keys + 1);
    if (d->memory == NULL)
        return NO_MEMORY;
    d->key_len = (uint32_t *)(void *)d->memory;
    d->val_len = (uint32_t *)(void *)(d->memory + lengths);
    for (uint32_t i = 0; i < count; i++)
        d->val_len[i] = (uint32_t)(d->values.at[i + 1] - d->values.at[i]);
    d->c.val_len = d->val_len;
    d->c.vals = d->values.data + d->values.at[0];
    d->c.vals_bytes = (uint32_t)(d->values.at[count] - d->values.at[0]);
    const char *wrong = fill_numbers(d, d->memory + 2 * lengths);
    if (wrong == NULL && d->keys.at != NULL)
        wrong = fill_keys(d, d->memory + 2 * lengths + numbers);
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

static const char *check_sizes(struct batch_draft *d, const Py_buffer *valid,
                               const Py_buffer held[COLUMN_COUNT])
{
    const Py_ssize_t count = (Py_ssize_t)d->values.count;
    if (d->keys.at != NULL && d->keys.count != d->values.count)
        return "there are more or fewer keys than values";
    if (valid->obj != NULL && valid->len != count)
        return "key_valid has one byte for each event";
    for (uint32_t i = 0; i < COLUMN_COUNT; i++) {
        const Py_buffer *numbers = &held[i];
        if (numbers->obj == NULL)
            continue;
        if (numbers->len != count * 8 || ((uintptr_t)numbers->buf & 7) != 0)
            return "a column of numbers has one aligned 64-bit integer for each event";
        d->numbers[i] = numbers->buf;
    }
    d->valid = valid->buf;
    return NULL;
}

static PyObject *columns_sealed(struct batch_draft *d, const Py_buffer *valid,
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
    static char *names[] = {"value_offsets", "values", "key_offsets", "keys", "key_valid",
                            "numbers", "acceleration", NULL};
    struct batch_draft d = {0};
    Py_buffer valid = {0};
    Py_buffer held[COLUMN_COUNT] = {0};
    PyObject *numbers = Py_None;
    int acceleration = 1;
    PyObject *result = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*y*|z*z*z*Oi", names, &d.values.offsets,
                                     &d.values.data_held, &d.keys.offsets, &d.keys.data_held,
                                     &valid, &numbers, &acceleration))
        return NULL;
    bool keyed = d.keys.offsets.obj != NULL && d.keys.data_held.obj != NULL;
    if (hold_numbers(numbers, held) && column_valid(&d.values) &&
        (!keyed || column_valid(&d.keys)))
        result = columns_sealed(&d, &valid, held, acceleration);
    column_release(&d.values);
    column_release(&d.keys);
    if (valid.obj != NULL)
        PyBuffer_Release(&valid);
    for (uint32_t i = 0; i < COLUMN_COUNT; i++)
        if (held[i].obj != NULL)
            PyBuffer_Release(&held[i]);
    return result;
}

/* ---- Python's ---- */

static struct chunk_sealer *own_sealer; /* The interpreter lock serializes its users. */

/* Bytes objects (also None where nullable) as a column, and which of them are there, in memory
 * that column->at begins. False with an exception set. */
static bool gather(PyObject *items, const char *what, bool nullable, struct bytes_column *column,
                   const uint8_t **there)
{
    const Py_ssize_t count = PyTuple_GET_SIZE(items);
    int64_t total = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PyTuple_GET_ITEM(items, i);
        if (!PyBytes_Check(item) && !(nullable && item == Py_None)) {
            PyErr_Format(PyExc_TypeError, "%s %zd is %.100s, not bytes%s", what, i,
                         Py_TYPE(item)->tp_name, nullable ? " or None" : "");
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
    *column = (struct bytes_column){.at = at, .data = data, .count = (uint32_t)count};
    *there = given;
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

static PyObject *encode(PyObject *values, PyObject *keys, PyObject *numbers, bool compress)
{
    struct batch_draft d = {0};
    const uint8_t *all;
    PyObject *result = NULL;
    if (gather(values, "value", false, &d.values, &all) &&
        (keys == NULL || gather(keys, "key", true, &d.keys, &d.valid)) &&
        gather_numbers(numbers, values, &d)) {
        const char *wrong;
        const size_t written = seal(&d, compress ? own_sealer : NULL, &wrong);
        result = sealed(&d, written, wrong);
    }
    free((void *)d.values.at);
    free((void *)d.keys.at);
    for (uint32_t i = 0; i < COLUMN_COUNT; i++)
        free((void *)d.numbers[i]);
    return result;
}

static PyObject *py_batch_encode(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"values", "keys", "numbers", "compress", NULL};
    PyObject *given[3] = {NULL, Py_None, Py_None}, *result = NULL;
    int compress = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OOp", names, &given[0], &given[1], &given[2],
                                     &compress))
        return NULL;
    if (own_sealer == NULL && (own_sealer = chunk_sealer_new(1)) == NULL)
        return PyErr_NoMemory();
    PyObject *values = PySequence_Tuple(given[0]);
    if (values == NULL)
        return NULL;
    PyObject *keys = items_of(given[1], values, "keys");
    if (!PyErr_Occurred())
        result = encode(values, keys, given[2], compress);
    Py_DECREF(values);
    Py_XDECREF(keys);
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
