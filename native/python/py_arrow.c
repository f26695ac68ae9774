/* Arrow's columns to tokens and batches: one call for each record batch, none for a row. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "format/batch.h"
#include "base/murmur3.h"
#include "python/py_codec.h"

/* A column of byte strings as Arrow has it: count + 1 offsets into data. */
struct bytes_column {
    Py_buffer offsets, data;
    const int32_t *at;
    uint32_t count;
};

static void column_release(struct bytes_column *column)
{
    if (column->offsets.obj != NULL)
        PyBuffer_Release(&column->offsets);
    if (column->data.obj != NULL)
        PyBuffer_Release(&column->data);
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
    column->count = (uint32_t)(entries - 1);
    int32_t last = column->at[0];
    bool sound = last >= 0;
    for (uint32_t i = 1; i <= column->count; i++) {
        sound = sound && column->at[i] >= last;
        last = column->at[i];
    }
    if (!sound || last > column->data.len)
        PyErr_SetString(PyExc_ValueError, "an offset is below the one before, or after the data");
    return sound && last <= column->data.len;
}

PyObject *py_tokens(PyObject *module, PyObject *args)
{
    struct bytes_column keys = {0};
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*y*", &keys.offsets, &keys.data))
        return NULL;
    if (column_valid(&keys))
        result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)keys.count * 8);
    if (result != NULL) {
        uint8_t *out = (uint8_t *)PyBytes_AS_STRING(result);
        const uint8_t *data = keys.data.buf;
        Py_BEGIN_ALLOW_THREADS
        for (uint32_t i = 0; i < keys.count; i++) {
            int64_t token = murmur3_token(data + keys.at[i],
                                          (size_t)(keys.at[i + 1] - keys.at[i]));
            memcpy(out + (size_t)i * 8, &token, 8);
        }
        Py_END_ALLOW_THREADS
    }
    column_release(&keys);
    return result;
}

/* What the caller gave, and the columns made of it. */
struct batch_draft {
    struct bytes_column values, keys;
    Py_buffer valid, times;
    struct chunk_columns c;
    uint8_t *memory, *out;
    uint32_t *ts_delta, *ts_high, *key_len, *val_len;
};

static void draft_release(struct batch_draft *d)
{
    column_release(&d->values);
    column_release(&d->keys);
    if (d->valid.obj != NULL)
        PyBuffer_Release(&d->valid);
    if (d->times.obj != NULL)
        PyBuffer_Release(&d->times);
    free(d->memory);
    free(d->out);
}

static const char *check_sizes(const struct batch_draft *d)
{
    uint32_t count = d->values.count;
    if (count == 0)
        return "there must be at least one event";
    if (d->keys.at != NULL && d->keys.count != count)
        return "there are more or fewer keys than values";
    if (d->valid.obj != NULL && d->valid.len != (Py_ssize_t)count)
        return "key_valid has one byte for each event";
    if (d->times.obj != NULL && (d->times.len != (Py_ssize_t)count * 8 ||
                                 ((uintptr_t)d->times.buf & 7) != 0))
        return "timestamps has one aligned 64-bit integer for each event";
    if (d->values.at[count] - d->values.at[0] > (int32_t)SECTION_RAW_MAX ||
        (d->keys.at != NULL && d->keys.at[count] - d->keys.at[0] > (int32_t)SECTION_RAW_MAX))
        return "a column is over its 64 MiB";
    return NULL;
}

static const char *fill_times(struct batch_draft *d)
{
    const int64_t *times = d->times.buf;
    int64_t low = INT64_MAX, high = INT64_MIN;
    for (uint32_t i = 0; i < d->c.count; i++) {
        low = times[i] < low ? times[i] : low;
        high = times[i] > high ? times[i] : high;
    }
    if (low <= 0)
        return "a timestamp is not positive";
    for (uint32_t i = 0; i < d->c.count; i++)
        d->ts_delta[i] = (uint32_t)((uint64_t)(times[i] - low) & UINT32_MAX);
    for (uint32_t i = 0; high - low > UINT32_MAX && i < d->c.count; i++)
        d->ts_high[i] = (uint32_t)((uint64_t)(times[i] - low) >> 32);
    d->c.base_timestamp_us = low;
    d->c.max_timestamp_us = high;
    d->c.ts_delta = high == low ? NULL : d->ts_delta;
    d->c.ts_high = high - low > UINT32_MAX ? d->ts_high : NULL;
    return NULL;
}

/* Keys are copied: Arrow may leave bytes behind where a key is null. */
static const char *fill_keys(struct batch_draft *d, uint8_t *room)
{
    const uint8_t *valid = d->valid.obj != NULL ? d->valid.buf : NULL;
    const uint8_t *data = d->keys.data.buf;
    bool any = false;
    d->c.keys = room;
    for (uint32_t i = 0; i < d->c.count; i++) {
        uint32_t len = (uint32_t)(d->keys.at[i + 1] - d->keys.at[i]);
        if (valid != NULL && !valid[i]) {
            d->key_len[i] = KEY_NULL;
            continue;
        }
        if (len > KEY_BYTES_MAX)
            return "a key has more than 65,535 bytes";
        d->key_len[i] = len;
        memcpy(room + d->c.keys_bytes, data + d->keys.at[i], len);
        d->c.keys_bytes += len;
        any = true;
    }
    d->c.key_len = any ? d->key_len : NULL;
    return NULL;
}

static const char *fill(struct batch_draft *d)
{
    uint32_t count = d->c.count = d->values.count;
    size_t lengths = pad8((size_t)count * 4);
    size_t keys = d->keys.at != NULL ? (size_t)(d->keys.at[count] - d->keys.at[0]) : 0;
    d->memory = malloc(4 * lengths + keys + 1);
    if (d->memory == NULL)
        return "there is no memory for it";
    d->ts_delta = (uint32_t *)(void *)d->memory;
    d->key_len = (uint32_t *)(void *)(d->memory + lengths);
    d->val_len = (uint32_t *)(void *)(d->memory + 2 * lengths);
    d->ts_high = (uint32_t *)(void *)(d->memory + 3 * lengths);
    for (uint32_t i = 0; i < count; i++)
        d->val_len[i] = (uint32_t)(d->values.at[i + 1] - d->values.at[i]);
    d->c.val_len = d->val_len;
    d->c.vals = (const uint8_t *)d->values.data.buf + d->values.at[0];
    d->c.vals_bytes = (uint32_t)(d->values.at[count] - d->values.at[0]);
    const char *wrong = d->times.obj != NULL ? fill_times(d) : NULL;
    if (wrong == NULL && d->keys.at != NULL)
        wrong = fill_keys(d, d->memory + 4 * lengths);
    return wrong;
}

/* Bytes written to d->out, 0 with *wrong set. Without the interpreter lock. */
static size_t seal(struct batch_draft *d, int acceleration, const char **wrong)
{
    *wrong = fill(d);
    if (*wrong != NULL)
        return 0;
    struct chunk_sealer *sealer = acceleration > 0 ? chunk_sealer_new(acceleration) : NULL;
    size_t bound = chunk_bound(&d->c);
    d->out = malloc(bound);
    size_t written = d->out != NULL ? batch_seal(sealer, &d->c, d->out, bound) : 0;
    chunk_sealer_free(sealer);
    if (written == 0)
        *wrong = "there is no memory for it";
    return written;
}

PyObject *py_batch_columns(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"value_offsets", "values", "key_offsets", "keys", "key_valid",
                            "timestamps_us", "acceleration", NULL};
    struct batch_draft d = {0};
    int acceleration = 1;
    const char *wrong = NULL;
    PyObject *result = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*y*|z*z*z*z*i", names, &d.values.offsets,
                                     &d.values.data, &d.keys.offsets, &d.keys.data, &d.valid,
                                     &d.times, &acceleration)) {
        return NULL;
    }
    bool keyed = d.keys.offsets.obj != NULL && d.keys.data.obj != NULL;
    if (column_valid(&d.values) && (!keyed || column_valid(&d.keys))) {
        wrong = check_sizes(&d);
        size_t written = 0;
        if (wrong == NULL) {
            Py_BEGIN_ALLOW_THREADS
            written = seal(&d, acceleration, &wrong);
            Py_END_ALLOW_THREADS
        }
        if (wrong != NULL)
            PyErr_SetString(PyExc_ValueError, wrong);
        else
            result = PyBytes_FromStringAndSize((const char *)d.out, (Py_ssize_t)written);
    }
    draft_release(&d);
    return result;
}
