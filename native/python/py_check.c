/* What is looked at before it is produced, as the upper layer is told of it. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "broker/checked.h"
#include "format/format.h"
#include "format/headers.h"
#include "format/keyed.h"
#include "python/py_check.h"

PyObject *py_check(const struct upcall *up)
{
    uint32_t lens[3];
    memcpy(lens, up->head, sizeof lens);
    const char *topic = (const char *)up->head + sizeof lens, *key = topic + lens[0];
    const uint32_t key_len = lens[1] > 0 ? lens[1] - 1 : 0;
    assert(sizeof lens + lens[0] + key_len + lens[2] == up->head_len);
    PyObject *given = lens[1] > 0 ? PyBytes_FromStringAndSize(key, key_len) : Py_NewRef(Py_None);
    return Py_BuildValue("(sKs#iNNNy#y#)", "check", (unsigned long long)up->id, topic,
                         (Py_ssize_t)lens[0], (int)(up->status & 0xff),
                         PyBool_FromLong(up->status & CHECK_JSON),
                         PyBool_FromLong(up->status & CHECK_VALID_ONLY), given, key + key_len,
                         (Py_ssize_t)lens[2], (const char *)up->body->data,
                         (Py_ssize_t)up->body->len);
}

/* The values of lines as a list. */
static PyObject *list_of(const uint8_t *bytes, const struct keyed_line *lines, uint32_t count)
{
    PyObject *values = PyList_New(count);
    for (uint32_t i = 0; values != NULL && i < count; i++) {
        const struct keyed_line *line = &lines[i];
        PyObject *each = line->value_len == KEY_NULL
                             ? Py_NewRef(Py_None)
                             : PyBytes_FromStringAndSize((const char *)bytes + line->value_at,
                                                         line->value_len);
        if (each == NULL)
            Py_CLEAR(values);
        else
            PyList_SET_ITEM(values, i, each);
    }
    return values;
}

static PyObject *py_keyed_values(PyObject *module, PyObject *args)
{
    Py_buffer body;
    uint32_t count = 0;
    uint64_t flawed;
    bool delayed;
    if (!PyArg_ParseTuple(args, "y*", &body))
        return NULL;
    const size_t len = (size_t)body.len;
    const uint32_t room = len < UINT32_MAX ? keyed_lines_most(len) : 0;
    uint8_t *bytes = malloc(len + 1), *key_room = malloc(KEYED_KEY_MAX);
    uint8_t *headers_room = malloc(HEADERS_STORED_MAX);
    struct keyed_line *lines = malloc((size_t)room * sizeof *lines + 1);
    PyObject *result = NULL;
    if (bytes == NULL || key_room == NULL || headers_room == NULL || lines == NULL) {
        PyErr_NoMemory();
    } else if (room > 0) {
        /* Of times and sizes somebody else has the word. */
        const struct keyed_rules rules = {.key_room = key_room, .headers_room = headers_room,
                                          .event_bytes_max = UINT64_MAX, .now_us = 1,
                                          .due_least_us = 1, .due_most_us = INT64_MAX};
        memcpy(bytes, body.buf, len);
        if (keyed_read(bytes, len, &rules, lines, room, &count, &delayed, &flawed) == KEYED_FINE)
            result = list_of(bytes, lines, count);
        else
            result = Py_NewRef(Py_None);
    } else {
        result = Py_NewRef(Py_None);
    }
    free(bytes);
    free(key_room);
    free(headers_room);
    free(lines);
    PyBuffer_Release(&body);
    return result;
}

/* barco/_native.pyi says what they do. */
static PyMethodDef functions[] = {
    {"keyed_values", py_keyed_values, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int py_check_init(PyObject *module);

int py_check_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
