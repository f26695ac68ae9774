/* barco._native.batch_encode: Python's values, keys and timestamps in columns. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "format/batch.h"
#include "python/py_codec.h"

#include <stdbool.h>

static struct chunk_sealer *sealer; /* One is enough: the interpreter lock serializes its users. */

int py_batch_prepare(void)
{
    if (sealer == NULL)
        sealer = chunk_sealer_new(1);
    if (sealer != NULL)
        return 0;
    PyErr_NoMemory();
    return -1;
}

/* The columns of a batch under construction, in one allocation. */
struct draft {
    struct chunk_columns c;
    uint32_t *ts_delta, *ts_high, *key_len, *val_len;
    uint8_t *keys, *vals;
    void *memory;
};

/* Adds up the sizes of bytes objects (None allowed if nullable); -1 with an exception set. */
static int64_t total_bytes(PyObject *const *items, Py_ssize_t count, bool nullable,
                           Py_ssize_t item_max, const char *what)
{
    int64_t total = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (nullable && items[i] == Py_None)
            continue;
        if (!PyBytes_Check(items[i])) {
            PyErr_Format(PyExc_TypeError, "%s %zd is %.100s, not bytes%s", what, i,
                         Py_TYPE(items[i])->tp_name, nullable ? " or None" : "");
            return -1;
        }
        if (PyBytes_GET_SIZE(items[i]) > item_max) {
            PyErr_Format(PyExc_ValueError, "%s %zd has %zd bytes; at most %zd fit in a batch", what,
                         i, PyBytes_GET_SIZE(items[i]), item_max);
            return -1;
        }
        total += PyBytes_GET_SIZE(items[i]);
        if (total > SECTION_RAW_MAX) {
            PyErr_Format(PyExc_ValueError, "the %ss together exceed the %u bytes of a batch", what,
                         SECTION_RAW_MAX);
            return -1;
        }
    }
    return total;
}

static bool draft_allocate(struct draft *d, uint32_t count, int64_t keys_bytes, int64_t vals_bytes)
{
    size_t lengths = pad8((size_t)count * 4);
    uint8_t *p = d->memory = PyMem_Malloc(4 * lengths + (size_t)keys_bytes + (size_t)vals_bytes);
    if (p == NULL) {
        PyErr_NoMemory();
        return false;
    }
    d->ts_delta = (uint32_t *)(void *)p;
    d->key_len = (uint32_t *)(void *)(p + lengths);
    d->val_len = (uint32_t *)(void *)(p + 2 * lengths);
    d->ts_high = (uint32_t *)(void *)(p + 3 * lengths);
    d->keys = p + 4 * lengths;
    d->vals = d->keys + keys_bytes;
    d->c.count = count;
    d->c.val_len = d->val_len;
    d->c.keys = d->keys;
    d->c.vals = d->vals;
    d->c.keys_bytes = (uint32_t)keys_bytes;
    d->c.vals_bytes = (uint32_t)vals_bytes;
    return true;
}

static void copy_column(PyObject *const *items, uint32_t count, uint32_t *lengths, uint8_t *out)
{
    for (uint32_t i = 0; i < count; i++) {
        if (items[i] == Py_None) {
            lengths[i] = KEY_NULL;
            continue;
        }
        lengths[i] = (uint32_t)PyBytes_GET_SIZE(items[i]);
        memcpy(out, PyBytes_AS_STRING(items[i]), lengths[i]);
        out += lengths[i];
    }
}

/* Microseconds from the earliest; the column is left out when all are equal. */
static bool draft_timestamps(struct draft *d, PyObject *const *items)
{
    int64_t earliest = INT64_MAX, latest = 0;
    for (uint32_t i = 0; i < d->c.count; i++) {
        int64_t at = PyLong_AsLongLong(items[i]);
        if (at == -1 && PyErr_Occurred())
            return false;
        if (at <= 0) {
            PyErr_Format(PyExc_ValueError, "timestamp %u is %lld; it must be positive", i,
                         (long long)at);
            return false;
        }
        earliest = at < earliest ? at : earliest;
        latest = at > latest ? at : latest;
    }
    for (uint32_t i = 0; i < d->c.count; i++) {
        uint64_t delta = (uint64_t)(PyLong_AsLongLong(items[i]) - earliest);
        d->ts_delta[i] = (uint32_t)delta;
        d->ts_high[i] = (uint32_t)(delta >> 32);
    }
    d->c.base_timestamp_us = earliest;
    d->c.max_timestamp_us = latest;
    d->c.ts_delta = latest == earliest ? NULL : d->ts_delta;
    d->c.ts_high = latest - earliest > UINT32_MAX ? d->ts_high : NULL;
    return true;
}

static PyObject *draft_seal(const struct draft *d, bool compress)
{
    struct chunk_sealer *with = compress ? sealer : NULL;
    size_t bound = chunk_bound(&d->c);
    uint8_t *out = PyMem_Malloc(bound);
    if (out == NULL)
        return PyErr_NoMemory();
    size_t written = batch_seal(with, &d->c, out, bound);
    PyObject *result = PyBytes_FromStringAndSize((const char *)out, (Py_ssize_t)written);
    PyMem_Free(out);
    return result;
}

/* A tuple of the sequence's items (a list could be changed by a __index__ under our hands), NULL
 * with an exception if it has not as many as there are values. */
static PyObject *column_items(PyObject *sequence, Py_ssize_t count, const char *what)
{
    PyObject *items = PySequence_Tuple(sequence);
    if (items != NULL && count >= 0 && PyTuple_GET_SIZE(items) != count) {
        PyErr_Format(PyExc_ValueError, "%zd values but %zd %s", count, PyTuple_GET_SIZE(items),
                     what);
        Py_CLEAR(items);
    }
    return items;
}

/* What the caller gave: tuples; keys and timestamps may be NULL. */
struct columns_given {
    PyObject *values, *keys, *timestamps;
};

static bool draft_fill(struct draft *d, const struct columns_given *given)
{
    PyObject *const *vals = &PyTuple_GET_ITEM(given->values, 0);
    Py_ssize_t count = PyTuple_GET_SIZE(given->values);
    if (count == 0 || count > SECTION_RAW_MAX / 4) {
        PyErr_Format(PyExc_ValueError, "there must be 1 to %u events, not %zd",
                     SECTION_RAW_MAX / 4, count);
        return false;
    }
    PyObject *const *keys = given->keys == NULL ? NULL : &PyTuple_GET_ITEM(given->keys, 0);
    int64_t vals_bytes = total_bytes(vals, count, false, SECTION_RAW_MAX, "value");
    int64_t keys_bytes = vals_bytes < 0 || keys == NULL
                             ? 0
                             : total_bytes(keys, count, true, KEY_BYTES_MAX, "key");
    if (vals_bytes < 0 || keys_bytes < 0 ||
        !draft_allocate(d, (uint32_t)count, keys_bytes, vals_bytes))
        return false;
    copy_column(vals, d->c.count, d->val_len, d->vals);
    if (keys != NULL)
        copy_column(keys, d->c.count, d->key_len, d->keys);
    for (uint32_t i = 0; keys != NULL && i < d->c.count && d->c.key_len == NULL; i++)
        d->c.key_len = d->key_len[i] == KEY_NULL ? NULL : d->key_len;
    return given->timestamps == NULL ||
           draft_timestamps(d, &PyTuple_GET_ITEM(given->timestamps, 0));
}

static PyObject *encode(const struct columns_given *given, struct draft *d, bool compress)
{
    PyObject *result = NULL;
    if (draft_fill(d, given))
        result = draft_seal(d, compress);
    PyMem_Free(d->memory);
    return result;
}

/* Takes any sequences, with None for an absent one. */
static PyObject *encode_sequences(const struct columns_given *given, struct draft *d, bool compress)
{
    struct columns_given tuples = {column_items(given->values, -1, "values"), NULL, NULL};
    PyObject *result = NULL;
    if (tuples.values == NULL)
        return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(tuples.values);
    if (given->keys != Py_None)
        tuples.keys = column_items(given->keys, count, "keys");
    if (given->timestamps != Py_None && !PyErr_Occurred())
        tuples.timestamps = column_items(given->timestamps, count, "timestamps");
    if (!PyErr_Occurred())
        result = encode(&tuples, d, compress);
    Py_DECREF(tuples.values);
    Py_XDECREF(tuples.keys);
    Py_XDECREF(tuples.timestamps);
    return result;
}

PyObject *py_batch_encode(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"values", "keys", "timestamps_us", "compress", NULL};
    struct columns_given given = {NULL, Py_None, Py_None};
    struct draft d = {.memory = NULL};
    int compress = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OOp", names, &given.values, &given.keys,
                                     &given.timestamps, &compress))
        return NULL;
    return encode_sequences(&given, &d, compress);
}
