#include "format/keyed.h"

#include <assert.h>
#include <string.h>

#include "base/base64.h"
#include "base/json.h"
#include "base/json_walk.h"
#include "base/moment.h"
#include "format/format.h"
#include "format/headers.h"

#define TIME_MAX (INT64_MAX - UINT32_MAX) /* as of a batch */
#define TIME_DIGITS_MAX 18
#define LINE_BYTES_MIN 8u /* {"a":1} and its end; with a value it is more */

/* {"base64": "..."} and nothing else in it: 1 and the text between the quotes. 0: another thing. */
static int find_base64(struct json_rest object, struct json_rest *text)
{
    static const char name[] = "\"base64\"";
    if (!json_take(&object, '{') || json_peek(&object) != '"' ||
        (size_t)(object.end - object.p) < sizeof name ||
        memcmp(object.p, name, sizeof name - 1) != 0)
        return 0;
    object.p += sizeof name - 1;
    if (!json_take(&object, ':') || !json_take(&object, '"'))
        return 0;
    uint8_t *quote = json_string_end(&object);
    if (quote == NULL)
        return 0;
    *text = (struct json_rest){object.p, quote};
    object.p = quote + 1;
    return json_take(&object, '}') && object.p == object.end;
}

/* ---- members ---- */

/* One body while it is read. */
struct reading {
    uint8_t *base;
    const struct keyed_rules *rules;
};

static enum keyed_flaw set_key(const struct reading *r, struct keyed_line *line, uint8_t *at,
                               int64_t len)
{
    if (len == -3 || len > KEYED_KEY_MAX)
        return KEYED_LONG_KEY;
    if (len < 0)
        return KEYED_KEY;
    line->key_at = (uint32_t)(at - r->base);
    line->key_len = (uint32_t)len;
    return KEYED_FINE;
}

/* A string's characters. Where the line is to stay as it is, an escaped one is only looked at. */
static enum keyed_flaw read_text_key(const struct reading *r, struct json_rest *rest,
                                     struct keyed_line *line)
{
    rest->p++;
    uint8_t *text = rest->p;
    const size_t plain = json_plain_run(text, (size_t)(rest->end - text));
    if (text + plain < rest->end && text[plain] == '"') { /* nothing in it needs care */
        rest->p = text + plain + 1;
        return set_key(r, line, text, (int64_t)plain);
    }
    uint8_t *quote = json_string_end(rest);
    if (quote == NULL)
        return KEYED_SYNTAX;
    const size_t raw = (size_t)(quote - text);
    rest->p = quote + 1;
    const bool is_escaped = memchr(text, '\\', raw) != NULL;
    const bool stays = r->rules->field_len > 0;
    if (!is_escaped && raw > KEYED_KEY_MAX)
        return KEYED_LONG_KEY;
    const int64_t len = json_write_text(text, raw, is_escaped && stays ? r->rules->key_room : text,
                                   KEYED_KEY_MAX);
    if (is_escaped && stays)
        line->key_escaped = (uint32_t)raw;
    return set_key(r, line, text, len);
}

static enum keyed_flaw read_key(const struct reading *r, struct json_rest *rest,
                                struct keyed_line *line)
{
    struct json_rest text;
    const uint8_t first = json_peek(rest);
    if (first == '"')
        return read_text_key(r, rest, line);
    const struct json_rest value = *rest;
    if (!json_pass_value(rest))
        return KEYED_SYNTAX;
    if (first == '{' && find_base64((struct json_rest){value.p, rest->p}, &text)) {
        const int64_t len = base64_write(text.p, (size_t)(text.end - text.p));
        return len < 0 ? KEYED_BASE64 : set_key(r, line, text.p, len);
    }
    return rest->p - value.p == 4 && memcmp(value.p, "null", 4) == 0 ? KEYED_FINE : KEYED_KEY;
}

static enum keyed_flaw read_value(const struct reading *r, struct json_rest *rest,
                                  struct keyed_line *line)
{
    struct json_rest text;
    const uint8_t first = json_peek(rest);
    uint8_t *start = rest->p;
    if (!json_pass_value(rest))
        return KEYED_SYNTAX;
    int64_t len = rest->p - start;
    if (first == 'n') {
        line->value_len = KEY_NULL;
        return KEYED_FINE;
    }
    if (first == '{' && find_base64((struct json_rest){start, rest->p}, &text)) {
        start = text.p;
        len = base64_write(text.p, (size_t)(text.end - text.p));
        if (len < 0)
            return KEYED_BASE64;
    }
    if ((uint64_t)len > r->rules->event_bytes_max)
        return KEYED_TOO_LARGE;
    line->value_at = (uint32_t)(start - r->base);
    line->value_len = (uint32_t)len;
    return KEYED_FINE;
}

/* A string's characters, or what {"base64": ...} stands for, in place of it. */
static enum keyed_flaw read_header_value(struct json_rest *rest, struct header *header)
{
    struct json_rest text;
    const uint8_t first = json_peek(rest);
    uint8_t *start = rest->p;
    if (!json_pass_value(rest))
        return KEYED_SYNTAX;
    int64_t len;
    if (first == '"') {
        header->value = ++start;
        len = json_write_text(start, (size_t)(rest->p - 1 - start), start, SIZE_MAX);
    } else if (first == '{' && find_base64((struct json_rest){start, rest->p}, &text)) {
        header->value = text.p;
        len = base64_write(text.p, (size_t)(text.end - text.p));
    } else {
        return KEYED_HEADERS;
    }
    if (len < 0 || len > HEADERS_BYTES_MAX)
        return KEYED_HEADERS;
    header->value_len = (uint32_t)len;
    return KEYED_FINE;
}

/* {"name": "value", ...}: as they are stored, in place of it, which is never shorter. None: {}. */
static enum keyed_flaw read_event_headers(const struct reading *r, struct json_rest *rest,
                                          struct keyed_line *line)
{
    struct headers_draft draft = {.out = r->rules->headers_room};
    json_peek(rest);
    uint8_t *start = rest->p;
    if (!json_take(rest, '{'))
        return KEYED_HEADERS;
    if (json_take(rest, '}'))
        return KEYED_FINE;
    do {
        struct json_rest name;
        struct header header;
        if (!json_take_name(rest, &name))
            return KEYED_SYNTAX;
        const int64_t len = json_write_text(name.p, (size_t)(name.end - name.p), name.p, SIZE_MAX);
        if (len < 0 || len > HEADER_NAME_MAX)
            return KEYED_HEADERS;
        header.name = name.p;
        header.name_len = (uint32_t)len;
        const enum keyed_flaw flaw = read_header_value(rest, &header);
        if (flaw != KEYED_FINE)
            return flaw;
        if (!headers_add(&draft, &header))
            return KEYED_HEADERS;
    } while (json_take(rest, ','));
    if (!json_take(rest, '}'))
        return KEYED_SYNTAX;
    assert(draft.len <= (size_t)(rest->p - start));
    memcpy(start, draft.out, draft.len);
    line->headers_at = (uint32_t)(start - r->base);
    line->headers_len = (uint32_t)draft.len;
    return KEYED_FINE;
}

static enum keyed_flaw read_time(struct json_rest *rest, struct keyed_line *line)
{
    json_peek(rest);
    const uint8_t *end = json_word_end(rest);
    int64_t time = 0;
    const bool before = rest->p < end && *rest->p == '-';
    rest->p += before;
    if (end == rest->p || end - rest->p > TIME_DIGITS_MAX ||
        (*rest->p == '0' && (before || end - rest->p > 1)))
        return KEYED_TIME;
    for (; rest->p < end; rest->p++) {
        if (*rest->p < '0' || *rest->p > '9')
            return KEYED_TIME;
        time = time * 10 + (*rest->p - '0');
    }
    assert(time >= 0 && time < TIME_MAX);
    line->timestamp = before ? -time : time;
    return line->timestamp < TIMESTAMP_US_MIN ? KEYED_TIME : KEYED_FINE;
}

/* A string as headers spell times and spans, or a whole number of milliseconds: of what else JSON
 * has outside of quotes they take nothing. */
static enum keyed_flaw read_due(const struct reading *r, struct json_rest *rest, bool after,
                                struct keyed_line *line)
{
    const bool quoted = json_peek(rest) == '"';
    uint8_t *text = rest->p;
    if (!json_pass_value(rest))
        return KEYED_SYNTAX;
    int64_t len = rest->p - text, us;
    if (quoted) {
        text++;
        len = json_write_text(text, (size_t)len - 2, text, SIZE_MAX);
    }
    const char *spelled = (const char *)text;
    if (len < 0 || !(after ? span_parse : moment_parse)(spelled, (size_t)len, &us))
        return KEYED_DUE;
    us += after ? r->rules->now_us : 0; /* neither is beyond MOMENT_US_MAX */
    if (us < r->rules->due_least_us)
        return KEYED_DUE;
    line->timestamp = us;
    return us > r->rules->due_most_us ? KEYED_FAR_DUE : KEYED_FINE;
}

/* The members of a line, as bits of those that were seen. */
enum { KEY = 1, VALUE = 2, TIME = 4, HEADERS = 8, DUE_AT = 16, DUE_AFTER = 32 };
#define ANY_TIME (TIME | DUE_AT | DUE_AFTER)

static unsigned member_named(const struct json_rest *name)
{
    return json_is_named(name, "value", 5)          ? VALUE
           : json_is_named(name, "key", 3)          ? KEY
           : json_is_named(name, "timestamp", 9)    ? TIME
           : json_is_named(name, "headers", 7)      ? HEADERS
           : json_is_named(name, "deliverAt", 9)    ? DUE_AT
           : json_is_named(name, "deliverAfter", 12) ? DUE_AFTER
                                                    : 0;
}

/* {"key":"...","value": as most programs write it, and nothing in the key that needs care: both are
 * found by one look each. Passes over that; false: it is written otherwise, and all is still to be
 * read. */
static bool pass_usual(const struct reading *r, struct json_rest *rest, struct keyed_line *line)
{
    static const char before[] = "{\"key\":\"", behind[] = "\",\"value\":";
    enum { BEFORE = sizeof before - 1, BEHIND = sizeof behind - 1 };
    if (rest->end - rest->p < BEFORE + BEHIND || memcmp(rest->p, before, BEFORE) != 0)
        return false;
    uint8_t *key = rest->p + BEFORE;
    const size_t len = json_plain_run(key, (size_t)(rest->end - key));
    if (len > KEYED_KEY_MAX || rest->end - (key + len) < BEHIND ||
        memcmp(key + len, behind, BEHIND) != 0)
        return false;
    line->key_at = (uint32_t)(key - r->base);
    line->key_len = (uint32_t)len;
    rest->p = key + len + BEHIND;
    return true;
}

/* {"key": ..., "value": ..., "timestamp": ..., "headers": ...} */
static enum keyed_flaw read_event(const struct reading *r, struct json_rest rest,
                                  struct keyed_line *line, bool *delayed)
{
    unsigned seen = 0;
    bool more = true;
    if (pass_usual(r, &rest, line)) {
        const enum keyed_flaw flaw = read_value(r, &rest, line);
        if (flaw != KEYED_FINE)
            return flaw;
        seen = KEY | VALUE;
        more = json_take(&rest, ',');
    } else if (!json_take(&rest, '{')) {
        return KEYED_SYNTAX;
    } else if (json_peek(&rest) == '}') {
        return KEYED_VALUE;
    }
    while (more) {
        struct json_rest name;
        if (!json_take_name(&rest, &name))
            return KEYED_SYNTAX;
        const unsigned which = member_named(&name);
        if (which == 0 || (seen & which))
            return KEYED_MEMBER;
        if ((which & ANY_TIME) && (seen & ANY_TIME))
            return KEYED_DUE;
        seen |= which;
        const enum keyed_flaw flaw = which == VALUE ? read_value(r, &rest, line)
                                     : which == KEY ? read_key(r, &rest, line)
                                     : which == TIME ? read_time(&rest, line)
                                     : which == HEADERS
                                         ? read_event_headers(r, &rest, line)
                                         : read_due(r, &rest, which == DUE_AFTER, line);
        if (flaw != KEYED_FINE)
            return flaw;
        more = json_take(&rest, ',');
    }
    if (!json_take(&rest, '}') || json_peek(&rest) != 0 || rest.p != rest.end)
        return KEYED_SYNTAX;
    *delayed = seen & (DUE_AT | DUE_AFTER);
    return seen & VALUE ? KEYED_FINE : KEYED_VALUE;
}

/* The text of a number, or of true or false, as it stands. */
static enum keyed_flaw read_word_key(const struct reading *r, struct json_rest *rest,
                                     struct keyed_line *line)
{
    uint8_t *end = json_word_end(rest);
    const size_t len = (size_t)(end - rest->p);
    if (!json_valid(rest->p, len))
        return KEYED_SYNTAX;
    return *rest->p == 'n' ? KEYED_KEY : set_key(r, line, rest->p, (int64_t)len);
}

/* The first member of that name is the key; what is behind it is not looked at. */
static enum keyed_flaw read_member(const struct reading *r, struct json_rest rest,
                                   struct keyed_line *line)
{
    if (!json_take(&rest, '{'))
        return KEYED_SYNTAX;
    if (json_peek(&rest) == '}')
        return KEYED_KEY;
    do {
        struct json_rest name;
        if (!json_take_name(&rest, &name))
            return KEYED_SYNTAX;
        if (!json_is_named(&name, r->rules->field, r->rules->field_len)) {
            if (!json_pass_value(&rest))
                return KEYED_SYNTAX;
            continue;
        }
        const uint8_t first = json_peek(&rest);
        if (first == '{' || first == '[' || first == 0)
            return KEYED_KEY;
        return first == '"' ? read_text_key(r, &rest, line) : read_word_key(r, &rest, line);
    } while (json_take(&rest, ','));
    return json_peek(&rest) == '}' ? KEYED_KEY : KEYED_SYNTAX;
}

/* ---- lines ---- */

const uint8_t *keyed_key(const uint8_t *bytes, const struct keyed_line *line, uint8_t *room)
{
    assert(line->key_len != KEY_NULL && line->key_len <= KEYED_KEY_MAX);
    if (line->key_escaped == 0)
        return bytes + line->key_at;
    const int64_t len = json_write_text(bytes + line->key_at, line->key_escaped, room,
                                        KEYED_KEY_MAX);
    assert(len == (int64_t)line->key_len); /* as when it was looked at */
    return room;
}

uint32_t keyed_lines_most(size_t len)
{
    const size_t most = len / LINE_BYTES_MIN + 1;
    return most < KEYED_LINES_MAX ? (uint32_t)most : KEYED_LINES_MAX;
}

static enum keyed_flaw read_line(const struct reading *r, uint8_t *start, uint8_t *end,
                                 struct keyed_line *line, bool *delayed)
{
    const struct json_rest rest = {start, end};
    *line = (struct keyed_line){.key_len = KEY_NULL, .timestamp = KEYED_NO_TIME};
    *delayed = false;
    if (r->rules->field_len == 0)
        return read_event(r, rest, line, delayed);
    if ((uint64_t)(end - start) > r->rules->event_bytes_max)
        return KEYED_TOO_LARGE;
    line->value_at = (uint32_t)(start - r->base);
    line->value_len = (uint32_t)(end - start);
    return read_member(r, rest, line);
}

enum keyed_flaw keyed_read(uint8_t *bytes, size_t len, const struct keyed_rules *rules,
                           struct keyed_line *out, uint32_t room, uint32_t *count, bool *delayed,
                           uint64_t *line)
{
    bool due = false;
    const struct reading reading = {bytes, rules};
    assert(len <= UINT32_MAX && room <= KEYED_LINES_MAX);
    *delayed = false;
    *count = 0;
    *line = 0;
    for (uint8_t *at = bytes, *end = bytes + len, *next; at < end; at = next) {
        uint8_t *stop = memchr(at, '\n', (size_t)(end - at));
        next = stop != NULL ? stop + 1 : end;
        stop = stop != NULL ? stop : end;
        ++*line;
        if (stop > at && stop[-1] == '\r')
            stop--;
        struct json_rest rest = {at, stop};
        if (json_peek(&rest) == 0 && rest.p == rest.end)
            continue;
        if (*count == room)
            return KEYED_TOO_MANY;
        enum keyed_flaw flaw = read_line(&reading, at, stop, &out[*count], &due);
        if (*count == 0)
            *delayed = due;
        if (flaw == KEYED_FINE && due != *delayed)
            flaw = KEYED_MIXED_DUE;
        if (flaw == KEYED_FINE && (out[*count].timestamp == KEYED_NO_TIME) !=
                                      (out[0].timestamp == KEYED_NO_TIME))
            flaw = KEYED_MIXED;
        if (flaw != KEYED_FINE)
            return flaw;
        ++*count;
    }
    return KEYED_FINE;
}
