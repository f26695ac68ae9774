#include "format/otlp.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "format/headers.h"
#include "format/otlp_json.h"

#define NANOS_DIGITS_MAX 19

static const char resource_name[] = "otel-resource", scope_name[] = "otel-scope";

/* One request while it is read. */
struct reading {
    struct shipped *shipped;
    uint8_t *draft; /* of event_bytes_max, for what is written as JSON; NULL: it is */
    size_t draft_cap;
    const uint8_t *headers; /* of the records that come */
    uint32_t headers_len;
    enum shipped_flaw unfit; /* why they can not have them */
};

/* ---- what both have ---- */

/* The headers of all records of a scope; text NULL: nothing is said. */
static enum shipped_flaw set_headers(struct reading *r, const struct json_rest *resource,
                                     const struct json_rest *scope)
{
    uint8_t bytes[HEADERS_STORED_MAX];
    struct headers_draft draft = {.out = bytes};
    const struct json_rest *const texts[] = {resource, scope};
    const char *const names[] = {resource_name, scope_name};
    r->headers_len = 0;
    r->unfit = SHIPPED_FINE;
    for (int i = 0; i < 2; i++) {
        const size_t len = (size_t)(texts[i]->end - texts[i]->p);
        const struct header header = {(const uint8_t *)names[i], texts[i]->p,
                                      (uint32_t)strlen(names[i]), (uint32_t)len};
        if (texts[i]->p != NULL && (len > HEADERS_BYTES_MAX || !headers_add(&draft, &header)))
            r->unfit = SHIPPED_HEADERS;
    }
    if (r->unfit != SHIPPED_FINE || draft.len == 0)
        return SHIPPED_FINE;
    r->headers_len = (uint32_t)draft.len;
    return shipped_keep(r->shipped, bytes, draft.len, &r->headers);
}

static enum shipped_flaw take_record(struct reading *r, const uint8_t *value, size_t len,
                                     uint64_t nanos, enum shipped_flaw unfit)
{
    struct shipped *shipped = r->shipped;
    enum shipped_flaw flaw;
    struct shipped_event *event = shipped_next(shipped, &flaw);
    if (event == NULL)
        return flaw;
    const struct shipped_kind kind = {.flaw = (uint8_t)(r->unfit != SHIPPED_FINE ? r->unfit
                                                                                  : unfit)};
    flaw = shipped_kind(shipped, &kind, &event->kind);
    if (flaw == SHIPPED_FINE && kind.flaw == SHIPPED_FINE) {
        event->time_us = shipped_time(shipped, (int64_t)(nanos / 1000));
        event->value = value;
        event->value_len = (uint32_t)len;
        event->headers = r->headers;
        event->headers_len = r->headers_len;
    }
    shipped->at++;
    return flaw == SHIPPED_FINE ? shipped_done(shipped, event) : flaw;
}

/* ---- protobuf ---- */

/* What one message is as JSON, in a room; text NULL where there is none. */
static enum shipped_flaw write_told(struct reading *r, const struct field *field,
                                    void (*write)(struct json_draft *, struct message),
                                    struct json_rest *text)
{
    enum shipped_flaw flaw;
    struct json_draft draft = {.out = r->draft, .cap = r->draft_cap};
    *text = (struct json_rest){NULL, NULL};
    if (field->in.p == NULL || message_len(&field->in) == 0)
        return SHIPPED_FINE;
    write(&draft, field->in);
    if (draft.is_malformed)
        return SHIPPED_SYNTAX;
    uint8_t *room = shipped_room(r->shipped, draft.len, &flaw); /* json_rest may be written to */
    if (room == NULL)
        return flaw;
    memcpy(room, draft.out, draft.len);
    /* What did not fit is longer than any headers may be. */
    *text = (struct json_rest){room, room + draft.len};
    return SHIPPED_FINE;
}

static enum shipped_flaw read_record(struct reading *r, struct message record)
{
    struct json_draft draft = {0};
    enum shipped_flaw flaw;
    uint64_t nanos;
    /* Where it stays, if there is room for it, as there mostly is; else it is copied there. */
    draft.out = shipped_rest(r->shipped, &draft.cap);
    draft.cap = draft.cap < r->draft_cap ? draft.cap : r->draft_cap;
    otlp_write_record(&draft, record, &nanos);
    const uint8_t *value = draft.out;
    if (draft.is_full && !draft.is_malformed) {
        draft = (struct json_draft){.out = r->draft, .cap = r->draft_cap};
        otlp_write_record(&draft, record, &nanos);
        if (draft.is_full && !draft.is_malformed)
            return take_record(r, NULL, 0, 0, SHIPPED_EVENT_TOO_LARGE);
    }
    if (draft.is_malformed)
        return SHIPPED_SYNTAX;
    flaw = draft.out == value ? shipped_take(r->shipped, draft.len)
                              : shipped_keep(r->shipped, draft.out, draft.len, &value);
    return flaw != SHIPPED_FINE ? flaw : take_record(r, value, draft.len, nanos, SHIPPED_FINE);
}

static enum shipped_flaw read_scope(struct reading *r, struct message scope_logs,
                                    const struct json_rest *resource)
{
    struct field field;
    struct json_rest scope;
    int more;
    if (!message_find(scope_logs, 1, &field))
        return SHIPPED_SYNTAX;
    enum shipped_flaw flaw = write_told(r, &field, otlp_write_scope, &scope);
    if (flaw == SHIPPED_FINE)
        flaw = set_headers(r, resource, &scope);
    while (flaw == SHIPPED_FINE && (more = message_next(&scope_logs, &field)) != 0) {
        if (more < 0)
            return SHIPPED_SYNTAX;
        if (field.number == 2 && field.type == WIRE_BYTES)
            flaw = read_record(r, field.in);
    }
    return flaw;
}

static enum shipped_flaw read_resource(struct reading *r, struct message resource_logs)
{
    struct field field;
    struct json_rest resource;
    int more;
    if (!message_find(resource_logs, 1, &field))
        return SHIPPED_SYNTAX;
    enum shipped_flaw flaw = write_told(r, &field, otlp_write_resource, &resource);
    while (flaw == SHIPPED_FINE && (more = message_next(&resource_logs, &field)) != 0) {
        if (more < 0)
            return SHIPPED_SYNTAX;
        if (field.number == 2 && field.type == WIRE_BYTES)
            flaw = read_scope(r, field.in, &resource);
    }
    return flaw;
}

enum shipped_flaw otlp_read(struct shipped *shipped, const uint8_t *bytes, size_t len)
{
    struct reading r = {.shipped = shipped, .draft_cap = shipped->limits.event_bytes_max};
    struct message request = {bytes, bytes + len};
    struct field field;
    enum shipped_flaw flaw = SHIPPED_FINE;
    int more = 0;
    r.draft = malloc(r.draft_cap > 0 ? r.draft_cap : 1);
    if (r.draft == NULL)
        return SHIPPED_NO_MEMORY;
    while (flaw == SHIPPED_FINE && (more = message_next(&request, &field)) > 0)
        if (field.number == 1 && field.type == WIRE_BYTES)
            flaw = read_resource(&r, field.in);
    free(r.draft);
    return more < 0 ? SHIPPED_SYNTAX : flaw;
}

/* ---- JSON ---- */

typedef enum shipped_flaw (*taker)(struct reading *r, struct json_rest value,
                                   const struct json_rest *with);

/* Where the values of two members are; p NULL: nowhere. */
static bool find_members(struct json_rest object, const char *first, const char *second,
                         struct json_rest found[2])
{
    found[0] = found[1] = (struct json_rest){NULL, NULL};
    if (!json_take(&object, '{'))
        return false;
    if (json_take(&object, '}'))
        return true;
    do {
        struct json_rest name, value;
        if (!json_take_name(&object, &name))
            return false;
        json_peek(&object);
        value.p = object.p;
        if (!json_pass_value(&object))
            return false;
        value.end = object.p;
        if (json_is_named(&name, first, strlen(first)))
            found[0] = value;
        else if (json_is_named(&name, second, strlen(second)))
            found[1] = value;
    } while (json_take(&object, ','));
    return json_take(&object, '}');
}

/* Each element of an array. */
static enum shipped_flaw each_of(struct reading *r, struct json_rest array, taker take,
                                 const struct json_rest *with)
{
    if (array.p == NULL)
        return SHIPPED_FINE;
    if (!json_take(&array, '['))
        return SHIPPED_SYNTAX;
    if (json_take(&array, ']'))
        return SHIPPED_FINE;
    do {
        json_peek(&array);
        struct json_rest value = {array.p, array.p};
        if (!json_pass_value(&array))
            return SHIPPED_SYNTAX;
        value.end = array.p;
        const enum shipped_flaw flaw = take(r, value, with);
        if (flaw != SHIPPED_FINE)
            return flaw;
    } while (json_take(&array, ','));
    return json_take(&array, ']') ? SHIPPED_FINE : SHIPPED_SYNTAX;
}

/* Nanoseconds as a number or, as it is to be, in a string; 0: there are none, or no such number. */
static uint64_t read_nanos(struct json_rest text)
{
    uint64_t nanos = 0;
    if (text.p == NULL)
        return 0;
    if (*text.p == '"')
        text = (struct json_rest){text.p + 1, text.end - 1};
    if (text.end - text.p > NANOS_DIGITS_MAX)
        return 0;
    for (; text.p < text.end; text.p++) {
        if (*text.p < '0' || *text.p > '9')
            return 0;
        nanos = nanos * 10 + (uint64_t)(*text.p - '0');
    }
    return nanos;
}

static enum shipped_flaw take_json_record(struct reading *r, struct json_rest record,
                                          const struct json_rest *with)
{
    struct json_rest times[2];
    const size_t len = (size_t)(record.end - record.p);
    if (!find_members(record, "timeUnixNano", "observedTimeUnixNano", times))
        return SHIPPED_SYNTAX;
    const uint64_t nanos = read_nanos(times[0]);
    const bool fits = len <= r->shipped->limits.event_bytes_max;
    return take_record(r, record.p, len, nanos != 0 ? nanos : read_nanos(times[1]),
                       fits ? SHIPPED_FINE : SHIPPED_EVENT_TOO_LARGE);
}

static enum shipped_flaw take_scope(struct reading *r, struct json_rest scope_logs,
                                    const struct json_rest *resource)
{
    struct json_rest found[2];
    if (!find_members(scope_logs, "scope", "logRecords", found))
        return SHIPPED_SYNTAX;
    const enum shipped_flaw flaw = set_headers(r, resource, &found[0]);
    return flaw != SHIPPED_FINE ? flaw : each_of(r, found[1], take_json_record, NULL);
}

static enum shipped_flaw take_resource(struct reading *r, struct json_rest resource_logs,
                                       const struct json_rest *with)
{
    struct json_rest found[2];
    if (!find_members(resource_logs, "resource", "scopeLogs", found))
        return SHIPPED_SYNTAX;
    return each_of(r, found[1], take_scope, &found[0]);
}

enum shipped_flaw otlp_read_json(struct shipped *shipped, const uint8_t *bytes, size_t len)
{
    struct reading r = {.shipped = shipped};
    uint8_t *start = (uint8_t *)(uintptr_t)bytes; /* it is only read */
    struct json_rest body = {start, start + len}, found[2];
    assert(len <= UINT32_MAX);
    struct json_rest rest = body;
    if (json_peek(&rest) != '{' || !json_pass_value(&rest))
        return SHIPPED_SYNTAX;
    if (json_peek(&rest) != 0 || !find_members(body, "resourceLogs", "", found))
        return SHIPPED_SYNTAX;
    return each_of(&r, found[0], take_resource, NULL);
}
