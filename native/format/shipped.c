#include "format/shipped.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "format/chunk.h"

#define FIRST_EVENTS 256u
#define ROOM_BYTES (64u << 10)
#define EVENT_OWN_BYTES 24u /* of an event in a batch: lengths and time */

struct shipped_room {
    struct shipped_room *next;
    size_t used, capacity;
    uint8_t bytes[];
};

void shipped_free(struct shipped *shipped)
{
    for (struct shipped_room *room = shipped->room, *next; room != NULL; room = next) {
        next = room->next;
        free(room);
    }
    free(shipped->events);
    shipped->room = NULL;
    shipped->events = NULL;
    shipped->count = shipped->capacity = 0;
}

static bool grow(struct shipped *shipped)
{
    const uint32_t capacity = shipped->capacity > 0 ? 2 * shipped->capacity : FIRST_EVENTS;
    struct shipped_event *events = realloc(shipped->events, capacity * sizeof *events);
    if (events == NULL)
        return false;
    shipped->events = events;
    shipped->capacity = capacity;
    return true;
}

struct shipped_event *shipped_next(struct shipped *shipped, enum shipped_flaw *flaw)
{
    assert(shipped->count <= shipped->capacity);
    *flaw = shipped->count == SHIPPED_EVENTS_MAX ? SHIPPED_TOO_MANY : SHIPPED_NO_MEMORY;
    if (shipped->count == SHIPPED_EVENTS_MAX ||
        (shipped->count == shipped->capacity && !grow(shipped)))
        return NULL;
    struct shipped_event *event = &shipped->events[shipped->count++];
    *event = (struct shipped_event){.key_len = KEY_NULL};
    *flaw = SHIPPED_FINE;
    return event;
}

static enum shipped_flaw count_in(const struct shipped *shipped, uint64_t *sum, uint64_t bytes)
{
    assert(*sum <= shipped->limits.bytes_max);
    if (bytes > shipped->limits.bytes_max - *sum)
        return SHIPPED_TOO_LARGE;
    *sum += bytes;
    return SHIPPED_FINE;
}

enum shipped_flaw shipped_done(struct shipped *shipped, const struct shipped_event *event)
{
    assert(event->kind < shipped->kind_count);
    shipped->kinds[event->kind].count++;
    if (event->value_len > shipped->limits.event_bytes_max)
        return SHIPPED_EVENT_TOO_LARGE;
    return count_in(shipped, &shipped->bytes,
                    (uint64_t)event->value_len + bytes_of(event->key_len) + event->headers_len +
                        EVENT_OWN_BYTES);
}

static bool is_kind(const struct shipped_kind *a, const struct shipped_kind *b)
{
    return a->op == b->op && a->flaw == b->flaw && a->name_len == b->name_len &&
           (a->name == NULL) == (b->name == NULL) &&
           (a->name_len == 0 || memcmp(a->name, b->name, a->name_len) == 0);
}

enum shipped_flaw shipped_kind(struct shipped *shipped, const struct shipped_kind *kind,
                               uint32_t *number)
{
    assert(shipped->kind_count <= SHIPPED_KINDS_MAX);
    *number = shipped->last_kind;
    if (shipped->kind_count > 0 && is_kind(&shipped->kinds[*number], kind))
        return SHIPPED_FINE;
    for (*number = 0; *number < shipped->kind_count; ++*number)
        if (is_kind(&shipped->kinds[*number], kind))
            break;
    if (*number == SHIPPED_KINDS_MAX)
        return SHIPPED_KINDS;
    if (*number == shipped->kind_count) {
        shipped->kinds[*number] = *kind;
        shipped->kinds[*number].count = 0;
        shipped->kind_count++;
    }
    shipped->last_kind = *number;
    return SHIPPED_FINE;
}

uint8_t *shipped_room(struct shipped *shipped, size_t bytes, enum shipped_flaw *flaw)
{
    struct shipped_room *room = shipped->room;
    *flaw = count_in(shipped, &shipped->room_bytes, bytes);
    if (*flaw != SHIPPED_FINE)
        return NULL;
    if (room == NULL || room->capacity - room->used < bytes) {
        const size_t capacity = bytes > ROOM_BYTES ? bytes : ROOM_BYTES;
        room = malloc(sizeof *room + capacity);
        *flaw = SHIPPED_NO_MEMORY;
        if (room == NULL)
            return NULL;
        *room = (struct shipped_room){shipped->room, 0, capacity};
        shipped->room = room;
    }
    *flaw = SHIPPED_FINE;
    room->used += bytes;
    assert(room->used <= room->capacity);
    return room->bytes + room->used - bytes;
}

uint8_t *shipped_rest(const struct shipped *shipped, size_t *cap)
{
    struct shipped_room *room = shipped->room;
    *cap = room == NULL ? 0 : room->capacity - room->used;
    return room == NULL ? NULL : room->bytes + room->used;
}

enum shipped_flaw shipped_take(struct shipped *shipped, size_t len)
{
    assert(shipped->room != NULL && len <= shipped->room->capacity - shipped->room->used);
    const enum shipped_flaw flaw = count_in(shipped, &shipped->room_bytes, len);
    shipped->room->used += flaw == SHIPPED_FINE ? len : 0;
    return flaw;
}

enum shipped_flaw shipped_keep(struct shipped *shipped, const uint8_t *bytes, size_t len,
                               const uint8_t **out)
{
    enum shipped_flaw flaw;
    uint8_t *room = shipped_room(shipped, len, &flaw);
    if (room != NULL && len > 0)
        memcpy(room, bytes, len);
    *out = room;
    return flaw;
}

enum shipped_flaw shipped_text(struct shipped *shipped, const struct json_rest *text,
                               const uint8_t **out, uint32_t *len)
{
    const size_t raw = (size_t)(text->end - text->p);
    enum shipped_flaw flaw;
    *out = text->p;
    *len = (uint32_t)raw;
    if (json_plain_run(text->p, raw) == raw) /* nothing in it needs care */
        return SHIPPED_FINE;
    uint8_t *room = shipped_room(shipped, raw, &flaw);
    if (room == NULL)
        return flaw;
    const int64_t made = json_write_text(text->p, raw, room, raw);
    assert(made <= (int64_t)raw);
    if (made < 0)
        return SHIPPED_SYNTAX;
    *out = room;
    *len = (uint32_t)made;
    return SHIPPED_FINE;
}

int64_t shipped_time(const struct shipped *shipped, int64_t time_us)
{
    const struct shipped_limits *limits = &shipped->limits;
    return time_us >= limits->low_us && time_us <= limits->high_us ? time_us : 0;
}

/* ---- columns ---- */

/* What the events of these kinds have, in all. */
struct sums {
    uint32_t count, keyed, headed;
    uint64_t vals, keys, hdrs;
    int64_t first, last; /* times; first INT64_MAX: none has one */
    bool lacks; /* one has no time */
};

static struct sums sum_up(const struct shipped *shipped, const uint8_t *wanted)
{
    struct sums sums = {.first = INT64_MAX};
    for (uint32_t i = 0; i < shipped->count; i++) {
        const struct shipped_event *event = &shipped->events[i];
        if (!wanted[event->kind])
            continue;
        sums.count++;
        sums.keyed += event->key_len != KEY_NULL;
        sums.headed += event->headers_len > 0;
        sums.vals += event->value_len;
        sums.keys += bytes_of(event->key_len);
        sums.hdrs += event->headers_len;
        sums.lacks |= event->time_us == 0;
        if (event->time_us == 0)
            continue;
        sums.first = event->time_us < sums.first ? event->time_us : sums.first;
        sums.last = event->time_us > sums.last ? event->time_us : sums.last;
    }
    assert(sums.vals + sums.keys + sums.hdrs <= shipped->bytes);
    return sums;
}

/* Of no bytes there may be no pointer. */
static uint8_t *put(uint8_t *out, const uint8_t *bytes, uint32_t len)
{
    if (len > 0)
        memcpy(out, bytes, len);
    return out + len;
}

static void fill(const struct shipped *shipped, const uint8_t *wanted, int64_t now_us,
                 const struct chunk_columns *c, uint32_t *lens[5])
{
    uint8_t *vals = (uint8_t *)(uintptr_t)c->vals, *keys = (uint8_t *)(uintptr_t)c->keys;
    uint8_t *hdrs = (uint8_t *)(uintptr_t)c->hdrs;
    for (uint32_t i = 0, at = 0; i < shipped->count; i++) {
        const struct shipped_event *event = &shipped->events[i];
        if (!wanted[event->kind])
            continue;
        lens[0][at] = event->value_len;
        vals = put(vals, event->value, event->value_len);
        if (c->key_len != NULL) {
            lens[1][at] = event->key_len;
            keys = put(keys, event->key, bytes_of(event->key_len));
        }
        if (c->hdr_len != NULL) {
            lens[2][at] = event->headers_len > 0 ? event->headers_len : KEY_NULL;
            hdrs = put(hdrs, event->headers, event->headers_len);
        }
        if (c->ts_delta != NULL) {
            const int64_t time = event->time_us != 0 ? event->time_us : now_us;
            const uint64_t delta = (uint64_t)(time - c->base_timestamp_us);
            lens[3][at] = (uint32_t)delta;
            lens[4][at] = (uint32_t)(delta >> 32);
        }
        at++;
    }
    assert(vals == c->vals + c->vals_bytes);
    assert(c->key_len == NULL || keys == c->keys + c->keys_bytes);
}

bool shipped_columns(const struct shipped *shipped, const uint8_t *wanted, int64_t now_us,
                     struct chunk_columns *out, uint8_t **memory)
{
    struct sums sums = sum_up(shipped, wanted);
    const size_t words = pad8((size_t)sums.count * 4);
    const bool timed = sums.first != INT64_MAX;
    uint32_t *lens[5];
    assert(now_us > 0 && sums.count > 0);
    *out = (struct chunk_columns){.count = sums.count};
    *memory = malloc(5 * words + sums.vals + sums.keys + sums.hdrs + 1);
    if (*memory == NULL)
        return false;
    for (int i = 0; i < 5; i++)
        lens[i] = (uint32_t *)(void *)(*memory + (size_t)i * words);
    out->val_len = lens[0];
    out->vals = *memory + 5 * words;
    out->vals_bytes = (uint32_t)sums.vals;
    if (sums.keyed > 0) {
        out->key_len = lens[1];
        out->keys = out->vals + sums.vals;
        out->keys_bytes = (uint32_t)sums.keys;
    }
    if (sums.headed > 0) {
        out->hdr_len = lens[2];
        out->hdrs = out->vals + sums.vals + sums.keys;
        out->hdrs_bytes = (uint32_t)sums.hdrs;
    }
    if (timed) {
        sums.first = sums.lacks && now_us < sums.first ? now_us : sums.first;
        sums.last = sums.lacks && now_us > sums.last ? now_us : sums.last;
        out->base_timestamp_us = sums.first;
        out->max_timestamp_us = sums.last;
        out->ts_delta = lens[3];
        out->ts_high = sums.last - sums.first > UINT32_MAX ? lens[4] : NULL;
    }
    fill(shipped, wanted, now_us, out, lens);
    return true;
}
