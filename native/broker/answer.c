/* Answers as bytes: the one place that writes HTTP responses, on the produce path without Python.
 */
#define _GNU_SOURCE
#include "broker/answer.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/decimal.h"
#include "admission/access.h"
#include "broker/cloud.h"
#include "broker/keyed_runs.h"
#include "admission/refusals.h"
#include "core/route.h"
#include "log/clock.h"
#include "loop/output.h"

#define ID_FIELD "Barco-Request-Id"
#define PARTS_ON_STACK 256u
#define PART_BYTES 160u /* of one part in the answer, at most */
#define TAIL_BYTES (128u + GIVEN_ID_BYTES_MAX) /* of what ends every head, at most */

#define SHOW_A_TOKEN                                                                               \
    "show a user's token: Authorization: Bearer TOKEN, or Basic with the user's name and the "     \
    "token as the password"
#define BASIC_CHALLENGE "WWW-Authenticate: Basic realm=\"barco\", charset=\"UTF-8\"\r\n"

struct problem_text {
    uint16_t status;
    const char *type, *title;
    bool not_written; /* says Barco-Outcome: not-written */
    uint8_t retry_after;
};

/* Stable types: clients may rely on them. Bodies are RFC 9457. */
static const struct problem_text problems[PROBLEM_COUNT] = {
    [PROBLEM_BAD_REQUEST] = {400, "malformed-request", "the request is not valid HTTP/1.1", 0, 0},
    [PROBLEM_BAD_QUERY] = {400, "malformed-query", "a query parameter is malformed or repeated", 0,
                           0},
    [PROBLEM_UNKNOWN_NAME] = {400, "unknown-name",
                              "a produce takes the parameters partitionKey, keyField, timestamp, "
                              "slice, token and onlyValid, and no other",
                              0, 0},
    [PROBLEM_BAD_LINE] = {400, "malformed-line", "a line is malformed: nothing is stored", 0, 0},
    [PROBLEM_BAD_CLOUDEVENT] = {400, "malformed-cloudevent",
                                "a CloudEvent is malformed: nothing is stored", 0, 0},
    [PROBLEM_BAD_TOPIC] = {400, "invalid-topic",
                           "topic names are [a-zA-Z0-9_.-]{1,127}, not . or ..", 0, 0},
    [PROBLEM_RESERVED_TOPIC] = {403, "reserved-topic",
                                "topics that begin with __ are written by the broker only", 0, 0},
    [PROBLEM_BAD_KEY] = {400, "invalid-key", "the partition key is longer than 32 KiB", 0, 0},
    [PROBLEM_BAD_TIMESTAMP] = {400, "invalid-timestamp",
                               "timestamp is microseconds since 1970, a decimal integer, from the "
                               "year 1 on",
                               0, 0},
    [PROBLEM_BAD_PRODUCER] = {400, "invalid-producer",
                              "Producer-Id (1 to 64 characters), Producer-Epoch and Producer-Seq "
                              "(decimal integers) come together",
                              0, 0},
    [PROBLEM_BAD_SLICE] = {400, "invalid-slice",
                           "slice is the index of a slice, and must agree with the partition key",
                           0, 0},
    [PROBLEM_NO_EVENTS] = {400, "no-events", "the body holds no event", 0, 0},
    [PROBLEM_BAD_BATCH] = {400, "malformed-batch",
                           "the body is not a valid application/vnd.barco.batch", 0, 0},
    [PROBLEM_BAD_HEADER] = {400, "invalid-header",
                            "one event has at most 64 headers and 16 KiB of them, names of a-z 0-9 "
                            "!#$%&'*+.^_`|~-, values percent-encoded; Barco-Null: 1 has no body",
                            0, 0},
    [PROBLEM_BAD_CHUNKED] = {400, "malformed-chunked-body", "the chunked body is malformed", 0, 0},
    [PROBLEM_UNKNOWN_TOPIC] = {404, "topic-not-found",
                               "the topic does not exist and topics.auto_create is off", 0, 0},
    [PROBLEM_METHOD] = {405, "method-not-allowed", "this path takes POST", 0, 0},
    [PROBLEM_LENGTH_REQUIRED] = {411, "length-required",
                                 "send Content-Length or Transfer-Encoding: chunked", 0, 0},
    [PROBLEM_EVENT_TOO_LARGE] = {413, "event-too-large",
                                 "an event is larger than limits.event_bytes_max", 0, 0},
    [PROBLEM_BODY_TOO_LARGE] = {413, "body-too-large",
                                "the body, or what its events take, is larger than the limit", 0,
                                0},
    [PROBLEM_HEAD_TOO_LARGE] = {431, "head-too-large",
                                "the request head is larger than 32 KiB or has more than 64 fields",
                                0, 0},
    [PROBLEM_URI_TOO_LONG] = {414, "uri-too-long", "the request line is larger than 16 KiB", 0, 0},
    [PROBLEM_EXPECTATION] = {417, "expectation-failed", "only Expect: 100-continue is known", 0, 0},
    [PROBLEM_ENCODING] =
        {415, "unsupported-media-type",
         "one Content-Encoding is taken, of these: " INFLATE_CODINGS, 0, 0},
    [PROBLEM_BAD_ENCODING] = {400, "malformed-encoding",
                              "the body is not what its Content-Encoding says, or is cut off", 0,
                              0},
    [PROBLEM_MISDIRECTED] = {421, "misdirected", "another worker owns this slice", 1, 0},
    [PROBLEM_STALE_EPOCH] = {403, "stale-producer",
                             "a newer epoch of this producer id has been seen", 0, 0},
    [PROBLEM_GAP] = {409, "sequence-gap",
                     "the sequence is not the expected one, or lies outside the window of 1,024", 0,
                     0},
    [PROBLEM_TIMEOUT] = {408, "request-timeout", "the request took too long to arrive", 0, 0},
    [PROBLEM_BUSY] = {503, "busy", "the worker has no memory left for this request", 1, 1},
    [PROBLEM_NO_LEADER] = {503, "no-leader", "nobody leads this slice at the moment", 1, 0},
    [PROBLEM_NOT_READY] = {503, "not-ready", "the worker that owns this slice is not ready", 1, 1},
    [PROBLEM_OLD_BROKERS] =
        {503, "not-ready",
         "events with headers, without a value, delayed or of before 1970 are taken once all "
         "brokers read them", 1,
         1},
    [PROBLEM_BAD_DELAY] =
        {400, "invalid-delay",
         "one of Barco-Deliver-At (ISO 8601 with a zone, or ms since 1970; not a day ago) and "
         "Barco-Deliver-After (ms, or a number with s, m, h or d), with one event and no "
         "timestamp, or Barco-Deliver-At: timestamp with a batch that has times, or deliverAt or "
         "deliverAfter in lines with keys; for a topic whose name has at most 117 characters",
         0, 0},
    [PROBLEM_FAR_DELAY] = {400, "delay-too-long",
                           "limit says how many ms ahead an event may be due", 0, 0},
    [PROBLEM_TOO_MANY_TOPICS] = {503, "too-many-topics",
                                 "the worker holds as many topics or producers as it can", 1, 5},
    [PROBLEM_UNKNOWN_OUTCOME] =
        {500, "outcome-unknown",
         "the events may or may not be stored: retry with the same producer id and sequence", 0, 0},
    [PROBLEM_VERSION] = {505, "http-version", "only HTTP/1.0 and HTTP/1.1 are spoken here", 0, 0},
    [PROBLEM_NOT_IMPLEMENTED] = {501, "not-implemented",
                                 "this transfer coding or method is not implemented", 0, 0},
    [PROBLEM_SPLIT_PRODUCER] = {400, "producer-needs-one-slice",
                                "a batch with a producer id must lie in one slice", 0, 0},
    [PROBLEM_FOREIGN_HOST] = {403, "foreign-host",
                              "Host names no host of this broker: use an address, localhost or a "
                              "name in clients.hosts",
                              1, 0},
    [PROBLEM_FOREIGN_ORIGIN] = {403, "foreign-origin",
                                "a page of another origin sent this: if it may, add its origin to "
                                "clients.hosts",
                                1, 0},
    [PROBLEM_UNAUTHORIZED] = {401, "unauthorized", SHOW_A_TOKEN, 1, 0},
    [PROBLEM_BEARER] = {401, "unauthorized", SHOW_A_TOKEN, 1, 0},
    [PROBLEM_FORBIDDEN] = {403, "forbidden", "this user was not granted produce on this topic", 1,
                           0},
    [PROBLEM_QUOTA] = {429, "quota-exceeded", "this user's quota is used up for now", 1, 1},
    [PROBLEM_CONNECTIONS] = {429, "quota-exceeded",
                             "this user has as many connections here as its quota says: use them "
                             "again, or end some",
                             1, 1},
    [PROBLEM_TOPIC_QUOTA] = {403, "quota-used-up",
                             "this user's topics are counted: PUT /v1/topics/NAME makes one, a "
                             "produce does not",
                             1, 0},
    [PROBLEM_CROWDED] = {503, "crowded", "too many requests wait for their turn", 1, 1},
    [PROBLEM_FULL] = {503, "too-many-connections",
                      "the worker has as many connections as it can, and all are busy", 1, 1},
    [PROBLEM_DISK_FULL] = {507, "disk-full", "the broker's disk is full", 1, 5},
    [PROBLEM_FAR_TIMESTAMP] = {400, "implausible-timestamp",
                               "a timestamp is microseconds since 1970, of the last 10 years or "
                               "the next day, unless the topic's timestamps are any",
                               0, 0},
};

uint16_t answer_status(uint16_t problem)
{
    assert(problem > PROBLEM_NONE && problem < PROBLEM_COUNT);
    return problems[problem].status;
}

const char *answer_type(uint16_t problem)
{
    assert(problem > PROBLEM_NONE && problem < PROBLEM_COUNT);
    return problems[problem].type;
}

const char *answer_title(uint16_t problem)
{
    assert(problem > PROBLEM_NONE && problem < PROBLEM_COUNT);
    return problems[problem].title;
}

static const char *reason(uint16_t status)
{
    switch (status) {
    case 200: return "OK";
    case 201: return "Created";
    case 204: return "No Content";
    case 206: return "Partial Content";
    case 302: return "Found";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 406: return "Not Acceptable";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 410: return "Gone";
    case 411: return "Length Required";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 421: return "Misdirected Request";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 502: return "Bad Gateway";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    case 507: return "Insufficient Storage";
    default: return "Unknown";
    }
}

static char *put_text(char *at, const char *text, size_t len)
{
    memcpy(at, text, len);
    return at + len;
}

#define PUT(at, literal) put_text(at, literal, sizeof(literal) - 1)

static char *put_i64(char *at, int64_t value)
{
    if (value < 0)
        *at++ = '-';
    return put_u64(at, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

/* Of every answer: TAIL_BYTES at most. Where the request has an id, that is a part of it. */
static char *put_tail(char *at, const struct conn *conn, const struct slot *slot)
{
    if (slot->id != NULL) {
        at = PUT(at, ID_FIELD ": ");
        at = put_text(at, slot->id, strlen(slot->id));
        at = PUT(at, "\r\n");
    }
    at = PUT(at, "Date: ");
    at = put_text(at, conn_reactor(conn)->date, strlen(conn_reactor(conn)->date));
    if (slot->close)
        at = PUT(at, "\r\nConnection: close\r\n\r\n");
    else if (slot->http10_keep_alive)
        at = PUT(at, "\r\nConnection: keep-alive\r\n\r\n");
    else
        at = PUT(at, "\r\n\r\n");
    return at;
}

/* An event that waits is named by where it waits: it has no offset in its topic yet. */
static char *put_offset(char *at, const struct part *part, bool delayed)
{
    if (!delayed) {
        at = PUT(at, ",\"startOffset\":\"");
        at = put_u64(at, part->offset);
    } else {
        at = PUT(at, ",\"delayed\":\"");
        at = put_u64(at, part->number);
        *at++ = '.';
        at = put_u64(at, part->epoch);
        *at++ = '.';
        at = put_u64(at, part->offset);
    }
    *at++ = '"';
    return at;
}

static char *put_part(char *at, const struct reactor *reactor, const struct part *part,
                      bool delayed)
{
    at = PUT(at, "\"token\":\"");
    assert(part->number < ring_slices(reactor));
    uint32_t range = part->number >> reactor->options.slice_shift;
    if (range == reactor->options.range_index)
        at = put_text(at, reactor->token_text, reactor->token_text_len);
    else
        at = put_i64(at, range_token(reactor, range));
    at = PUT(at, "\",\"rangeIndex\":");
    at = put_u64(at, part->number & (reactor->options.slices - 1));
    at = PUT(at, ",\"version\":");
    at = put_u64(at, part->epoch);
    at = put_offset(at, part, delayed);
    at = PUT(at, ",\"count\":");
    return put_u64(at, part->count);
}

static size_t produced_body(char *body, const struct reactor *reactor, const struct slot *slot)
{
    assert(slot->part_count == 1 || slot->parts != NULL);
    char *at = PUT(body, "{\"topic\":\"");
    at = put_text(at, slot->topic->name, slot->topic->name_len);
    at = PUT(at, "\",");
    if (slot->part_count == 1) {
        at = put_part(at, reactor, &slot->part, slot->delayed);
        at = PUT(at, "}\n");
        return (size_t)(at - body);
    }
    uint64_t count = 0;
    at = PUT(at, "\"slices\":[");
    for (uint32_t i = 0; i < slot->part_count; i++) {
        *at++ = i ? ',' : ' ';
        *at++ = '{';
        at = put_part(at, reactor, &slot->parts[i], slot->delayed);
        *at++ = '}';
        count += slot->parts[i].count;
    }
    at = PUT(at, "],\"count\":");
    at = put_u64(at, count);
    at = PUT(at, "}\n");
    return (size_t)(at - body);
}

uint8_t *answer_stored(const struct reactor *reactor, const struct slot *slot, uint32_t *len)
{
    assert(slot->waiting == 0 && slot->part_count > 0);
    char *body = malloc(512 + (size_t)slot->part_count * PART_BYTES);
    *len = body != NULL ? (uint32_t)produced_body(body, reactor, slot) : 0;
    return (uint8_t *)body;
}

static void render_produced(struct conn *conn, const struct slot *slot)
{
    char room[512 + PARTS_ON_STACK * PART_BYTES], head[512];
    char *at = head, *body = room;
    assert(slot->waiting == 0 && slot->part_count > 0); /* all parts are stored */
    if (slot->minimal) {
        at = PUT(at, "HTTP/1.1 204 No Content\r\n");
        at = put_tail(at, conn, slot);
        conn_write(conn, head, (size_t)(at - head));
        return;
    }
    if (slot->part_count > PARTS_ON_STACK &&
        (body = malloc(512 + (size_t)slot->part_count * PART_BYTES)) == NULL) {
        conn_close(conn);
        return;
    }
    size_t len = produced_body(body, conn_reactor(conn), slot);
    at = slot->delayed ? PUT(at, "HTTP/1.1 202 Accepted\r\n") : PUT(at, "HTTP/1.1 200 OK\r\n");
    at = PUT(at, "Content-Type: application/json\r\nContent-Length: ");
    at = put_u64(at, len);
    at = PUT(at, "\r\n");
    at = put_tail(at, conn, slot);
    assert((size_t)(at - head) < sizeof head);
    if (len <= sizeof head - (size_t)(at - head)) { /* one piece, the usual case */
        assert(body == room); /* what has memory of its own is longer than that */
        at = put_text(at, body, len);
        conn_write(conn, head, (size_t)(at - head));
        return;
    }
    conn_write(conn, head, (size_t)(at - head));
    conn_write(conn, body, len);
    if (body != room)
        free(body);
}

static void render_duplicate(struct conn *conn, const struct slot *slot)
{
    char head[128 + TAIL_BYTES];
    char *at = PUT(head, "HTTP/1.1 204 No Content\r\nBarco-Duplicate: true\r\n");
    at = put_tail(at, conn, slot);
    conn_write(conn, head, (size_t)(at - head));
}

/* What a timestamp far from now would be near to, in another unit. */
static const char *likely_unit(const struct reactor *reactor, uint64_t number)
{
    const int64_t wall_us = reactor->loop.wall_us;
    if (number > INT64_MAX) /* another process's word: it may be anything */
        return NULL;
    const int64_t time = (int64_t)number;
    if (time < INT64_MAX / 1000000 && log_time_plausible(reactor->log, wall_us, time * 1000000))
        return "seconds";
    if (time < INT64_MAX / 1000 && log_time_plausible(reactor->log, wall_us, time * 1000))
        return "milliseconds";
    return log_time_plausible(reactor->log, wall_us, time / 1000) ? "nanoseconds" : NULL;
}

static int far_timestamp(char *out, size_t cap, const struct conn *conn, uint64_t number)
{
    const char *unit = likely_unit(conn_reactor(conn), number);
    return snprintf(out, cap,
                    ",\"detail\":\"%lld is not within 10 years before now and a day after: "
                    "microseconds since 1970 are expected%s%s; the topic setting timestamps=any "
                    "takes it as it is\"",
                    (int64_t)number == TIME_ZERO ? 0 : (long long)number,
                    unit ? ", this looks like " : "", unit ? unit : "");
}

/* The number is a slice's; its route may have changed since the call was refused. */
static int misdirected(char *out, size_t cap, const struct reactor *reactor, uint64_t number)
{
    const int32_t peer = number < ring_slices(reactor) ? reactor->routes[number] : ROUTE_NONE;
    const char *owner = peer == ROUTE_NONE ? NULL : reactor->endpoints[peer];
    out[0] = 0;
    return owner == NULL ? 0 : snprintf(out, cap, ",\"owner\":\"%s\"", owner);
}

/* Of a delay what it may be and, where each line has its own, which of them it is. */
static int bad_delay(char *out, size_t cap, const struct conn *conn, const struct slot *slot)
{
    int len = 0;
    out[0] = 0;
    if (slot->problem == PROBLEM_FAR_DELAY)
        len = snprintf(out, cap, ",\"limit\":%lld",
                       (long long)conn_reactor(conn)->delay_us_max / 1000);
    if (slot->expected != 0)
        len += snprintf(out + len, cap - (size_t)len, ",\"line\":%llu",
                        (unsigned long long)slot->expected);
    return len;
}

/* The one member beyond type, title and status that some problems carry. */
static int problem_extra(char *out, size_t cap, const struct conn *conn, const struct slot *slot)
{
    const struct reactor_options *options = &conn_reactor(conn)->options;
    switch (slot->problem) {
    case PROBLEM_GAP:
        return snprintf(out, cap, ",\"expectedSeq\":\"%llu\"", (unsigned long long)slot->expected);
    case PROBLEM_FAR_TIMESTAMP: return far_timestamp(out, cap, conn, slot->expected);
    case PROBLEM_EVENT_TOO_LARGE:
        return snprintf(out, cap, ",\"limit\":%llu,\"line\":%llu",
                        (unsigned long long)options->event_bytes_max,
                        (unsigned long long)slot->expected);
    case PROBLEM_BODY_TOO_LARGE:
        return snprintf(out, cap, ",\"limit\":%llu",
                        (unsigned long long)(slot->expected ? slot->expected
                                                            : options->request_bytes_max));
    case PROBLEM_BAD_DELAY:
    case PROBLEM_FAR_DELAY:
        return bad_delay(out, cap, conn, slot);
    case PROBLEM_UNKNOWN_NAME:
        if (slot->first == NULL)
            break;
        return snprintf(out, cap, ",\"detail\":\"%.*s is none of them\"",
                        (int)slot->first->len, (const char *)slot->first->own);
    case PROBLEM_BAD_LINE:
        return snprintf(out, cap, ",\"line\":%llu,\"detail\":\"%s\"",
                        (unsigned long long)keyed_flaw_line(slot->expected),
                        keyed_flaw_text(slot->expected));
    case PROBLEM_BAD_CLOUDEVENT:
        return snprintf(out, cap, ",\"line\":%llu,\"detail\":\"%s\"",
                        (unsigned long long)cloud_flaw_event(slot->expected),
                        cloud_flaw_text(slot->expected));
    case PROBLEM_MISDIRECTED:
        return misdirected(out, cap, conn_reactor(conn), slot->expected);
    default:
        break;
    }
    out[0] = 0;
    return 0;
}

/* What was refused when its slice was looked at is told in the log, by its topic. */
static void note_late(struct conn *conn, struct slot *slot)
{
    const struct problem_text *text = &problems[slot->problem];
    if (!slot->noted && slot->topic != NULL && is_refusal(text->status))
        refusals_note_produce(conn, slot, slot->topic, access_user(conn), text->status,
                              text->type);
}

static void render_problem(struct conn *conn, struct slot *slot)
{
    const struct problem_text *text = &problems[slot->problem];
    char extra[320], body[640], head[768];
    assert(text->type != NULL);
    const int extra_len = problem_extra(extra, sizeof extra, conn, slot);
    assert(extra_len >= 0 && (size_t)extra_len < sizeof extra); /* half of it would be no JSON */
    int len = snprintf(body, sizeof body,
                       "{\"type\":\"urn:barco:problem:%s\",\"title\":\"%s\",\"status\":%u%s}\n",
                       text->type, text->title, text->status, extra);
    assert(len > 0 && (size_t)len < sizeof body);
    int used = snprintf(head, sizeof head,
                        "HTTP/1.1 %u %s\r\nContent-Type: application/problem+json\r\n"
                        "Content-Length: %d\r\n%s",
                        text->status, reason(text->status), len,
                        text->not_written ? "Barco-Outcome: not-written\r\n" : "");
    if (text->retry_after)
        used += snprintf(head + used, sizeof head - (size_t)used, "Retry-After: %u\r\n",
                         slot->problem == PROBLEM_QUOTA ? access_wait(conn) : text->retry_after);
    if (text->status == 401)
        used += snprintf(head + used, sizeof head - (size_t)used,
                         "WWW-Authenticate: Bearer realm=\"barco\"\r\n%s",
                         slot->problem == PROBLEM_BEARER ? "" : BASIC_CHALLENGE);
    if (slot->problem == PROBLEM_ENCODING)
        used += snprintf(head + used, sizeof head - (size_t)used,
                         "Accept-Encoding: " INFLATE_CODINGS "\r\n");
    if (slot->problem == PROBLEM_METHOD)
        used += snprintf(head + used, sizeof head - (size_t)used, "Allow: POST\r\n");
    assert(used > 0 && (size_t)used + TAIL_BYTES < sizeof head);
    note_late(conn, slot);
    id_of(conn_reactor(conn), slot);
    char *at = put_tail(head + used, conn, slot);
    conn_write(conn, head, (size_t)(at - head));
    if (!slot->head_only)
        conn_write(conn, body, (size_t)len);
}

size_t answer_refusal(const struct reactor *reactor, uint16_t problem, char *out, size_t capacity)
{
    const struct problem_text *text = &problems[problem];
    char body[320];
    const int len = snprintf(body, sizeof body,
                             "{\"type\":\"urn:barco:problem:%s\",\"title\":\"%s\",\"status\":%u}\n",
                             text->type, text->title, text->status);
    assert(len > 0 && (size_t)len < sizeof body);
    const int used = snprintf(out, capacity,
                              "HTTP/1.1 %u %s\r\nContent-Type: application/problem+json\r\n"
                              "Content-Length: %d\r\n%sRetry-After: %u\r\nDate: %s\r\n"
                              "Connection: close\r\n\r\n%s",
                              text->status, reason(text->status), len,
                              text->not_written ? "Barco-Outcome: not-written\r\n" : "",
                              text->retry_after, reactor->date, body);
    return used < 0 ? 0 : (size_t)used < capacity ? (size_t)used : capacity - 1;
}

/* It ends with the connection. */
static void render_stream(struct conn *conn, struct slot *slot)
{
    char head[TAIL_BYTES];
    const int used = snprintf(head, sizeof head, "HTTP/1.1 %u %s\r\n", slot->status,
                              reason(slot->status));
    assert(slot->first != NULL && slot->first->next == NULL);
    conn_write(conn, head, (size_t)used);
    conn_write(conn, slot->first->bytes, slot->first->len);
    slot->close = true;
    char *at = put_tail(head, conn, slot);
    conn_write(conn, head, (size_t)(at - head));
}

/* Whether the upper layer has made an id, which stands in a line of the log. */
static bool says_id(const struct output *headers)
{
    static const char name[] = ID_FIELD ": ";
    return memmem(headers->bytes, headers->len, name, sizeof name - 1) != NULL;
}

static void render_python(struct conn *conn, struct slot *slot)
{
    char head[TAIL_BYTES];
    uint64_t len = 0;
    const struct output *headers = slot->first; /* always there: the extra header lines */
    assert(headers != NULL && slot->status >= 100 && slot->status <= 999);
    for (const struct output *piece = headers->next; piece != NULL; piece = piece->next)
        len += piece->len;
    int used = snprintf(head, sizeof head, "HTTP/1.1 %u %s\r\n", slot->status,
                        reason(slot->status));
    if (slot->status != 204 && slot->status != 304)
        used += snprintf(head + used, sizeof head - (size_t)used, "Content-Length: %llu\r\n",
                         (unsigned long long)len);
    conn_write(conn, head, (size_t)used);
    if (headers->len > 0)
        conn_write(conn, headers->bytes, headers->len);
    if (slot->status >= 400 && !says_id(headers))
        id_of(conn_reactor(conn), slot);
    char *at = put_tail(head, conn, slot);
    conn_write(conn, head, (size_t)(at - head));
}

/* Moves the pieces of the body behind the head: they are sent from where they are. */
static void move_body(struct conn *conn, struct slot *slot)
{
    struct output *headers = slot->first, *body = headers->next;
    assert((conn->out_first == NULL) == (conn->out_last == NULL));
    headers->next = NULL;
    outputs_free(headers);
    slot->first = slot->last = NULL;
    if (slot->head_only || slot->status == 204 || slot->status == 304) {
        outputs_free(body);
        return;
    }
    while (body != NULL) {
        struct output *next = body->next;
        body->next = NULL;
        if (conn->out_last != NULL)
            conn->out_last->next = body;
        else
            conn->out_first = body;
        conn->out_last = body;
        conn->out_bytes += body->len;
        access_charge(conn, body->len);
        body = next;
    }
    conn_mark_dirty(conn);
}

void answer_render(struct conn *conn, struct slot *slot)
{
    assert(slot->kind != SLOT_OPEN);
    switch (slot->kind) {
    case SLOT_PRODUCED: render_produced(conn, slot); break;
    case SLOT_DUPLICATE: render_duplicate(conn, slot); break;
    case SLOT_PROBLEM: render_problem(conn, slot); break;
    case SLOT_STREAM: render_stream(conn, slot); break;
    default:
        render_python(conn, slot);
        move_body(conn, slot);
    }
}
