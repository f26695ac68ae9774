/* The reading half of the Python face: tail reads, look-ups, the index of a segment, counters. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <limits.h>

#include "broker/feed.h"
#include "read/arrow.h"
#include "format/format.h"
#include "log/clock.h"
#include "python/py_codec.h"
#include "python/py_lent.h"
#include "loop/tls.h"
#include "python/py_reactor.h"

static struct stream *find_stream(struct reactor *reactor, const char *name, Py_ssize_t len,
                                  unsigned slice)
{
    struct topic *topic = shard_topic(reactor->shard, name, (size_t)len);
    return topic ? shard_stream_get(reactor->shard, topic, slice) : NULL;
}

static uint64_t chunk_epoch(const struct log *log, const struct index_entry *entry)
{
    uint64_t epoch;
    memcpy(&epoch, log_memory(log, entry->log_pos) + offsetof(struct chunk_header, epoch),
           sizeof epoch);
    return epoch;
}

/* Chunks of entries [first, end), back to back: one allocation and one copy out of the arena. */
static PyObject *copy_chunks(struct log *log, const struct index_entry *first,
                             const struct index_entry *end, size_t bytes)
{
    PyObject *piece = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes);
    if (piece == NULL)
        return NULL;
    char *out = PyBytes_AS_STRING(piece);
    for (const struct index_entry *entry = first; entry < end; entry++) {
        memcpy(out, log_memory(log, entry->log_pos), entry->stored_bytes);
        out += entry->stored_bytes;
    }
    return piece;
}

/* Chunks in memory, cut down to some sections: what is not wanted is not touched. */
static PyObject *copy_parts(const struct log *log, const struct index_entry *first,
                            const struct index_entry *end, size_t bytes, uint32_t parts)
{
    PyObject *piece = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes);
    if (piece == NULL)
        return NULL;
    uint8_t *start = (uint8_t *)PyBytes_AS_STRING(piece), *out = start;
    for (const struct index_entry *entry = first; entry < end; entry++) {
        struct chunk_view view;
        if (chunk_open(log_memory(log, entry->log_pos), entry->stored_bytes, &view) < 0) {
            Py_DECREF(piece);
            return PyErr_Format(PyExc_ValueError, "the chunk of offset %llu in memory is damaged",
                                (unsigned long long)entry->base_offset);
        }
        chunk_part_write(&view, parts, out);
        out += chunk_part_bytes(&view, parts);
    }
    _PyBytes_Resize(&piece, out - start);
    return piece;
}

/* Chunks in memory, lent where that pays, else copied. */
static PyObject *lend_chunks(struct log *log, const struct index_entry *first,
                             const struct index_entry *end, size_t bytes)
{
    struct lent *lent = lent_new(log, first, end);
    return lent ? py_lent_new(lent) : copy_chunks(log, first, end, bytes);
}

/* Whole stored chunks from memory as one piece, a list of one so that it looks like what comes from
 * the disk: (pieces, next offset, stable end), or None for the disk. */
static PyObject *Reactor_tail_read(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    const char *name;
    Py_ssize_t name_len;
    unsigned slice;
    unsigned long long from, max_bytes, to = ULLONG_MAX;
    int lend, columns = -1;
    if (reactor == NULL || !PyArg_ParseTuple(args, "s#IKKp|iK", &name, &name_len, &slice, &from,
                                             &max_bytes, &lend, &columns, &to))
        return NULL;
    const struct stream *stream = find_stream(reactor, name, name_len, slice);
    if (stream == NULL)
        return Py_BuildValue("([]KK)", from, 0ULL);
    unsigned long long stable = stream->stable_offset;
    if (from < stream->start_offset)
        from = stream->start_offset;
    if (from >= stable)
        return Py_BuildValue("([]KK)", from, stable);
    uint32_t at = stream_find(stream, from);
    if (at == stream->entry_count || stream->entries[at].base_offset > from ||
        stream->entries[at].log_pos < log_memory_low(reactor->log))
        Py_RETURN_NONE;
    const struct index_entry *first = &stream->entries[at], *end = first;
    const struct index_entry *last = stream->entries + stream->entry_count;
    size_t bytes = 0;
    const uint64_t epoch = chunk_epoch(reactor->log, first); /* a piece is of one generation */
    for (; end < last && end->base_offset < stable; end++) {
        if (bytes > 0 && (bytes + end->stored_bytes > max_bytes || end->base_offset >= to ||
                          chunk_epoch(reactor->log, end) != epoch))
            break;
        bytes += end->stored_bytes;
    }
    PyObject *piece = columns >= 0 ? copy_parts(reactor->log, first, end, bytes,
                                                arrow_parts((uint32_t)columns))
                      : lend       ? lend_chunks(reactor->log, first, end, bytes)
                                   : copy_chunks(reactor->log, first, end, bytes);
    if (piece == NULL)
        return NULL;
    unsigned long long next = end[-1].base_offset + end[-1].count;
    return Py_BuildValue("([N]KK)", piece, next, stable);
}

static PyObject *Reactor_locate(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    const char *name;
    Py_ssize_t name_len;
    unsigned slice, max_chunks;
    unsigned long long from, max_bytes = ULLONG_MAX, bytes = 0;
    if (reactor == NULL ||
        !PyArg_ParseTuple(args, "s#IKI|K", &name, &name_len, &slice, &from, &max_chunks,
                          &max_bytes))
        return NULL;
    const struct stream *stream = find_stream(reactor, name, name_len, slice);
    PyObject *list = PyList_New(0);
    if (stream == NULL || list == NULL)
        return list;
    for (uint32_t at = stream_find(stream, from);
         list != NULL && at < stream->entry_count && max_chunks > 0; at++, max_chunks--) {
        const struct index_entry *entry = &stream->entries[at];
        const struct segment *segment = log_segment_at(reactor->log, entry->log_pos);
        if (segment == NULL || entry->base_offset >= stream->stable_offset)
            break;
        bytes += entry->stored_bytes;
        if (bytes > max_bytes && bytes > entry->stored_bytes)
            break;
        py_append(&list, Py_BuildValue("(IKIKI)", segment->index,
                                       (unsigned long long)(entry->log_pos - segment->base_pos),
                                       entry->stored_bytes,
                                       (unsigned long long)entry->base_offset, entry->count));
    }
    return list;
}

/* Where the first chunk lies that is as late, by its events or by when it was appended. */
static PyObject *locate_first(PyObject *self, PyObject *args, bool appended)
{
    struct reactor *reactor = reactor_of(self);
    const char *name;
    Py_ssize_t name_len;
    unsigned slice;
    long long time_us;
    if (reactor == NULL || !PyArg_ParseTuple(args, "s#IL", &name, &name_len, &slice, &time_us))
        return NULL;
    const struct stream *stream = find_stream(reactor, name, name_len, slice);
    uint32_t low = 0, high = stream != NULL ? stream->entry_count : 0;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        const struct index_entry *entry = &stream->entries[middle];
        if (appended ? entry->appended_s < time_us / 1000000 : entry->max_timestamp < time_us)
            low = middle + 1;
        else
            high = middle;
    }
    if (stream == NULL || low == stream->entry_count ||
        stream->entries[low].base_offset >= stream->stable_offset)
        Py_RETURN_NONE;
    return PyLong_FromUnsignedLongLong(stream->entries[low].base_offset);
}

static PyObject *Reactor_locate_timestamp(PyObject *self, PyObject *args)
{
    return locate_first(self, args, false);
}

static PyObject *Reactor_locate_appended(PyObject *self, PyObject *args)
{
    return locate_first(self, args, true);
}

static PyObject *Reactor_streams(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    const char *name = NULL;
    Py_ssize_t name_len = 0;
    if (reactor == NULL || !PyArg_ParseTuple(args, "|z#", &name, &name_len))
        return NULL;
    const struct topic *only = name ? shard_topic(reactor->shard, name, (size_t)name_len) : NULL;
    const uint32_t count = name == NULL ? reactor->shard->topic_count : only != NULL;
    PyObject *list = PyList_New(0);
    for (uint32_t t = 0; list != NULL && t < count; t++) {
        const struct topic *topic = only != NULL ? only : reactor->shard->topics[t];
        for (uint32_t s = 0; list != NULL && s < reactor->shard->slice_count; s++) {
            const struct stream *stream = topic->streams[s];
            if (stream == NULL || stream->next_offset == 0)
                continue; /* made for a call that was refused, or is not written yet */
            py_append(&list, Py_BuildValue(
                "(s#IKKL)", topic->name, (Py_ssize_t)topic->name_len, stream->slice,
                (unsigned long long)stream->start_offset,
                (unsigned long long)stream->stable_offset, (long long)stream->max_timestamp));
        }
    }
    return list;
}

static PyObject *Reactor_stream_ends(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    const char *name;
    Py_ssize_t name_len;
    unsigned slice;
    if (reactor == NULL || !PyArg_ParseTuple(args, "s#I", &name, &name_len, &slice))
        return NULL;
    const struct stream *stream = find_stream(reactor, name, name_len, slice);
    if (stream == NULL)
        Py_RETURN_NONE;
    return Py_BuildValue("(KK)", (unsigned long long)stream->start_offset,
                         (unsigned long long)stream->stable_offset);
}

static PyObject *Reactor_compacted(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    const char *name;
    Py_ssize_t name_len;
    if (reactor == NULL || !PyArg_ParseTuple(args, "s#", &name, &name_len))
        return NULL;
    PyObject *list = PyList_New(0);
    const struct topic *topic = shard_topic(reactor->shard, name, (size_t)name_len);
    for (uint32_t i = 0; topic && list && i <= reactor->shard->compacted_mask; i++) {
        const struct compacted *row = &reactor->shard->compacted[i];
        if (row->bytes == NULL || row->topic != topic->index)
            continue;
        py_append(&list, Py_BuildValue("(y#y#)", row->bytes, (Py_ssize_t)row->key_len,
                                       row->bytes + row->key_len, (Py_ssize_t)row->value_len));
    }
    return list;
}

static PyObject *Reactor_producer(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    const char *name, *id;
    Py_ssize_t name_len, id_len;
    if (reactor == NULL || !PyArg_ParseTuple(args, "s#y#", &name, &name_len, &id, &id_len))
        return NULL;
    if (id_len != PRODUCER_ID_BYTES) {
        PyErr_SetString(PyExc_ValueError, "a producer's id has 16 bytes");
        return NULL;
    }
    struct shard *shard = reactor->shard;
    PyObject *list = PyList_New(0);
    const struct topic *topic = shard_topic(shard, name, (size_t)name_len);
    for (uint32_t i = 0; topic && list && i < shard->slice_count; i++) {
        const uint32_t slice = shard->slice_first + i;
        uint32_t epoch;
        uint64_t seq;
        if (shard_producer(shard, topic, slice, (const uint8_t *)id, &epoch, &seq))
            py_append(&list, Py_BuildValue("(IIK)", slice, epoch, (unsigned long long)seq));
    }
    return list;
}

static PyObject *Reactor_shard_slices(PyObject *self, PyObject *none)
{
    struct reactor *reactor = reactor_of(self);
    if (reactor == NULL)
        return NULL;
    return Py_BuildValue("(II)", reactor->shard->slice_first, reactor->shard->slice_count);
}

static PyObject *Reactor_topic_set(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    const char *name, *compression = NULL;
    Py_ssize_t name_len;
    int exists, any_time = 0, checked = 0, packing;
    if (reactor == NULL ||
        !PyArg_ParseTuple(args, "s#p|zpp", &name, &name_len, &exists, &compression, &any_time,
                          &checked) ||
        (packing = compression_number(compression)) < 0)
        return NULL;
    struct topic *topic = shard_topic_make(reactor->shard, name, (size_t)name_len);
    if (topic == NULL)
        return PyErr_Format(PyExc_ValueError, "the topic cannot be made: name or number of topics");
    topic->declared = exists;
    topic->compression = (uint8_t)packing;
    topic->any_time = any_time;
    topic->checked = checked;
    Py_RETURN_NONE;
}

static PyObject *Reactor_time_plausible(PyObject *self, PyObject *number)
{
    struct reactor *reactor = reactor_of(self);
    const long long time_us = reactor ? PyLong_AsLongLong(number) : 0;
    if (reactor == NULL || PyErr_Occurred())
        return NULL;
    return PyBool_FromLong(log_time_plausible(reactor->log, reactor->loop.wall_us, time_us));
}

static PyObject *Reactor_truncate_stream(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    const char *name;
    Py_ssize_t name_len;
    unsigned slice;
    unsigned long long start;
    if (reactor == NULL || !PyArg_ParseTuple(args, "s#IK", &name, &name_len, &slice, &start))
        return NULL;
    struct stream *stream = find_stream(reactor, name, name_len, slice);
    if (stream != NULL && start > stream->start_offset && start <= stream->next_offset)
        stream->start_offset = start;
    Py_RETURN_NONE;
}

/* ---- the index of a segment, sidecar body ---- */

#define SIDECAR_STREAM_BYTES 176
#define SIDECAR_ENTRY_BYTES 32

struct found {
    const struct stream *stream;
    uint32_t first, count;
};

static int by_topic_and_slice(const void *left, const void *right)
{
    const struct stream *a = ((const struct found *)left)->stream;
    const struct stream *b = ((const struct found *)right)->stream;
    int order = strcmp(a->topic->name, b->topic->name);
    return order ? order : (a->slice > b->slice) - (a->slice < b->slice);
}

/* Every stream with entries in the segment; *entries counts them. NULL without memory. */
static struct found *find_all(const struct reactor *reactor, const struct segment *segment,
                              uint32_t *streams, uint32_t *entries)
{
    const struct shard *shard = reactor->shard;
    size_t most = (size_t)shard->topic_count * shard->slice_count;
    struct found *found = PyMem_Malloc((most + 1) * sizeof *found);
    uint64_t end = segment->base_pos + segment->used;
    *streams = *entries = 0;
    for (uint32_t t = 0; found != NULL && t < shard->topic_count; t++) {
        for (uint32_t s = 0; s < shard->slice_count; s++) {
            const struct stream *stream = shard->topics[t]->streams[s];
            uint32_t first = 0, count = 0;
            for (uint32_t i = 0; stream != NULL && i < stream->entry_count; i++) {
                if (stream->entries[i].log_pos < segment->base_pos)
                    first++;
                else if (stream->entries[i].log_pos < end)
                    count++;
                else
                    break;
            }
            if (count > 0)
                found[(*streams)++] = (struct found){stream, first, count};
            *entries += count;
        }
    }
    if (found != NULL)
        qsort(found, *streams, sizeof *found, by_topic_and_slice);
    return found;
}

static void put_stream(uint8_t *out, const struct found *found, uint32_t first_entry)
{
    const struct stream *stream = found->stream;
    const struct index_entry *first = &stream->entries[found->first];
    const struct index_entry *last = first + found->count - 1;
    memset(out, 0, SIDECAR_STREAM_BYTES);
    out[0] = stream->topic->name_len;
    memcpy(out + 1, stream->topic->name, stream->topic->name_len);
    uint32_t numbers[4] = {stream->slice, first_entry, found->count, 0};
    uint64_t bounds[2] = {first->base_offset, last->base_offset + last->count};
    int64_t times[2] = {first->max_timestamp, last->max_timestamp};
    memcpy(out + 128, numbers, 16);
    memcpy(out + 144, bounds, 16);
    memcpy(out + 160, times, 16);
}

static void put_entry(uint8_t *out, const struct index_entry *entry, const struct segment *segment)
{
    uint32_t place[4] = {(uint32_t)((entry->log_pos - segment->base_pos) / 8), entry->stored_bytes,
                         entry->count, entry->appended_s};
    memcpy(out, &entry->base_offset, 8);
    memcpy(out + 8, place, 16);
    memcpy(out + 24, &entry->max_timestamp, 8);
}

static PyObject *Reactor_export_index(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    unsigned index;
    if (reactor == NULL || !PyArg_ParseTuple(args, "I", &index))
        return NULL;
    const struct segment *segment = log_segment(reactor->log, index);
    if (segment == NULL)
        return PyErr_Format(PyExc_ValueError, "segment %u is not known", index);
    uint32_t streams, entries;
    struct found *found = find_all(reactor, segment, &streams, &entries);
    if (found == NULL)
        return PyErr_NoMemory();
    size_t bytes = 8 + (size_t)streams * SIDECAR_STREAM_BYTES +
                   (size_t)entries * SIDECAR_ENTRY_BYTES;
    PyObject *body = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes);
    if (body != NULL) {
        uint8_t *out = (uint8_t *)PyBytes_AS_STRING(body);
        uint32_t counts[2] = {streams, entries}, at = 0;
        memcpy(out, counts, 8);
        uint8_t *table = out + 8, *rows = table + (size_t)streams * SIDECAR_STREAM_BYTES;
        for (uint32_t s = 0; s < streams; s++) {
            put_stream(table + (size_t)s * SIDECAR_STREAM_BYTES, &found[s], at);
            for (uint32_t i = 0; i < found[s].count; i++, at++)
                put_entry(rows + (size_t)at * SIDECAR_ENTRY_BYTES,
                          &found[s].stream->entries[found[s].first + i], segment);
        }
    }
    PyMem_Free(found);
    return body;
}

/* The fields of storage's SegmentSummary, in its order. */
static PyObject *Reactor_segment_summary(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    unsigned index;
    if (reactor == NULL || !PyArg_ParseTuple(args, "I", &index))
        return NULL;
    const struct segment *s = log_segment(reactor->log, index);
    if (s == NULL || s->used == 0)
        return PyErr_Format(PyExc_ValueError, "segment %u is not known, or empty", index);
    return Py_BuildValue("(IKKIIKKK)", s->index, (unsigned long long)s->first_gseq,
                         (unsigned long long)s->last_gseq, s->first_prev_crc, s->last_header_crc,
                         (unsigned long long)s->used, (unsigned long long)s->min_time_us,
                         (unsigned long long)s->max_time_us);
}

static PyObject *Reactor_drop_index(PyObject *self, PyObject *args)
{
    struct reactor *reactor = reactor_of(self);
    unsigned index;
    if (reactor == NULL || !PyArg_ParseTuple(args, "I", &index))
        return NULL;
    log_drop_segment(reactor->log, index);
    Py_RETURN_NONE;
}

static PyObject *Reactor_log_state(PyObject *self, PyObject *none)
{
    struct reactor *reactor = reactor_of(self);
    if (reactor == NULL)
        return NULL;
    const struct log *log = reactor->log;
    const struct segment *current = log->current >= 0 ? &log->segments[log->current] : NULL;
    return Py_BuildValue("{s:K,s:K,s:I,s:K,s:O,s:K,s:I,s:i,s:K,s:O,s:L}", "gseq",
                         (unsigned long long)(log->next_gseq - 1), "stable_gseq",
                         (unsigned long long)log->stable_gseq, "stable_crc", log->stable_crc,
                         "committed",
                         (unsigned long long)log_committed(log), "settled",
                         log_settled(log) ? Py_True : Py_False, "epoch",
                         (unsigned long long)log->options.epoch, "header_crc", log->prev_crc,
                         "segment", current ? (int)current->index : -1, "segment_used",
                         (unsigned long long)(current ? current->used : 0), "failed",
                         log->failed ? Py_True : Py_False, "clock_us", (long long)log->clock_us);
}

static PyObject *Reactor_clock_us(PyObject *self, PyObject *none)
{
    struct reactor *reactor = reactor_of(self);
    return reactor == NULL ? NULL : PyLong_FromLongLong((long long)reactor->log->clock_us);
}

static const struct feeds *feeds_of(const struct reactor *reactor)
{
    static const struct feeds none_yet;
    return reactor->feeds != NULL ? reactor->feeds : &none_yet;
}

static struct tls_figures tls_of(const struct reactor *reactor)
{
    const struct tls_figures *known = tls_figures(&reactor->loop);
    return known != NULL ? *known : (struct tls_figures){0};
}

static PyObject *Reactor_stats(PyObject *self, PyObject *none)
{
    struct reactor *reactor = reactor_of(self);
    if (reactor == NULL)
        return NULL;
    const struct log *log = reactor->log;
    const struct feeds *feeds = feeds_of(reactor);
    const struct tls_figures tls = tls_of(reactor);
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {
        {"requests", reactor->requests}, {"produce_requests", reactor->produce_requests},
        {"control_requests", reactor->control_requests}, {"problems", reactor->problems},
        {"over_quota", reactor->over_quota},
        {"feeds", feeds->count}, {"feed_bytes", feeds->bytes}, {"listeners", feeds->hearers},
        {"listener_bytes_out", feeds->heard_bytes},
        {"connections", reactor->loop.conn_count},
        {"connections_total", reactor->loop.connections_total},
        {"aborted_requests", reactor->aborted},
        {"handed_out", reactor->handed_out}, {"handed_in", reactor->handed_in},
        {"calls_waiting", reactor->park.count}, {"calls_waited", reactor->park.waited},
        {"calls_given_back", reactor->park.given_back}, {"calls_given_up", reactor->park.expired},
        {"duplicates", reactor->duplicates},
        {"format_wanted", reactor->format_wanted},
        {"body_bytes_in", reactor->bytes_in},
        {"bytes_out", reactor->loop.bytes_out},
        {"events", log->events},
        {"events_followed", log->followed_events},
        {"value_bytes", log->value_bytes},
        {"chunks", log->chunks},
        {"groups", log->groups},
        {"group_bytes", log->group_bytes},
        {"groups_followed", reactor->intake.groups},
        {"acknowledgement_bytes", reactor->intake.sent_bytes},
        {"queued_bytes", log->queued_bytes},
        {"in_flight_bytes", log->in_flight_bytes},
        {"held_bytes", log->held_bytes}, {"held_groups", log->held_count},
        {"answer_bytes", outputs_foreign_bytes()},
        {"body_memory_bytes", reactor->body_bytes},
        {"control_open", reactor->control_open},
        {"index_entries", reactor->shard->entries_total},
        {"topics", reactor->shard->topic_count},
        {"producers", reactor->shard->producer_count},
        {"state_bytes", shard_state_bytes(reactor->shard)},
        {"state_full", shard_full(reactor->shard)}, {"disk_full", reactor_disk_full(reactor)},
        {"connection_bytes", reactor->input_bytes + outputs_own_bytes()},
        {"connections_shed", reactor->shed},
        {"connections_idle_closed", reactor->admission.ousted},
        {"connections_refused", reactor->admission.refused},
        {"tls_handshakes", tls.handshakes},
        {"tls_handshakes_resumed", tls.resumed},
        {"tls_handshakes_failed", tls.failed},
        {"tls_handshakes_late", tls.late},
        {"tls_handshakes_refused", tls.refused},
        {"tls_handshakes_open", tls.under_way},
        {"tls_handshakes_waiting", tls.in_line},
        {"tls_plain_refused", tls.plain},
        {"tls_cuts", tls.cut},
        {"tls_kernel_connections", tls.kernel},
        {"turns", reactor->loop.turns},
    };
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict != NULL && i < sizeof rows / sizeof *rows; i++) {
        PyObject *value = PyLong_FromUnsignedLongLong(rows[i].value);
        if (value == NULL || PyDict_SetItemString(dict, rows[i].name, value) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(value);
    }
    return dict;
}

/* barco/_native.pyi says what they do. */
PyMethodDef reactor_read_methods[] = {
    {"tail_read", Reactor_tail_read, METH_VARARGS, NULL},
    {"locate", Reactor_locate, METH_VARARGS, NULL},
    {"locate_timestamp", Reactor_locate_timestamp, METH_VARARGS, NULL},
    {"locate_appended", Reactor_locate_appended, METH_VARARGS, NULL},
    {"streams", Reactor_streams, METH_VARARGS, NULL},
    {"stream_ends", Reactor_stream_ends, METH_VARARGS, NULL},
    {"compacted", Reactor_compacted, METH_VARARGS, NULL},
    {"producer", Reactor_producer, METH_VARARGS, NULL},
    {"shard_slices", Reactor_shard_slices, METH_NOARGS, NULL},
    {"topic_set", Reactor_topic_set, METH_VARARGS, NULL},
    {"time_plausible", Reactor_time_plausible, METH_O, NULL},
    {"truncate_stream", Reactor_truncate_stream, METH_VARARGS, NULL},
    {"export_index", Reactor_export_index, METH_VARARGS, NULL},
    {"segment_summary", Reactor_segment_summary, METH_VARARGS, NULL},
    {"drop_index", Reactor_drop_index, METH_VARARGS, NULL},
    {"log_state", Reactor_log_state, METH_NOARGS, NULL},
    {"clock_us", Reactor_clock_us, METH_NOARGS, NULL},
    {"stats", Reactor_stats, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
