/* The Python face of the reactor: one object for each worker process. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <assert.h>
#include <malloc.h>

#include "format/group.h"
#include "base/murmur3.h"
#include "log/clock.h"
#include "log/replica.h"
#include "loop/tls.h"
#include "python/py_check.h"
#include "python/py_codec.h"
#include "python/py_lent.h"
#include <strings.h>

#include "broker/answer.h"
#include "python/py_reactor.h"
#include "python/py_seal.h"
#include "http/given_id.h"

/* LZ4's acceleration: 1.3 to 1.5 times the speed of 1, for 1 to 3 % more bytes (tuning.md). */
#define LZ4_ACCELERATION 8

/* ---- construction ---- */

static int engine_number(const char *name)
{
    if (strcmp(name, "auto") == 0)
        return 0;
    if (strcmp(name, "io_uring") == 0)
        return 1;
    if (strcmp(name, "epoll") == 0)
        return 2;
    PyErr_SetString(PyExc_ValueError, "engine is 'auto', 'io_uring' or 'epoll'");
    return -1;
}

int compression_number(const char *name)
{
    if (name == NULL)
        return COMPRESSION_DEFAULT;
    if (strcmp(name, "lz4") == 0)
        return COMPRESSION_LZ4;
    if (strcmp(name, "none") == 0)
        return COMPRESSION_NONE;
    PyErr_SetString(PyExc_ValueError, "compression is 'lz4' or 'none'");
    return -1;
}

static int check_options(const struct reactor_options *o, Py_ssize_t uuid_len)
{
    const char *what = NULL;
    size_t arena = o->log.arena_bytes;
    if (uuid_len != 16)
        what = "cluster_uuid must have 16 bytes";
    else if (o->workers == 0 || o->workers > WORKERS_MAX || o->worker >= o->workers)
        what = "worker must be below workers, at most 128";
    else if (o->slices == 0 || o->slices > SLICES_MAX || (o->slices & (o->slices - 1)) != 0)
        what = "slices must be a power of two, at most 256";
    else if (o->ring_size == 0 || o->ring_size > RING_SIZE_MAX || o->range_index >= o->ring_size ||
             (uint64_t)o->ring_size * o->slices > RING_SLICES_MAX)
        what = "range_index must be below ring_size, and the ring have at most 12288 ranges and "
               "65536 slices";
    else if (o->peers > PEERS_MAX || (o->peers > 0 && o->peer >= o->peers))
        what = "peer must be below peers";
    else if (o->slice_first > o->slice_last || o->slice_last >= o->slices)
        what = "slice_first..slice_last must lie within the slices";
    else if (arena < (8u << 20) || (arena & (arena - 1)) != 0)
        what = "arena_bytes must be a power of two, at least 8 MiB";
    else if (o->request_bytes_max > arena / 3 || o->event_bytes_max > o->request_bytes_max)
        what = "event_bytes_max <= request_bytes_max <= a third of arena_bytes must hold";
    if (what != NULL)
        PyErr_SetString(PyExc_ValueError, what);
    return what == NULL ? 0 : -1;
}

static int Reactor_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"engine", "arena_bytes", "request_bytes_max", "event_bytes_max",
                            "body_memory_max", "auto_create", "worker", "workers", "slices",
                            "slice_first", "slice_last", "range_token", "cluster_uuid", "session",
                            "epoch", "connections_max", "acceleration", "ring_size",
                            "range_index", "peer", "peers", "compression", NULL};
    struct reactor_options o = {0};
    const char *engine = "auto", *uuid = NULL, *error = NULL, *compression = NULL;
    Py_ssize_t uuid_len = 0;
    unsigned long long arena = 64u << 20, request = 16u << 20, event = 1u << 20, body = 64u << 20;
    unsigned long long session = 0, epoch = 0;
    long long token = INT64_MIN;
    int auto_create = 1, acceleration = LZ4_ACCELERATION;
    o.workers = o.slices = o.ring_size = 1;
    o.connections_max = CONNECTIONS_MAX;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$sKKKKpIIIIILy#KKIiIIIIz", names, &engine,
                                     &arena, &request, &event, &body, &auto_create, &o.worker,
                                     &o.workers, &o.slices, &o.slice_first, &o.slice_last, &token,
                                     &uuid, &uuid_len, &session, &epoch, &o.connections_max,
                                     &acceleration, &o.ring_size, &o.range_index, &o.peer,
                                     &o.peers, &compression))
        return -1;
    const int packing = compression_number(compression);
    o.log.arena_bytes = arena;
    o.request_bytes_max = request;
    o.event_bytes_max = event;
    o.memory_max = body;
    o.auto_create = auto_create;
    o.log.session = session;
    o.log.epoch = epoch;
    o.log.acceleration = acceleration;
    o.log.compression = (uint8_t)packing;
    o.range_start = token;
    if (packing < 0 || check_options(&o, uuid_len) < 0 || (o.engine = engine_number(engine)) < 0)
        return -1;
    memcpy(o.log.cluster_uuid, uuid, 16);
    /* Bodies of some MiB come and go: without this each would be mapped, faulted in and unmapped.
     */
    mallopt(M_MMAP_THRESHOLD, 5 << 19);
    mallopt(M_TRIM_THRESHOLD, 128 << 20);
    struct reactor *reactor = reactor_new(&o, &error);
    if (reactor == NULL) {
        PyErr_Format(PyExc_OSError, "the event loop could not start: %s", error ? error : "?");
        return -1;
    }
    ((ReactorObject *)self)->reactor = reactor;
    return 0;
}

static PyObject *Reactor_close(PyObject *self, PyObject *none)
{
    ReactorObject *object = (ReactorObject *)self;
    reactor_free(object->reactor);
    object->reactor = NULL;
    Py_RETURN_NONE;
}

static void Reactor_dealloc(PyObject *self)
{
    reactor_free(((ReactorObject *)self)->reactor);
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

/* ---- sockets and the loop ---- */

/* By kind (workers/peers/siblings.py): what is spoken there, and how the bytes come and go. */
static const struct {
    const struct protocol *protocol;
    const struct transport *transport;
} listener_kinds[] = {
    {&client_protocol, &plain_transport},
    {&peer_protocol, &plain_transport},
    {&client_protocol, &tls_transport},
};

static PyObject *Reactor_listen(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    int fd;
    unsigned kind;
    if (reactor == NULL || !PyArg_ParseTuple(args, "iI", &fd, &kind))
        return NULL;
    const unsigned kinds = sizeof listener_kinds / sizeof *listener_kinds;
    if (kind < kinds && listener_kinds[kind].transport == &tls_transport &&
        tls_figures(&reactor->loop) == NULL)
        return PyErr_Format(PyExc_ValueError, "there is no certificate yet");
    if (kind >= kinds || loop_listen(&reactor->loop, fd, listener_kinds[kind].protocol,
                                     listener_kinds[kind].transport) < 0)
        return PyErr_Format(PyExc_ValueError, "kinds are below %u; at most %d listeners", kinds,
                            LISTENERS_MAX);
    Py_RETURN_NONE;
}

static PyObject *Reactor_attach_peer(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    unsigned peer;
    int fd;
    struct seal *seal = NULL;
    if (reactor == NULL || !PyArg_ParseTuple(args, "Ii|O&", &peer, &fd, py_seal_given, &seal))
        return NULL;
    if (reactor_attach_peer(reactor, peer, fd, seal) < 0)
        return PyErr_Format(PyExc_ValueError, "there is no peer %u", peer);
    Py_RETURN_NONE;
}

static PyObject *Reactor_adopt_peer(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    int fd;
    unsigned peer;
    struct seal *seal = NULL;
    if (reactor == NULL || !PyArg_ParseTuple(args, "iI|O&", &fd, &peer, py_seal_given, &seal))
        return NULL;
    if (reactor_adopt_peer(reactor, fd, peer, seal) < 0)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *Reactor_set_route(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    unsigned first, count;
    int peer;
    const char *endpoint;
    if (reactor == NULL || !PyArg_ParseTuple(args, "IIis", &first, &count, &peer, &endpoint))
        return NULL;
    if (reactor_set_route(reactor, first, count, peer, endpoint) < 0)
        return PyErr_Format(PyExc_ValueError, "no route leads from %u slices at %u to peer %d",
                            count, first, peer);
    Py_RETURN_NONE;
}

static PyObject *Reactor_watch(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    int fd;
    if (reactor == NULL || !PyArg_ParseTuple(args, "i", &fd))
        return NULL;
    reactor->loop.net->watch(reactor->loop.net, fd);
    Py_RETURN_NONE;
}

static PyObject *text_of(struct http1_slice slice)
{
    return PyUnicode_DecodeLatin1(slice.p ? slice.p : "", slice.len, NULL);
}

/* Those that handlers look at: the others would only be kept while a client waits. */
static bool is_wanted(const struct reactor *reactor, const struct http1_header *h)
{
    static const char *const names[] = {"accept", "content-type", "authorization",
                                        "last-event-id", "content-encoding",
                                        "cache-control", "if-none-match", "barco-reader",
                                        "x-splunk-request-channel"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (h->name.len == strlen(names[i]) &&
            strncasecmp(h->name.p, names[i], h->name.len) == 0)
            return true;
    return reactor->spans != NULL && h->name.len == 11 &&
           strncasecmp(h->name.p, "traceparent", 11) == 0;
}

/* Behind them the name in the client's certificate and what it calls its request, as fields that no
 * client can send: none has a name that begins with a colon. */
static PyObject *headers_of(const struct reactor *reactor, const struct http1_request *head,
                            const struct upcall *up)
{
    PyObject *list = PyList_New(0);
    for (uint16_t i = 0; list != NULL && i < head->header_count; i++) {
        const struct http1_header *h = &head->headers[i];
        if (!is_wanted(reactor, h))
            continue;
        py_append(&list, Py_BuildValue("(y#y#)", h->name.p, (Py_ssize_t)h->name.len, h->value.p,
                                       (Py_ssize_t)h->value.len));
    }
    if (list != NULL && up->name_len > 0)
        py_append(&list,
                  Py_BuildValue("(yy#)", ":certificate", up->name, (Py_ssize_t)up->name_len));
    struct http1_slice given;
    if (list != NULL && given_id_find(head, &given))
        py_append(&list,
                  Py_BuildValue("(yy#)", ":request", given.p, (Py_ssize_t)given.len));
    return list;
}

static PyObject *request_upcall(const struct reactor *reactor, struct upcall *up)
{
    struct http1_request head;
    if (http1_parse_head((const char *)up->head, up->head_len, 0, &head) <= 0)
        return PyErr_Format(PyExc_RuntimeError, "a kept head no longer parses");
    return Py_BuildValue("(sKNNNNy#)", "request", (unsigned long long)up->id,
                         text_of(head.method_text), text_of(head.path), text_of(head.query),
                         headers_of(reactor, &head, up),
                         up->body ? (const char *)up->body->data : "",
                         (Py_ssize_t)(up->body ? up->body->len : 0));
}

static PyObject *frame_upcall(const struct upcall *up)
{
    PyObject *group = up->bytes > 0 ? PyByteArray_FromStringAndSize(
                                          (const char *)up->head + up->head_len, up->bytes)
                                    : Py_NewRef(Py_None);
    return group ? Py_BuildValue("(sKy#N)", "frame", (unsigned long long)up->id,
                                 (const char *)up->head, (Py_ssize_t)up->head_len, group)
                 : NULL;
}

static PyObject *upcall_tuple(const struct reactor *reactor, struct upcall *up)
{
    unsigned long long id = up->id;
    switch (up->kind) {
    case UPCALL_REQUEST: return request_upcall(reactor, up);
    case UPCALL_ABORTED: return Py_BuildValue("(sK)", "aborted", id);
    case UPCALL_APPENDED:
        return Py_BuildValue("(sKiIKK)", "appended", id, (int)up->status, up->part.number,
                             (unsigned long long)up->part.epoch,
                             (unsigned long long)up->part.offset);
    case UPCALL_SEGMENT_WANTED: return Py_BuildValue("(s)", "segment_wanted");
    case UPCALL_SEGMENT_SEALED: return Py_BuildValue("(sK)", "segment_sealed", id);
    case UPCALL_STABLE: return Py_BuildValue("(sK)", "stable", id);
    case UPCALL_BUILT:
        return Py_BuildValue("(sKIIKI)", "built", id, up->prev_crc, up->header_crc,
                             (unsigned long long)up->pos, up->bytes);
    case UPCALL_LANDED:
        return Py_BuildValue("(sKIK)", "landed", id, up->header_crc, (unsigned long long)up->pos);
    case UPCALL_FRAME: return frame_upcall(up);
    case UPCALL_REPLICA_CLOSED: return Py_BuildValue("(sK)", "replica_closed", id);
    case UPCALL_HEARER:
        return Py_BuildValue("(sKis#)", "hearer", id, (int)up->status, (const char *)up->head,
                             (Py_ssize_t)up->head_len);
    case UPCALL_SETTLED: return Py_BuildValue("(s)", "settled");
    case UPCALL_CHECK: return py_check(up);
    case UPCALL_PRODUCED:
        return Py_BuildValue("(sKNy#)", "produced", id, py_problem(up->status),
                             (const char *)up->head, (Py_ssize_t)up->head_len);
    case UPCALL_IO_ERROR: return Py_BuildValue("(ss)", "io_error", strerror((int)id));
    default: return Py_BuildValue("(sK)", "peer_closed", id);
    }
}

static PyObject *take_upcalls(struct reactor *reactor)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; i < reactor->upcall_count; i++) {
        struct upcall *up = &reactor->upcalls[i];
        py_append(&list, list != NULL ? upcall_tuple(reactor, up) : NULL);
        free(up->head);
        if (up->body != NULL)
            body_release(up->body);
    }
    reactor->upcall_count = 0;
    return list;
}

static PyObject *Reactor_run(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    PyObject *timeout;
    if (reactor == NULL || !PyArg_ParseTuple(args, "O", &timeout))
        return NULL;
    int64_t timeout_ns = -1;
    if (timeout != Py_None) {
        double seconds = PyFloat_AsDouble(timeout);
        if (seconds == -1.0 && PyErr_Occurred())
            return NULL;
        seconds = seconds < 0 ? 0 : seconds > 3600 ? 3600 : seconds;
        timeout_ns = (int64_t)(seconds * 1e9);
    }
    reactor->loop.selector_ready = false;
    Py_BEGIN_ALLOW_THREADS
    reactor_run(reactor, timeout_ns);
    Py_END_ALLOW_THREADS
    bool ready = reactor->loop.selector_ready;
    PyObject *upcalls = take_upcalls(reactor);
    return upcalls ? Py_BuildValue("(ON)", ready ? Py_True : Py_False, upcalls) : NULL;
}

/* ---- log ---- */

static PyObject *Reactor_add_segment(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    unsigned index;
    int fd;
    unsigned long long capacity;
    if (reactor == NULL || !PyArg_ParseTuple(args, "IiK", &index, &fd, &capacity))
        return NULL;
    if (capacity < 4 * GROUP_ALIGN || capacity % GROUP_ALIGN != 0 || capacity > UINT32_MAX)
        return PyErr_Format(PyExc_ValueError, "capacity must be a multiple of 4096, below 4 GiB");
    log_add_segment(reactor->log, index, fd, capacity);
    Py_RETURN_NONE;
}

static PyObject *Reactor_restore(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    Py_buffer bytes;
    if (reactor == NULL || !PyArg_ParseTuple(args, "z*", &bytes))
        return NULL;
    int status = log_restore(reactor->log, bytes.buf, (size_t)bytes.len);
    reactor_slices_read(reactor);
    if (status == 0)
        log_clock_heard(reactor->log, shard_snapshot_time(bytes.buf, (size_t)bytes.len));
    PyBuffer_Release(&bytes);
    if (status < 0)
        return PyErr_Format(PyExc_ValueError, "not a snapshot of this shard");
    Py_RETURN_NONE;
}

static PyObject *Reactor_apply_group(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    Py_buffer bytes;
    struct group_header header;
    if (reactor == NULL || !PyArg_ParseTuple(args, "y*", &bytes))
        return NULL;
    int status = group_header_read(bytes.buf, (size_t)bytes.len, &header);
    if (status == 0)
        status = shard_apply(reactor->shard, bytes.buf, (size_t)bytes.len, header.gseq);
    if (status == 0)
        log_clock_heard(reactor->log, group_time(&header));
    PyBuffer_Release(&bytes);
    if (status < 0)
        return PyErr_Format(PyExc_ValueError, "the group does not hold valid chunks of this shard");
    Py_RETURN_NONE;
}

static PyObject *Reactor_open_generation(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    const uint8_t *parents;
    Py_ssize_t len;
    if (reactor == NULL || !PyArg_ParseTuple(args, "y#", &parents, &len))
        return NULL;
    reactor_open(reactor, parents, (uint32_t)len);
    Py_RETURN_NONE;
}

static PyObject *Reactor_append(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    unsigned long long tag;
    const char *topic, *key, *value;
    Py_ssize_t topic_len, key_len, value_len;
    unsigned slice;
    int unhurried = 0;
    uint64_t detail = 0;
    if (reactor == NULL || !PyArg_ParseTuple(args, "Ks#Iz#y#|p", &tag, &topic, &topic_len, &slice,
                                             &key, &key_len, &value, &value_len, &unhurried))
        return NULL;
    if (!shard_has(reactor->shard, slice))
        return PyErr_Format(PyExc_ValueError, "slice %u belongs to another worker", slice);
    uint32_t number = slice_in_ring(reactor, slice);
    struct produce produce = {.content = CONTENT_EVENT, .number = number,
                              .has_key = key != NULL, .key = (const uint8_t *)key,
                              .key_len = (uint32_t)key_len};
    if (key != NULL)
        produce.key_token = murmur3_token(key, (size_t)key_len);
    produce.topic = shard_topic_make(reactor->shard, topic, (size_t)topic_len);
    struct waiter waiter = {.kind = WAITER_APPEND, .unhurried = unhurried, .tag = tag};
    uint16_t problem = PROBLEM_TOO_MANY_TOPICS;
    if (produce.topic != NULL)
        problem = produce_slice(reactor, &produce, number, waiter, (const uint8_t *)value,
                                (size_t)value_len, NULL, &detail);
    if (problem != PROBLEM_NONE)
        return PyErr_Format(PyExc_RuntimeError, "%s", answer_title(problem));
    Py_RETURN_NONE;
}

static PyObject *Reactor_drain(PyObject *self, PyObject *none)
{
    struct reactor *reactor = reactor_of(self);
    if (reactor == NULL)
        return NULL;
    reactor_drain(reactor);
    Py_RETURN_NONE;
}

static PyObject *Reactor_seal(PyObject *self, PyObject *none)
{
    struct reactor *reactor = reactor_of(self);
    if (reactor == NULL)
        return NULL;
    log_heartbeat(reactor->log, reactor->loop.wall_us, GROUP_SEAL);
    Py_RETURN_NONE;
}

static PyObject *Reactor_shed(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    unsigned long long bytes;
    if (reactor == NULL || !PyArg_ParseTuple(args, "K", &bytes))
        return NULL;
    return PyLong_FromUnsignedLongLong(shed_answers(reactor, bytes));
}

static PyObject *Reactor_add_host(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    const char *text;
    Py_ssize_t len;
    if (reactor == NULL || !PyArg_ParseTuple(args, "s#", &text, &len))
        return NULL;
    if (!reactor_add_host(reactor, text, (size_t)len))
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *Reactor_idle(PyObject *self, PyObject *none)
{
    struct reactor *reactor = reactor_of(self);
    return reactor ? PyBool_FromLong(reactor_idle(reactor)) : NULL;
}

static PyObject *Reactor_notify(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    int on;
    if (reactor == NULL || !PyArg_ParseTuple(args, "p", &on))
        return NULL;
    reactor->notify = on;
    Py_RETURN_NONE;
}

static PyObject *Reactor_set_disk_full(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    int full;
    if (reactor == NULL || !PyArg_ParseTuple(args, "p", &full))
        return NULL;
    reactor->no_room = full;
    if (full)
        log_refuse_queued(reactor->log, reactor->loop.wall_us);
    Py_RETURN_NONE;
}

static PyObject *Reactor_disk_full(PyObject *self, PyObject *none)
{
    struct reactor *reactor = reactor_of(self);
    return reactor == NULL ? NULL : PyBool_FromLong(reactor_disk_full(reactor));
}

static PyObject *Reactor_bound_state(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    unsigned long long bytes_max;
    if (reactor == NULL || !PyArg_ParseTuple(args, "K", &bytes_max))
        return NULL;
    reactor->shard->state_bytes_max = bytes_max;
    return PyLong_FromUnsignedLongLong(shard_state_bytes(reactor->shard));
}

static PyObject *get_engine(PyObject *self, void *closure)
{
    struct reactor *reactor = reactor_of(self);
    return reactor ? PyUnicode_FromString(reactor->loop.net->name) : NULL;
}

static PyObject *get_engine_reason(PyObject *self, void *closure)
{
    struct reactor *reactor = reactor_of(self);
    if (reactor == NULL)
        return NULL;
    const char *reason = reactor->loop.engine_reason;
    return PyUnicode_FromString(reason != NULL ? reason : "");
}

static PyGetSetDef reactor_getset[] = {
    {"engine", get_engine, NULL, NULL, NULL},
    {"engine_reason", get_engine_reason, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* barco/_native.pyi says what they do. */
static PyMethodDef reactor_methods[] = {
    {"close", Reactor_close, METH_NOARGS, NULL},
    {"listen", Reactor_listen, METH_VARARGS, NULL},
    {"attach_peer", Reactor_attach_peer, METH_VARARGS, NULL},
    {"adopt_peer", Reactor_adopt_peer, METH_VARARGS, NULL},
    {"set_route", Reactor_set_route, METH_VARARGS, NULL},
    {"watch", Reactor_watch, METH_VARARGS, NULL},
    {"run", Reactor_run, METH_VARARGS, NULL},
    {"append", Reactor_append, METH_VARARGS, NULL},
    {"add_segment", Reactor_add_segment, METH_VARARGS, NULL},
    {"restore", Reactor_restore, METH_VARARGS, NULL},
    {"apply_group", Reactor_apply_group, METH_VARARGS, NULL},
    {"open_generation", Reactor_open_generation, METH_VARARGS, NULL},
    {"drain", Reactor_drain, METH_NOARGS, NULL},
    {"seal", Reactor_seal, METH_NOARGS, NULL},
    {"idle", Reactor_idle, METH_NOARGS, NULL},
    {"bound_state", Reactor_bound_state, METH_VARARGS, NULL},
    {"set_disk_full", Reactor_set_disk_full, METH_VARARGS, NULL},
    {"disk_full", Reactor_disk_full, METH_NOARGS, NULL},
    {"shed", Reactor_shed, METH_VARARGS, NULL},
    {"add_host", Reactor_add_host, METH_VARARGS, NULL},
    {"notify", Reactor_notify, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

enum { METHODS_SLOT };

static PyType_Slot reactor_slots[] = {
    [METHODS_SLOT] = {Py_tp_methods, NULL}, /* of all tables: py_reactor_init() */
    {Py_tp_init, Reactor_init},
    {Py_tp_dealloc, Reactor_dealloc},
    {Py_tp_getset, reactor_getset},
    {Py_tp_doc, "A worker's event loop: connections, produce path and log, in C."},
    {0, NULL},
};

static PyType_Spec reactor_spec = {
    .name = "barco._native.Reactor",
    .basicsize = sizeof(ReactorObject),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = reactor_slots,
};

int py_reactor_init(PyObject *module)
{
    const PyMethodDef *const tables[] = {
        reactor_methods,        reactor_read_methods,   reactor_commit_methods,
        reactor_access_methods, reactor_intake_methods, reactor_replica_methods,
        reactor_tls_methods,    reactor_feed_methods,   reactor_stages_methods,
        reactor_answer_methods,
        reactor_delays_methods,
    };
    size_t count = 0;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const PyMethodDef *def = tables[i]; def->ml_name != NULL; def++)
            count++;
    PyMethodDef *methods = calloc(count + 1, sizeof *methods); /* the last one ends them */
    if (methods == NULL)
        return PyErr_NoMemory(), -1;
    reactor_slots[METHODS_SLOT].pfunc = methods; /* as long as the type, which is never freed */
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const PyMethodDef *def = tables[i]; def->ml_name != NULL; def++)
            *methods++ = *def;
    PyObject *type = PyType_FromSpec(&reactor_spec);
    if (type == NULL)
        return -1;
    int status = PyModule_AddObjectRef(module, "Reactor", type);
    Py_DECREF(type);
    return status;
}
