/* The HTTP parser as Python functions: for tests, and comparison with other parsers. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "http/http1.h"
#include "http/uri.h"

int faces_http_init(PyObject *module);

static PyObject *bytes_of(struct http1_slice s)
{
    if (s.p == NULL)
        Py_RETURN_NONE;
    return PyBytes_FromStringAndSize(s.p, s.len);
}

static PyObject *headers_of(const struct http1_request *r)
{
    PyObject *list = PyList_New(r->header_count);
    for (uint16_t i = 0; list != NULL && i < r->header_count; i++) {
        const struct http1_header *h = &r->headers[i];
        PyObject *pair = Py_BuildValue("(y#y#)", h->name.p, (Py_ssize_t)h->name.len, h->value.p,
                                       (Py_ssize_t)h->value.len);
        if (pair == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, pair);
    }
    return list;
}

static PyObject *request_of(const struct http1_request *r, int consumed)
{
    PyObject *headers = headers_of(r);
    if (headers == NULL)
        return NULL;
    return Py_BuildValue(
        "{s:i,s:i,s:N,s:N,s:N,s:i,s:N,s:N,s:N,s:L,s:N}", "consumed", consumed, "method_id",
        (int)r->method, "method", bytes_of(r->method_text), "path", bytes_of(r->path), "query",
        bytes_of(r->query), "minor", (int)r->minor, "keep_alive", PyBool_FromLong(r->keep_alive),
        "chunked", PyBool_FromLong(r->chunked), "expect_continue",
        PyBool_FromLong(r->expect_continue), "content_length", (long long)r->content_length,
        "headers", headers);
}

PyDoc_STRVAR(http1_parse_doc,
             "http1_parse(data, last_len=0) -> dict | int\n\n"
             "Parse one request head. A complete one gives its fields, with `consumed` (bytes of\n"
             "the head); a refused one gives `error_status` and `error_reason`; -2 says that more\n"
             "bytes are needed (pass len(data) as last_len of the next call).");

static PyObject *http1_parse(PyObject *self, PyObject *args)
{
    Py_buffer data;
    Py_ssize_t last_len = 0;
    if (!PyArg_ParseTuple(args, "y*|n:http1_parse", &data, &last_len))
        return NULL;
    PyObject *result = NULL;
    struct http1_request request;
    if (last_len < 0 || last_len > data.len) {
        PyErr_SetString(PyExc_ValueError, "last_len is not a length within data");
    } else {
        int verdict = http1_parse_head(data.buf, (size_t)data.len, (size_t)last_len, &request);
        if (verdict == HTTP1_PARTIAL)
            result = PyLong_FromLong(HTTP1_PARTIAL);
        else if (verdict == HTTP1_ERROR)
            result = Py_BuildValue("{s:i,s:s}", "error_status", (int)request.error_status,
                                   "error_reason", request.error_reason);
        else
            result = request_of(&request, verdict);
    }
    PyBuffer_Release(&data);
    return result;
}

PyDoc_STRVAR(http1_decode_chunked_doc,
             "http1_decode_chunked(data, body_bytes_max, piece_bytes=0)\n"
             "    -> (verdict, consumed, body)\n\n"
             "Decode a chunked body, fed whole or in pieces of piece_bytes. verdict: 1 complete,\n"
             "0 more input needed, -1 malformed, -3 over body_bytes_max. consumed: bytes of data\n"
             "that belong to this body.");

static PyObject *http1_decode_chunked(PyObject *self, PyObject *args)
{
    Py_buffer data;
    unsigned long long body_bytes_max;
    Py_ssize_t piece = 0;
    if (!PyArg_ParseTuple(args, "y*K|n:http1_decode_chunked", &data, &body_bytes_max, &piece))
        return NULL;
    /* A body is never longer than its coding. */
    PyObject *body = PyBytes_FromStringAndSize(NULL, data.len);
    if (body == NULL) {
        PyBuffer_Release(&data);
        return NULL;
    }
    struct http1_chunked decoder;
    http1_chunked_init(&decoder, body_bytes_max);
    const char *in = data.buf;
    char *out = PyBytes_AS_STRING(body);
    size_t read = 0, written = 0, len = (size_t)data.len;
    int verdict;
    do {
        size_t used, made, n = len - read;
        if (piece > 0 && n > (size_t)piece)
            n = (size_t)piece;
        verdict = http1_chunked_feed(&decoder, in + read, n, &used, out + written, len - written,
                                     &made);
        read += used;
        written += made;
    } while (verdict == 0 && read < len);
    PyBuffer_Release(&data);
    if (_PyBytes_Resize(&body, (Py_ssize_t)written) < 0)
        return NULL;
    return Py_BuildValue("(inN)", verdict, (Py_ssize_t)read, body);
}

PyDoc_STRVAR(uri_decode_doc,
             "uri_decode(data, plus_is_space=False) -> bytes\n\n"
             "Decode %XX. Raises ValueError where a '%' is not followed by two hex digits.");

static PyObject *py_uri_decode(PyObject *self, PyObject *args)
{
    Py_buffer data;
    int plus_is_space = 0;
    if (!PyArg_ParseTuple(args, "y*|p:uri_decode", &data, &plus_is_space))
        return NULL;
    PyObject *result = PyBytes_FromStringAndSize(NULL, data.len);
    if (result != NULL) {
        int n = uri_decode(data.buf, (size_t)data.len, plus_is_space != 0,
                           PyBytes_AS_STRING(result), (size_t)data.len);
        if (n >= 0) {
            _PyBytes_Resize(&result, n);
        } else {
            Py_CLEAR(result);
            PyErr_SetString(PyExc_ValueError, "a '%' is not followed by two hexadecimal digits");
        }
    }
    PyBuffer_Release(&data);
    return result;
}

PyDoc_STRVAR(uri_query_get_doc,
             "uri_query_get(query, name) -> bytes | None\n\n"
             "The raw value of a parameter. Raises ValueError where it is there twice.");

static PyObject *py_uri_query_get(PyObject *self, PyObject *args)
{
    Py_buffer query;
    const char *name;
    if (!PyArg_ParseTuple(args, "y*s:uri_query_get", &query, &name))
        return NULL;
    struct http1_slice value;
    int found = uri_query_get(query.buf, (size_t)query.len, name, &value);
    PyObject *result = NULL;
    if (found < 0)
        PyErr_Format(PyExc_ValueError, "the parameter %s is there twice", name);
    else
        result = bytes_of(value);
    PyBuffer_Release(&query);
    return result;
}

PyDoc_STRVAR(topic_name_valid_doc,
             "topic_name_valid(name) -> bool\n\n"
             "True for 1 to 127 of [a-zA-Z0-9_.-], but not \".\" or \"..\".");

static PyObject *py_topic_name_valid(PyObject *self, PyObject *args)
{
    Py_buffer name;
    if (!PyArg_ParseTuple(args, "y*:topic_name_valid", &name))
        return NULL;
    bool valid = topic_name_valid(name.buf, (size_t)name.len);
    PyBuffer_Release(&name);
    return PyBool_FromLong(valid);
}

static PyMethodDef functions[] = {
    {"http1_parse", http1_parse, METH_VARARGS, http1_parse_doc},
    {"http1_decode_chunked", http1_decode_chunked, METH_VARARGS, http1_decode_chunked_doc},
    {"uri_decode", py_uri_decode, METH_VARARGS, uri_decode_doc},
    {"uri_query_get", py_uri_query_get, METH_VARARGS, uri_query_get_doc},
    {"topic_name_valid", py_topic_name_valid, METH_VARARGS, topic_name_valid_doc},
    {NULL, NULL, 0, NULL},
};

int faces_http_init(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
