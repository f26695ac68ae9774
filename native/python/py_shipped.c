/* Bodies of shippers of logs: read in one call, and batches and answers made of them. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "format/batch.h"
#include "format/bulk.h"
#include "format/headers.h"
#include "format/hec.h"
#include "format/loki.h"
#include "format/otlp.h"
#include "format/remote_write.h"
#include "http/snappy.h"
#include "python/py_codec.h"

typedef struct {
    PyObject_HEAD
    struct shipped shipped;
    Py_buffer body, headers; /* what the events point into */
    int flaw;
} ShippedObject;

static const char *const flaw_names[SHIPPED_FLAWS] = {
    [SHIPPED_FINE] = "",
    [SHIPPED_NO_MEMORY] = "no-memory",
    [SHIPPED_TOO_MANY] = "too-many",
    [SHIPPED_KINDS] = "too-many-kinds",
    [SHIPPED_TOO_LARGE] = "too-large",
    [SHIPPED_EVENT_TOO_LARGE] = "event-too-large",
    [SHIPPED_SYNTAX] = "syntax",
    [SHIPPED_NO_EVENT] = "no-event",
    [SHIPPED_BLANK_EVENT] = "blank-event",
    [SHIPPED_TIME] = "time",
    [SHIPPED_KEY] = "key",
    [SHIPPED_HEADERS] = "headers",
    [SHIPPED_OP] = "op",
};

static struct shipped *shipped_of(PyObject *self) { return &((ShippedObject *)self)->shipped; }

static void Shipped_dealloc(PyObject *self)
{
    ShippedObject *object = (ShippedObject *)self;
    shipped_free(&object->shipped);
    if (object->body.obj != NULL)
        PyBuffer_Release(&object->body);
    if (object->headers.obj != NULL)
        PyBuffer_Release(&object->headers);
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

/* ---- reading ---- */

/* And lines, which have headers beside. */
static const struct {
    const char *format;
    enum shipped_flaw (*read)(struct shipped *shipped, const uint8_t *bytes, size_t len);
} readers[] = {
    {"bulk", bulk_read},
    {"hec", hec_read},
    {"otlp", otlp_read},
    {"otlp-json", otlp_read_json},
    {"loki", loki_read},
    {"loki-json", loki_read_json},
    {"remote-write", remote_write_read},
};

static enum shipped_flaw read_as(ShippedObject *object, const char *format)
{
    const Py_buffer *body = &object->body, *headers = &object->headers;
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
        if (strcmp(format, readers[i].format) == 0)
            return readers[i].read(&object->shipped, body->buf, (size_t)body->len);
    return lines_read(&object->shipped, body->buf, (size_t)body->len, headers->buf,
                      (uint32_t)headers->len);
}

static bool is_format(const char *format)
{
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
        if (strcmp(format, readers[i].format) == 0)
            return true;
    return strcmp(format, "lines") == 0;
}

static const char *check_given(const ShippedObject *object, const char *format)
{
    const struct shipped_limits *limits = &object->shipped.limits;
    if (!is_format(format))
        return "there is no such format";
    if (object->body.len > UINT32_MAX || limits->bytes_max > SECTION_RAW_MAX ||
        limits->event_bytes_max > limits->bytes_max)
        return "a limit is over what a batch can have";
    if (object->headers.len > 0 && !headers_valid(object->headers.buf, (size_t)object->headers.len))
        return "these are no headers that headers_encode() made";
    return NULL;
}

static PyObject *Shipped_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"format", "body", "event_bytes_max", "bytes_max",
                            "low_us", "high_us", "headers", NULL};
    ShippedObject *object = (ShippedObject *)type->tp_alloc(type, 0);
    const char *format;
    unsigned long long event_bytes_max, bytes_max;
    long long low_us, high_us;
    if (object == NULL)
        return NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sy*KKLL|y*", names, &format, &object->body,
                                     &event_bytes_max, &bytes_max, &low_us, &high_us,
                                     &object->headers)) {
        Py_DECREF(object);
        return NULL;
    }
    object->shipped.limits = (struct shipped_limits){event_bytes_max, bytes_max,
                                                     low_us > 0 ? low_us : 1, high_us};
    const char *wrong = check_given(object, format);
    if (wrong != NULL) {
        PyErr_SetString(PyExc_ValueError, wrong);
        Py_DECREF(object);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    object->flaw = (int)read_as(object, format);
    Py_END_ALLOW_THREADS
    return (PyObject *)object;
}

static PyObject *Shipped_kinds(PyObject *self, PyObject *none)
{
    const struct shipped *shipped = shipped_of(self);
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < shipped->kind_count; i++) {
        const struct shipped_kind *kind = &shipped->kinds[i];
        PyObject *name = kind->name == NULL
                             ? Py_NewRef(Py_None)
                             : PyUnicode_DecodeUTF8((const char *)kind->name,
                                                    (Py_ssize_t)kind->name_len, "replace");
        py_append(&list, name ? Py_BuildValue("(iNsI)", (int)kind->op, name,
                                              flaw_names[kind->flaw], kind->count)
                              : NULL);
    }
    return list;
}

/* ---- batches ---- */

static PyObject *sealed(const struct chunk_columns *columns)
{
    const size_t bound = chunk_bound(columns);
    PyObject *result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bound);
    size_t len = 0;
    if (result == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    len = batch_seal(NULL, columns, (uint8_t *)PyBytes_AS_STRING(result), bound);
    Py_END_ALLOW_THREADS
    assert(len > 0 && len <= bound);
    _PyBytes_Resize(&result, (Py_ssize_t)len);
    return result;
}

static PyObject *Shipped_batch(PyObject *self, PyObject *args)
{
    const struct shipped *shipped = shipped_of(self);
    Py_buffer wanted;
    long long now_us;
    if (!PyArg_ParseTuple(args, "y*L", &wanted, &now_us))
        return NULL;
    const uint8_t *each = wanted.buf;
    uint64_t count = 0;
    bool sound = wanted.len == (Py_ssize_t)shipped->kind_count && now_us > 0;
    for (uint32_t i = 0; sound && i < shipped->kind_count; i++) {
        count += each[i] ? shipped->kinds[i].count : 0;
        sound = !each[i] || shipped->kinds[i].flaw == SHIPPED_FINE;
    }
    struct chunk_columns columns;
    uint8_t *memory = NULL;
    PyObject *result = NULL;
    if (!sound || count == 0 || ((ShippedObject *)self)->flaw != SHIPPED_FINE)
        PyErr_SetString(PyExc_ValueError, "a byte for each kind, and events that can be stored");
    else if (!shipped_columns(shipped, each, now_us, &columns, &memory))
        PyErr_NoMemory();
    else
        result = sealed(&columns);
    free(memory);
    PyBuffer_Release(&wanted);
    return result;
}

/* ---- answers ---- */

static const char id_name[] = "\"_id\":";

/* What comes before and behind an item's own id, by kind. */
struct wording {
    const char *text[2];
    Py_ssize_t len[2];
};

static bool take_wordings(PyObject *list, uint32_t count, int which, struct wording *out)
{
    if (!PyList_Check(list) || PyList_GET_SIZE(list) != (Py_ssize_t)count) {
        PyErr_SetString(PyExc_ValueError, "a list with bytes for each kind");
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        char *text;
        if (PyBytes_AsStringAndSize(PyList_GET_ITEM(list, i), &text, &out[i].len[which]) < 0)
            return false;
        out[i].text[which] = text;
    }
    return true;
}

static char *put(char *out, const void *bytes, size_t len)
{
    memcpy(out, bytes, len);
    return out + len;
}

static PyObject *items(const struct shipped *shipped, const struct wording *by_kind)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < shipped->count; i++) {
        const struct shipped_event *event = &shipped->events[i];
        const struct wording *wording = &by_kind[event->kind];
        bytes += (size_t)wording->len[0] + (size_t)wording->len[1] + 1;
        bytes += event->id != NULL ? sizeof id_name + event->id_len : 0;
    }
    PyObject *result = PyBytes_FromStringAndSize(NULL, bytes > 0 ? (Py_ssize_t)bytes - 1 : 0);
    if (result == NULL)
        return NULL;
    char *out = PyBytes_AS_STRING(result);
    for (uint32_t i = 0; i < shipped->count; i++) {
        const struct shipped_event *event = &shipped->events[i];
        const struct wording *wording = &by_kind[event->kind];
        if (i > 0)
            *out++ = ',';
        out = put(out, wording->text[0], (size_t)wording->len[0]);
        if (event->id != NULL) {
            out = put(out, id_name, sizeof id_name - 1);
            out = put(out, event->id, event->id_len);
            *out++ = ',';
        }
        out = put(out, wording->text[1], (size_t)wording->len[1]);
    }
    assert(out == PyBytes_AS_STRING(result) + PyBytes_GET_SIZE(result));
    return result;
}

static PyObject *Shipped_items(PyObject *self, PyObject *args)
{
    const struct shipped *shipped = shipped_of(self);
    struct wording by_kind[SHIPPED_KINDS_MAX];
    PyObject *heads, *tails;
    if (!PyArg_ParseTuple(args, "OO", &heads, &tails) ||
        !take_wordings(heads, shipped->kind_count, 0, by_kind) ||
        !take_wordings(tails, shipped->kind_count, 1, by_kind))
        return NULL;
    if (((ShippedObject *)self)->flaw != SHIPPED_FINE)
        return PyErr_Format(PyExc_ValueError, "the body has a flaw");
    return items(shipped, by_kind);
}

/* ---- the type ---- */

static PyObject *get_flaw(PyObject *self, void *closure)
{
    return PyUnicode_FromString(flaw_names[((ShippedObject *)self)->flaw]);
}

static PyObject *get_at(PyObject *self, void *closure)
{
    return PyLong_FromUnsignedLongLong(shipped_of(self)->at);
}

static PyObject *get_count(PyObject *self, void *closure)
{
    return PyLong_FromUnsignedLong(shipped_of(self)->count);
}

static PyGetSetDef shipped_getset[] = {
    {"flaw", get_flaw, NULL, NULL, NULL},
    {"at", get_at, NULL, NULL, NULL},
    {"count", get_count, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* barco/_native.pyi says what they do. */
static PyMethodDef shipped_methods[] = {
    {"kinds", Shipped_kinds, METH_NOARGS, NULL},
    {"batch", Shipped_batch, METH_VARARGS, NULL},
    {"items", Shipped_items, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot shipped_slots[] = {
    {Py_tp_new, Shipped_new},
    {Py_tp_dealloc, Shipped_dealloc},
    {Py_tp_methods, shipped_methods},
    {Py_tp_getset, shipped_getset},
    {Py_tp_doc, "Events as a shipper of logs sent them."},
    {0, NULL},
};

static PyType_Spec shipped_spec = {
    .name = "barco._native.Shipped",
    .basicsize = sizeof(ShippedObject),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = shipped_slots,
};

/* ---- what snappy packed ---- */

static PyObject *py_snappy_unpack(PyObject *module, PyObject *args)
{
    Py_buffer body;
    unsigned long long most;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*K", &body, &most))
        return NULL;
    const int64_t len = snappy_len(body.buf, (size_t)body.len);
    if (len > 0 && (unsigned long long)len > most)
        PyErr_SetString(PyExc_OverflowError, "the body is larger when it is unpacked");
    else if (len >= 0)
        result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)len);
    bool good = false;
    if (result != NULL)
        good = snappy_unpack(body.buf, (size_t)body.len, (uint8_t *)PyBytes_AS_STRING(result),
                             (size_t)len);
    if (!good && !PyErr_Occurred()) {
        Py_CLEAR(result);
        PyErr_SetString(PyExc_ValueError, "this is not what snappy has packed");
    }
    PyBuffer_Release(&body);
    return result;
}

static PyMethodDef functions[] = {
    {"snappy_unpack", py_snappy_unpack, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int py_shipped_init(PyObject *module);

int py_shipped_init(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&shipped_spec);
    if (type == NULL || PyModule_AddFunctions(module, functions) < 0)
        return -1;
    int status = PyModule_AddObjectRef(module, "Shipped", type);
    Py_DECREF(type);
    return status;
}
