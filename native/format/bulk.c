#include "format/bulk.h"

#include <assert.h>
#include <string.h>

/* One body while it is read. */
struct reading {
    struct shipped *shipped;
    struct json_rest rest;
};

/* What the line before a document says. */
struct action {
    uint8_t op, flaw;
    const uint8_t *index, *id, *key;
    uint32_t index_len, id_len, key_len; /* key_len KEY_NULL: none */
};

/* The next line that is not blank, without its end. False: there is none. */
static bool next_line(struct reading *reading, struct json_rest *line)
{
    struct json_rest *rest = &reading->rest;
    while (rest->p < rest->end) {
        uint8_t *stop = memchr(rest->p, '\n', (size_t)(rest->end - rest->p));
        uint8_t *end = stop != NULL ? stop : rest->end;
        *line = (struct json_rest){rest->p, end};
        rest->p = stop != NULL ? stop + 1 : end;
        reading->shipped->at++;
        while (line->end > line->p && json_is_space(line->end[-1]))
            line->end--;
        if (json_peek(line) != 0)
            return true;
    }
    return false;
}

/* A string's characters, or a number's text. Nothing of null. */
static enum shipped_flaw read_word(struct shipped *shipped, struct json_rest *rest,
                                   const uint8_t **out, uint32_t *len, struct json_rest *raw)
{
    const uint8_t first = json_peek(rest);
    raw->p = rest->p;
    *out = NULL;
    *len = 0;
    if (!json_pass_value(rest) || first == '{' || first == '[')
        return SHIPPED_SYNTAX;
    raw->end = rest->p;
    if (first == 'n')
        return SHIPPED_FINE;
    if (first == '"')
        return shipped_text(shipped, &(struct json_rest){raw->p + 1, raw->end - 1}, out, len);
    *out = raw->p;
    *len = (uint32_t)(raw->end - raw->p);
    return SHIPPED_FINE;
}

/* {"_index": ..., "_id": ..., "routing": ...}; what else there is says nothing to a log. */
static enum shipped_flaw read_target(struct shipped *shipped, struct json_rest *rest,
                                     struct action *action)
{
    struct json_rest name, raw;
    const uint8_t *id = NULL, *routing = NULL;
    uint32_t id_len = 0, routing_len = 0;
    if (!json_take(rest, '{'))
        return SHIPPED_SYNTAX;
    if (json_take(rest, '}'))
        return SHIPPED_FINE;
    do {
        enum shipped_flaw flaw = SHIPPED_FINE;
        if (!json_take_name(rest, &name))
            return SHIPPED_SYNTAX;
        if (json_is_named(&name, "_index", 6)) {
            flaw = read_word(shipped, rest, &action->index, &action->index_len, &raw);
        } else if (json_is_named(&name, "_id", 3)) {
            flaw = read_word(shipped, rest, &id, &id_len, &raw);
            action->id = id != NULL ? raw.p : NULL;
            action->id_len = id != NULL ? (uint32_t)(raw.end - raw.p) : 0;
        } else if (json_is_named(&name, "routing", 7)) {
            flaw = read_word(shipped, rest, &routing, &routing_len, &raw);
        } else if (!json_pass_value(rest)) {
            flaw = SHIPPED_SYNTAX;
        }
        if (flaw != SHIPPED_FINE)
            return flaw;
    } while (json_take(rest, ','));
    action->key = routing != NULL ? routing : id;
    action->key_len = routing != NULL ? routing_len : id != NULL ? id_len : KEY_NULL;
    return json_take(rest, '}') ? SHIPPED_FINE : SHIPPED_SYNTAX;
}

/* {"create": {...}} */
static enum shipped_flaw read_action(struct shipped *shipped, struct json_rest line,
                                     struct action *action)
{
    static const char *const names[] = {"index", "create", "update", "delete"};
    struct json_rest name;
    uint8_t op = 0;
    *action = (struct action){.key_len = KEY_NULL};
    if (!json_take(&line, '{') || !json_take_name(&line, &name))
        return SHIPPED_SYNTAX;
    while (op < 4 && !json_is_named(&name, names[op], strlen(names[op])))
        op++;
    if (op == 4)
        return SHIPPED_SYNTAX;
    action->op = op;
    action->flaw = op == BULK_UPDATE || op == BULK_DELETE ? SHIPPED_OP : SHIPPED_FINE;
    const enum shipped_flaw flaw = read_target(shipped, &line, action);
    if (flaw != SHIPPED_FINE)
        return flaw;
    return json_take(&line, '}') && json_peek(&line) == 0 ? SHIPPED_FINE : SHIPPED_SYNTAX;
}

/* What is wrong with this document alone. */
static uint8_t document_flaw(const struct shipped *shipped, const struct action *action,
                             const struct json_rest *line)
{
    if (action->flaw != SHIPPED_FINE)
        return action->flaw;
    if (*line->p != '{' || line->end[-1] != '}')
        return SHIPPED_SYNTAX;
    if ((uint64_t)(line->end - line->p) > shipped->limits.event_bytes_max)
        return SHIPPED_EVENT_TOO_LARGE;
    return action->key_len != KEY_NULL && action->key_len > SHIPPED_KEY_MAX ? SHIPPED_KEY
                                                                           : SHIPPED_FINE;
}

static enum shipped_flaw take_item(struct shipped *shipped, const struct action *action,
                                   const struct json_rest *line)
{
    enum shipped_flaw flaw;
    struct shipped_event *event = shipped_next(shipped, &flaw);
    if (event == NULL)
        return flaw;
    const struct shipped_kind kind = {.name = action->index, .name_len = action->index_len,
                                      .op = action->op,
                                      .flaw = line != NULL ? document_flaw(shipped, action, line)
                                                           : action->flaw};
    event->id = action->id;
    event->id_len = action->id_len;
    flaw = shipped_kind(shipped, &kind, &event->kind);
    if (flaw != SHIPPED_FINE)
        return flaw;
    if (kind.flaw == SHIPPED_FINE) {
        assert(line != NULL); /* without one it was to be deleted */
        event->value = line->p;
        event->value_len = (uint32_t)(line->end - line->p);
        event->key = action->key;
        event->key_len = action->key_len;
    }
    return shipped_done(shipped, event);
}

enum shipped_flaw bulk_read(struct shipped *shipped, const uint8_t *bytes, size_t len)
{
    /* It is only read: what has to be written anew is in a room. */
    uint8_t *start = (uint8_t *)(uintptr_t)bytes;
    struct reading reading = {shipped, {start, start + len}};
    struct json_rest line;
    assert(len <= UINT32_MAX);
    while (next_line(&reading, &line)) {
        struct action action;
        enum shipped_flaw flaw = read_action(shipped, line, &action);
        if (flaw != SHIPPED_FINE)
            return flaw;
        const bool alone = action.op == BULK_DELETE;
        if (!alone && !next_line(&reading, &line))
            return SHIPPED_NO_EVENT;
        flaw = take_item(shipped, &action, alone ? NULL : &line);
        if (flaw != SHIPPED_FINE)
            return flaw;
    }
    return SHIPPED_FINE;
}
