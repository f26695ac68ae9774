/* The produce path: head -> topic, key, slice; body -> runs; stable -> answer. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "loop/conn.h"
#include "format/format.h"
#include "base/murmur3.h"
#include "broker/reactor.h"
#include "http/uri.h"

#define PRODUCER_NAME_MAX 64
#define STAGING_BYTES (128u << 10)
#define STAGED_BYTES_MAX (4u << 10) /* larger events cost no more than their own copy */

static bool parse_u64(const struct http1_slice *text, uint64_t *value)
{
    uint64_t result = 0;
    if (text->len == 0 || text->len > 19)
        return false;
    for (uint32_t i = 0; i < text->len; i++) {
        if (text->p[i] < '0' || text->p[i] > '9')
            return false;
        result = result * 10 + (uint64_t)(text->p[i] - '0');
    }
    *value = result;
    return true;
}

static bool slice_is(const struct http1_slice *text, const char *lower, size_t len)
{
    if (text->len != len)
        return false;
    for (size_t i = 0; i < len; i++)
        if ((text->p[i] | 0x20) != lower[i] && text->p[i] != lower[i])
            return false;
    return true;
}

#define IS(text, literal) slice_is(text, literal, sizeof(literal) - 1)

/* The media type without its parameters: "application/x-ndjson; charset=utf-8" is NDJSON too. */
static uint8_t content_of(struct http1_slice type)
{
    const char *semicolon = memchr(type.p, ';', type.len);
    if (semicolon != NULL)
        type.len = (uint32_t)(semicolon - type.p);
    while (type.len > 0 && (type.p[type.len - 1] == ' ' || type.p[type.len - 1] == '\t'))
        type.len--;
    if (IS(&type, "application/x-ndjson"))
        return CONTENT_LINES;
    if (IS(&type, "application/vnd.barco.batch"))
        return CONTENT_BATCH;
    return CONTENT_EVENT;
}

/* 128 bits of the id's hash: ids are compared by it. */
static void hash_producer(const char *name, size_t len, struct produce *out)
{
    uint8_t salted[PRODUCER_NAME_MAX + 1];
    int64_t halves[2];
    memcpy(salted, name, len);
    salted[len] = 0xff;
    halves[0] = murmur3_token(name, len);
    halves[1] = murmur3_token(salted, len + 1);
    memcpy(out->producer_id, halves, PRODUCER_ID_BYTES);
    out->producer_token = halves[0];
    out->has_producer = true;
}

struct producer_headers {
    struct http1_slice id, epoch, seq, once;
};

static uint16_t read_producer(const struct producer_headers *headers, struct produce *out)
{
    uint64_t epoch;
    if (headers->once.p != NULL && headers->id.p == NULL) {
        if (headers->once.len == 0 || headers->once.len > PRODUCER_NAME_MAX)
            return PROBLEM_BAD_PRODUCER;
        out->one_shot = true;
        hash_producer(headers->once.p, headers->once.len, out);
        out->producer_id[0] ^= 0x5a; /* never a Producer-Id that is spelled the same */
        return PROBLEM_NONE;
    }
    if (headers->id.p == NULL && headers->epoch.p == NULL && headers->seq.p == NULL)
        return PROBLEM_NONE;
    if (headers->id.p == NULL || headers->epoch.p == NULL || headers->seq.p == NULL ||
        headers->once.p != NULL || headers->id.len == 0 || headers->id.len > PRODUCER_NAME_MAX ||
        !parse_u64(&headers->epoch, &epoch) || epoch > UINT32_MAX ||
        !parse_u64(&headers->seq, &out->producer_seq))
        return PROBLEM_BAD_PRODUCER;
    out->producer_epoch = (uint32_t)epoch;
    hash_producer(headers->id.p, headers->id.len, out);
    return PROBLEM_NONE;
}

/* One pass over the fields: length and first letter sort out nearly all of them. */
static uint16_t read_headers(const struct http1_request *head, struct produce *out)
{
    struct producer_headers producer = {0};
    for (uint16_t i = 0; i < head->header_count; i++) {
        const struct http1_slice *name = &head->headers[i].name;
        const struct http1_slice *value = &head->headers[i].value;
        switch (name->len) {
        case 6:
            if (IS(name, "prefer"))
                out->minimal = IS(value, "return=minimal");
            break;
        case 11:
            if (IS(name, "producer-id"))
                producer.id = *value;
            break;
        case 12:
            if (IS(name, "content-type"))
                out->content = content_of(*value);
            else if (IS(name, "producer-seq"))
                producer.seq = *value;
            break;
        case 14:
            if (IS(name, "producer-epoch"))
                producer.epoch = *value;
            break;
        case 15:
            if (IS(name, "idempotency-key"))
                producer.once = *value;
            break;
        case 16:
            if (IS(name, "content-encoding") && !IS(value, "identity"))
                return PROBLEM_ENCODING;
            if (IS(name, "barco-no-forward"))
                out->no_forward = value->len == 1 && value->p[0] == '1';
            break;
        default:
            break;
        }
    }
    return read_producer(&producer, out);
}

static uint16_t read_key(struct conn *conn, const struct http1_slice *raw, struct produce *out)
{
    uint8_t *room = conn->reactor->key_scratch;
    int key_len = uri_decode(raw->p, raw->len, true, (char *)room, HTTP1_HEAD_BYTES_MAX);
    if (key_len < 0)
        return key_len == -3 ? PROBLEM_BAD_KEY : PROBLEM_BAD_QUERY;
    out->has_key = true;
    out->key = room;
    out->key_len = (uint32_t)key_len;
    out->key_token = murmur3_token(room, (size_t)key_len);
    return PROBLEM_NONE;
}

/* The start of a token range, as answers spell it. */
static bool parse_range(const struct reactor *reactor, const struct http1_slice *text,
                        uint32_t *range)
{
    struct http1_slice digits = *text;
    bool negative = digits.len > 0 && digits.p[0] == '-';
    uint64_t number;
    if (negative) {
        digits.p++;
        digits.len--;
    }
    if (!parse_u64(&digits, &number) || number > (uint64_t)INT64_MAX + negative)
        return false;
    int64_t token = (int64_t)(negative ? 0 - number : number);
    *range = place_of_token(reactor, token) >> reactor->options.slice_shift;
    return range_token(reactor, *range) == token;
}

/* slice=, of the token range that token= names, or of this process's own. */
static uint16_t read_place(const struct reactor *reactor, const char *query, size_t len,
                           struct produce *out)
{
    struct http1_slice raw;
    uint64_t number;
    uint32_t range = reactor->options.range_index;
    int found = uri_query_get(query, len, "token", &raw);
    if (found < 0)
        return PROBLEM_BAD_QUERY;
    if (found && !parse_range(reactor, &raw, &range))
        return PROBLEM_BAD_SLICE;
    found = uri_query_get(query, len, "slice", &raw);
    if (found < 0)
        return PROBLEM_BAD_QUERY;
    if (found && (!parse_u64(&raw, &number) || number >= reactor->options.slices))
        return PROBLEM_BAD_SLICE;
    if (found)
        out->place = (range << reactor->options.slice_shift) + (int64_t)number;
    return PROBLEM_NONE;
}

static uint16_t read_query(struct conn *conn, const struct http1_request *head, struct produce *out)
{
    static const char *const names[] = {"partitionKey", "slice", "token", "timestamp", NULL};
    struct http1_slice raw;
    uint64_t number;
    const char *query = head->query.p;
    size_t len = head->query.len;
    if (uri_query_unknown(query, len, names))
        return PROBLEM_UNKNOWN_NAME;
    int found = uri_query_get(query, len, "partitionKey", &raw);
    if (found < 0)
        return PROBLEM_BAD_QUERY;
    uint16_t problem = found ? read_key(conn, &raw, out) : PROBLEM_NONE;
    if (problem != PROBLEM_NONE)
        return problem;
    found = uri_query_get(query, len, "timestamp", &raw);
    if (found < 0)
        return PROBLEM_BAD_QUERY;
    if (found && (!parse_u64(&raw, &number) || number == 0 || number > TIMESTAMP_MAX))
        return PROBLEM_BAD_TIMESTAMP;
    if (found)
        out->timestamp = (int64_t)number;
    return read_place(conn->reactor, query, len, out);
}

/* The usual query is one plain partitionKey, or none: it need not be searched three times. */
static uint16_t read_query_fast(struct conn *conn, const struct http1_request *head,
                                struct produce *out)
{
    static const char name[] = "partitionKey=";
    const char *query = head->query.p;
    size_t len = head->query.len;
    if (query == NULL || len == 0)
        return PROBLEM_NONE;
    if (len < sizeof name - 1 || memcmp(query, name, sizeof name - 1) != 0 ||
        memchr(query, '&', len) != NULL)
        return read_query(conn, head, out);
    struct http1_slice raw = {query + sizeof name - 1, (uint32_t)(len - (sizeof name - 1))};
    return read_key(conn, &raw, out);
}

uint16_t produce_head(struct conn *conn, const struct http1_request *head, struct http1_slice topic,
                      struct slot *slot, struct produce *out)
{
    struct reactor *reactor = conn->reactor;
    memset(out, 0, sizeof *out);
    out->place = -1;
    if (!topic_name_valid(topic.p, topic.len))
        return PROBLEM_BAD_TOPIC;
    if (topic_name_reserved(topic.p, topic.len))
        return PROBLEM_RESERVED_TOPIC;
    uint16_t problem = read_headers(head, out);
    if (problem == PROBLEM_NONE)
        problem = read_query_fast(conn, head, out);
    if (problem == PROBLEM_NONE && out->content == CONTENT_BATCH && out->has_key)
        problem = PROBLEM_BAD_QUERY; /* a batch carries its keys inside */
    if (problem != PROBLEM_NONE)
        return problem;
    /* In a cluster this process need not lead anything to take events in. */
    bool ready = reactor->options.ring_size == 1 ? reactor->log->open : reactor->routed;
    if (reactor->draining || reactor->io_failed || !ready)
        return PROBLEM_NOT_READY;
    if (reactor->disk_full && reactor->options.ring_size == 1)
        return PROBLEM_DISK_FULL;
    out->topic = shard_topic(reactor->shard, topic.p, topic.len);
    if (!reactor->options.auto_create && reactor->options.ring_size == 1 &&
        (out->topic == NULL || !out->topic->declared))
        return PROBLEM_UNKNOWN_TOPIC; /* in a cluster only the slice's leader is sure of it */
    if (out->topic == NULL)
        out->topic = shard_topic_asked(reactor->shard, topic.p, topic.len);
    if (out->topic == NULL)
        return PROBLEM_TOO_MANY_TOPICS;
    slot->topic = out->topic;
    slot->minimal = out->minimal;
    return PROBLEM_NONE;
}

/* ---- bodies ---- */

static bool is_blank(const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (bytes[i] != ' ' && bytes[i] != '\t' && bytes[i] != '\r')
            return false;
    return true;
}

/* Puts the lines one behind the other to out, which may be where they are, without their ends;
 * blank ones are left out. Returns their number, or -1 with *line set to the number of the line
 * that is too long. */
static int64_t pack_lines(const uint8_t *bytes, size_t len, uint64_t event_max, uint8_t *out,
                          uint32_t *lens, uint64_t *total, uint64_t *line)
{
    int64_t count = 0;
    const uint8_t *at = bytes, *end = bytes + len, *start = out;
    *line = 0;
    while (at < end) {
        const uint8_t *stop = memchr(at, '\n', (size_t)(end - at));
        const uint8_t *next = stop ? stop + 1 : end;
        if (stop == NULL)
            stop = end;
        ++*line;
        if (stop > at && stop[-1] == '\r')
            stop--;
        size_t size = (size_t)(stop - at);
        if (size > event_max)
            return -1;
        if (size > 0 && (*at > ' ' || !is_blank(at, size))) {
            if (out != at)
                memmove(out, at, size);
            out += size;
            lens[count++] = (uint32_t)size;
        }
        at = next;
    }
    *total = (uint64_t)(out - start);
    return count;
}

static void copy_producer(struct run *run, const struct produce *produce)
{
    run->has_producer = produce->has_producer;
    memcpy(run->producer_id, produce->producer_id, PRODUCER_ID_BYTES);
    run->producer_epoch = produce->producer_epoch;
    run->producer_seq = produce->producer_seq;
}

/* A timestamp that its topic does not take, or 0: the run's first or last, or, of rows, that of the
 * whole batch which is the furthest off. Only who leads the slice is sure of the topic. */
static int64_t far_timestamp(const struct reactor *reactor, const struct produce *produce,
                             const struct run *run)
{
    if (run->timestamp == 0 || run->stream->topic->any_time)
        return 0;
    const int64_t times[] = {run->timestamp, run->max_timestamp,
                             produce->content == CONTENT_ROWS ? produce->timestamp : 0};
    for (int i = 0; i < 3; i++)
        if (times[i] != 0 && !log_time_plausible(reactor->log, reactor->wall_us, times[i]))
            return times[i];
    return 0;
}

uint16_t queue_run(struct reactor *reactor, const struct produce *produce, struct run *run,
                          uint64_t *detail)
{
    if (run_bound(run) > log_run_bound_max(reactor->log)) {
        run_free(run);
        *detail = 0;
        return PROBLEM_BODY_TOO_LARGE;
    }
    int64_t far_us = far_timestamp(reactor, produce, run);
    if (far_us != 0 && produce->has_producer && /* what is stored is not refused afterwards */
        shard_has_sequence(reactor->shard, run->stream, produce->producer_id,
                           produce->producer_epoch, produce->producer_seq))
        far_us = 0;
    if (far_us != 0 && (!produce->has_producer || !reactor->log->gated)) {
        run_free(run);
        *detail = (uint64_t)far_us;
        return PROBLEM_FAR_TIMESTAMP;
    }
    if (!produce->has_producer) {
        log_enqueue(reactor->log, run);
        return PROBLEM_NONE;
    }
    struct producer *row;
    enum dedup verdict = DEDUP_FULL;
    if (far_us != 0)
        verdict = DEDUP_FAR;
    else if (shard_takes_producer(reactor->shard, run->stream, produce->producer_id))
        verdict = shard_dedup(reactor->shard, run->stream, produce->producer_id,
                              produce->producer_epoch, produce->producer_seq, produce->one_shot,
                              reactor->log->clock_us, &row, detail);
    uint16_t problem = PROBLEM_NONE;
    switch (verdict) {
    case DEDUP_NEW:
        row->last_seq = produce->producer_seq;
        copy_producer(run, produce);
        break;
    case DEDUP_DUPLICATE:
        reactor->duplicates++;
        run->count = run->bytes = 0; /* waits in its place behind the original */
        run->sealed = false;
        break;
    case DEDUP_FAR:
        problem = PROBLEM_FAR_TIMESTAMP;
        *detail = (uint64_t)far_us;
        break;
    case DEDUP_STALE_EPOCH: problem = PROBLEM_STALE_EPOCH; break;
    case DEDUP_GAP: problem = PROBLEM_GAP; break;
    case DEDUP_FULL: problem = PROBLEM_TOO_MANY_TOPICS; break;
    }
    if (problem != PROBLEM_NONE && (!reactor->log->gated || verdict == DEDUP_FULL)) {
        run_free(run);
        return problem;
    }
    if (problem != PROBLEM_NONE) { /* final for the client, so it has to be the leader's word */
        run->count = run->bytes = 0;
        run->sealed = false;
        assert(problem <= UINT8_MAX);
        run->problem = (uint8_t)problem;
        run->producer_seq = *detail;
    }
    log_enqueue(reactor->log, run);
    return PROBLEM_NONE;
}

static struct run *new_run(struct reactor *reactor, const struct produce *produce, uint32_t place,
                           struct waiter waiter, size_t extra)
{
    uint32_t slice = place & (reactor->options.slices - 1);
    struct stream *stream = shard_stream(reactor->shard, produce->topic, slice);
    struct run *run = stream ? run_new(stream, extra) : NULL;
    if (run == NULL)
        return NULL;
    run->waiter = waiter;
    run->timestamp = run->max_timestamp = produce->timestamp;
    int64_t token = place_token(reactor, place);
    if (produce->has_key)
        token = produce->key_token;
    run->token_min = run->token_max = token;
    return run;
}

static void set_key(struct run *run, const struct produce *produce, uint8_t *room)
{
    if (!produce->has_key)
        return;
    memcpy(room, produce->key, produce->key_len);
    run->keys = room;
    run->key_len = produce->key_len;
}

/* Copies a small event behind the last one of its slice, so that one stream's lie in a row. Returns
 * it, with a reference on *body for the run. */
static const uint8_t *stage(struct reactor *reactor, uint32_t slice, const uint8_t *bytes,
                            size_t len, struct body **body)
{
    struct body **lane = &reactor->staging[slice % STAGING_LANES];
    if (*lane != NULL && (*lane)->refs == 1)
        (*lane)->len = 0; /* nobody looks at what is in it any more */
    if (*lane == NULL || (*lane)->capacity - (*lane)->len < len) {
        struct body *next = body_new(&reactor->staging_bytes, STAGING_BYTES);
        if (next == NULL)
            return NULL;
        if (*lane != NULL)
            body_release(*lane);
        *lane = next;
    }
    uint8_t *place = (*lane)->data + (*lane)->len;
    memcpy(place, bytes, len);
    (*lane)->len += len;
    (*lane)->refs++;
    *body = *lane;
    return place;
}

static uint16_t event_run(struct reactor *reactor, const struct produce *produce, uint32_t place,
                          struct waiter waiter, const uint8_t *bytes, size_t len,
                          struct body *body, uint64_t *detail)
{
    if (len == 0 && waiter.kind != WAITER_APPEND) /* the broker's own: "this key is no more" */
        return PROBLEM_NO_EVENTS;
    if (len > reactor->options.event_bytes_max)
        return PROBLEM_EVENT_TOO_LARGE;
    size_t key_len = produce->has_key ? produce->key_len : 0;
    bool staged = body == NULL && len <= STAGED_BYTES_MAX;
    struct run *run = new_run(reactor, produce, place, waiter,
                              key_len + (body || staged ? 0 : len));
    if (run == NULL)
        return PROBLEM_BUSY;
    set_key(run, produce, run->tail);
    run->count = 1;
    run->value_len = (uint32_t)len;
    run->bytes = (uint32_t)(len + key_len);
    if (staged) {
        run->values = stage(reactor, run->stream->slice, bytes, len, &run->body);
        if (run->values == NULL) {
            run_free(run);
            return PROBLEM_BUSY;
        }
    } else if (body != NULL) {
        run->body = body;
        body->refs++;
        run->values = bytes;
    } else {
        memcpy(run->tail + key_len, bytes, len);
        run->values = run->tail + key_len;
    }
    return queue_run(reactor, produce, run, detail);
}

/* A body that lies in the receive buffer is copied: its runs outlive the buffer. */
struct body *own_body(struct reactor *reactor, const uint8_t **bytes, size_t len,
                             struct body *body)
{
    if (body != NULL) {
        body->refs++;
        return body;
    }
    body = body_new(&reactor->body_bytes, len);
    if (body == NULL)
        return NULL;
    memcpy(body->data, *bytes, len);
    body->len = len;
    *bytes = body->data;
    return body;
}

static uint16_t lines_run(struct reactor *reactor, const struct produce *produce, uint32_t place,
                          struct waiter waiter, const uint8_t *bytes, size_t len,
                          struct body *body, uint64_t *detail)
{
    /* A blank line takes no length, so half of the bytes bound the number of events. */
    uint32_t *lens = (uint32_t *)reactor_scratch(reactor, (len / 2 + 2) * sizeof *lens);
    uint64_t total;
    if (body != NULL) {
        assert(bytes == body->data);
        body->refs++;
    } else {
        body = body_new(&reactor->body_bytes, len);
    }
    if (lens == NULL || body == NULL) {
        if (body != NULL)
            body_release(body);
        return PROBLEM_BUSY;
    }
    /* In the request's own body the lines are packed where they are: nobody else reads it. */
    int64_t count = pack_lines(bytes, len, reactor->options.event_bytes_max, body->data, lens,
                               &total, detail);
    uint16_t problem = count < 0 ? PROBLEM_EVENT_TOO_LARGE : count == 0 ? PROBLEM_NO_EVENTS : 0;
    size_t key_len = produce->has_key ? produce->key_len : 0;
    size_t lens_bytes = count > 0 ? pad8((size_t)count * sizeof *lens) : 0;
    /* Every line is stored with the key: short lines with a long key are more than they look. */
    if (problem == PROBLEM_NONE) {
        *detail = 0;
        if (total + key_len * (uint64_t)count > log_run_bound_max(reactor->log))
            problem = PROBLEM_BODY_TOO_LARGE;
    }
    struct run *run = NULL;
    if (problem == PROBLEM_NONE) {
        run = new_run(reactor, produce, place, waiter, lens_bytes + key_len);
        problem = run ? PROBLEM_NONE : PROBLEM_BUSY;
    }
    if (problem != PROBLEM_NONE) {
        body_release(body);
        return problem;
    }
    memcpy(run->tail, lens, (size_t)count * sizeof *lens);
    set_key(run, produce, run->tail + lens_bytes);
    run->body = body;
    run->value_lens = (const uint32_t *)run->tail;
    run->values = body->data;
    run->count = (uint32_t)count;
    run->bytes = (uint32_t)(total + key_len * (uint64_t)count);
    return queue_run(reactor, produce, run, detail);
}

uint16_t produce_slice(struct reactor *reactor, const struct produce *produce, uint32_t place,
                       struct waiter waiter, const uint8_t *bytes, size_t len, struct body *body,
                       uint64_t *detail)
{
    if (!reactor->log->open || reactor->draining || reactor->io_failed)
        return PROBLEM_NOT_READY;
    if (reactor->disk_full && waiter.kind != WAITER_APPEND)
        return PROBLEM_DISK_FULL;
    if (!reactor->options.auto_create && waiter.kind != WAITER_APPEND && !produce->topic->declared)
        return PROBLEM_UNKNOWN_TOPIC;
    switch (produce->content) {
    case CONTENT_EVENT:
        return event_run(reactor, produce, place, waiter, bytes, len, body, detail);
    case CONTENT_LINES:
        return lines_run(reactor, produce, place, waiter, bytes, len, body, detail);
    default:
        return batch_run(reactor, produce, place, waiter, bytes, len, body, detail);
    }
}

/* The place of a call without keys of its own: asked for, by key, by producer, or turn by turn. */
uint16_t choose_place(struct reactor *reactor, const struct produce *produce, uint32_t *place)
{
    if (produce->has_key) {
        *place = place_of_token(reactor, produce->key_token);
        return produce->place >= 0 && produce->place != *place ? PROBLEM_BAD_SLICE : 0;
    }
    if (produce->place >= 0)
        *place = (uint32_t)produce->place;
    else if (produce->has_producer)
        *place = place_of_token(reactor, produce->producer_token);
    else
        *place = place_for_keyless(reactor);
    return PROBLEM_NONE;
}

uint16_t produce_body(struct reactor *reactor, const struct produce *produce, struct waiter waiter,
                      struct slot *slot, const uint8_t *bytes, size_t len, struct body *body,
                      uint64_t *detail)
{
    uint32_t place;
    slot->waiting = slot->part_count = 1;
    if (produce->content == CONTENT_BATCH && !produce->has_key)
        return batch_produce(reactor, produce, waiter, slot, bytes, len, body, detail);
    uint16_t problem = choose_place(reactor, produce, &place);
    if (problem != PROBLEM_NONE)
        return problem;
    return produce_to(reactor, produce, place, waiter, bytes, len, body, detail);
}

uint16_t produce_to(struct reactor *reactor, const struct produce *produce, uint32_t place,
                    struct waiter waiter, const uint8_t *bytes, size_t len, struct body *body,
                    uint64_t *detail)
{
    uint32_t shard = shard_of_place(reactor, place);
    int32_t leader = reactor->routes[shard].peer;
    if (leader == (int32_t)reactor->options.peer)
        return produce_slice(reactor, produce, place, waiter, bytes, len, body, detail);
    if (leader == ROUTE_NONE)
        return PROBLEM_NO_LEADER;
    if (produce->no_forward) {
        *detail = shard;
        return PROBLEM_MISDIRECTED;
    }
    return handoff_send(reactor, (uint32_t)leader, produce, place, waiter, bytes, len);
}

/* ---- answers ---- */

void slot_part_done(struct reactor *reactor, const struct waiter *waiter, uint16_t problem,
                    bool duplicate, const struct part *part, uint64_t detail)
{
    struct conn *conn = reactor_conn(reactor, waiter->conn);
    struct slot *slot = conn && !conn->closed ? conn_slot(conn, waiter->slot) : NULL;
    if (slot == NULL || slot->kind != SLOT_OPEN)
        return; /* the client is gone */
    if (problem != PROBLEM_NONE) {
        /* Parts that are stored make a refused part's outcome "unknown" for the whole. All of them
         * are refused for a timestamp that one of them has. */
        bool alone = slot->part_count == 1, first = slot->part_count == slot->waiting;
        bool alike = problem == PROBLEM_FAR_TIMESTAMP && (first || slot->problem == problem);
        slot->problem = alone || alike ? problem : PROBLEM_UNKNOWN_OUTCOME;
        slot->expected = detail;
    } else if (slot->part_count == 1) {
        slot->part = *part;
    } else {
        if (slot->problem == PROBLEM_FAR_TIMESTAMP)
            slot->problem = PROBLEM_UNKNOWN_OUTCOME;
        slot->parts[slot->part_count - slot->waiting] = *part;
    }
    if (--slot->waiting > 0)
        return;
    if (slot->problem != PROBLEM_NONE) {
        conn_problem(conn, slot, slot->problem);
        return;
    }
    slot->kind = duplicate ? SLOT_DUPLICATE : SLOT_PRODUCED;
    conn_answer(conn, slot);
}

static void tell_appended(struct reactor *reactor, uint64_t tag, uint16_t status,
                          const struct part *part)
{
    struct upcall *up = reactor_upcall(reactor, UPCALL_APPENDED, tag);
    up->status = status;
    up->part = *part;
}

void produce_lost(struct reactor *reactor, struct run *run, bool grouped)
{
    const bool unknown = grouped && run->problem == PROBLEM_NONE;
    const uint16_t problem = unknown ? PROBLEM_UNKNOWN_OUTCOME : PROBLEM_NOT_READY;
    struct part part = {place_of_slice(reactor, run->stream->slice), 0, 0, 0};
    if (run->waiter.kind == WAITER_SLOT)
        slot_part_done(reactor, &run->waiter, problem, false, &part, 0);
    else if (run->waiter.kind == WAITER_PEER)
        handoff_answer(reactor, &run->waiter, problem, false, &part, 0);
    else if (run->waiter.kind == WAITER_APPEND)
        tell_appended(reactor, run->waiter.tag, unknown ? 500 : 503, &part);
}

void produce_stable(struct reactor *reactor, struct run *run)
{
    struct part part = {place_of_slice(reactor, run->stream->slice), run->count,
                        reactor->log->options.epoch, run->base_offset};
    const uint64_t expected = run->problem ? run->producer_seq : 0;
    switch (run->waiter.kind) {
    case WAITER_SLOT:
        slot_part_done(reactor, &run->waiter, run->problem, run->count == 0, &part, expected);
        break;
    case WAITER_PEER:
        handoff_answer(reactor, &run->waiter, run->problem, run->count == 0, &part, expected);
        break;
    case WAITER_APPEND: tell_appended(reactor, run->waiter.tag, 200, &part); break;
    default:
        break;
    }
}
