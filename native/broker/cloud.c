#include "broker/cloud.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/moment.h"
#include "base/murmur3.h"
#include "format/batch.h"
#include "format/cloudevent.h"
#include "log/clock.h"

#define FLAW_SHIFT 56 /* a detail: the flaw, and the event below it */
#define EVENTS_MAX (1u << 18) /* as of a batch */
/* What is stored of an attribute beside its text is no more than what JSON has around it, and this:
 * its lengths, and ce-. */
#define ATTRIBUTE_BYTES 8u
#define ATTRIBUTE_TEXT_MIN 6u /* "a":1, */

static const char *const flaw_texts[CLOUDEVENT_FLAWS] = {
    [CLOUDEVENT_SYNTAX] = "one event is a JSON object, a batch is an array of them",
    [CLOUDEVENT_LACKS] = "an event has id, source, specversion and type",
    [CLOUDEVENT_ATTRIBUTE] = "an attribute has a name of a-z and 0-9, once, and is a string, a "
                             "number, true or false; id, source, specversion and type are strings "
                             "that are not empty",
    [CLOUDEVENT_VERSION] = "specversion is 1.0",
    [CLOUDEVENT_TIME] = "time is a date and a time with a zone, as RFC 3339 has them",
    [CLOUDEVENT_DATA] = "one of data and data_base64 is given, base64 with its padding; data of "
                        "another type than JSON are a string",
    [CLOUDEVENT_HEADERS] = "attributes and headers are 64 and 16 KiB at most",
};

uint64_t cloud_flaw_event(uint64_t detail)
{
    return detail & (((uint64_t)1 << FLAW_SHIFT) - 1);
}

const char *cloud_flaw_text(uint64_t detail)
{
    const uint64_t flaw = detail >> FLAW_SHIFT;
    const char *text = flaw < CLOUDEVENT_FLAWS ? flaw_texts[flaw] : NULL;
    return text != NULL ? text : "this is no CloudEvent";
}

static uint16_t flaw_problem(enum cloudevent_flaw flaw, uint64_t event, uint64_t *detail)
{
    assert(flaw != CLOUDEVENT_FINE && event > 0);
    *detail = (uint64_t)flaw << FLAW_SHIFT | event;
    return PROBLEM_BAD_CLOUDEVENT;
}

/* ---- key and time ---- */

static bool is_named(const struct header *header, const char *name, size_t len)
{
    return header->name_len == len && memcmp(header->name, name, len) == 0;
}

/* What headers say of an event: its key, NULL if none, and a time that its topic takes, or 0. */
struct said {
    const uint8_t *key;
    uint32_t key_len;
    int64_t time_us; /* or TIME_ZERO */
};

/* Only who leads the slice is sure of the topic; a time that it would refuse is a header all the
 * same. */
static bool takes_time(struct reactor *reactor, const struct produce *produce, int64_t us)
{
    const bool any = produce->delayed || produce->topic->any_time;
    return us >= TIMESTAMP_US_MIN && us <= TIMESTAMP_MAX &&
           (any || log_time_plausible(reactor->log, reactor->loop.wall_us, us)) &&
           (us > 0 || reactor_takes_early(reactor));
}

static struct said said_of(struct reactor *reactor, const struct produce *produce,
                           const uint8_t *headers, size_t len)
{
    struct said said = {NULL, 0, 0};
    int64_t us;
    for (uint32_t left = len > 0 ? headers_begin(&headers) : 0; left > 0; left--) {
        const struct header each = headers_next(&headers);
        if (is_named(&each, "ce-partitionkey", 15)) {
            said.key = each.value;
            said.key_len = each.value_len;
        } else if (is_named(&each, "ce-time", 7) &&
                   date_parse((const char *)each.value, each.value_len, &us) &&
                   takes_time(reactor, produce, us)) {
            said.time_us = us == 0 ? TIME_ZERO : us;
        }
    }
    return said;
}

static void adopt(struct reactor *reactor, struct produce *produce)
{
    const struct said said = said_of(reactor, produce, produce->headers, produce->headers_len);
    assert(produce->content == CONTENT_EVENT && produce->headed);
    if (produce->timestamp == 0)
        produce->timestamp = said.time_us;
    if (said.key == NULL || produce->has_key || produce->number >= 0)
        return;
    produce->has_key = true;
    produce->key = said.key;
    produce->key_len = said.key_len;
    produce->key_token = murmur3_token(said.key, said.key_len);
}

/* ---- one event ---- */

/* A body of its own, which may be changed. False: there is no memory. */
static bool make_own(struct reactor *reactor, struct body **owned, const uint8_t *bytes, size_t len)
{
    assert(*owned == NULL || (*owned)->len == len);
    if (*owned != NULL)
        return true;
    if (!reactor_memory(reactor, len) || (*owned = body_new(&reactor->body_bytes, len + 1)) == NULL)
        return false;
    memcpy((*owned)->data, bytes, len);
    (*owned)->len = len;
    return true;
}

/* Fields of HTTP may say again what the event says. */
static void copy_others(struct headers_draft *draft, const struct produce *produce)
{
    const uint8_t *at = produce->headers;
    for (uint32_t left = produce->headers_len > 0 ? headers_begin(&at) : 0; left > 0; left--) {
        const struct header each = headers_next(&at);
        if (each.name_len >= 3 && memcmp(each.name, "ce-", 3) == 0)
            continue;
        const bool added = headers_add(draft, &each);
        assert(added); /* there were more before */
        (void)added;
    }
}

static uint16_t read_one(struct reactor *reactor, struct produce *produce, struct body *body,
                         uint64_t *detail)
{
    struct headers_draft draft = {.out = reactor->headers_scratch + HEADERS_STORED_MAX};
    struct cloudevents events;
    struct cloudevent event;
    assert(2 * HEADERS_STORED_MAX <= HEADERS_SCRATCH_BYTES);
    if (produce->no_value)
        return PROBLEM_BAD_HEADER; /* there is a body */
    if (body->len == 0)
        return PROBLEM_NO_EVENTS;
    copy_others(&draft, produce);
    if (!cloudevents_open(body->data, body->len, false, &events))
        return flaw_problem(CLOUDEVENT_SYNTAX, 1, detail);
    const enum cloudevent_flaw flaw = cloudevents_next(&events, &draft, &event);
    if (flaw != CLOUDEVENT_FINE)
        return flaw_problem(flaw, 1, detail);
    produce->headed = true;
    produce->headers = draft.out;
    produce->headers_len = (uint32_t)draft.len;
    produce->json = event.json;
    produce->no_value = event.data_len == CLOUDEVENT_NO_DATA || event.data_len == 0;
    body->len = produce->no_value ? 0 : event.data_len;
    memmove(body->data, body->data + event.data_at, body->len);
    adopt(reactor, produce);
    return PROBLEM_NONE;
}

/* ---- many ---- */

/* Columns of a batch, as they are filled. Values are moved together where they are. */
struct gathering {
    struct chunk_columns made;
    uint32_t *val_len, *key_len, *hdr_len, *low, *high;
    int64_t *times;
    uint8_t *keys, *hdrs;
};

static uint8_t *gathering_room(struct gathering *g, size_t count, size_t hdrs, size_t keys)
{
    const size_t words = pad8(count * sizeof(uint32_t));
    uint8_t *room = malloc(5 * words + count * sizeof(int64_t) + hdrs + keys), *at = room;
    if (room == NULL)
        return NULL;
    assert(count > 0 && hdrs >= HEADERS_STORED_MAX); /* a draft has room behind all others */
    *g = (struct gathering){.times = (int64_t *)(void *)at};
    at += count * sizeof(int64_t);
    uint32_t **const columns[] = {&g->val_len, &g->key_len, &g->hdr_len, &g->low, &g->high};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++, at += words)
        *columns[i] = (uint32_t *)(void *)at;
    g->hdrs = at;
    g->keys = at + hdrs;
    return room;
}

static void gather(struct gathering *g, struct body *body, const struct cloudevent *event,
                   const struct headers_draft *draft, const struct said *said)
{
    struct batch_columns *to = &g->made.columns;
    const uint32_t at = to->count++;
    const bool none = event->data_len == CLOUDEVENT_NO_DATA || event->data_len == 0;
    const size_t len = none ? 0 : event->data_len;
    assert(none || event->data_at >= to->vals_bytes); /* they only move towards the start */
    g->val_len[at] = none ? KEY_NULL : (uint32_t)len;
    memmove(body->data + to->vals_bytes, body->data + event->data_at, len);
    to->vals_bytes += (uint32_t)len;
    g->hdr_len[at] = (uint32_t)draft->len;
    to->hdrs_bytes += (uint32_t)draft->len;
    g->key_len[at] = said->key == NULL ? KEY_NULL : said->key_len;
    if (said->key_len > 0)
        memcpy(g->keys + to->keys_bytes, said->key, said->key_len);
    to->keys_bytes += said->key_len;
    g->times[at] = said->time_us;
    if (said->key != NULL)
        to->key_len = g->key_len;
}

/* All have a time, or none: who says none was now. */
static void set_times(struct gathering *g, int64_t now_us)
{
    struct batch_columns *to = &g->made.columns;
    int64_t base = INT64_MAX;
    bool timed = false, wide = false;
    for (uint32_t i = 0; i < to->count; i++)
        timed |= g->times[i] != 0;
    for (uint32_t i = 0; timed && i < to->count; i++) {
        g->times[i] = g->times[i] == 0 ? now_us : g->times[i] == TIME_ZERO ? 0 : g->times[i];
        base = g->times[i] < base ? g->times[i] : base;
    }
    if (!timed)
        return;
    assert(to->count > 0 && base <= TIMESTAMP_MAX);
    base -= base == 0; /* which would say that there are none */
    for (uint32_t i = 0; i < to->count; i++) {
        const uint64_t delta = (uint64_t)(g->times[i] - base);
        g->low[i] = (uint32_t)delta;
        g->high[i] = (uint32_t)(delta >> 32);
        wide |= g->high[i] != 0;
    }
    g->made.base_timestamp_us = base;
    to->ts_delta = g->low;
    to->ts_high = wide ? g->high : NULL;
}

static uint16_t gather_all(struct reactor *reactor, const struct produce *produce,
                           struct body *body, struct cloudevents *events, struct gathering *g,
                           bool *json, uint64_t *detail)
{
    *json = true;
    for (uint64_t number = 1; number <= events->count; number++) {
        struct headers_draft draft = {.out = g->hdrs + g->made.hdrs_bytes};
        struct cloudevent event;
        const enum cloudevent_flaw flaw = cloudevents_next(events, &draft, &event);
        if (flaw != CLOUDEVENT_FINE)
            return flaw_problem(flaw, number, detail);
        if (event.data_len != CLOUDEVENT_NO_DATA &&
            event.data_len > reactor->options.event_bytes_max) {
            *detail = number;
            return PROBLEM_EVENT_TOO_LARGE;
        }
        struct said said = said_of(reactor, produce, draft.out, draft.len);
        if (produce->timestamp != 0)
            said.time_us = 0;
        if (produce->number >= 0)
            said = (struct said){.time_us = said.time_us};
        *json &= event.json;
        gather(g, body, &event, &draft, &said);
        if (g->made.hdrs_bytes > SECTION_RAW_MAX)
            return PROBLEM_BODY_TOO_LARGE;
    }
    assert(g->made.count == events->count);
    return PROBLEM_NONE;
}

static uint16_t read_many(struct reactor *reactor, struct produce *produce, struct body **owned,
                          uint64_t *detail)
{
    struct body *body = *owned, *sealed = NULL;
    struct cloudevents events;
    struct gathering g;
    if (body->len == 0)
        return PROBLEM_NO_EVENTS;
    if (!cloudevents_open(body->data, body->len, true, &events))
        return flaw_problem(CLOUDEVENT_SYNTAX, 1, detail);
    if (events.count == 0 || events.count > EVENTS_MAX || body->len > UINT32_MAX)
        return events.count == 0 ? PROBLEM_NO_EVENTS : PROBLEM_BODY_TOO_LARGE;
    const size_t hdrs = body->len + body->len / ATTRIBUTE_TEXT_MIN * ATTRIBUTE_BYTES +
                        events.count + HEADERS_STORED_MAX;
    if (!reactor_memory(reactor, 3 * hdrs + events.count * 64))
        return PROBLEM_BUSY;
    uint8_t *room = gathering_room(&g, events.count, hdrs, body->len);
    if (room == NULL)
        return PROBLEM_BUSY;
    uint16_t problem = gather_all(reactor, produce, body, &events, &g, &produce->json, detail);
    if (problem == PROBLEM_NONE) {
        set_times(&g, reactor->loop.wall_us);
        g.made.val_len = g.val_len;
        g.made.vals = body->data;
        g.made.keys = g.keys;
        g.made.hdr_len = g.hdr_len;
        g.made.hdrs = g.hdrs;
        sealed = body_new(&reactor->body_bytes, chunk_bound(&g.made));
        problem = sealed != NULL ? PROBLEM_NONE : PROBLEM_BUSY;
    }
    if (problem == PROBLEM_NONE) {
        sealed->len = batch_seal(NULL, &g.made, sealed->data, sealed->capacity);
        assert(sealed->len > 0);
        body_release(body);
        *owned = sealed;
    }
    free(room);
    return problem;
}

uint16_t cloud_read(struct reactor *reactor, struct produce *produce, struct body **owned,
                    const uint8_t **bytes, size_t *len, uint64_t *detail)
{
    uint16_t problem;
    assert(produce->cloud != CLOUD_NONE);
    if (produce->cloud == CLOUD_DATA) {
        produce->no_value |= *len == 0;
        adopt(reactor, produce);
        return PROBLEM_NONE;
    }
    if (!make_own(reactor, owned, *bytes, *len))
        return PROBLEM_BUSY;
    assert((*owned)->len == *len);
    if (produce->cloud == CLOUD_EVENT)
        problem = read_one(reactor, produce, *owned, detail);
    else
        problem = read_many(reactor, produce, owned, detail);
    *bytes = (*owned)->data;
    *len = (*owned)->len;
    return problem;
}
