#define _GNU_SOURCE /* memmem, which takes no longer the more often a text nearly fits */
#include "read/condition.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/json_walk.h"
#include "format/headers.h"

#define EXACT_DIGITS 15u /* A number of no more characters is not rounded as a double. */

/* An event, and whether its value is JSON: that is found out once, however many conditions ask. */
struct look {
    const struct condition_event *event;
    enum { NOT_YET, IS_JSON, NO_JSON } value;
};

/* What a condition is about, of one event. */
struct subject {
    enum { NOTHING, TEXT, NUMBER, WORD, CONTAINER } kind;
    const uint8_t *p;
    size_t len;
};

static bool is_number(const uint8_t *p, size_t len)
{
    return len > 0 && (*p == '-' || (*p >= '0' && *p <= '9')) && json_valid(p, len);
}

static double number_of(const uint8_t *p, size_t len)
{
    char text[JSON_NUMBER_MAX + 1];
    assert(len <= JSON_NUMBER_MAX);
    memcpy(text, p, len);
    text[len] = 0;
    return strtod(text, NULL);
}

/* ---- into a value ---- */

/* Whether a name between its quotes is that of the step, which may be escaped in it. */
static bool is_step(const struct conditions *all, const struct condition_step *step,
                    const struct json_rest *name)
{
    const size_t len = (size_t)(name->end - name->p);
    if (memchr(name->p, '\\', len) == NULL)
        return json_is_named(name, step->name, step->len);
    const int64_t plain = json_write_text(name->p, len, all->room, all->room_bytes);
    return plain == (int64_t)step->len && memcmp(all->room, step->name, step->len) == 0;
}

/* From an object to its member: of a name that comes again the last one, as parsers have it. */
static bool into_object(const struct conditions *all, const struct condition_step *step,
                        struct json_rest *at)
{
    struct json_rest found = {NULL, NULL}, name;
    if (!json_take(at, '{') || json_peek(at) == '}')
        return false;
    do {
        if (!json_take_name(at, &name))
            return false;
        json_peek(at);
        uint8_t *start = at->p;
        if (!json_pass_value(at))
            return false;
        if (is_step(all, step, &name))
            found = (struct json_rest){start, at->p};
    } while (json_take(at, ','));
    *at = found;
    return found.p != NULL;
}

static bool into_array(const struct condition_step *step, struct json_rest *at)
{
    if (!json_take(at, '[') || json_peek(at) == ']')
        return false;
    for (uint64_t left = step->index;; left--) {
        json_peek(at);
        uint8_t *start = at->p;
        if (!json_pass_value(at))
            return false;
        if (left == 0) {
            *at = (struct json_rest){start, at->p};
            return true;
        }
        if (!json_take(at, ','))
            return false;
    }
}

static bool is_json(struct look *look)
{
    const struct condition_event *event = look->event;
    if (look->value == NOT_YET)
        look->value = event->value != NULL && json_valid(event->value, event->value_len) ? IS_JSON
                                                                                         : NO_JSON;
    return look->value == IS_JSON;
}

/* What stands at a place of a value that is JSON. */
static struct subject at_place(const struct conditions *all, const struct condition *one,
                               struct look *look)
{
    struct subject found = {NOTHING, NULL, 0};
    if (!is_json(look))
        return found;
    const struct condition_event *event = look->event;
    /* Nothing is written through it: the walk's own writers are not called. */
    uint8_t *start = (uint8_t *)(uintptr_t)event->value;
    struct json_rest at = {start, start + event->value_len};
    for (uint32_t i = 0; i < one->step_count; i++) {
        const struct condition_step *step = &one->steps[i];
        if (!(step->name != NULL ? into_object(all, step, &at) : into_array(step, &at)))
            return found;
    }
    const uint8_t first = json_peek(&at);
    struct json_rest end = at;
    if (!json_pass_value(&end))
        return found;
    found = (struct subject){NUMBER, at.p, (size_t)(end.p - at.p)};
    if (first == '{' || first == '[')
        found.kind = CONTAINER;
    else if (first == 't' || first == 'f' || first == 'n')
        found.kind = WORD;
    else if (first == '"') {
        found = (struct subject){TEXT, at.p + 1, found.len - 2};
        if (memchr(found.p, '\\', found.len) != NULL) {
            const int64_t len = json_write_text(found.p, found.len, all->room, all->room_bytes);
            if (len < 0)
                return (struct subject){NOTHING, NULL, 0};
            found = (struct subject){TEXT, all->room, (size_t)len};
        }
    }
    return found;
}

/* ---- of an event ---- */

static struct subject header_of(const struct condition *one, const uint8_t *at)
{
    struct subject found = {NOTHING, NULL, 0};
    for (uint32_t left = at == NULL ? 0 : headers_begin(&at); left > 0; left--) {
        const struct header each = headers_next(&at);
        if (each.name_len == one->name_len && memcmp(each.name, one->name, one->name_len) == 0)
            found = (struct subject){TEXT, each.value, each.value_len};
    }
    return found;
}

static struct subject subject_of(const struct conditions *all, const struct condition *one,
                                 struct look *look)
{
    const struct condition_event *event = look->event;
    switch (one->of) {
    case OF_KEY:
        return (struct subject){event->key == NULL ? NOTHING : TEXT, event->key, event->key_len};
    case OF_HEADER:
        return header_of(one, event->headers);
    case OF_BYTES:
        return (struct subject){event->value == NULL ? NOTHING : TEXT, event->value,
                                event->value_len};
    default:
        return at_place(all, one, look);
    }
}

static bool is_same(const struct condition *one, const struct subject *it)
{
    const bool alike = it->len == one->text_len && memcmp(it->p, one->text, it->len) == 0;
    if (it->kind == TEXT)
        return alike;
    if (one->quoted || it->kind == CONTAINER)
        return false;
    if (alike || it->kind == WORD || !one->has_number)
        return alike;
    return it->len <= EXACT_DIGITS && one->text_len <= EXACT_DIGITS &&
           number_of(it->p, it->len) == one->number;
}

static bool has_text(const struct conditions *all, const struct condition *one,
                     const struct subject *it)
{
    if (it->len < one->text_len)
        return false;
    assert(it->len <= all->room_bytes);
    for (size_t i = 0; i < it->len; i++) /* It may stand there already. */
        all->room[i] = it->p[i] >= 'A' && it->p[i] <= 'Z' ? it->p[i] | 0x20 : it->p[i];
    return memmem(all->room, it->len, one->text, one->text_len) != NULL;
}

/* Numbers with numbers, texts with texts by their bytes; -2: they have no order. */
static int order_of(const struct condition *one, const struct subject *it)
{
    if (one->has_number && !one->quoted) {
        /* Of what has no types a text that is a number is meant as one. */
        if (it->kind != NUMBER && (one->of == OF_PATH || !is_number(it->p, it->len)))
            return -2;
        const double value = number_of(it->p, it->len);
        return (value > one->number) - (value < one->number);
    }
    if (it->kind != TEXT)
        return -2;
    const size_t both = it->len < one->text_len ? it->len : one->text_len;
    const int order = memcmp(it->p, one->text, both);
    if (order != 0)
        return order > 0 ? 1 : -1;
    return (it->len > one->text_len) - (it->len < one->text_len);
}

static bool holds(const struct conditions *all, const struct condition *one, struct look *look)
{
    const struct subject it = subject_of(all, one, look);
    if (it.kind == NOTHING)
        return one->test == IS_NOT;
    switch (one->test) {
    case IS_THERE:
        return true;
    case IS:
        return is_same(one, &it);
    case IS_NOT:
        return !is_same(one, &it);
    case HAS:
        return has_text(all, one, &it);
    default:
        break;
    }
    const int order = order_of(one, &it);
    switch (one->test) {
    case BELOW:
        return order == -1;
    case AT_MOST:
        return order == -1 || order == 0;
    case ABOVE:
        return order == 1;
    default:
        return order >= 0;
    }
}

bool conditions_hold(const struct conditions *all, const struct condition_event *event)
{
    assert(all->count <= CONDITIONS_MAX);
    struct look look = {event, NOT_YET};
    for (uint32_t i = 0; i < all->count; i++)
        if (!holds(all, &all->each[i], &look))
            return false;
    return true;
}
