/* The rendering of stored chunks for consumers, a bounded piece at a time. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>

#include "python/py_codec.h"
#include "python/py_conditions.h"
#include "read/render.h"

#define LINE_ID_MAX 64
#define FRAME_GUESS 160u /* what stands around a value on a line, mostly */

/* Text that grows, and the scratch of the chunk being rendered. */
struct rendering {
    enum { VALUES, LINES, RECORDS } form;
    uint64_t from, to, most;
    uint64_t next; /* the first event that is not in the text */
    bool ended;    /* the next event would make it longer than `most` */
    struct line_frame frame;
    struct conditions *where; /* also the frame's; NULL: all events are meant */
    size_t room_cap;          /* of its room */
    uint64_t looked;          /* bytes that were looked at for it */
    char *text;
    size_t len, cap;
    uint8_t *scratch;
    size_t scratch_cap;
};

static bool grow(void **p, size_t *cap, size_t needed)
{
    if (needed <= *cap)
        return true;
    void *larger = PyMem_Realloc(*p, needed);
    if (larger == NULL) {
        PyErr_NoMemory();
        return false;
    }
    *p = larger;
    *cap = needed;
    return true;
}

static bool reserve(struct rendering *r, size_t more)
{
    void *text = r->text;
    size_t needed = r->len + more;
    if (needed > r->cap && needed < 2 * r->cap)
        needed = 2 * r->cap;
    bool enough = grow(&text, &r->cap, needed);
    r->text = text;
    return enough;
}

static ssize_t render_form(struct rendering *r, const struct chunk_view *v, size_t scratch_bytes,
                           char *out, size_t room, uint64_t to)
{
    switch (r->form) {
    case LINES:
        return render_ndjson(v, r->from, to, &r->frame, r->scratch, scratch_bytes, out, room,
                             &r->next);
    case RECORDS:
        return render_records(v, r->from, to, r->scratch, scratch_bytes, out, room, &r->next);
    default:
        return render_json_values(v, r->from, to, r->scratch, scratch_bytes, out, room,
                                  &r->next);
    }
}

/* Most chunks need less than this; a larger one is gone on with in the next piece. */
static size_t likely_bytes(const struct rendering *r, const struct chunk_view *v)
{
    size_t frame = r->form == LINES ? FRAME_GUESS + v->topic_len : 16;
    return v->count * frame + 2 * (size_t)v->raw_bytes + 4096;
}

static bool render_view(struct rendering *r, const struct chunk_view *v, Py_ssize_t at)
{
    size_t scratch_bytes = chunk_scratch_bytes(v), guess = likely_bytes(r, v);
    size_t left = r->most > r->len ? r->most - r->len : 0;
    void *scratch = r->scratch;
    bool enough = grow(&scratch, &r->scratch_cap, scratch_bytes);
    r->scratch = scratch;
    if (r->where != NULL) {
        void *room = r->where->room;
        enough = enough && grow(&room, &r->room_cap, v->raw_bytes + 1); /* stored as it is, too */
        r->where->room = room;
        r->where->room_bytes = r->room_cap;
        r->looked += v->raw_bytes;
    }
    if (left == 0 && r->len > 1) {
        r->ended = true;
        return true;
    }
    if (guess > left)
        guess = left > 4096 ? left : 4096;
    uint64_t to = r->to, first = r->from > v->base_offset ? r->from : v->base_offset;
    if (left == 0)
        to = first + 1;
    for (; enough; guess *= 4) {
        if (!reserve(r, guess + 1)) /* One more for a comma or a bracket behind. */
            return false;
        size_t room = left > 0 && left < guess ? left : guess;
        ssize_t n = render_form(r, v, scratch_bytes, r->text + r->len, room, to);
        if (n == -3 && r->len > 1) { /* not the first event */
            r->ended = true;
            return true;
        }
        if (n == -3) {
            left = 0; /* One event is served, however large. */
            to = first + 1;
            continue;
        }
        if (n == 0 && r->next < v->base_offset + v->count && r->next < to) {
            r->ended = true; /* Others were passed over, and this one did not fit. */
            return true;
        }
        if (n < 0) {
            PyErr_Format(PyExc_ValueError, "the columns of the chunk at byte %zd disagree", at);
            return false;
        }
        r->len += (size_t)n;
        r->ended = n > 0 && r->next < r->to && r->next < v->base_offset + v->count;
        if (n > 0 && r->form == VALUES)
            r->text[r->len++] = ',';
        return true;
    }
    return false;
}

/* One buffer of whole chunks back to back. */
static bool render_buffer(struct rendering *r, PyObject *item)
{
    Py_buffer buf;
    bool good = true;
    if (PyObject_GetBuffer(item, &buf, PyBUF_SIMPLE) < 0)
        return false;
    for (Py_ssize_t at = 0; good && !r->ended && at < buf.len;) {
        struct chunk_view view;
        const uint8_t *bytes = (const uint8_t *)buf.buf + at;
        good = chunk_open(bytes, (size_t)(buf.len - at), &view) >= 0;
        if (!good) {
            PyErr_Format(PyExc_ValueError, "no valid chunk at byte %zd", at);
            break;
        }
        uint64_t end = view.base_offset + view.count;
        if (end > r->from && view.base_offset < r->to) {
            good = chunk_verify(&view) >= 0;
            if (!good)
                PyErr_Format(PyExc_ValueError, "the chunk at byte %zd fails its checksum", at);
            good = good && render_view(r, &view, at);
        }
        if (!r->ended && r->next < end)
            r->next = end < r->to ? end : r->to;
        r->ended = r->ended || r->looked >= r->most; /* Passing over takes its time, too. */
        at += view.stored_bytes;
    }
    PyBuffer_Release(&buf);
    return good;
}

/* (text, the offset of the first event that is not in it) */
static PyObject *render(struct rendering *r, PyObject *chunks)
{
    PyObject *result = NULL, *items = PySequence_Tuple(chunks);
    if (items == NULL)
        return NULL;
    r->next = r->from;
    bool good = reserve(r, 2);
    if (good && r->form == VALUES)
        r->text[r->len++] = '[';
    for (Py_ssize_t i = 0; good && !r->ended && i < PyTuple_GET_SIZE(items); i++)
        good = render_buffer(r, PyTuple_GET_ITEM(items, i));
    if (good && r->form == VALUES) {
        r->len -= r->text[r->len - 1] == ','; /* Behind the last value stands a comma, or '['. */
        r->text[r->len++] = ']';
    }
    if (good)
        result = Py_BuildValue("(y#K)", r->text, (Py_ssize_t)r->len, (unsigned long long)r->next);
    PyMem_Free(r->text);
    PyMem_Free(r->scratch);
    if (r->where != NULL)
        PyMem_Free(r->where->room);
    Py_DECREF(items);
    return result;
}

static PyObject *render_values(PyObject *args, PyObject *kwargs, int form)
{
    static char *names[] = {"chunks", "from_offset", "to_offset", "most", NULL};
    struct rendering r = {.form = form, .most = SIZE_MAX};
    PyObject *chunks;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO&O&|O&", names, &chunks, py_u64_argument,
                                     &r.from, py_u64_argument, &r.to, py_u64_argument, &r.most))
        return NULL;
    return render(&r, chunks);
}

static PyObject *py_render_json(PyObject *module, PyObject *args, PyObject *kwargs)
{
    return render_values(args, kwargs, VALUES);
}

static PyObject *py_render_records(PyObject *module, PyObject *args, PyObject *kwargs)
{
    return render_values(args, kwargs, RECORDS);
}

static PyObject *py_render_ndjson(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"chunks", "from_offset", "to_offset",  "token",
                            "most",   "id",          "deliveries", "where", NULL};
    struct rendering r = {.form = LINES, .most = SIZE_MAX};
    struct conditions where = {0};
    PyObject *chunks, *given = NULL;
    long long token;
    Py_ssize_t id_len = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO&O&L|O&z#IO", names, &chunks, py_u64_argument,
                                     &r.from, py_u64_argument, &r.to, &token, py_u64_argument,
                                     &r.most, &r.frame.id, &id_len, &r.frame.deliveries, &given))
        return NULL;
    if (given != NULL && !py_conditions(given, &where))
        return NULL;
    if (where.count > 0)
        r.frame.where = r.where = &where;
    r.frame.token = token;
    r.frame.id_len = (size_t)id_len;
    if (id_len > LINE_ID_MAX)
        return PyErr_Format(PyExc_ValueError, "no id begins like that");
    return render(&r, chunks);
}

/* -- as many chunks of a buffer as an answer has room for -- */

struct taking {
    uint64_t offset, budget; /* the first event that is meant; of rendered bytes, what is left */
    uint32_t frame;
    int started; /* whether one event, however large, is in the answer already */
    size_t most; /* stored bytes, about */
    uint8_t *scratch;
    size_t scratch_cap;
    size_t first, bytes; /* what was taken */
    uint64_t base, end, cost, epoch;
    bool full; /* the next event does not fit */
};

/* Cuts off what of the chunk does not fit; in *end and *cost what does. -1: damaged. */
static int take_part(struct taking *t, const struct chunk_view *v, uint64_t *end, uint64_t *cost)
{
    uint64_t from = t->offset > v->base_offset ? t->offset : v->base_offset;
    void *scratch = t->scratch;
    bool enough = grow(&scratch, &t->scratch_cap, chunk_scratch_bytes(v));
    t->scratch = scratch;
    if (!enough || chunk_verify(v) < 0)
        return -1;
    return chunk_events_fit(v, from, *end, t->frame, t->budget - t->cost, t->scratch,
                            t->scratch_cap, end, cost);
}

/* Takes the chunk at byte `at`, or a part of it. 1: and the next may come; 0: this is the end of
 * what is taken; -1 damaged. */
static int take_one(struct taking *t, const struct chunk_view *v, size_t at)
{
    uint64_t after = v->base_offset + v->count, end = after, left = t->budget - t->cost;
    uint64_t cost = (uint64_t)v->raw_bytes + (uint64_t)v->count * t->frame;
    bool more = t->started || t->bytes > 0;
    if (t->bytes > 0 && (v->base_offset != t->end || v->epoch != t->epoch))
        return 0;
    if (after <= t->offset)
        return 1;
    t->full = more && left <= t->frame;
    /* Of a chunk that has been begun before, too, the cost says too much. */
    if (!t->full && cost > left) {
        if (take_part(t, v, &end, &cost) < 0)
            return -1;
        t->full = more && cost > left;
    }
    if (t->full)
        return 0;
    if (t->bytes == 0) {
        t->first = at;
        t->base = v->base_offset;
        t->epoch = v->epoch;
    }
    t->bytes += v->stored_bytes;
    t->cost += cost;
    t->end = end;
    t->full = end < after || cost > left;
    return !t->full && t->bytes < t->most;
}

static PyObject *py_chunks_take(PyObject *module, PyObject *args)
{
    Py_buffer buf;
    struct taking t = {0};
    Py_ssize_t at;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*nO&O&Ipn", &buf, &at, py_u64_argument, &t.offset,
                          py_u64_argument, &t.budget, &t.frame, &t.started, &t.most))
        return NULL;
    int status = at >= 0 && at <= buf.len ? 1 : -1;
    while (status > 0 && at < buf.len) {
        struct chunk_view v;
        if (chunk_open((const uint8_t *)buf.buf + at, (size_t)(buf.len - at), &v) < 0)
            status = -1;
        else if ((status = take_one(&t, &v, (size_t)at)) > 0)
            at += v.stored_bytes;
    }
    if (status >= 0)
        result = Py_BuildValue("(nnKKKO)", (Py_ssize_t)t.first, (Py_ssize_t)t.bytes,
                               (unsigned long long)t.base, (unsigned long long)t.end,
                               (unsigned long long)t.cost, t.full ? Py_True : Py_False);
    else if (!PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, "the chunk at byte %zd is damaged", at);
    PyMem_Free(t.scratch);
    PyBuffer_Release(&buf);
    return result;
}

/* -- one chunk -- */

struct one_chunk {
    Py_buffer buf;
    struct chunk_view view;
    uint8_t *scratch;
    size_t scratch_bytes;
};

static bool one_chunk_open(struct one_chunk *one)
{
    if (chunk_open(one->buf.buf, (size_t)one->buf.len, &one->view) < 0 ||
        chunk_verify(&one->view) < 0) {
        PyErr_SetString(PyExc_ValueError, "the chunk is damaged");
        return false;
    }
    one->scratch_bytes = chunk_scratch_bytes(&one->view);
    one->scratch = PyMem_Malloc(one->scratch_bytes);
    if (one->scratch == NULL)
        PyErr_NoMemory();
    return one->scratch != NULL;
}

static PyObject *one_chunk_close(struct one_chunk *one, PyObject *result)
{
    PyMem_Free(one->scratch);
    PyBuffer_Release(&one->buf);
    return result;
}

static PyObject *disagree(void)
{
    return PyErr_Format(PyExc_ValueError, "the columns of the chunk disagree");
}

static PyObject *py_chunk_since(PyObject *module, PyObject *args)
{
    struct one_chunk one = {0};
    long long timestamp;
    uint64_t offset;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*L", &one.buf, &timestamp))
        return NULL;
    if (one_chunk_open(&one)) {
        if (chunk_find_timestamp(&one.view, timestamp, one.scratch, one.scratch_bytes, &offset) < 0)
            result = disagree();
        else
            result = PyLong_FromUnsignedLongLong(offset);
    }
    return one_chunk_close(&one, result);
}

/* barco/_native.pyi says what they do. */
static PyMethodDef functions[] = {
    {"render_json", WITH_NAMES(py_render_json), METH_VARARGS | METH_KEYWORDS, NULL},
    {"render_ndjson", WITH_NAMES(py_render_ndjson), METH_VARARGS | METH_KEYWORDS, NULL},
    {"render_records", WITH_NAMES(py_render_records), METH_VARARGS | METH_KEYWORDS, NULL},
    {"chunks_take", py_chunks_take, METH_VARARGS, NULL},
    {"chunk_since", py_chunk_since, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int py_render_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
