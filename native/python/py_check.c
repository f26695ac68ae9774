/* What is looked at before it is produced, as the upper layer is told of it. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <assert.h>
#include <string.h>

#include "broker/checked.h"
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
