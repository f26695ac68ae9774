/* Batches of one slice as runs: as they came, or as rows. */
#include "broker/batch_runs.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/murmur3.h"
#include "broker/route.h"
#include "broker/runs.h"

/* A larger batch is cut into chunks of the usual size instead: a reader unpacks chunks whole. */
#define SEALED_VALUES_MAX (1u << 20)
#define SEALED_EVENTS_MAX 65536u
#define BATCH_EVENTS_MAX (1u << 18) /* as in limits.py */

/* Rows, between siblings and inside this file: count x this, then key and value of each event. */
struct row {
    uint32_t key_len, value_len; /* KEY_NULL: no key */
    int64_t timestamp;           /* 0: the owner's clock */
};

_Static_assert(COLUMN_COUNT == 6, "a column that rows do not carry is lost where a batch is cut");
#define ROW_ROOM_BYTES 24u /* of a row's spans and timestamp */

static void find_places(struct reactor *reactor, struct batch_facts *facts)
{
    const struct batch_columns *c = &facts->columns;
    const uint8_t *key = c->keys;
    facts->token_min = INT64_MAX;
    facts->token_max = INT64_MIN;
    facts->one_slice = true;
    for (uint32_t i = 0; i < c->count; i++) {
        facts->places[i] = NO_PLACE;
        if (c->key_len[i] == KEY_NULL)
            continue;
        int64_t token = murmur3_token(key, c->key_len[i]);
        uint32_t place = place_of_token(reactor, token);
        key += c->key_len[i];
        if (facts->keyed && place != facts->place)
            facts->one_slice = false;
        facts->place = place;
        facts->keyed = true;
        facts->places[i] = place;
        if (token < facts->token_min)
            facts->token_min = token;
        if (token > facts->token_max)
            facts->token_max = token;
    }
}

static int64_t event_time(const struct batch_facts *facts, uint32_t event)
{
    return facts->view.base_timestamp_us + (int64_t)column_delta(&facts->columns, event);
}

uint16_t batch_examine(struct reactor *reactor, const uint8_t *bytes, size_t len,
                        struct batch_facts *facts)
{
    memset(facts, 0, sizeof *facts);
    if (len == 0)
        return PROBLEM_NO_EVENTS;
    if (batch_open(bytes, len, &facts->view) != 0)
        return PROBLEM_BAD_BATCH;
    if (facts->view.raw_bytes > reactor->options.request_bytes_max ||
        facts->view.count > BATCH_EVENTS_MAX)
        return PROBLEM_BODY_TOO_LARGE;
    size_t need = (batch_scratch_bytes(&facts->view) + 7) & ~(size_t)7;
    uint8_t *scratch = reactor_scratch(reactor, need + (size_t)facts->view.count * 4);
    if (scratch == NULL)
        return PROBLEM_BUSY;
    int status = batch_unpack(&facts->view, (uint32_t)reactor->options.event_bytes_max, scratch,
                              need, &facts->columns);
    if (status != 0)
        return status == -3 ? PROBLEM_EVENT_TOO_LARGE : PROBLEM_BAD_BATCH;
    assert(facts->columns.count == facts->view.count); /* there is a place for each */
    if (facts->view.base_timestamp_us < 0 || facts->view.base_timestamp_us > TIMESTAMP_MAX)
        return PROBLEM_BAD_TIMESTAMP;
    facts->places = (uint32_t *)(scratch + need);
    if (facts->columns.key_len != NULL)
        find_places(reactor, facts);
    facts->max_timestamp = facts->view.base_timestamp_us;
    if (facts->columns.ts_delta != NULL)
        for (uint32_t i = 0; i < facts->columns.count; i++)
            if (event_time(facts, i) > facts->max_timestamp)
                facts->max_timestamp = event_time(facts, i);
    return PROBLEM_NONE;
}

bool batch_is_large(const struct batch_facts *facts)
{
    return facts->columns.vals_bytes > SEALED_VALUES_MAX ||
           facts->columns.count > SEALED_EVENTS_MAX;
}

uint16_t batch_sealed_run(struct reactor *reactor, const struct produce *produce, uint32_t place,
                           struct waiter waiter, const struct batch_facts *facts,
                           const uint8_t *bytes, size_t len, struct body *body, uint64_t *detail)
{
    uint32_t slice = place & (reactor->options.slices - 1);
    struct stream *stream = shard_stream(reactor->shard, produce->topic, slice);
    struct run *run = stream ? run_new(stream, sizeof(struct batch_view)) : NULL;
    if (run == NULL)
        return PROBLEM_BUSY;
    run->body = own_body(reactor, &bytes, len, body);
    struct batch_view *view = (struct batch_view *)run->tail;
    if (run->body == NULL || batch_open(bytes, len, view) != 0) {
        run_free(run);
        return PROBLEM_BUSY;
    }
    run->waiter = waiter;
    run->sealed = true;
    run->batch = view;
    run->count = facts->columns.count;
    run->bytes = facts->columns.vals_bytes + facts->columns.keys_bytes;
    int64_t start = place_token(reactor, place);
    run->token_min = facts->keyed ? facts->token_min : start;
    run->token_max = facts->keyed ? facts->token_max : start;
    run->timestamp = facts->view.base_timestamp_us;
    run->max_timestamp = facts->max_timestamp;
    if (produce->timestamp != 0 && run->timestamp == 0)
        run->timestamp = run->max_timestamp = produce->timestamp;
    return queue_run(reactor, produce, run, detail);
}

uint16_t batch_check(struct reactor *reactor, uint32_t slice, const uint8_t *bytes, size_t len,
                     struct batch_outline *out)
{
    struct batch_facts facts;
    uint16_t problem = batch_examine(reactor, bytes, len, &facts);
    if (problem != PROBLEM_NONE)
        return problem;
    uint32_t place = place_of_slice(reactor, slice);
    if (facts.keyed && (!facts.one_slice || facts.place != place))
        return PROBLEM_BAD_SLICE;
    if (batch_is_large(&facts) && facts.columns.count > 1)
        return PROBLEM_BODY_TOO_LARGE;
    int64_t start = place_token(reactor, place);
    *out = (struct batch_outline){.count = facts.columns.count,
                                  .bytes = facts.columns.vals_bytes + facts.columns.keys_bytes,
                                  .token_min = facts.keyed ? facts.token_min : start,
                                  .token_max = facts.keyed ? facts.token_max : start,
                                  .max_timestamp = facts.max_timestamp};
    return PROBLEM_NONE;
}

/* ---- rows ---- */

struct body *batch_rows(struct reactor *reactor, const struct batch_facts *facts,
                                int64_t place, uint32_t keyless_place, int64_t timestamp)
{
    const struct batch_columns *c = &facts->columns;
    uint32_t count = 0;
    size_t bytes = 0;
#define ROW_PLACE(i) (facts->places[i] == NO_PLACE ? keyless_place : facts->places[i])
#define TAKEN(i) (place < 0 || !facts->keyed || ROW_PLACE(i) == place)
    for (uint32_t i = 0; i < c->count; i++) {
        if (!TAKEN(i))
            continue;
        count++;
        bytes += c->val_len[i];
        if (c->key_len != NULL && c->key_len[i] != KEY_NULL)
            bytes += c->key_len[i];
    }
    size_t size = 8 + count * sizeof(struct row) + bytes;
    /* Small bodies may hold many events: what they take is asked for like bytes that come in. */
    if (!reactor_memory(reactor, size + count * ROW_ROOM_BYTES))
        return NULL;
    struct body *body = body_new(&reactor->body_bytes, size);
    if (body == NULL)
        return NULL;
    memcpy(body->data, &(uint64_t){count}, 8);
    struct row *row = (struct row *)(body->data + 8);
    uint8_t *out = (uint8_t *)(row + count);
    const uint8_t *key = c->keys, *value = c->vals;
    for (uint32_t i = 0; i < c->count; i++) {
        uint32_t key_len = c->key_len ? c->key_len[i] : KEY_NULL;
        uint32_t key_bytes = key_len == KEY_NULL ? 0 : key_len;
        if (TAKEN(i)) {
            bool timed = facts->view.base_timestamp_us != 0;
            *row++ = (struct row){key_len, c->val_len[i], timed ? event_time(facts, i) : timestamp};
            if (key_bytes)
                memcpy(out, key, key_bytes);
            memcpy(out + key_bytes, value, c->val_len[i]);
            out += key_bytes + c->val_len[i];
        }
        key += key_bytes;
        value += c->val_len[i];
    }
#undef TAKEN
#undef ROW_PLACE
    body->len = (size_t)(out - body->data);
    assert(body->len == size); /* both passes have seen the same events */
    return body;
}

struct rows_room {
    struct span *values, *keys;
    int64_t *timestamps, earliest, latest;
};

/* Reads the rows' table into spans. False when the lengths do not add up. */
static bool rows_read(const uint8_t *bytes, size_t len, uint64_t count, struct rows_room *room,
                      uint64_t *total)
{
    uint64_t at = 8 + count * sizeof(struct row);
    *total = 0;
    room->earliest = INT64_MAX;
    room->latest = 0;
    bool timed = false, clocked = false;
    for (uint64_t i = 0; i < count; i++) {
        struct row row;
        memcpy(&row, bytes + 8 + i * sizeof row, sizeof row);
        uint32_t key_bytes = row.key_len == KEY_NULL ? 0 : row.key_len;
        if (at + key_bytes + (uint64_t)row.value_len > len)
            return false;
        room->keys[i] = (struct span){(uint32_t)at, row.key_len};
        room->values[i] = (struct span){(uint32_t)(at + key_bytes), row.value_len};
        room->timestamps[i] = row.timestamp;
        timed |= row.timestamp != 0;
        clocked |= row.timestamp == 0;
        if (row.timestamp < room->earliest)
            room->earliest = row.timestamp;
        if (row.timestamp > room->latest)
            room->latest = row.timestamp;
        at += key_bytes + (uint64_t)row.value_len;
        *total += key_bytes + row.value_len;
    }
    return at == len && room->earliest >= 0 && !(timed && clocked);
}

static uint16_t rows_run(struct reactor *reactor, const struct produce *produce, uint32_t place,
                         struct waiter waiter, const uint8_t *bytes, size_t len, struct body *body,
                         uint64_t *detail)
{
    uint64_t count = 0, total;
    if (len >= 8)
        memcpy(&count, bytes, 8);
    if (count == 0 || count > (len - 8) / sizeof(struct row))
        return PROBLEM_BAD_BATCH;
    uint32_t slice = place & (reactor->options.slices - 1);
    struct stream *stream = shard_stream(reactor->shard, produce->topic, slice);
    struct run *run = stream ? run_new(stream, count * ROW_ROOM_BYTES) : NULL;
    if (run == NULL)
        return PROBLEM_BUSY;
    run->body = own_body(reactor, &bytes, len, body);
    struct rows_room room = {.timestamps = (int64_t *)run->tail};
    room.values = (struct span *)(room.timestamps + count);
    room.keys = room.values + count;
    if (run->body == NULL || !rows_read(bytes, len, count, &room, &total)) {
        uint16_t problem = run->body ? PROBLEM_BAD_BATCH : PROBLEM_BUSY;
        run_free(run);
        return problem;
    }
    int64_t start = place_token(reactor, place);
    run->waiter = waiter;
    run->count = (uint32_t)count;
    run->bytes = (uint32_t)total;
    run->values = run->keys = bytes;
    run->value_spans = room.values;
    run->key_spans = room.keys;
    run->timestamps = room.timestamps[0] != 0 ? room.timestamps : NULL;
    run->timestamp = run->timestamps ? room.earliest : 0;
    run->max_timestamp = run->timestamps ? room.latest : 0;
    /* The exact tokens are not worth hashing again: the slice's whole range is a true bound. */
    run->token_min = start;
    run->token_max = (int64_t)((uint64_t)start + reactor->options.slice_width - 1);
    return queue_run(reactor, produce, run, detail);
}

uint16_t batch_run(struct reactor *reactor, const struct produce *produce, uint32_t place,
                   struct waiter waiter, const uint8_t *bytes, size_t len, struct body *body,
                   uint64_t *detail)
{
    struct batch_facts facts;
    if (produce->content == CONTENT_ROWS)
        return rows_run(reactor, produce, place, waiter, bytes, len, body, detail);
    uint16_t problem = batch_examine(reactor, bytes, len, &facts);
    if (problem != PROBLEM_NONE)
        return problem;
    if (facts.keyed && (!facts.one_slice || facts.place != place))
        return PROBLEM_BAD_SLICE;
    if (batch_is_large(&facts) && facts.columns.count > 1)
        return PROBLEM_BODY_TOO_LARGE; /* a process of ours would have sent rows */
    return batch_sealed_run(reactor, produce, place, waiter, &facts, bytes, len, body, detail);
}
