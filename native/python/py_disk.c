/* barco._native, disk: stored chunks of one stream, many by one call, outside of Python's lock. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <limits.h>
#include <stdbool.h>
#include <string.h>

#include "read/arrow.h"
#include "format/chunk.h"
#include "read/disk.h"
#include "python/py_codec.h"
#include "read/stored.h"

/* Entries as an index has them, in memory of any alignment. */
static struct stored_entry *copy_entries(const Py_buffer *buf, Py_ssize_t *count)
{
    if (buf->len % (Py_ssize_t)sizeof(struct stored_entry) != 0) {
        PyErr_SetString(PyExc_ValueError, "entries have 32 bytes each");
        return NULL;
    }
    *count = buf->len / (Py_ssize_t)sizeof(struct stored_entry);
    struct stored_entry *entries = PyMem_RawMalloc((size_t)buf->len + 1);
    if (entries == NULL)
        PyErr_NoMemory();
    else
        memcpy(entries, buf->buf, (size_t)buf->len);
    return entries;
}

/* Entries of up to bytes_max stored bytes, before `stop` and the first hole; at least one. */
static size_t wanted(const struct stored_entry *entries, size_t count, uint64_t bytes_max,
                     uint64_t stop)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        bytes += entries[i].stored_bytes;
        bool hole = i > 0 &&
                    entries[i].base_offset != entries[i - 1].base_offset + entries[i - 1].count;
        if (i > 0 && (hole || bytes > bytes_max || entries[i].base_offset >= stop))
            return i;
    }
    return count;
}

static PyObject *py_entries_plan(PyObject *module, PyObject *args)
{
    Py_buffer buf;
    unsigned long long bytes_max, group_bytes, stop = ULLONG_MAX;
    Py_ssize_t count = 0;
    if (!PyArg_ParseTuple(args, "y*KK|K", &buf, &bytes_max, &group_bytes, &stop))
        return NULL;
    struct stored_entry *entries = copy_entries(&buf, &count);
    PyObject *list = entries == NULL ? NULL : PyList_New(0);
    size_t some = entries == NULL ? 0 : wanted(entries, (size_t)count, bytes_max, stop);
    for (size_t at = 0; list != NULL && at < some;) {
        struct stored_group group = stored_next(entries + at, some - at, group_bytes);
        py_append(&list, Py_BuildValue("(nnn)", (Py_ssize_t)at, (Py_ssize_t)group.count,
                                       (Py_ssize_t)group.bytes));
        at += group.count;
    }
    PyMem_RawFree(entries);
    PyBuffer_Release(&buf);
    return list;
}

/* What one call reads. */
struct job {
    struct stored_entry *entries;
    size_t entry_count, count;
    struct stored_part *parts;
    Py_buffer *memory;
};

static bool add_group(struct job *job, PyObject *item)
{
    struct stored_part *part = &job->parts[job->count];
    Py_buffer *memory = &job->memory[job->count];
    Py_ssize_t first, count;
    if (!PyArg_ParseTuple(item, "nnw*", &first, &count, memory))
        return false;
    job->count++; /* From here on its memory is given back. */
    if (first < 0 || count < 1 || (size_t)first > job->entry_count ||
        (size_t)count > job->entry_count - (size_t)first) {
        PyErr_SetString(PyExc_ValueError, "there are not so many entries");
        return false;
    }
    *part = (struct stored_part){job->entries + first, (size_t)count, memory->buf, {0}};
    struct stored_group needs = stored_next(part->entries, part->count, (size_t)memory->len);
    if (needs.count != part->count || needs.bytes > (size_t)memory->len) {
        PyErr_SetString(PyExc_ValueError, "the memory is too small for the entries");
        return false;
    }
    return true;
}

static bool job_begin(struct job *job, const Py_buffer *entries, PyObject *groups)
{
    Py_ssize_t count = 0, group_count = PyList_GET_SIZE(groups);
    job->entries = copy_entries(entries, &count);
    job->entry_count = (size_t)count;
    if (job->entries == NULL)
        return false;
    job->parts = PyMem_RawCalloc((size_t)group_count + 1, sizeof *job->parts);
    job->memory = PyMem_RawCalloc((size_t)group_count + 1, sizeof *job->memory);
    if (job->parts == NULL || job->memory == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < group_count; i++)
        if (!add_group(job, PyList_GET_ITEM(groups, i)))
            return false;
    return true;
}

/* Of each group, up to the first that is not whole. */
static PyObject *job_results(const struct job *job)
{
    PyObject *list = PyList_New(0);
    bool whole = true;
    for (size_t i = 0; list != NULL && whole && i < job->count; i++) {
        const struct stored_result *r = &job->parts[i].result;
        py_append(&list, Py_BuildValue("(nnKK)", (Py_ssize_t)r->chunks, (Py_ssize_t)r->bytes,
                                       (unsigned long long)r->raw_bytes,
                                       (unsigned long long)r->end));
        whole = r->chunks == job->parts[i].count;
    }
    return list;
}

static void job_end(struct job *job)
{
    while (job->count > 0)
        PyBuffer_Release(&job->memory[--job->count]);
    PyMem_RawFree(job->memory);
    PyMem_RawFree(job->parts);
    PyMem_RawFree(job->entries);
}

static PyObject *py_disk_chunks(PyObject *module, PyObject *args)
{
    int fd, columns, status;
    Py_buffer entries;
    PyObject *groups, *result = NULL;
    struct stored_want want = {0};
    struct job job = {0};
    Py_ssize_t topic_len;
    if (!PyArg_ParseTuple(args, "iy*O!s#Ii", &fd, &entries, &PyList_Type, &groups, &want.topic,
                          &topic_len, &want.slice, &columns))
        return NULL;
    want.topic_len = (size_t)topic_len;
    want.whole = columns < 0;
    want.parts = columns < 0 ? 0 : arrow_parts((uint32_t)columns);
    if (job_begin(&job, &entries, groups)) {
        Py_BEGIN_ALLOW_THREADS
        status = stored_read(fd, job.parts, job.count, &want);
        Py_END_ALLOW_THREADS
        result = status < 0 ? PyErr_NoMemory() : job_results(&job);
    }
    job_end(&job);
    PyBuffer_Release(&entries);
    return result;
}

struct bounds {
    unsigned long long stored, raw, stop;
    int one, columns;
};

/* Bytes of the next chunk if it is within the bounds, else 0; -1 damaged. */
static int64_t next_fitting(const struct bounds *b, const uint8_t *buf, size_t len, size_t at,
                            uint64_t raw, struct chunk_view *v)
{
    size_t bytes;
    int status = b->columns < 0
                     ? chunk_open(buf + at, len - at, v)
                     : chunk_open_part(buf + at, len - at, arrow_parts((uint32_t)b->columns), v,
                                       &bytes);
    if (status < 0)
        return -1;
    bytes = b->columns < 0 ? v->stored_bytes : bytes;
    bool fits = at + bytes <= b->stored && raw + v->raw_bytes <= b->raw && v->base_offset < b->stop;
    return fits || (b->one && at == 0) ? (int64_t)bytes : 0;
}

static PyObject *py_chunks_fit(PyObject *module, PyObject *args)
{
    Py_buffer buf;
    struct bounds b = {.columns = -1};
    unsigned long long raw = 0, end = 0;
    if (!PyArg_ParseTuple(args, "y*KKKp|i", &buf, &b.stored, &b.raw, &b.stop, &b.one, &b.columns))
        return NULL;
    size_t at = 0, len = (size_t)buf.len;
    int64_t bytes = 1;
    while (at < len && bytes > 0) {
        struct chunk_view v;
        bytes = next_fitting(&b, buf.buf, len, at, raw, &v);
        if (bytes <= 0)
            break;
        at += (size_t)bytes;
        raw += v.raw_bytes;
        end = v.base_offset + v.count;
    }
    PyBuffer_Release(&buf);
    if (bytes < 0)
        return PyErr_Format(PyExc_ValueError, "the chunk at byte %zd is damaged", (Py_ssize_t)at);
    return Py_BuildValue("(nKK)", (Py_ssize_t)at, raw, end);
}

/* barco/_native.pyi says what they do. */
static PyMethodDef functions[] = {
    {"entries_plan", py_entries_plan, METH_VARARGS, NULL},
    {"disk_chunks", py_disk_chunks, METH_VARARGS, NULL},
    {"chunks_fit", py_chunks_fit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int py_disk_init(PyObject *module)
{
    if (disk_init() < 0) {
        PyErr_SetString(PyExc_OSError, "there is no room for another thread-local value");
        return -1;
    }
    return PyModule_AddFunctions(module, functions);
}
