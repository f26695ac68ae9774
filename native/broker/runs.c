/* Events of one slice as runs, queued for the log: one event, or lines. */
#include "broker/runs.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/route.h"
#include "format/format.h"
#include "log/clock.h"
#include "log/group_build.h"

#define STAGING_BYTES (128u << 10)
#define STAGING_COPY_MAX (4u << 10) /* larger events cost no more than their own copy */

static bool is_blank(const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (bytes[i] != ' ' && bytes[i] != '\t' && bytes[i] != '\r')
            return false;
    return true;
}

/* Puts the lines one behind the other to out, which may be where they are, without their ends;
 * blank ones are left out. Returns their number, or -1 with *line set to the number of the line
 * that is too long. */
static int64_t pack_lines(const uint8_t *bytes, size_t len, uint64_t event_max, uint8_t *out,
                          uint32_t *lens, uint64_t *total, uint64_t *line)
{
    int64_t count = 0;
    const uint8_t *at = bytes, *end = bytes + len, *start = out;
    *line = 0;
    while (at < end) {
        const uint8_t *stop = memchr(at, '\n', (size_t)(end - at));
        const uint8_t *next = stop ? stop + 1 : end;
        if (stop == NULL)
            stop = end;
        ++*line;
        if (stop > at && stop[-1] == '\r')
            stop--;
        size_t size = (size_t)(stop - at);
        if (size > event_max)
            return -1;
        if (size > 0 && (*at > ' ' || !is_blank(at, size))) {
            if (out != at)
                memmove(out, at, size);
            out += size;
            lens[count++] = (uint32_t)size;
        }
        at = next;
    }
    assert((uint64_t)count <= len / 2 + 1 && (size_t)(out - start) <= len); /* room in lens */
    *total = (uint64_t)(out - start);
    return count;
}

static void copy_producer(struct run *run, const struct produce *produce)
{
    run->has_producer = produce->has_producer;
    memcpy(run->producer_id, produce->producer_id, PRODUCER_ID_BYTES);
    run->producer_epoch = produce->producer_epoch;
    run->producer_seq = produce->producer_seq;
}

/* A timestamp that its topic does not take, or 0: the run's first or last, or, of a batch that was
 * cut, that of the whole which is the furthest off. Only who leads the slice is sure of the topic.
 */
static int64_t far_timestamp(const struct reactor *reactor, const struct produce *produce,
                             const struct run *run)
{
    if (run->timestamp == 0 || run->stream->topic->any_time)
        return 0;
    const int64_t times[] = {produce->content == CONTENT_CUT ? produce->timestamp : 0,
                             run->timestamp, run->max_timestamp};
    for (int i = 0; i < 3; i++)
        if (times[i] != 0 && !log_time_plausible(reactor->log, reactor->loop.wall_us, times[i]))
            return times[i];
    return 0;
}

uint16_t queue_run(struct reactor *reactor, const struct produce *produce, struct run *run,
                          uint64_t *detail)
{
    assert(run->count > 0); /* none: a duplicate, or refused, see below */
    run->queued_us = reactor->loop.monotonic_us;
    if (run_bound(run) > log_run_bound_max(reactor->log)) {
        run_free(run);
        *detail = 0;
        return PROBLEM_BODY_TOO_LARGE;
    }
    int64_t far_us = far_timestamp(reactor, produce, run);
    if (far_us != 0 && produce->has_producer && /* what is stored is not refused afterwards */
        shard_has_sequence(reactor->shard, run->stream, produce->producer_id,
                           produce->producer_epoch, produce->producer_seq))
        far_us = 0;
    if (far_us != 0 && (!produce->has_producer || !reactor->log->gated)) {
        run_free(run);
        *detail = (uint64_t)far_us;
        return PROBLEM_FAR_TIMESTAMP;
    }
    if (!produce->has_producer) {
        log_enqueue(reactor->log, run);
        return PROBLEM_NONE;
    }
    struct producer *row;
    enum dedup verdict = DEDUP_FULL;
    if (far_us != 0)
        verdict = DEDUP_FAR;
    else if (shard_takes_producer(reactor->shard, run->stream, produce->producer_id))
        verdict = shard_dedup(reactor->shard, run->stream, produce->producer_id,
                              produce->producer_epoch, produce->producer_seq, produce->one_shot,
                              reactor->log->clock_us, &row, detail);
    uint16_t problem = PROBLEM_NONE;
    switch (verdict) {
    case DEDUP_NEW:
        row->last_seq = produce->producer_seq;
        copy_producer(run, produce);
        break;
    case DEDUP_DUPLICATE:
        reactor->duplicates++;
        run->count = run->bytes = 0; /* waits behind the original */
        run->sealed = false;
        break;
    case DEDUP_FAR:
        problem = PROBLEM_FAR_TIMESTAMP;
        *detail = (uint64_t)far_us;
        break;
    case DEDUP_STALE_EPOCH: problem = PROBLEM_STALE_EPOCH; break;
    case DEDUP_GAP: problem = PROBLEM_GAP; break;
    case DEDUP_FULL: problem = PROBLEM_TOO_MANY_TOPICS; break;
    }
    if (problem != PROBLEM_NONE && (!reactor->log->gated || verdict == DEDUP_FULL)) {
        run_free(run);
        return problem;
    }
    if (problem != PROBLEM_NONE) { /* final for the client, so it has to be the leader's word */
        run->count = run->bytes = 0;
        run->sealed = false;
        assert(problem <= UINT8_MAX);
        run->problem = (uint8_t)problem;
        run->producer_seq = *detail;
    }
    log_enqueue(reactor->log, run);
    return PROBLEM_NONE;
}

static struct run *new_run(struct reactor *reactor, const struct produce *produce, uint32_t number,
                           struct waiter waiter, size_t extra)
{
    uint32_t slice = number & (reactor->options.slices - 1);
    struct stream *stream = shard_stream(reactor->shard, produce->topic, slice);
    struct run *run = stream ? run_new(stream, extra) : NULL;
    if (run == NULL)
        return NULL;
    run->waiter = waiter;
    run->timestamp = run->max_timestamp = produce->timestamp;
    int64_t token = slice_token(reactor, number);
    if (produce->has_key)
        token = produce->key_token;
    run->token_min = run->token_max = token;
    return run;
}

static void set_key(struct run *run, const struct produce *produce, uint8_t *room)
{
    if (!produce->has_key)
        return;
    memcpy(room, produce->key, produce->key_len);
    run->keys = room;
    run->key_len = produce->key_len;
}

/* Copies a small event behind the last one of its slice, so that one stream's lie in a row. Returns
 * it, with a reference on *body for the run. */
static const uint8_t *stage(struct reactor *reactor, uint32_t slice, const uint8_t *bytes,
                            size_t len, struct body **body)
{
    struct body **lane = &reactor->staging[slice % STAGING_LANES];
    assert(len <= STAGING_COPY_MAX); /* an empty one has room for it */
    if (*lane != NULL && (*lane)->refs == 1)
        (*lane)->len = 0; /* nobody looks at what is in it any more */
    if (*lane == NULL || (*lane)->capacity - (*lane)->len < len) {
        struct body *next = body_new(&reactor->staging_bytes, STAGING_BYTES);
        if (next == NULL)
            return NULL;
        if (*lane != NULL)
            body_release(*lane);
        *lane = next;
    }
    uint8_t *number = (*lane)->data + (*lane)->len;
    memcpy(number, bytes, len);
    (*lane)->len += len;
    (*lane)->refs++;
    *body = *lane;
    return number;
}

uint16_t event_run(struct reactor *reactor, const struct produce *produce, uint32_t number,
                          struct waiter waiter, const uint8_t *bytes, size_t len,
                          struct body *body, uint64_t *detail)
{
    if (len == 0 && waiter.kind != WAITER_APPEND) /* the broker's own: "this key is no more" */
        return PROBLEM_NO_EVENTS;
    /* A broker's own state has bounds of its own, whatever clients may send. */
    if (len > reactor->options.event_bytes_max && waiter.kind != WAITER_APPEND)
        return PROBLEM_EVENT_TOO_LARGE;
    size_t key_len = produce->has_key ? produce->key_len : 0;
    bool staged = body == NULL && len <= STAGING_COPY_MAX;
    struct run *run = new_run(reactor, produce, number, waiter,
                              key_len + (body || staged ? 0 : len));
    if (run == NULL)
        return PROBLEM_BUSY;
    set_key(run, produce, run->tail);
    run->count = 1;
    run->value_len = (uint32_t)len;
    run->bytes = (uint32_t)(len + key_len);
    if (staged) {
        run->values = stage(reactor, run->stream->slice, bytes, len, &run->body);
        if (run->values == NULL) {
            run_free(run);
            return PROBLEM_BUSY;
        }
    } else if (body != NULL) {
        run->body = body;
        body->refs++;
        run->values = bytes;
    } else {
        memcpy(run->tail + key_len, bytes, len);
        run->values = run->tail + key_len;
    }
    return queue_run(reactor, produce, run, detail);
}

/* A body that lies in the receive buffer is copied: its runs outlive the buffer. */
struct body *own_body(struct reactor *reactor, const uint8_t **bytes, size_t len,
                             struct body *body)
{
    if (body != NULL) {
        assert(*bytes == body->data && len <= body->len);
        body->refs++;
        return body;
    }
    body = body_new(&reactor->body_bytes, len);
    if (body == NULL)
        return NULL;
    memcpy(body->data, *bytes, len);
    body->len = len;
    *bytes = body->data;
    return body;
}

uint16_t lines_run(struct reactor *reactor, const struct produce *produce, uint32_t number,
                          struct waiter waiter, const uint8_t *bytes, size_t len,
                          struct body *body, uint64_t *detail)
{
    /* A blank line takes no length, so half of the bytes bound the number of events. */
    uint32_t *lens = (uint32_t *)reactor_scratch(reactor, (len / 2 + 2) * sizeof *lens);
    uint64_t total;
    if (body != NULL) {
        assert(bytes == body->data);
        body->refs++;
    } else {
        body = body_new(&reactor->body_bytes, len);
    }
    if (lens == NULL || body == NULL) {
        if (body != NULL)
            body_release(body);
        return PROBLEM_BUSY;
    }
    /* In the request's own body the lines are packed where they are: nobody else reads it. */
    int64_t count = pack_lines(bytes, len, reactor->options.event_bytes_max, body->data, lens,
                               &total, detail);
    uint16_t problem = count < 0 ? PROBLEM_EVENT_TOO_LARGE : count == 0 ? PROBLEM_NO_EVENTS : 0;
    size_t key_len = produce->has_key ? produce->key_len : 0;
    size_t lens_bytes = count > 0 ? pad8((size_t)count * sizeof *lens) : 0;
    /* Every line is stored with the key: short lines with a long key are more than they look. */
    if (problem == PROBLEM_NONE) {
        *detail = 0;
        if (total + key_len * (uint64_t)count > log_run_bound_max(reactor->log))
            problem = PROBLEM_BODY_TOO_LARGE;
    }
    struct run *run = NULL;
    if (problem == PROBLEM_NONE) {
        run = new_run(reactor, produce, number, waiter, lens_bytes + key_len);
        problem = run ? PROBLEM_NONE : PROBLEM_BUSY;
    }
    if (problem != PROBLEM_NONE) {
        body_release(body);
        return problem;
    }
    memcpy(run->tail, lens, (size_t)count * sizeof *lens);
    set_key(run, produce, run->tail + lens_bytes);
    run->body = body;
    run->value_lens = (const uint32_t *)run->tail;
    run->values = body->data;
    run->count = (uint32_t)count;
    run->bytes = (uint32_t)(total + key_len * (uint64_t)count);
    return queue_run(reactor, produce, run, detail);
}
