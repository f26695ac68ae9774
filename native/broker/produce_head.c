/* A produce request's head: topic, key, slice, producer. */
#include "broker/produce_head.h"

#include <assert.h>
#include <string.h>

#include "base/murmur3.h"
#include "admission/access.h"
#include "broker/delay.h"
#include "core/route.h"
#include "http/traceparent.h"
#include "http/uri.h"

#define PRODUCER_NAME_MAX 64
#define UNKNOWN_NAME_MAX 64u /* so much of it is told */

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
static uint8_t content_of(struct http1_slice type, bool *json, uint8_t *cloud)
{
    *cloud = CLOUD_NONE;
    const char *semicolon = memchr(type.p, ';', type.len);
    if (semicolon != NULL)
        type.len = (uint32_t)(semicolon - type.p);
    while (type.len > 0 && (type.p[type.len - 1] == ' ' || type.p[type.len - 1] == '\t'))
        type.len--;
    *json = !IS(&type, "application/vnd.barco.batch");
    if (IS(&type, "application/x-ndjson"))
        return CONTENT_LINES;
    if (IS(&type, "application/vnd.barco.batch"))
        return CONTENT_BATCH;
    if (IS(&type, "application/vnd.barco.events+x-ndjson"))
        return CONTENT_KEYED;
    if (IS(&type, "application/cloudevents-batch+json")) {
        *cloud = CLOUD_BATCH;
        *json = false;
        return CONTENT_BATCH; /* which it becomes */
    }
    if (IS(&type, "application/cloudevents+json"))
        *cloud = CLOUD_EVENT;
    *json = IS(&type, "application/json");
    return CONTENT_EVENT;
}

/* 128 bits of the id's hash: ids are compared by it. */
static bool hash_producer(const struct conn *conn, const char *name, size_t len,
                          struct produce *out)
{
    uint8_t salted[PRODUCER_NAME_MAX + 1];
    int64_t halves[2];
    assert(len > 0 && len <= PRODUCER_NAME_MAX);
    memcpy(salted, name, len);
    salted[len] = 0xff;
    halves[0] = murmur3_token(name, len);
    halves[1] = murmur3_token(salted, len + 1);
    memcpy(out->producer_id, halves, PRODUCER_ID_BYTES);
    out->producer_token = halves[0];
    out->has_producer = true;
    return access_own(conn, name, len, out->producer_id, PRODUCER_ID_BYTES);
}

struct producer_headers {
    struct http1_slice id, epoch, seq, once;
};

static uint16_t read_producer(const struct conn *conn, const struct producer_headers *headers,
                              struct produce *out)
{
    uint64_t epoch;
    if (headers->once.p != NULL && headers->id.p == NULL) {
        if (headers->once.len == 0 || headers->once.len > PRODUCER_NAME_MAX)
            return PROBLEM_BAD_PRODUCER;
        out->one_shot = true;
        if (!hash_producer(conn, headers->once.p, headers->once.len, out))
            return PROBLEM_BUSY;
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
    return hash_producer(conn, headers->id.p, headers->id.len, out) ? PROBLEM_NONE : PROBLEM_BUSY;
}

static bool begins_with(const struct http1_slice *text, const char *lower, size_t len)
{
    const struct http1_slice start = {text->p, (uint32_t)len};
    return text->len >= len && slice_is(&start, lower, len);
}

/* Barco-Header-NAME and, of CloudEvents in binary mode, ce-NAME. */
static inline bool is_for_event(const struct http1_slice *name)
{
    return name->len > 3 && ((name->p[2] == '-' && begins_with(name, "ce-", 3)) ||
                             (name->len >= 13 && name->p[12] == '-' &&
                              begins_with(name, "barco-header-", 13)));
}

/* Headers of the event: those that were asked for, those of CloudEvents, and its trace. */
struct event_headers {
    struct headers_draft draft;
    struct http1_slice trace, trace_state, type; /* type: of the body */
    bool cloud; /* they are those of a CloudEvent in binary mode */
    bool own_trace; /* it was asked for, in so many words */
    bool traces;    /* more than one: then it is none */
    bool asked;
    bool wrong; /* one of CloudEvents' can be none; whether that matters is known at the end */
};

static uint16_t add_header(struct reactor *reactor, const struct http1_slice *field,
                           const struct http1_slice *value, struct event_headers *to)
{
    const bool asked = field->p[2] != '-';
    const uint32_t skip = asked ? sizeof "barco-header-" - 1 : 0; /* ce- is part of the name */
    uint8_t name[HEADER_NAME_MAX], *room = reactor->headers_scratch + HEADERS_STORED_MAX;
    const uint32_t len = field->len - skip;
    const int value_len = uri_decode(value->p, value->len, false, (char *)room,
                                     HEADERS_SCRATCH_BYTES - HEADERS_STORED_MAX);
    to->draft.out = reactor->headers_scratch;
    to->asked |= asked;
    if (len > HEADER_NAME_MAX || value_len < 0)
        return PROBLEM_BAD_HEADER;
    for (uint32_t i = 0; i < len; i++) {
        const uint8_t c = (uint8_t)field->p[skip + i];
        name[i] = c >= 'A' && c <= 'Z' ? c | 0x20 : c;
    }
    const struct header header = {name, room, len, (uint32_t)value_len};
    to->cloud |= len == 14 && memcmp(name, "ce-specversion", 14) == 0;
    to->own_trace |= len == 11 && memcmp(name, "traceparent", 11) == 0;
    return headers_add(&to->draft, &header) ? PROBLEM_NONE : PROBLEM_BAD_HEADER;
}

static bool add_plain(struct event_headers *to, const char *name, const struct http1_slice *value)
{
    const struct header header = {(const uint8_t *)name, (const uint8_t *)value->p,
                                  (uint32_t)strlen(name), value->len};
    return headers_add(&to->draft, &header);
}

/* Fields of a trace are added by whatever the request went through: what is wrong with them, or is
 * too much beside the others, is left out and refuses nobody. */
static void add_trace(struct reactor *reactor, struct event_headers *to)
{
    if (to->trace.p == NULL || to->traces || to->own_trace ||
        !traceparent_valid(to->trace.p, to->trace.len))
        return;
    to->draft.out = reactor->headers_scratch;
    if (add_plain(to, "traceparent", &to->trace) && to->trace_state.len > 0 &&
        to->trace_state.len <= TRACESTATE_BYTES_MAX)
        add_plain(to, "tracestate", &to->trace_state);
}

static void note_type(const struct http1_slice *type, struct event_headers *event,
                      struct produce *out)
{
    event->type = *type;
    out->content = content_of(*type, &out->json, &out->cloud);
}

/* What CloudEvents say beside a body of several events is as ever: not looked at. Nor is it as long
 * as the ring has brokers that can not keep it: whoever sends it never asked for headers. */
static uint16_t note_headers(struct reactor *reactor, struct event_headers *from,
                             struct produce *out)
{
    const bool data = from->cloud && out->content == CONTENT_EVENT && out->cloud == CLOUD_NONE;
    if (data && from->type.p != NULL) /* what its data are: datacontenttype */
        from->wrong |= !add_plain(from, "content-type", &from->type);
    const bool wanted = from->asked || out->no_value;
    if (out->content != CONTENT_EVENT)
        return wanted ? PROBLEM_BAD_HEADER : PROBLEM_NONE;
    if (!wanted && (from->draft.len > 0 || from->wrong) && !reactor_takes_headers(reactor))
        return PROBLEM_NONE;
    if (from->wrong)
        return PROBLEM_BAD_HEADER;
    out->headed = out->no_value || from->draft.len > 0;
    out->cloud = data ? CLOUD_DATA : out->cloud;
    out->headers = from->draft.out;
    out->headers_len = (uint32_t)from->draft.len;
    return PROBLEM_NONE;
}

/* One pass over the fields: length and first letter sort out nearly all of them. */
static uint16_t read_headers(struct conn *conn, const struct http1_request *head,
                             struct produce *out, struct delay *delay)
{
    struct producer_headers producer = {0};
    struct event_headers event = {.draft = {.out = NULL}};
    for (uint16_t i = 0; i < head->header_count; i++) {
        const struct http1_slice *name = &head->headers[i].name;
        const struct http1_slice *value = &head->headers[i].value;
        if (is_for_event(name)) {
            const uint16_t problem = add_header(conn_reactor(conn), name, value, &event);
            if (problem != PROBLEM_NONE && name->p[2] != '-')
                return problem;
            event.wrong |= problem != PROBLEM_NONE;
            continue;
        }
        switch (name->len) {
        case 6:
            if (IS(name, "prefer"))
                out->minimal = IS(value, "return=minimal");
            break;
        case 10:
            if (IS(name, "barco-null")) {
                if (!IS(value, "1"))
                    return PROBLEM_BAD_HEADER;
                out->no_value = true;
            }
            if (IS(name, "tracestate"))
                event.trace_state = *value;
            break;
        case 11:
            if (IS(name, "producer-id"))
                producer.id = *value;
            if (IS(name, "traceparent")) {
                event.traces |= event.trace.p != NULL;
                event.trace = *value;
            }
            break;
        case 12:
            if (IS(name, "content-type"))
                note_type(value, &event, out);
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
            if (IS(name, "content-encoding")) {
                const enum coding coding = inflate_coding(value);
                if (coding == CODING_UNKNOWN || out->coding != CODING_NONE)
                    return PROBLEM_ENCODING; /* or more than one */
                out->coding = (uint8_t)coding;
            }
            if (IS(name, "barco-no-forward"))
                out->no_forward = value->len == 1 && value->p[0] == '1';
            delay_note(delay, name, value);
            break;
        default:
            if (name->len == 19)
                delay_note(delay, name, value);
        }
    }
    if (event.trace.p != NULL && out->content == CONTENT_EVENT)
        add_trace(conn_reactor(conn), &event);
    const uint16_t problem = note_headers(conn_reactor(conn), &event, out);
    return problem != PROBLEM_NONE ? problem : read_producer(conn, &producer, out);
}

static uint16_t read_key(struct conn *conn, const struct http1_slice *raw, struct produce *out)
{
    uint8_t *room = conn_reactor(conn)->key_scratch;
    int key_len = uri_decode(raw->p, raw->len, true, (char *)room, HTTP1_HEAD_BYTES_MAX);
    if (key_len < 0)
        return key_len == -3 ? PROBLEM_BAD_KEY : PROBLEM_BAD_QUERY;
    assert(key_len <= (int)KEY_SCRATCH_BYTES);
    out->has_key = true;
    out->key = room;
    out->key_len = (uint32_t)key_len;
    out->key_token = murmur3_token(room, (size_t)key_len);
    return PROBLEM_NONE;
}

/* The member of each line that is its key. */
static uint16_t read_key_field(struct conn *conn, const char *query, size_t len,
                               struct produce *out)
{
    struct http1_slice raw;
    const int found = uri_query_get(query, len, "keyField", &raw);
    if (found == 0)
        return PROBLEM_NONE;
    uint8_t *room = conn_reactor(conn)->key_scratch;
    const int field_len =
        found < 0 ? found : uri_decode(raw.p, raw.len, true, (char *)room, HTTP1_HEAD_BYTES_MAX);
    if (field_len <= 0 || out->has_key || out->content != CONTENT_LINES)
        return PROBLEM_BAD_QUERY;
    assert(field_len <= (int)KEY_SCRATCH_BYTES);
    out->content = CONTENT_KEYED;
    out->key_field = true;
    out->key = room;
    out->key_len = (uint32_t)field_len;
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
    *range = slice_of_token(reactor, token) >> reactor->options.slice_shift;
    assert(*range < reactor->options.ring_size);
    return range_token(reactor, *range) == token;
}

/* slice=, of the token range that token= names, or of this process's own. */
static uint16_t read_slice(const struct reactor *reactor, const char *query, size_t len,
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
        out->number = (range << reactor->options.slice_shift) + (int64_t)number;
    return PROBLEM_NONE;
}

/* What the answer tells, when its turn comes: the head is gone by then. */
static void keep_name(struct slot *slot, const struct http1_slice *name)
{
    assert(slot->first == NULL);
    const uint32_t len = name->len < UNKNOWN_NAME_MAX ? name->len : UNKNOWN_NAME_MAX;
    struct output *kept = output_new(len);
    if (kept == NULL)
        return;
    for (uint32_t i = 0; i < len; i++) /* visible ASCII: it is a query's */
        kept->own[i] = name->p[i] == '"' || name->p[i] == '\\' ? '?' : (uint8_t)name->p[i];
    kept->len = len;
    slot->first = slot->last = kept;
}

/* A batch without times of its own is not stored as it came where all are 0: see TIME_ZERO. */
static uint16_t read_time(struct http1_slice text, struct produce *out)
{
    uint64_t number;
    const bool before = text.len > 0 && text.p[0] == '-';
    text.p += before;
    text.len -= before;
    const uint64_t most = before ? (uint64_t)-TIMESTAMP_US_MIN : (uint64_t)TIMESTAMP_MAX;
    if (!parse_u64(&text, &number) || number > most)
        return PROBLEM_BAD_TIMESTAMP;
    out->timestamp = number == 0 ? TIME_ZERO : before ? -(int64_t)number : (int64_t)number;
    out->loose |= number == 0;
    return PROBLEM_NONE;
}

static uint16_t read_query(struct conn *conn, const struct http1_request *head, struct slot *slot,
                           struct produce *out)
{
    static const char *const names[] = {"partitionKey", "keyField", "slice",
                                        "token",        "timestamp", "onlyValid", NULL};
    struct http1_slice raw;
    const char *query = head->query.p;
    size_t len = head->query.len;
    if (uri_query_unknown(query, len, names, &raw)) {
        keep_name(slot, &raw);
        return PROBLEM_UNKNOWN_NAME;
    }
    int found = uri_query_get(query, len, "partitionKey", &raw);
    if (found < 0)
        return PROBLEM_BAD_QUERY;
    uint16_t problem = found ? read_key(conn, &raw, out) : PROBLEM_NONE;
    if (problem == PROBLEM_NONE)
        problem = read_key_field(conn, query, len, out);
    if (problem != PROBLEM_NONE)
        return problem;
    found = uri_query_get(query, len, "onlyValid", &raw);
    out->valid_only = found > 0 && IS(&raw, "true");
    if (found < 0 || (found > 0 && (!out->valid_only || (out->content != CONTENT_LINES &&
                                                         out->content != CONTENT_KEYED))))
        return PROBLEM_BAD_QUERY;
    found = uri_query_get(query, len, "timestamp", &raw);
    if (found < 0)
        return PROBLEM_BAD_QUERY;
    problem = found ? read_time(raw, out) : PROBLEM_NONE;
    if (problem != PROBLEM_NONE)
        return problem;
    return read_slice(conn_reactor(conn), query, len, out);
}

/* The usual query is one plain partitionKey, or none: it need not be searched three times. */
static uint16_t read_query_fast(struct conn *conn, const struct http1_request *head,
                                struct slot *slot, struct produce *out)
{
    static const char name[] = "partitionKey=";
    const char *query = head->query.p;
    size_t len = head->query.len;
    if (query == NULL || len == 0)
        return PROBLEM_NONE;
    if (len < sizeof name - 1 || memcmp(query, name, sizeof name - 1) != 0 ||
        memchr(query, '&', len) != NULL)
        return read_query(conn, head, slot, out);
    struct http1_slice raw = {query + sizeof name - 1, (uint32_t)(len - (sizeof name - 1))};
    return read_key(conn, &raw, out);
}

uint16_t produce_head(struct conn *conn, const struct http1_request *head, struct http1_slice topic,
                      struct slot *slot, struct produce *out)
{
    struct reactor *reactor = conn_reactor(conn);
    memset(out, 0, sizeof *out);
    out->number = -1;
    if (!topic_name_valid(topic.p, topic.len))
        return PROBLEM_BAD_TOPIC;
    if (topic_name_reserved(topic.p, topic.len))
        return PROBLEM_RESERVED_TOPIC;
    struct delay delay = {.again = false};
    uint16_t problem = read_headers(conn, head, out, &delay);
    if (problem == PROBLEM_NONE)
        problem = read_query_fast(conn, head, slot, out);
    if (problem == PROBLEM_NONE && out->has_key &&
        (out->content == CONTENT_BATCH || out->content == CONTENT_KEYED))
        problem = PROBLEM_BAD_QUERY; /* the keys are inside */
    slot->delayed = delay_asked(&delay);
    if (problem == PROBLEM_NONE && slot->delayed)
        problem = delay_apply(reactor, &delay, &topic, out);
    if (problem != PROBLEM_NONE)
        return problem;
    out->known_only = access_known_topics(conn);
    problem = produce_topic(conn, topic, out);
    slot->topic = out->topic;
    slot->minimal = out->minimal;
    if (problem == PROBLEM_NONE && out->timestamp < 0) {
        slot->expected = (uint64_t)out->timestamp;
        problem = reactor_early_problem(reactor, out->topic);
    }
    if (problem != PROBLEM_NONE || !slot->delayed)
        return problem;
    return delay_topic(reactor, out);
}

uint16_t produce_topic(struct conn *conn, struct http1_slice topic, struct produce *out)
{
    struct reactor *reactor = conn_reactor(conn);
    assert(topic_name_valid(topic.p, topic.len) && !topic_name_reserved(topic.p, topic.len));
    /* In a cluster this process need not lead anything to take events in. */
    bool ready = reactor->options.ring_size == 1 ? reactor->log->open : reactor->routed;
    if (reactor->draining || reactor->io_failed)
        return PROBLEM_NOT_READY;
    if (reactor_disk_full(reactor) && reactor->options.ring_size == 1)
        return PROBLEM_DISK_FULL; /* also where a start waits for room */
    if (!ready)
        return PROBLEM_NOT_READY;
    out->topic = shard_topic(reactor->shard, topic.p, topic.len);
    if (!reactor->options.auto_create && reactor->options.ring_size == 1 &&
        (out->topic == NULL || !out->topic->declared))
        return PROBLEM_UNKNOWN_TOPIC; /* in a cluster only the slice's leader is sure of it */
    if (out->topic == NULL)
        out->topic = shard_topic_asked(reactor->shard, topic.p, topic.len);
    if (out->topic == NULL)
        return PROBLEM_TOO_MANY_TOPICS;
    assert(out->number < (int64_t)ring_slices(reactor));
    return PROBLEM_NONE;
}
