/* Lines with keys of their own, sorted by slice. */
#include "broker/keyed_runs.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/murmur3.h"
#include "broker/delay.h"
#include "core/route.h"
#include "broker/runs.h"
#include "log/clock.h"
#include "log/group_build.h"

#define FLAW_SHIFT 56 /* a detail: the flaw, and the line below it */

static const char *const flaw_texts[KEYED_FLAWS] = {
    [KEYED_SYNTAX] = "this is no JSON object",
    [KEYED_MEMBER] =
        "a line has the members key, value, headers and one of timestamp, deliverAt and "
        "deliverAfter, each once, and no other",
    [KEYED_VALUE] = "a line has a value, perhaps null",
    [KEYED_HEADERS] = "headers are an object of strings: at most 64 and 16 KiB, names of a-z 0-9 "
                      "!#$%&'*+.^_`|~-",
    [KEYED_KEY] = "the key is a string, or with keyField a string, a number or a boolean",
    [KEYED_LONG_KEY] = "the key is longer than 32 KiB",
    [KEYED_BASE64] = "this is no base64",
    [KEYED_TIME] = "a timestamp is a number of microseconds since 1970, from the year 1 on",
    [KEYED_MIXED] = "either all lines have a timestamp or none has",
    [KEYED_MIXED_DUE] = "either all lines say when they are due or none does",
};

uint64_t keyed_flaw_line(uint64_t detail)
{
    return detail & (((uint64_t)1 << FLAW_SHIFT) - 1);
}

const char *keyed_flaw_text(uint64_t detail)
{
    const uint64_t flaw = detail >> FLAW_SHIFT;
    const char *text = flaw < KEYED_FLAWS ? flaw_texts[flaw] : NULL;
    return text != NULL ? text : "this line is malformed";
}

static uint16_t problem_of(enum keyed_flaw flaw, uint64_t line, uint64_t *detail)
{
    *detail = line;
    switch (flaw) {
    case KEYED_TOO_LARGE: return PROBLEM_EVENT_TOO_LARGE;
    case KEYED_TOO_MANY: *detail = 0; return PROBLEM_BODY_TOO_LARGE;
    case KEYED_DUE: return PROBLEM_BAD_DELAY;
    case KEYED_FAR_DUE: return PROBLEM_FAR_DELAY;
    default: break;
    }
    *detail = (uint64_t)flaw << FLAW_SHIFT | line;
    return PROBLEM_BAD_LINE;
}

/* Which slice each line belongs to, and how many have it. */
static void find_numbers(const struct reactor *reactor, const uint8_t *bytes,
                         struct keyed_line *lines, uint32_t count, uint32_t keyless_slice,
                         uint32_t *counts, uint8_t *key_room)
{
    assert(keyless_slice < ring_slices(reactor)); /* as all that keys lead to */
    for (uint32_t i = 0; i < count; i++) {
        struct keyed_line *line = &lines[i];
        line->number = keyless_slice;
        if (line->key_len != KEY_NULL) {
            const uint8_t *key = keyed_key(bytes, line, key_room);
            line->number = slice_of_token(reactor, murmur3_token(key, line->key_len));
        }
        counts[line->number]++;
    }
}

/* Shares of what was counted, in the order of the ring; counts become the shares' own numbers. */
static uint32_t make_shares(uint32_t *counts, uint32_t all, struct keyed_share *shares)
{
    uint32_t made = 0, first = 0;
    for (uint32_t number = 0; number < all; number++) {
        if (counts[number] == 0)
            continue;
        shares[made] = (struct keyed_share){.number = number, .first = first, .plain = true};
        first += counts[number];
        counts[number] = made++;
    }
    return made;
}

static void sort_lines(const struct keyed_line *lines, uint32_t count, const uint32_t *share_of,
                       struct keyed_share *shares, uint32_t *order)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct keyed_line *line = &lines[i];
        struct keyed_share *share = &shares[share_of[line->number]];
        order[share->first + share->count++] = i;
        share->vals_bytes += bytes_of(line->value_len);
        share->hdrs_bytes += line->headers_len;
        share->plain &= line->value_len != KEY_NULL && line->headers_len == 0;
        if (line->key_len != KEY_NULL) {
            share->keyed = true;
            share->keys_bytes += line->key_len;
        }
    }
}

/* Of all lines the time that a topic is the least likely to take. Returns the first. */
static int64_t set_time(const struct reactor *reactor, const struct keyed_line *lines,
                        uint32_t count, struct keyed_body *out)
{
    int64_t least = lines[0].timestamp, most = least;
    for (uint32_t i = 1; i < count; i++) {
        least = lines[i].timestamp < least ? lines[i].timestamp : least;
        most = lines[i].timestamp > most ? lines[i].timestamp : most;
    }
    const bool near = log_time_plausible(reactor->log, reactor->loop.wall_us, least);
    const int64_t furthest = near ? most : least;
    out->timestamp = furthest == 0 ? TIME_ZERO : furthest;
    return least;
}

/* A share that is too large for its log would be refused when others are stored already. */
static bool shares_fit(const struct reactor *reactor, const struct keyed_body *body)
{
    for (uint32_t i = 0; i < body->share_count; i++) {
        const struct keyed_share *share = &body->shares[i];
        const struct run as_run = {.count = share->count,
                                   .bytes = share->keys_bytes + share->vals_bytes +
                                            share->hdrs_bytes,
                                   .timestamp = body->timestamp};
        if (run_bound(&as_run) > log_run_bound_max(reactor->log))
            return false;
    }
    return true;
}

uint16_t keyed_examine(struct reactor *reactor, const struct produce *produce,
                       uint32_t keyless_slice, uint8_t *bytes, size_t len, struct keyed_body *out,
                       uint64_t *detail)
{
    const uint32_t most = keyed_lines_most(len), all = ring_slices(reactor);
    const uint32_t shares_most = most < all ? most : all;
    const size_t lines_bytes = most * sizeof(struct keyed_line);
    const size_t shares_bytes = shares_most * sizeof(struct keyed_share);
    const size_t rooms = KEYED_KEY_MAX + pad8(HEADERS_STORED_MAX);
    const size_t need = lines_bytes + pad8(shares_bytes) + rooms +
                        ((size_t)most + all) * sizeof(uint32_t);
    memset(out, 0, sizeof *out);
    /* The lines and, of what is led elsewhere, a share, its batch and what is sent of it. */
    if (len > UINT32_MAX || !reactor_memory(reactor, need + 3 * len))
        return PROBLEM_BUSY;
    uint8_t *scratch = reactor_scratch(reactor, need);
    if (scratch == NULL)
        return PROBLEM_BUSY;
    struct keyed_line *lines = (struct keyed_line *)scratch;
    out->shares = (struct keyed_share *)(scratch + lines_bytes);
    uint8_t *key_room = scratch + lines_bytes + pad8(shares_bytes);
    uint32_t *counts = (uint32_t *)(key_room + rooms), *order = counts + all;
    struct keyed_rules rules = {.field = produce->key,
                                .field_len = produce->key_field ? produce->key_len : 0,
                                .key_room = key_room,
                                .headers_room = key_room + KEYED_KEY_MAX,
                                .event_bytes_max = reactor->options.event_bytes_max,
                                .now_us = reactor->loop.wall_us};
    delay_bounds(reactor, &rules.due_least_us, &rules.due_most_us);
    uint32_t count;
    uint64_t line;
    const enum keyed_flaw flaw = keyed_read(bytes, len, &rules, lines, most, &count,
                                            &out->delayed, &line);
    if (flaw != KEYED_FINE)
        return problem_of(flaw, line, detail);
    if (count == 0)
        return PROBLEM_NO_EVENTS;
    assert(count <= most && keyless_slice < all);
    memset(counts, 0, all * sizeof *counts);
    find_numbers(reactor, bytes, lines, count, keyless_slice, counts, key_room);
    out->share_count = make_shares(counts, all, out->shares);
    sort_lines(lines, count, counts, out->shares, order);
    out->bytes = bytes;
    out->lines = lines;
    out->order = order;
    if (lines[0].timestamp != KEYED_NO_TIME) {
        const int64_t least = set_time(reactor, lines, count, out);
        const uint16_t problem = least > 0 ? PROBLEM_NONE
                                           : reactor_early_problem(reactor, produce->topic);
        if (problem != PROBLEM_NONE) {
            *detail = (uint64_t)out->timestamp;
            return problem;
        }
    }
    assert(out->share_count > 0 && out->share_count <= shares_most);
    *detail = 0;
    for (uint32_t i = 0; i < out->share_count; i++)
        if (!out->shares[i].plain && !reactor_takes_headers(reactor))
            return PROBLEM_OLD_BROKERS;
    return shares_fit(reactor, out) ? PROBLEM_NONE : PROBLEM_BODY_TOO_LARGE;
}

/* ---- a share's columns ---- */

/* values: with room for them, not only for where each is. */
static size_t columns_room(const struct keyed_body *body, const struct keyed_share *share,
                           bool values)
{
    const size_t words = 1 + share->keyed + (share->hdrs_bytes > 0) + !values +
                         (body->timestamp != 0 ? 2 : 0);
    return words * pad8((size_t)share->count * 4) + pad8(share->keys_bytes) +
           pad8(share->hdrs_bytes) + (values ? pad8(share->vals_bytes) : 0);
}

/* Their times, counted from the first of them, which it returns. Whether any is so far from it that
 * the high halves are needed, and the last. */
static int64_t fill_times(const struct keyed_body *body, const struct keyed_share *share,
                          uint32_t *low, uint32_t *high, bool *wide, int64_t *last)
{
    const uint32_t *order = body->order + share->first;
    int64_t base = INT64_MAX;
    *last = INT64_MIN;
    for (uint32_t i = 0; i < share->count; i++) {
        const int64_t time = body->lines[order[i]].timestamp;
        base = time < base ? time : base;
        *last = time > *last ? time : *last;
    }
    base -= base == 0; /* in a batch, and in a run, it says that there are none */
    *wide = false;
    for (uint32_t i = 0; i < share->count; i++) {
        const uint64_t delta = (uint64_t)(body->lines[order[i]].timestamp - base);
        low[i] = (uint32_t)delta;
        high[i] = (uint32_t)(delta >> 32);
        *wide |= high[i] != 0;
    }
    return base;
}

/* As memcpy, which is called for each length that is not known: keys mostly are of these. */
static void copy_key(uint8_t *out, const uint8_t *key, uint32_t len)
{
    if (len < 8 || len > 16) {
        memcpy(out, key, len);
        return;
    }
    uint64_t first, last; /* they overlap */
    memcpy(&first, key, 8);
    memcpy(&last, key + len - 8, 8);
    memcpy(out, &first, 8);
    memcpy(out + len - 8, &last, 8);
}

/* Headers of a share's events, their lengths first. Where they end. */
static uint8_t *fill_headers(const struct keyed_body *body, const struct keyed_share *share,
                             uint8_t *room, struct batch_columns *to)
{
    const uint32_t *order = body->order + share->first;
    uint32_t *lens = (uint32_t *)room;
    uint8_t *at = room + pad8((size_t)share->count * 4);
    to->hdr_len = lens;
    to->hdrs = at;
    to->hdrs_bytes = share->hdrs_bytes;
    for (uint32_t i = 0; i < share->count; i++) {
        const struct keyed_line *line = &body->lines[order[i]];
        lens[i] = line->headers_len > 0 ? line->headers_len : KEY_NULL;
        memcpy(at, body->bytes + line->headers_at, line->headers_len);
        at += line->headers_len;
    }
    assert(at == to->hdrs + share->hdrs_bytes);
    return room + pad8((size_t)share->count * 4) + pad8(share->hdrs_bytes);
}

/* Copies a share's events to room, of columns_room(), their values as well or, to begins, where
 * they begin. Sets their first and last time, or 0. */
static void fill_columns(const struct keyed_body *body, const struct keyed_share *share,
                         uint8_t *room, struct batch_columns *to, int64_t *base, int64_t *last,
                         const uint32_t **begins)
{
    const uint32_t *order = body->order + share->first;
    const size_t words = pad8((size_t)share->count * 4);
    uint8_t *at = room + words;
    uint32_t *val_len = (uint32_t *)room, *key_len = NULL;
    *to = (struct batch_columns){.count = share->count, .val_len = val_len};
    *base = *last = 0;
    if (share->keyed) {
        to->key_len = key_len = (uint32_t *)at;
        at += words;
    }
    if (body->timestamp != 0) {
        uint32_t *low = (uint32_t *)at, *high = (uint32_t *)(at + words);
        bool wide;
        *base = fill_times(body, share, low, high, &wide, last);
        to->ts_delta = low;
        to->ts_high = wide ? high : NULL;
        at += 2 * words;
    }
    if (share->hdrs_bytes > 0)
        at = fill_headers(body, share, at, to);
    uint8_t *keys = at, *vals = at + pad8(share->keys_bytes);
    uint32_t *at_value = NULL;
    if (begins != NULL)
        *begins = at_value = (uint32_t *)vals;
    else
        to->vals = vals;
    to->vals_bytes = share->vals_bytes;
    if (share->keyed) {
        to->keys = keys;
        to->keys_bytes = share->keys_bytes;
    }
    for (uint32_t i = 0; i < share->count; i++) {
        const struct keyed_line *line = &body->lines[order[i]];
        val_len[i] = line->value_len;
        if (at_value != NULL) {
            at_value[i] = line->value_at;
        } else {
            memcpy(vals, body->bytes + line->value_at, bytes_of(line->value_len));
            vals += bytes_of(line->value_len);
        }
        if (key_len == NULL)
            continue;
        key_len[i] = line->key_len;
        if (line->key_len == KEY_NULL)
            continue;
        if (line->key_escaped != 0)
            keyed_key(body->bytes, line, keys); /* no more than its length is written */
        else
            copy_key(keys, body->bytes + line->key_at, line->key_len);
        keys += line->key_len;
    }
    assert(keys == at + share->keys_bytes || !share->keyed);
    vals = at_value != NULL ? (uint8_t *)(at_value + share->count) : vals;
    assert((size_t)(vals - room) <= columns_room(body, share, begins == NULL));
}

uint16_t keyed_run(struct reactor *reactor, const struct produce *produce,
                   const struct keyed_body *body, const struct keyed_share *share,
                   struct waiter waiter, uint64_t *detail)
{
    const uint32_t slice = share->number & (reactor->options.slices - 1);
    const size_t head = pad8(sizeof(struct batch_columns));
    struct stream *stream = shard_stream(reactor->shard, produce->topic, slice);
    struct run *run = stream ? run_new(stream, head + columns_room(body, share, false)) : NULL;
    if (run == NULL)
        return PROBLEM_BUSY;
    struct batch_columns *columns = (struct batch_columns *)run->tail;
    assert(share->count > 0 && produce->content == CONTENT_CUT); /* see far_timestamp() */
    fill_columns(body, share, run->tail + head, columns, &run->timestamp, &run->max_timestamp,
                 &run->begins);
    /* The log gathers them where it needs them: that is the only time they are copied. */
    run->values = body->bytes;
    run->body = body->owner;
    run->body->refs++;
    run->waiter = waiter;
    run->columns = columns;
    run->count = columns->count;
    run->bytes = columns->vals_bytes + columns->keys_bytes + columns->hdrs_bytes;
    if (run->timestamp == 0)
        run->timestamp = run->max_timestamp = produce->timestamp;
    /* Of all keys there may be: the exact bounds are not worth a comparison for each. */
    run->token_min = slice_token(reactor, share->number);
    run->token_max = (int64_t)((uint64_t)run->token_min + reactor->options.slice_width - 1);
    return queue_run(reactor, produce, run, detail);
}

struct body *keyed_cut(struct reactor *reactor, const struct keyed_body *body,
                       const struct keyed_share *share)
{
    struct chunk_columns made = {0};
    int64_t last;
    assert(share->count > 0);
    uint8_t *room = malloc(columns_room(body, share, true));
    if (room == NULL)
        return NULL;
    fill_columns(body, share, room, &made.columns, &made.base_timestamp_us, &last, NULL);
    struct body *cut = body_new(&reactor->body_bytes, chunk_bound(&made));
    if (cut != NULL) {
        cut->len = batch_seal(NULL, &made, cut->data, cut->capacity);
        assert(cut->len > 0);
    }
    free(room);
    return cut;
}
