/* Batches of one slice as runs: as they came, or cut to be gathered into chunks. */
#include "broker/batch_runs.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/murmur3.h"
#include "core/route.h"
#include "broker/runs.h"

/* A larger batch is cut into chunks of the usual size instead: a reader unpacks chunks whole. */
#define SEALED_VALUES_MAX (1u << 20)
#define SEALED_EVENTS_MAX 65536u
#define BATCH_EVENTS_MAX (1u << 18) /* as in limits.py */

_Static_assert(COLUMN_BYTES_COUNT == 3, "all_bytes() adds them up");

static uint32_t all_bytes(const struct batch_columns *c)
{
    return c->vals_bytes + c->keys_bytes + c->hdrs_bytes;
}

static void find_slices(struct reactor *reactor, struct batch_facts *facts)
{
    const struct batch_columns *c = &facts->columns;
    const uint8_t *key = c->keys;
    facts->token_min = INT64_MAX;
    facts->token_max = INT64_MIN;
    facts->one_slice = true;
    for (uint32_t i = 0; i < c->count; i++) {
        facts->numbers[i] = NO_NUMBER;
        if (c->key_len[i] == KEY_NULL)
            continue;
        int64_t token = murmur3_token(key, c->key_len[i]);
        uint32_t number = slice_of_token(reactor, token);
        key += c->key_len[i];
        if (facts->keyed && number != facts->number)
            facts->one_slice = false;
        facts->number = number;
        facts->keyed = true;
        facts->numbers[i] = number;
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

/* Of so many bytes at most, and each event of so many. */
static uint16_t examine(struct reactor *reactor, const uint8_t *bytes, size_t len, uint64_t most,
                        uint64_t event_most, struct batch_facts *facts)
{
    memset(facts, 0, sizeof *facts);
    if (len == 0)
        return PROBLEM_NO_EVENTS;
    if (batch_open(bytes, len, &facts->view) != 0)
        return PROBLEM_BAD_BATCH;
    if (facts->view.version != FORMAT_PLAIN && !reactor_takes_headers(reactor))
        return PROBLEM_OLD_BROKERS;
    if (facts->view.raw_bytes > most || facts->view.count > BATCH_EVENTS_MAX)
        return PROBLEM_BODY_TOO_LARGE;
    size_t need = (batch_scratch_bytes(&facts->view) + 7) & ~(size_t)7;
    uint8_t *scratch = reactor_scratch(reactor, need + (size_t)facts->view.count * 4);
    if (scratch == NULL)
        return PROBLEM_BUSY;
    const uint32_t each = event_most < UINT32_MAX ? (uint32_t)event_most : UINT32_MAX;
    int status = batch_unpack(&facts->view, each, scratch, need, &facts->columns);
    if (status != 0)
        return status == -3 ? PROBLEM_EVENT_TOO_LARGE : PROBLEM_BAD_BATCH;
    assert(facts->columns.count == facts->view.count); /* there is room for each */
    if (facts->view.base_timestamp_us > TIMESTAMP_MAX)
        return PROBLEM_BAD_TIMESTAMP;
    facts->numbers = (uint32_t *)(scratch + need);
    if (facts->columns.key_len != NULL)
        find_slices(reactor, facts);
    facts->max_timestamp = facts->view.base_timestamp_us;
    if (facts->columns.ts_delta != NULL)
        for (uint32_t i = 0; i < facts->columns.count; i++)
            if (event_time(facts, i) > facts->max_timestamp)
                facts->max_timestamp = event_time(facts, i);
    return PROBLEM_NONE;
}

uint16_t batch_examine(struct reactor *reactor, const uint8_t *bytes, size_t len,
                       struct batch_facts *facts)
{
    return examine(reactor, bytes, len, reactor->options.request_bytes_max,
                   reactor->options.event_bytes_max, facts);
}

uint16_t batch_early(struct reactor *reactor, const struct produce *produce, int64_t base_us,
                     uint64_t *detail)
{
    if (base_us >= 0)
        return PROBLEM_NONE;
    *detail = (uint64_t)base_us;
    return reactor_early_problem(reactor, produce->topic);
}

bool batch_is_large(const struct batch_facts *facts)
{
    return facts->columns.vals_bytes > SEALED_VALUES_MAX ||
           facts->columns.hdrs_bytes > SEALED_VALUES_MAX ||
           facts->columns.count > SEALED_EVENTS_MAX;
}

uint16_t batch_sealed_run(struct reactor *reactor, const struct produce *produce, uint32_t number,
                           struct waiter waiter, const struct batch_facts *facts,
                           const uint8_t *bytes, size_t len, struct body *body, uint64_t *detail)
{
    uint32_t slice = number & (reactor->options.slices - 1);
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
    assert(!batch_is_large(facts) || facts->columns.count == 1); /* others are cut */
    run->waiter = waiter;
    run->sealed = true;
    run->batch = view;
    run->count = facts->columns.count;
    run->bytes = all_bytes(&facts->columns);
    int64_t start = slice_token(reactor, number);
    run->token_min = facts->keyed ? facts->token_min : start;
    run->token_max = facts->keyed ? facts->token_max : start;
    run->timestamp = facts->view.base_timestamp_us;
    run->max_timestamp = facts->max_timestamp;
    if (produce->timestamp != 0 && run->timestamp == 0)
        run->timestamp = run->max_timestamp = produce->timestamp;
    return queue_run(reactor, produce, run, detail);
}

uint16_t batch_check(struct reactor *reactor, uint32_t slice, const uint8_t *bytes, size_t len,
                     bool taken, struct batch_outline *out)
{
    struct batch_facts facts;
    const uint64_t most = log_run_bound_max(reactor->log);
    uint16_t problem = taken ? examine(reactor, bytes, len, most, most, &facts)
                             : batch_examine(reactor, bytes, len, &facts);
    if (problem != PROBLEM_NONE)
        return problem;
    if (facts.view.base_timestamp_us < 0 && !reactor_takes_early(reactor))
        return PROBLEM_OLD_BROKERS;
    uint32_t number = slice_in_ring(reactor, slice);
    if (facts.keyed && (!facts.one_slice || facts.number != number))
        return PROBLEM_BAD_SLICE;
    if (batch_is_large(&facts) && facts.columns.count > 1)
        return PROBLEM_BODY_TOO_LARGE;
    int64_t start = slice_token(reactor, number);
    *out = (struct batch_outline){.count = facts.columns.count,
                                  .bytes = all_bytes(&facts.columns),
                                  .token_min = facts.keyed ? facts.token_min : start,
                                  .token_max = facts.keyed ? facts.token_max : start,
                                  .max_timestamp = facts.max_timestamp};
    return PROBLEM_NONE;
}

/* ---- cut ---- */

/* Which events are cut out: their indexes in the batch, behind one another; NULL: all of them. */
struct cut {
    uint32_t *taken, count;
};

static bool cut_make(struct cut *cut, const struct batch_facts *facts, int64_t number,
                     uint32_t keyless_slice)
{
    const uint32_t count = facts->columns.count;
    *cut = (struct cut){NULL, count};
    if (number < 0 || !facts->keyed)
        return true;
    cut->taken = malloc(count * sizeof *cut->taken);
    cut->count = 0;
    for (uint32_t i = 0; cut->taken != NULL && i < count; i++) {
        const uint32_t of = facts->numbers[i] == NO_NUMBER ? keyless_slice : facts->numbers[i];
        cut->taken[cut->count] = i;
        cut->count += of == number;
    }
    assert(cut->count <= count); /* the room for them */
    return cut->taken != NULL;
}

/* The bytes of those that are cut out, behind one another, to out. How many. */
static uint32_t cut_bytes(const struct batch_columns *from, const struct column *column,
                          const struct cut *cut, uint8_t *out)
{
    const uint32_t *lens = column_pointer(from, column_of(column->beside));
    const uint8_t *bytes = column_pointer(from, column), *start = out;
    for (uint32_t i = 0, next = 0; lens != NULL && i < from->count && next < cut->count; i++) {
        const uint32_t len = bytes_of(lens[i]);
        const bool is_taken = cut->taken[next] == i;
        if (is_taken && len > 0)
            memcpy(out, bytes, len);
        out += is_taken ? len : 0;
        next += is_taken;
        bytes = len > 0 ? bytes + len : bytes; /* they may be absent altogether */
    }
    return (uint32_t)(out - start);
}

/* The columns of those that are cut out, whatever the table has. room holds all of the batch's. */
static void cut_columns(const struct batch_columns *from, const struct cut *cut, uint8_t *room,
                        const uint8_t *end, struct batch_columns *to)
{
    assert(cut->count <= from->count && room <= end);
    *to = (struct batch_columns){.count = cut->count};
    for (const struct column *each = columns_table; each < columns_table + COLUMN_COUNT; each++) {
        const void *given = column_pointer(from, each);
        if (given == NULL)
            continue;
        column_set(to, each, room);
        if (each->kind == COLUMN_BYTES) {
            const uint32_t bytes = cut_bytes(from, each, cut, room);
            column_set_bytes(to, each, bytes);
            room += pad8(bytes);
            continue;
        }
        const uint32_t *words = given;
        for (uint32_t i = 0; i < cut->count; i++)
            memcpy(room + (size_t)i * 4, &words[cut->taken[i]], 4);
        room += pad8((size_t)cut->count * 4);
    }
    if (to->hdrs_bytes == 0)
        to->hdr_len = NULL; /* only others have headers */
    assert(room <= end);
}

struct body *batch_cut(struct reactor *reactor, const struct batch_facts *facts, int64_t number,
                       uint32_t keyless_slice)
{
    const size_t most = facts->view.raw_bytes + 8 * COLUMN_COUNT;
    struct chunk_columns made = {.base_timestamp_us = facts->view.base_timestamp_us};
    struct cut cut;
    /* Cut, sealed, and unpacked by the leader: it is asked for like bytes that come in. */
    if (!reactor_memory(reactor, 3 * most) || !cut_make(&cut, facts, number, keyless_slice))
        return NULL;
    uint8_t *room = cut.taken != NULL ? malloc(most) : NULL;
    if (cut.taken == NULL)
        made.columns = facts->columns;
    else if (room != NULL)
        cut_columns(&facts->columns, &cut, room, room + most, &made.columns);
    struct body *body = NULL;
    if (made.count > 0 && (body = body_new(&reactor->body_bytes, chunk_bound(&made))) != NULL) {
        body->len = batch_seal(NULL, &made, body->data, body->capacity);
        assert(body->len > 0);
    }
    free(cut.taken);
    free(room);
    return body;
}

/* What came is one that batch_cut() made, or it is no process of ours that sent it. Its bytes are
 * verified where they are kept. */
static uint16_t cut_open(struct reactor *reactor, const uint8_t *bytes, size_t len,
                         struct batch_view *view)
{
    if (len == 0 || batch_read(bytes, len, view) != 0 || view->raw_bytes > len ||
        view->count > BATCH_EVENTS_MAX || view->base_timestamp_us > TIMESTAMP_MAX)
        return PROBLEM_BAD_BATCH;
    if (view->version != FORMAT_PLAIN && !reactor_takes_headers(reactor))
        return PROBLEM_OLD_BROKERS;
    return reactor_memory(reactor, batch_scratch_bytes(view)) ? PROBLEM_NONE : PROBLEM_BUSY;
}

/* The columns, in the room behind the run. */
static bool cut_unpack(const struct reactor *reactor, struct run *run,
                       const struct batch_view *view, size_t room)
{
    struct batch_columns *columns = (struct batch_columns *)run->tail;
    if (run->body == NULL || batch_unpack(view, (uint32_t)reactor->options.event_bytes_max,
                                          run->tail + sizeof *columns, room, columns) != 0)
        return false;
    assert(columns->count == view->count); /* there is room for each */
    run->columns = columns;
    run->count = columns->count;
    run->bytes = all_bytes(columns);
    run->max_timestamp = view->base_timestamp_us;
    for (uint32_t i = 0; i < columns->count; i++) {
        const int64_t time = view->base_timestamp_us + (int64_t)column_delta(columns, i);
        run->max_timestamp = time > run->max_timestamp ? time : run->max_timestamp;
    }
    run->timestamp = view->base_timestamp_us;
    return true;
}

static uint16_t cut_run(struct reactor *reactor, const struct produce *produce, uint32_t number,
                        struct waiter waiter, const uint8_t *bytes, size_t len, struct body *body,
                        uint64_t *detail)
{
    struct batch_view view;
    uint16_t problem = cut_open(reactor, bytes, len, &view);
    if (problem == PROBLEM_NONE)
        problem = batch_early(reactor, produce, view.base_timestamp_us, detail);
    if (problem != PROBLEM_NONE)
        return problem;
    const size_t room = pad8(batch_scratch_bytes(&view));
    uint32_t slice = number & (reactor->options.slices - 1);
    struct stream *stream = shard_stream(reactor->shard, produce->topic, slice);
    struct run *run = stream ? run_new(stream, sizeof(struct batch_columns) + room) : NULL;
    if (run == NULL)
        return PROBLEM_BUSY;
    run->body = own_body(reactor, &bytes, len, body);
    /* What came may have been in the receive buffer: it lies in the body now. */
    int (*const open)(const uint8_t *, size_t, struct batch_view *) =
        produce->verified ? batch_read : batch_open;
    if (run->body == NULL || open(bytes, len, &view) != 0 ||
        !cut_unpack(reactor, run, &view, room)) {
        problem = run->body ? PROBLEM_BAD_BATCH : PROBLEM_BUSY;
        run_free(run);
        return problem;
    }
    int64_t start = slice_token(reactor, number);
    run->waiter = waiter;
    if (run->timestamp == 0)
        run->timestamp = run->max_timestamp = produce->timestamp;
    /* The exact tokens are not worth hashing again: the slice's whole range is a true bound. */
    run->token_min = start;
    run->token_max = (int64_t)((uint64_t)start + reactor->options.slice_width - 1);
    return queue_run(reactor, produce, run, detail);
}

uint16_t batch_run(struct reactor *reactor, const struct produce *produce, uint32_t number,
                   struct waiter waiter, const uint8_t *bytes, size_t len, struct body *body,
                   uint64_t *detail)
{
    struct batch_facts facts;
    if (produce->content == CONTENT_CUT)
        return cut_run(reactor, produce, number, waiter, bytes, len, body, detail);
    uint16_t problem = batch_examine(reactor, bytes, len, &facts);
    if (problem == PROBLEM_NONE)
        problem = batch_early(reactor, produce, facts.view.base_timestamp_us, detail);
    if (problem != PROBLEM_NONE)
        return problem;
    if (facts.keyed && (!facts.one_slice || facts.number != number))
        return PROBLEM_BAD_SLICE;
    if (batch_is_large(&facts) && facts.columns.count > 1)
        return PROBLEM_BODY_TOO_LARGE; /* a process of ours would have cut it */
    return batch_sealed_run(reactor, produce, number, waiter, &facts, bytes, len, body, detail);
}
