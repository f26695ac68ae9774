/* barco._native, disk: many small reads of a file by one call, outside of Python's lock.
 *
 * Submitted together (io_submit), they reach the device as one: on a virtual disk telling the
 * hypervisor of a request costs more than all else about it. Where that is refused they are read
 * one after the other. */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "py_codec.h"

enum { ALIGNED = 512, BATCH = 64 };

struct disk_span {
    unsigned long long offset;
    Py_ssize_t start, length, result;
};

static pthread_key_t queue_key; /* aio_context_t of this thread; 0: not made yet, or refused. */

static void queue_end(void *context)
{
    syscall(SYS_io_destroy, (aio_context_t)(uintptr_t)context);
}

static aio_context_t thread_queue(void)
{
    aio_context_t context = (aio_context_t)(uintptr_t)pthread_getspecific(queue_key);
    if (context == 0 && syscall(SYS_io_setup, BATCH, &context) == 0 &&
        pthread_setspecific(queue_key, (void *)(uintptr_t)context) != 0) {
        queue_end((void *)(uintptr_t)context);
        context = 0;
    }
    return context;
}

/* What is left of a span: the bytes read in all, fewer only at the file's end, or -errno. */
static Py_ssize_t read_rest(int fd, uint8_t *memory, const struct disk_span *span, Py_ssize_t done)
{
    while (done < span->length && done % ALIGNED == 0) {
        ssize_t got = pread(fd, memory + span->start + done, (size_t)(span->length - done),
                            (off_t)(span->offset + (unsigned long long)done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : done;
        done += got;
    }
    return done; /* Direct I/O ends within a sector at the file's end alone. */
}

/* Waits until all that the kernel has taken are done: it writes into the memory until then. */
static void await_all(aio_context_t queue, struct disk_span *spans, long count)
{
    struct io_event events[BATCH];
    while (count > 0) {
        long got = syscall(SYS_io_getevents, queue, count, count, events, NULL);
        for (long i = 0; i < got; i++)
            spans[events[i].data].result = (Py_ssize_t)events[i].res;
        count -= got > 0 ? got : 0;
    }
}

/* Reads up to BATCH spans at once; those that the kernel does not take stay at 0 bytes. */
static void read_batch(int fd, uint8_t *memory, struct disk_span *spans, long count)
{
    struct iocb blocks[BATCH], *list[BATCH];
    aio_context_t queue = count > 1 ? thread_queue() : 0;
    long taken = 0;
    for (long i = 0; i < count; i++) {
        blocks[i] = (struct iocb){.aio_data = (uint64_t)i,
                                  .aio_lio_opcode = IOCB_CMD_PREAD,
                                  .aio_fildes = (uint32_t)fd,
                                  .aio_buf = (uint64_t)(uintptr_t)(memory + spans[i].start),
                                  .aio_nbytes = (uint64_t)spans[i].length,
                                  .aio_offset = (int64_t)spans[i].offset};
        list[i] = &blocks[i];
    }
    while (queue != 0 && taken < count) {
        long got = syscall(SYS_io_submit, queue, count - taken, list + taken);
        if (got <= 0)
            break;
        taken += got;
    }
    if (taken > 0)
        await_all(queue, spans, taken);
    for (long i = 0; i < count; i++)
        if (spans[i].result >= 0)
            spans[i].result = read_rest(fd, memory, &spans[i], spans[i].result);
}

static bool parse_spans(PyObject *list, Py_ssize_t room, struct disk_span *spans)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        struct disk_span *s = &spans[i];
        if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i), "Knn", &s->offset, &s->start, &s->length))
            return false;
        if (s->start < 0 || s->length < 0 || s->start > room || s->length > room - s->start) {
            PyErr_SetString(PyExc_ValueError, "a span is outside of the memory");
            return false;
        }
    }
    return true;
}

static PyObject *results(const struct disk_span *spans, Py_ssize_t count)
{
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
        PyObject *number = PyLong_FromSsize_t(spans[i].result);
        if (number == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, number);
    }
    return list;
}

static PyObject *py_disk_read(PyObject *module, PyObject *args)
{
    int fd;
    Py_buffer memory;
    PyObject *list, *result = NULL;
    if (!PyArg_ParseTuple(args, "iw*O!", &fd, &memory, &PyList_Type, &list))
        return NULL;
    const Py_ssize_t count = PyList_GET_SIZE(list);
    struct disk_span *spans = PyMem_RawCalloc((size_t)count + 1, sizeof *spans);
    if (spans == NULL)
        PyErr_NoMemory();
    else if (parse_spans(list, memory.len, spans)) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t at = 0; at < count; at += BATCH)
            read_batch(fd, memory.buf, spans + at, count - at < BATCH ? count - at : BATCH);
        Py_END_ALLOW_THREADS
        result = results(spans, count);
    }
    PyMem_RawFree(spans);
    PyBuffer_Release(&memory);
    return result;
}

static PyMethodDef functions[] = {
    {"disk_read", py_disk_read, METH_VARARGS,
     "disk_read($module, fd, memory, spans, /)\n--\n\n"
     "Reads spans (file offset, place in memory, length); bytes or -errno of each."},
    {NULL, NULL, 0, NULL},
};

int py_disk_init(PyObject *module)
{
    if (pthread_key_create(&queue_key, queue_end) != 0) {
        PyErr_SetString(PyExc_OSError, "there is no room for another thread-local value");
        return -1;
    }
    return PyModule_AddFunctions(module, functions);
}
