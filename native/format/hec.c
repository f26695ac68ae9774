#include "format/hec.h"

#include <assert.h>
#include <string.h>

#include "format/headers.h"

#define SECONDS_DIGITS_MAX 12
#define MICROS_DIGITS 6

/* In the order in which they are stored. */
enum { HOST, SOURCE, SOURCETYPE, FIELDS, TOLD };
static const char *const told_names[TOLD] = {"host", "source", "sourcetype", "fields"};

/* One body while it is read. */
struct reading {
    struct shipped *shipped;
    struct json_rest last[TOLD]; /* what was said of the event before, and the headers it made */
    const uint8_t *headers;
    uint32_t headers_len;
};

/* What one object says: where each value is; p NULL: nowhere. */
struct object {
    struct json_rest told[TOLD], event, time, index;
};

static bool is_digit(uint8_t c) { return c >= '0' && c <= '9'; }

/* Seconds with or without a fraction, as a number or in a string, in microseconds; -1: neither. */
static int64_t read_seconds(struct json_rest text)
{
    int64_t micros = 0;
    if (text.p < text.end && *text.p == '"')
        text = (struct json_rest){text.p + 1, text.end - 1};
    const uint8_t *start = text.p;
    for (; text.p < text.end && is_digit(*text.p); text.p++) {
        if (text.p - start == SECONDS_DIGITS_MAX)
            return -1;
        micros = micros * 10 + (*text.p - '0');
    }
    if (text.p == start)
        return -1;
    int digits = 0;
    if (text.p < text.end && *text.p == '.')
        for (text.p++; text.p < text.end && is_digit(*text.p); text.p++)
            if (digits < MICROS_DIGITS) {
                micros = micros * 10 + (*text.p - '0');
                digits++;
            }
    for (; digits < MICROS_DIGITS; digits++)
        micros *= 10;
    return text.p == text.end ? micros : -1;
}

/* Where the value of a member that is known is kept; NULL: it is passed over. */
static struct json_rest *place_of(struct object *object, const struct json_rest *name)
{
    for (int i = 0; i < TOLD; i++)
        if (json_is_named(name, told_names[i], strlen(told_names[i])))
            return &object->told[i];
    return json_is_named(name, "event", 5)   ? &object->event
           : json_is_named(name, "time", 4)  ? &object->time
           : json_is_named(name, "index", 5) ? &object->index
                                             : NULL;
}

static bool is_null(const struct json_rest *value)
{
    return value->p == NULL || json_is_named(value, "null", 4);
}

static enum shipped_flaw find_members(struct json_rest *rest, struct object *object)
{
    *object = (struct object){0};
    if (!json_take(rest, '{'))
        return SHIPPED_SYNTAX;
    if (json_take(rest, '}'))
        return SHIPPED_FINE;
    do {
        struct json_rest name;
        if (!json_take_name(rest, &name))
            return SHIPPED_SYNTAX;
        struct json_rest *place = place_of(object, &name), value;
        json_peek(rest);
        value.p = rest->p;
        if (!json_pass_value(rest))
            return SHIPPED_SYNTAX;
        value.end = rest->p;
        if (place != NULL)
            *place = value;
    } while (json_take(rest, ','));
    return json_take(rest, '}') ? SHIPPED_FINE : SHIPPED_SYNTAX;
}

/* A string's characters; of anything else the text. */
static enum shipped_flaw text_of(struct shipped *shipped, const struct json_rest *value,
                                 const uint8_t **out, uint32_t *len)
{
    if (*value->p == '"')
        return shipped_text(shipped, &(struct json_rest){value->p + 1, value->end - 1}, out, len);
    *out = value->p;
    *len = (uint32_t)(value->end - value->p);
    return SHIPPED_FINE;
}

static bool is_same(const struct json_rest *a, const struct json_rest *b)
{
    const size_t len = (size_t)(a->end - a->p);
    return (a->p == NULL) == (b->p == NULL) && len == (size_t)(b->end - b->p) &&
           (len == 0 || memcmp(a->p, b->p, len) == 0);
}

/* The headers of what is said of an event. A shipper says the same of most: those are kept. */
static enum shipped_flaw make_headers(struct reading *r, const struct object *object)
{
    uint8_t bytes[HEADERS_STORED_MAX];
    struct headers_draft draft = {.out = bytes};
    enum shipped_flaw flaw;
    r->headers_len = 0; /* as long as they are not whole */
    for (int i = 0; i < TOLD; i++) {
        const struct json_rest *told = &object->told[i];
        r->last[i] = *told;
        if (is_null(told))
            continue;
        struct header header = {.name = (const uint8_t *)told_names[i],
                                .name_len = (uint32_t)strlen(told_names[i])};
        flaw = text_of(r->shipped, told, &header.value, &header.value_len);
        if (flaw != SHIPPED_FINE)
            return flaw;
        if (!headers_add(&draft, &header))
            return SHIPPED_HEADERS;
    }
    if (draft.len == 0)
        return SHIPPED_FINE;
    r->headers_len = (uint32_t)draft.len;
    return shipped_keep(r->shipped, bytes, draft.len, &r->headers);
}

static enum shipped_flaw find_kind(struct shipped *shipped, const struct json_rest *index,
                                   uint32_t *number)
{
    struct shipped_kind kind = {0};
    if (!is_null(index)) {
        const enum shipped_flaw flaw = text_of(shipped, index, &kind.name, &kind.name_len);
        if (flaw != SHIPPED_FINE)
            return flaw;
    }
    return shipped_kind(shipped, &kind, number);
}

static enum shipped_flaw take_object(struct reading *r, const struct object *object)
{
    struct shipped *shipped = r->shipped;
    enum shipped_flaw flaw;
    bool same = true;
    if (is_null(&object->event))
        return SHIPPED_NO_EVENT;
    const int64_t time = is_null(&object->time) ? 0 : read_seconds(object->time);
    if (time < 0)
        return SHIPPED_TIME;
    for (int i = 0; i < TOLD; i++)
        same &= is_same(&object->told[i], &r->last[i]);
    if (!same && (flaw = make_headers(r, object)) != SHIPPED_FINE)
        return flaw;
    struct shipped_event *event = shipped_next(shipped, &flaw);
    if (event == NULL)
        return flaw;
    event->time_us = shipped_time(shipped, time);
    event->headers = r->headers;
    event->headers_len = r->headers_len;
    flaw = find_kind(shipped, &object->index, &event->kind);
    if (flaw == SHIPPED_FINE)
        flaw = text_of(shipped, &object->event, &event->value, &event->value_len);
    if (flaw != SHIPPED_FINE)
        return flaw;
    return event->value_len == 0 ? SHIPPED_BLANK_EVENT : shipped_done(shipped, event);
}

enum shipped_flaw hec_read(struct shipped *shipped, const uint8_t *bytes, size_t len)
{
    /* It is only read: what has to be written anew is in a room. */
    uint8_t *start = (uint8_t *)(uintptr_t)bytes;
    struct json_rest rest = {start, start + len};
    struct reading reading = {.shipped = shipped};
    assert(len <= UINT32_MAX);
    for (; json_peek(&rest), rest.p < rest.end; shipped->at++) {
        struct object object;
        enum shipped_flaw flaw = find_members(&rest, &object);
        if (flaw == SHIPPED_FINE)
            flaw = take_object(&reading, &object);
        if (flaw != SHIPPED_FINE)
            return flaw;
    }
    return SHIPPED_FINE;
}

enum shipped_flaw lines_read(struct shipped *shipped, const uint8_t *bytes, size_t len,
                             const uint8_t *headers, uint32_t headers_len)
{
    const struct shipped_kind kind = {0};
    assert(headers_len == 0 || headers_valid(headers, headers_len));
    for (const uint8_t *at = bytes, *end = bytes + len, *next; at < end; at = next) {
        const uint8_t *stop = memchr(at, '\n', (size_t)(end - at));
        next = stop != NULL ? stop + 1 : end;
        stop = stop != NULL ? stop : end;
        if (stop > at && stop[-1] == '\r')
            stop--;
        if (stop == at)
            continue;
        enum shipped_flaw flaw;
        struct shipped_event *event = shipped_next(shipped, &flaw);
        if (event == NULL || (flaw = shipped_kind(shipped, &kind, &event->kind)) != SHIPPED_FINE)
            return flaw;
        event->value = at;
        event->value_len = (uint32_t)(stop - at);
        event->headers = headers;
        event->headers_len = headers_len;
        if ((flaw = shipped_done(shipped, event)) != SHIPPED_FINE)
            return flaw;
        shipped->at++;
    }
    return SHIPPED_FINE;
}
