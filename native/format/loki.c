#include "format/loki.h"

#include <assert.h>
#include <string.h>

#include "format/headers.h"
#include "format/json_draft.h"
#include "format/labels.h"

#define NANOS_DIGITS_MAX 19

/* One request while it is read. */
struct reading {
    struct shipped *shipped;
    const uint8_t *labels, *headers; /* of the stream: its key, and what entries have */
    uint32_t labels_len, headers_len;
};

/* ---- what both have ---- */

static enum shipped_flaw make_headers(const struct reading *r, const struct message *metadata,
                                      const uint8_t **headers, uint32_t *headers_len)
{
    uint8_t bytes[HEADERS_STORED_MAX];
    struct headers_draft draft = {.out = bytes};
    static const char labels[] = "loki-labels", more[] = "loki-metadata";
    const struct header of_stream = {(const uint8_t *)labels, r->labels, sizeof labels - 1,
                                     r->labels_len};
    if (!headers_add(&draft, &of_stream))
        return SHIPPED_HEADERS;
    if (metadata != NULL) {
        const struct header own = {(const uint8_t *)more, metadata->p, sizeof more - 1,
                                   (uint32_t)message_len(metadata)};
        if (!headers_add(&draft, &own))
            return SHIPPED_HEADERS;
    }
    *headers_len = (uint32_t)draft.len;
    return shipped_keep(r->shipped, bytes, draft.len, headers);
}

/* The labels of the entries that come. */
static enum shipped_flaw set_labels(struct reading *r, const uint8_t *labels, size_t len)
{
    enum shipped_flaw flaw;
    if (len > HEADERS_BYTES_MAX)
        return SHIPPED_HEADERS;
    r->labels_len = (uint32_t)len;
    if ((flaw = shipped_keep(r->shipped, labels, len, &r->labels)) != SHIPPED_FINE)
        return flaw;
    return make_headers(r, NULL, &r->headers, &r->headers_len);
}

static enum shipped_flaw take_entry(struct reading *r, struct shipped_event *event,
                                    const struct message *metadata)
{
    const struct shipped_kind kind = {0};
    enum shipped_flaw flaw = shipped_kind(r->shipped, &kind, &event->kind);
    event->key = r->labels;
    event->key_len = r->labels_len;
    event->headers = r->headers;
    event->headers_len = r->headers_len;
    if (flaw == SHIPPED_FINE && metadata != NULL)
        flaw = make_headers(r, metadata, &event->headers, &event->headers_len);
    if (flaw == SHIPPED_FINE)
        flaw = shipped_done(r->shipped, event);
    r->shipped->at += flaw == SHIPPED_FINE;
    return flaw;
}

/* ---- protobuf ---- */

/* Seconds and nanoseconds; -1: malformed. */
static int64_t read_time(struct message timestamp)
{
    struct field field;
    uint64_t seconds = 0, nanos = 0;
    int more;
    while ((more = message_next(&timestamp, &field)) > 0)
        if (field.type == WIRE_VARINT)
            *(field.number == 1 ? &seconds : &nanos) = field.value;
    return more < 0 || seconds > INT64_MAX / 2000000 || nanos >= 1000000000
               ? -1
               : (int64_t)(seconds * 1000000 + nanos / 1000);
}

static enum shipped_flaw read_entry(struct reading *r, struct message entry)
{
    uint8_t bytes[HEADERS_BYTES_MAX];
    struct json_draft draft = {.out = bytes, .cap = sizeof bytes};
    enum shipped_flaw flaw;
    struct field field;
    int64_t time = 0;
    int more;
    struct shipped_event *event = shipped_next(r->shipped, &flaw);
    if (event == NULL)
        return flaw;
    JSON_TEXT(&draft, "{");
    while ((more = message_next(&entry, &field)) > 0) {
        if (field.type != WIRE_BYTES)
            continue;
        if (field.number == 1 && (time = read_time(field.in)) < 0)
            return SHIPPED_TIME;
        if (field.number == 2) {
            event->value = field.in.p;
            event->value_len = (uint32_t)message_len(&field.in);
        } else if (field.number == 3 && !json_put_label(&draft, field.in)) {
            return SHIPPED_SYNTAX;
        }
    }
    const bool has_metadata = draft.len > 1;
    JSON_TEXT(&draft, "}");
    if (more < 0 || draft.is_full)
        return more < 0 ? SHIPPED_SYNTAX : SHIPPED_HEADERS;
    event->time_us = shipped_time(r->shipped, time);
    const struct message metadata = {bytes, bytes + draft.len};
    return take_entry(r, event, has_metadata ? &metadata : NULL);
}

static enum shipped_flaw read_stream(struct reading *r, struct message stream)
{
    struct field field;
    int more = 0;
    if (!message_find(stream, 1, &field))
        return SHIPPED_SYNTAX;
    enum shipped_flaw flaw = set_labels(r, field.in.p, message_len(&field.in));
    while (flaw == SHIPPED_FINE && (more = message_next(&stream, &field)) > 0)
        if (field.number == 2 && field.type == WIRE_BYTES)
            flaw = read_entry(r, field.in);
    return more < 0 ? SHIPPED_SYNTAX : flaw;
}

enum shipped_flaw loki_read(struct shipped *shipped, const uint8_t *bytes, size_t len)
{
    struct reading r = {.shipped = shipped};
    struct message request = {bytes, bytes + len};
    struct field field;
    enum shipped_flaw flaw = SHIPPED_FINE;
    int more = 0;
    while (flaw == SHIPPED_FINE && (more = message_next(&request, &field)) > 0)
        if (field.number == 1 && field.type == WIRE_BYTES)
            flaw = read_stream(&r, field.in);
    return more < 0 ? SHIPPED_SYNTAX : flaw;
}

/* ---- JSON ---- */

/* {"name": "value", ...} as {name="value", ...}: a value as JSON has it. */
static enum shipped_flaw set_json_labels(struct reading *r, struct json_rest object)
{
    uint8_t bytes[HEADERS_BYTES_MAX];
    struct json_draft draft = {.out = bytes, .cap = sizeof bytes};
    if (!json_take(&object, '{'))
        return SHIPPED_SYNTAX;
    JSON_TEXT(&draft, "{");
    if (!json_take(&object, '}')) {
        do {
            struct json_rest name;
            if (!json_take_name(&object, &name) || json_peek(&object) != '"')
                return SHIPPED_SYNTAX;
            const uint8_t *value = object.p;
            if (!json_pass_value(&object))
                return SHIPPED_SYNTAX;
            if (draft.len > 1)
                JSON_TEXT(&draft, ", ");
            json_put(&draft, name.p, (size_t)(name.end - name.p));
            JSON_TEXT(&draft, "=");
            json_put(&draft, value, (size_t)(object.p - value));
        } while (json_take(&object, ','));
        if (!json_take(&object, '}'))
            return SHIPPED_SYNTAX;
    }
    JSON_TEXT(&draft, "}");
    return draft.is_full ? SHIPPED_HEADERS : set_labels(r, bytes, draft.len);
}

/* Nanoseconds in a string, in microseconds; -1: there are none. */
static int64_t take_nanos(struct json_rest *rest)
{
    uint64_t nanos = 0;
    if (!json_take(rest, '"'))
        return -1;
    const uint8_t *start = rest->p;
    for (; rest->p < rest->end && *rest->p >= '0' && *rest->p <= '9'; rest->p++) {
        if (rest->p - start == NANOS_DIGITS_MAX)
            return -1;
        nanos = nanos * 10 + (uint64_t)(*rest->p - '0');
    }
    return rest->p > start && json_take(rest, '"') ? (int64_t)(nanos / 1000) : -1;
}

/* ["nanoseconds", "line"] or ["nanoseconds", "line", {"name": "value", ...}] */
static enum shipped_flaw take_json_entry(struct reading *r, struct json_rest *rest)
{
    enum shipped_flaw flaw;
    struct message metadata = {NULL, NULL};
    struct shipped_event *event = shipped_next(r->shipped, &flaw);
    if (event == NULL)
        return flaw;
    if (!json_take(rest, '['))
        return SHIPPED_SYNTAX;
    const int64_t time = take_nanos(rest);
    if (time < 0)
        return SHIPPED_TIME;
    if (!json_take(rest, ',') || !json_take(rest, '"'))
        return SHIPPED_SYNTAX;
    struct json_rest line = {rest->p, json_string_end(rest)};
    if (line.end == NULL)
        return SHIPPED_SYNTAX;
    rest->p = line.end + 1;
    event->time_us = shipped_time(r->shipped, time);
    flaw = shipped_text(r->shipped, &line, &event->value, &event->value_len);
    if (flaw == SHIPPED_FINE && json_take(rest, ',')) {
        if (json_peek(rest) != '{')
            return SHIPPED_SYNTAX;
        metadata.p = rest->p;
        if (!json_pass_value(rest))
            return SHIPPED_SYNTAX;
        metadata.end = rest->p;
    }
    if (flaw != SHIPPED_FINE)
        return flaw;
    if (!json_take(rest, ']'))
        return SHIPPED_SYNTAX;
    return take_entry(r, event, message_len(&metadata) > 2 ? &metadata : NULL);
}

static enum shipped_flaw take_json_entries(struct reading *r, struct json_rest array)
{
    enum shipped_flaw flaw;
    if (!json_take(&array, '['))
        return SHIPPED_SYNTAX;
    if (json_take(&array, ']'))
        return SHIPPED_FINE;
    do
        flaw = take_json_entry(r, &array);
    while (flaw == SHIPPED_FINE && json_take(&array, ','));
    return flaw != SHIPPED_FINE || json_take(&array, ']') ? flaw : SHIPPED_SYNTAX;
}

/* {"stream": {...}, "values": [...]} */
static enum shipped_flaw take_json_stream(struct reading *r, struct json_rest *rest)
{
    struct json_rest name, labels = {NULL, NULL}, entries = {NULL, NULL};
    if (!json_take(rest, '{'))
        return SHIPPED_SYNTAX;
    do {
        struct json_rest value;
        if (!json_take_name(rest, &name))
            return SHIPPED_SYNTAX;
        json_peek(rest);
        value.p = rest->p;
        if (!json_pass_value(rest))
            return SHIPPED_SYNTAX;
        value.end = rest->p;
        if (json_is_named(&name, "stream", 6))
            labels = value;
        else if (json_is_named(&name, "values", 6))
            entries = value;
    } while (json_take(rest, ','));
    if (!json_take(rest, '}') || labels.p == NULL || entries.p == NULL)
        return SHIPPED_SYNTAX;
    const enum shipped_flaw flaw = set_json_labels(r, labels);
    return flaw != SHIPPED_FINE ? flaw : take_json_entries(r, entries);
}

enum shipped_flaw loki_read_json(struct shipped *shipped, const uint8_t *bytes, size_t len)
{
    struct reading r = {.shipped = shipped};
    uint8_t *start = (uint8_t *)(uintptr_t)bytes; /* it is only read */
    struct json_rest rest = {start, start + len}, name;
    enum shipped_flaw flaw = SHIPPED_FINE;
    assert(len <= UINT32_MAX);
    if (!json_take(&rest, '{') || !json_take_name(&rest, &name) ||
        !json_is_named(&name, "streams", 7) || !json_take(&rest, '['))
        return SHIPPED_SYNTAX;
    if (!json_take(&rest, ']')) {
        do
            flaw = take_json_stream(&r, &rest);
        while (flaw == SHIPPED_FINE && json_take(&rest, ','));
        if (flaw == SHIPPED_FINE && !json_take(&rest, ']'))
            return SHIPPED_SYNTAX;
    }
    if (flaw != SHIPPED_FINE)
        return flaw;
    return json_take(&rest, '}') && json_peek(&rest) == 0 ? SHIPPED_FINE : SHIPPED_SYNTAX;
}
