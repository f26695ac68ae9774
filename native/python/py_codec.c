/* barco._native, pure part: hashes, chunks and batches for Python. Every
 * function takes any contiguous buffer, checks every length and raises ValueError with a sentence
 * that says what is wrong. The interpreter lock is held throughout: calls are short. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "format/batch.h"
#include "base/crc32c.h"
#include "base/murmur3.h"
#include "format/headers.h"
#include "python/py_codec.h"

#include <stdbool.h>

bool py_append(PyObject **list, PyObject *item)
{
    if (item == NULL || *list == NULL || PyList_Append(*list, item) < 0)
        Py_CLEAR(*list);
    Py_XDECREF(item);
    return *list != NULL;
}

int py_u64_argument(PyObject *arg, void *value)
{
    if (!PyLong_Check(arg)) {
        PyErr_Format(PyExc_TypeError, "an int is needed, not %.100s", Py_TYPE(arg)->tp_name);
        return 0;
    }
    uint64_t result = PyLong_AsUnsignedLongLong(arg);
    if (PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError, "%.60R is not between 0 and 2^64 - 1", arg);
        return 0;
    }
    *(uint64_t *)value = result;
    return 1;
}

static PyObject *py_token(PyObject *module, PyObject *arg)
{
    Py_buffer key;
    if (PyObject_GetBuffer(arg, &key, PyBUF_SIMPLE) < 0)
        return NULL;
    int64_t token = murmur3_token(key.buf, (size_t)key.len);
    PyBuffer_Release(&key);
    return PyLong_FromLongLong(token);
}

static PyObject *py_crc32c(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"data", "seed", NULL};
    Py_buffer data;
    unsigned int seed = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*|I", names, &data, &seed))
        return NULL;
    uint32_t crc = crc32c(seed, data.buf, (size_t)data.len);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(crc);
}

/* -- chunks ------------------------------------------------------------------------------------ */

static PyObject *malformed(Py_ssize_t at)
{
    return PyErr_Format(PyExc_ValueError, "no valid chunk at byte %zd", at);
}

static PyObject *sections_list(const struct chunk_view *v)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < v->section_count; i++) {
        const struct chunk_section *s = &v->sections[i];
        py_append(&list, Py_BuildValue("(iiIII)", s->id, s->codec, s->raw_len, s->stored_len,
                                       s->crc));
    }
    return list;
}

static PyObject *view_dict(const struct chunk_view *v)
{
    PyObject *sections = sections_list(v);
    if (sections == NULL)
        return NULL;
    return Py_BuildValue(
        "{s:s#,s:I,s:I,s:K,s:K,s:L,s:L,s:L,s:L,s:I,s:I,s:N}", "topic", v->topic,
        (Py_ssize_t)v->topic_len, "slice", v->slice, "count", v->count, "epoch",
        (unsigned long long)v->epoch, "base_offset", (unsigned long long)v->base_offset,
        "base_timestamp_us", (long long)v->base_timestamp_us, "max_timestamp_us",
        (long long)v->max_timestamp_us, "token_min", (long long)v->token_min, "token_max",
        (long long)v->token_max, "stored_bytes", v->stored_bytes, "raw_bytes", v->raw_bytes,
        "sections", sections);
}

/* Parses (buf, offset=0) into a held buffer and the bytes from the offset on. */
static bool buffer_at(PyObject *args, PyObject *kwargs, Py_buffer *buf, Py_ssize_t *offset)
{
    static char *names[] = {"buf", "offset", NULL};
    *offset = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*|n", names, buf, offset))
        return false;
    if (*offset >= 0 && *offset <= buf->len)
        return true;
    PyErr_Format(PyExc_ValueError, "offset %zd is outside of the %zd bytes", *offset, buf->len);
    PyBuffer_Release(buf);
    return false;
}

PyObject *py_chunk_head(const uint8_t *bytes, size_t len, size_t at)
{
    struct chunk_view view;
    switch (chunk_open(bytes + at, len - at, &view)) {
    case 0: return view_dict(&view);
    case -2: return Py_NewRef(Py_None);
    default: return malformed((Py_ssize_t)at);
    }
}

PyObject *py_chunk_begin(const uint8_t *bytes, size_t len)
{
    struct chunk_view view;
    switch (chunk_open(bytes, len, &view)) {
    case 0: return PyLong_FromUnsignedLongLong(view.base_offset);
    case -2: return PyErr_Format(PyExc_ValueError, "a chunk is cut off");
    default: return malformed(0);
    }
}

static PyObject *py_chunk_info(PyObject *module, PyObject *args, PyObject *kwargs)
{
    Py_buffer buf;
    Py_ssize_t at;
    if (!buffer_at(args, kwargs, &buf, &at))
        return NULL;
    PyObject *result = py_chunk_head(buf.buf, (size_t)buf.len, (size_t)at);
    PyBuffer_Release(&buf);
    return result;
}

static PyObject *py_chunks_scan(PyObject *module, PyObject *arg)
{
    Py_buffer buf;
    PyObject *list = PyList_New(0);
    if (list == NULL || PyObject_GetBuffer(arg, &buf, PyBUF_SIMPLE) < 0) {
        Py_XDECREF(list);
        return NULL;
    }
    for (Py_ssize_t at = 0; list != NULL && at < buf.len;) {
        struct chunk_view v;
        int status = chunk_open((const uint8_t *)buf.buf + at, (size_t)(buf.len - at), &v);
        if (status == -2)
            break;
        py_append(&list, status < 0 ? malformed(at)
                                    : Py_BuildValue("(nIs#IKKILL)", at, v.stored_bytes, v.topic,
                                                    (Py_ssize_t)v.topic_len, v.slice,
                                                    (unsigned long long)v.epoch,
                                                    (unsigned long long)v.base_offset, v.count,
                                                    (long long)v.base_timestamp_us,
                                                    (long long)v.max_timestamp_us));
        at += v.stored_bytes;
    }
    PyBuffer_Release(&buf);
    return list;
}

/* (buf, topic, slice, base_offset, count): is buf exactly that chunk, every checksum right? */
static PyObject *py_chunk_is(PyObject *module, PyObject *args)
{
    Py_buffer buf;
    const char *topic;
    Py_ssize_t topic_len;
    unsigned slice, count;
    unsigned long long base;
    struct chunk_view v;
    if (!PyArg_ParseTuple(args, "y*s#IKI", &buf, &topic, &topic_len, &slice, &base, &count))
        return NULL;
    bool same = chunk_open(buf.buf, (size_t)buf.len, &v) == 0 &&
                v.stored_bytes == (uint64_t)buf.len && v.topic_len == topic_len &&
                memcmp(v.topic, topic, (size_t)topic_len) == 0 && v.slice == slice &&
                v.base_offset == base && v.count == count && chunk_verify(&v) == 0;
    PyBuffer_Release(&buf);
    return PyBool_FromLong(same);
}

/* What one column gives of each event, and the bytes of the next one. */
struct event_part {
    struct column_numbers numbers;
    const uint32_t *lens;
    const uint8_t *bytes;
    bool is_number, is_headers;
};

/* In the order of EVENT; without the headers where no event has any. */
static uint32_t event_parts(const struct batch_columns *c, int64_t base_us,
                            struct event_part parts[COLUMN_COUNT])
{
    struct column_numbers numbers[COLUMN_COUNT];
    uint32_t count = 0, number = 0;
    columns_numbers(c, base_us, numbers);
    for (const struct column *each = columns_table; each < columns_table + COLUMN_COUNT; each++)
        if (each->kind == COLUMN_LOW)
            parts[count++] = (struct event_part){.numbers = numbers[number++], .is_number = true};
        else if (each->kind == COLUMN_BYTES &&
                 (each->bit != COLUMN_HEADERS || c->hdr_len != NULL))
            parts[count++] = (struct event_part){.lens = column_pointer(c, column_of(each->beside)),
                                                 .bytes = column_pointer(c, each),
                                                 .is_headers = each->bit == COLUMN_HEADERS};
    return count;
}

/* ((name, value), ...) */
static PyObject *headers_item(struct event_part *part, uint32_t len)
{
    const uint8_t *at = part->bytes;
    const uint32_t count = len == 0 ? 0 : headers_begin(&at);
    PyObject *found = PyTuple_New(count);
    for (uint32_t i = 0; found != NULL && i < count; i++) {
        const struct header h = headers_next(&at);
        PyObject *pair = Py_BuildValue("(s#y#)", (const char *)h.name, (Py_ssize_t)h.name_len,
                                       (const char *)h.value, (Py_ssize_t)h.value_len);
        if (pair == NULL)
            Py_CLEAR(found);
        else
            PyTuple_SET_ITEM(found, i, pair);
    }
    if (len > 0)
        part->bytes += len;
    return found;
}

static PyObject *part_item(struct event_part *part, uint32_t event)
{
    if (part->is_number)
        return PyLong_FromLongLong(number_at(&part->numbers, event));
    const bool is_there = part->lens != NULL && part->lens[event] != KEY_NULL;
    if (part->is_headers)
        return headers_item(part, is_there ? part->lens[event] : 0);
    if (!is_there)
        return Py_NewRef(Py_None);
    const uint8_t *bytes = part->bytes;
    if (part->lens[event] > 0) /* bytes may be absent altogether */
        part->bytes += part->lens[event];
    return PyBytes_FromStringAndSize((const char *)bytes, part->lens[event]);
}

static PyObject *events_list(uint64_t base_offset, int64_t base_us, const struct batch_columns *c)
{
    struct event_part parts[COLUMN_COUNT];
    const uint32_t count = event_parts(c, base_us, parts);
    PyObject *list = PyList_New(c->count);
    for (uint32_t i = 0; list != NULL && i < c->count; i++) {
        PyObject *event = PyTuple_New(1 + count);
        PyObject *item = event ? PyLong_FromUnsignedLongLong(base_offset + i) : NULL;
        for (uint32_t n = 0; item != NULL && n < count; n++) {
            PyTuple_SET_ITEM(event, n, item);
            item = part_item(&parts[n], i);
        }
        if (item == NULL) {
            Py_XDECREF(event);
            Py_CLEAR(list);
        } else {
            PyTuple_SET_ITEM(event, count, item);
            PyList_SET_ITEM(list, i, event);
        }
    }
    return list;
}

static PyObject *view_events(const struct chunk_view *view, Py_ssize_t at)
{
    struct batch_columns columns;
    size_t scratch_bytes = chunk_scratch_bytes(view);
    if (chunk_verify(view) < 0)
        return PyErr_Format(PyExc_ValueError, "the chunk at byte %zd fails its checksum", at);
    uint8_t *scratch = PyMem_Malloc(scratch_bytes);
    if (scratch == NULL)
        return PyErr_NoMemory();
    PyObject *result;
    if (chunk_unpack_columns(view, scratch, scratch_bytes, &columns) < 0)
        result = PyErr_Format(PyExc_ValueError, "the columns of the chunk at byte %zd disagree",
                              at);
    else
        result = events_list(view->base_offset, view->base_timestamp_us, &columns);
    PyMem_Free(scratch);
    return result;
}

static PyObject *py_chunk_events(PyObject *module, PyObject *args, PyObject *kwargs)
{
    Py_buffer buf;
    Py_ssize_t at;
    struct chunk_view view;
    if (!buffer_at(args, kwargs, &buf, &at))
        return NULL;
    PyObject *result;
    if (chunk_open((const uint8_t *)buf.buf + at, (size_t)(buf.len - at), &view) < 0)
        result = malformed(at);
    else
        result = view_events(&view, at);
    PyBuffer_Release(&buf);
    return result;
}

/* -- batches ----------------------------------------------------------------------------------- */

static PyObject *batch_list(const struct batch_view *view)
{
    struct batch_columns columns;
    const size_t scratch_bytes = batch_scratch_bytes(view);
    uint8_t *scratch = PyMem_Malloc(scratch_bytes);
    if (scratch == NULL)
        return PyErr_NoMemory();
    PyObject *result;
    if (batch_unpack(view, SECTION_RAW_MAX, scratch, scratch_bytes, &columns) != 0)
        result = PyErr_Format(PyExc_ValueError, "the columns of the batch disagree");
    else
        result = events_list(0, view->base_timestamp_us, &columns);
    PyMem_Free(scratch);
    return result;
}

static PyObject *py_batch_events(PyObject *module, PyObject *arg)
{
    Py_buffer buf;
    struct batch_view view;
    if (PyObject_GetBuffer(arg, &buf, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *result;
    if (batch_open(buf.buf, (size_t)buf.len, &view) < 0)
        result = PyErr_Format(PyExc_ValueError, "not a batch");
    else
        result = batch_list(&view);
    PyBuffer_Release(&buf);
    return result;
}

/* -- headers ----------------------------------------------------------------------------------- */

/* One pair of a name and its value, to a draft. False with an exception. */
static bool add_pair(struct headers_draft *draft, PyObject *pair)
{
    const char *name;
    Py_ssize_t name_len;
    Py_buffer value;
    if (!PyTuple_Check(pair)) {
        PyErr_SetString(PyExc_TypeError, "a header is a tuple of its name and value");
        return false;
    }
    if (!PyArg_ParseTuple(pair, "s#y*", &name, &name_len, &value))
        return false;
    const struct header header = {(const uint8_t *)name, value.buf, (uint32_t)name_len,
                                  (uint32_t)value.len};
    const bool good = value.len <= HEADERS_BYTES_MAX && name_len <= HEADER_NAME_MAX &&
                      headers_add(draft, &header);
    PyBuffer_Release(&value);
    if (!good)
        PyErr_Format(PyExc_ValueError,
                     "an event has at most %u headers and %u bytes of them, and a name has 1 to %u "
                     "of a-z 0-9 !#$%%&'*+.^_`|~-: %.200R",
                     EVENT_HEADERS_MAX, HEADERS_BYTES_MAX, HEADER_NAME_MAX, pair);
    return good;
}

static PyObject *py_headers_encode(PyObject *module, PyObject *arg)
{
    PyObject *pairs = PySequence_Tuple(arg), *result = NULL;
    uint8_t *room = PyMem_Malloc(HEADERS_STORED_MAX);
    struct headers_draft draft = {.out = room};
    bool good = pairs != NULL && room != NULL;
    if (pairs != NULL && room == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; good && i < PyTuple_GET_SIZE(pairs); i++)
        good = add_pair(&draft, PyTuple_GET_ITEM(pairs, i));
    if (good)
        result = PyBytes_FromStringAndSize((const char *)room, (Py_ssize_t)draft.len);
    PyMem_Free(room);
    Py_XDECREF(pairs);
    return result;
}

/* -- the module -------------------------------------------------------------------------------- */

/* barco/_native.pyi says what they do. */
static PyMethodDef methods[] = {
    {"token", py_token, METH_O, NULL},
    {"crc32c", WITH_NAMES(py_crc32c), METH_VARARGS | METH_KEYWORDS, NULL},
    {"chunk_info", WITH_NAMES(py_chunk_info), METH_VARARGS | METH_KEYWORDS, NULL},
    {"chunks_scan", py_chunks_scan, METH_O, NULL},
    {"chunk_is", py_chunk_is, METH_VARARGS, NULL},
    {"chunk_events", WITH_NAMES(py_chunk_events), METH_VARARGS | METH_KEYWORDS, NULL},
    {"batch_events", py_batch_events, METH_O, NULL},
    {"headers_encode", py_headers_encode, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

/* EVENT: the names of what chunk_events() says of each event. */
static int add_event(PyObject *module)
{
    PyObject *names = PyList_New(0);
    py_append(&names, PyUnicode_FromString("offset"));
    for (const struct column *each = columns_table; each < columns_table + COLUMN_COUNT; each++)
        if (each->kind == COLUMN_LOW || each->kind == COLUMN_BYTES)
            py_append(&names, PyUnicode_FromString(each->name));
    PyObject *event = names == NULL ? NULL : PyList_AsTuple(names);
    int status = event == NULL ? -1 : PyModule_AddObjectRef(module, "EVENT", event);
    Py_XDECREF(names);
    Py_XDECREF(event);
    return status;
}

int py_codec_init(PyObject *module)
{
    if (add_event(module) < 0)
        return -1;
    return PyModule_AddFunctions(module, methods);
}
