/* Commits: checked batches and the mark that says so, glued into one group. A group is recovered
 * whole or not at all, so the mark is there exactly when the events are. */
#include "broker/commit.h"

#include <assert.h>
#include <string.h>

#include "core/route.h"
#include "broker/runs.h"
#include "log/group_build.h"

static struct run *mark_run(struct reactor *reactor, const struct commit *commit)
{
    struct stream *stream = shard_stream(reactor->shard, commit->mark_topic, commit->slice);
    size_t bytes = (size_t)commit->key_len + commit->value_len;
    struct run *run = stream ? run_new(stream, bytes) : NULL;
    if (run == NULL)
        return NULL;
    memcpy(run->tail, commit->key, commit->key_len);
    memcpy(run->tail + commit->key_len, commit->value, commit->value_len);
    run->keys = run->tail;
    run->key_len = commit->key_len;
    run->values = run->tail + commit->key_len;
    run->value_len = commit->value_len;
    run->count = 1;
    run->bytes = (uint32_t)bytes;
    run->token_min = run->token_max = slice_token(reactor, slice_in_ring(reactor, commit->slice));
    run->waiter = (struct waiter){.kind = WAITER_APPEND, .tag = commit->tag};
    return run;
}

static struct run *batch_run_of(struct reactor *reactor, struct stream *stream,
                                const struct commit_batch *batch, uint16_t *problem)
{
    const uint8_t *bytes = batch->bytes;
    struct run *run = run_new(stream, sizeof(struct batch_view));
    *problem = PROBLEM_BUSY;
    if (run == NULL)
        return NULL;
    struct batch_view *view = (struct batch_view *)run->tail;
    run->body = own_body(reactor, &bytes, batch->len, NULL);
    bool sound = run->body != NULL && batch_open(bytes, batch->len, view) == 0 &&
                 view->count == batch->outline.count;
    if (!sound) {
        if (run->body != NULL)
            *problem = PROBLEM_BAD_BATCH;
        run_free(run);
        return NULL;
    }
    run->sealed = true;
    run->batch = view;
    run->count = batch->outline.count;
    run->bytes = batch->outline.bytes;
    run->token_min = batch->outline.token_min;
    run->token_max = batch->outline.token_max;
    run->timestamp = view->base_timestamp_us;
    run->max_timestamp = batch->outline.max_timestamp;
    return run;
}

static void free_chain(struct run *run)
{
    while (run != NULL) {
        struct run *next = run->next;
        run_free(run);
        run = next;
    }
}

uint16_t commit_append(struct reactor *reactor, const struct commit *commit)
{
    if (!reactor->log->open || reactor->draining || reactor->io_failed)
        return PROBLEM_NOT_READY;
    if (reactor_disk_full(reactor))
        return PROBLEM_DISK_FULL;
    size_t total = 0;
    for (uint32_t i = 0; i < commit->batch_count; i++)
        total += commit->batches[i].len;
    if (!reactor_memory(reactor, total))
        return PROBLEM_BUSY;
    struct stream *stream = shard_stream(reactor->shard, commit->topic, commit->slice);
    struct run *first = mark_run(reactor, commit), *last = first;
    if (stream == NULL || first == NULL) {
        free_chain(first);
        return PROBLEM_BUSY;
    }
    size_t bound = run_bound(first);
    uint16_t problem = PROBLEM_NONE;
    for (uint32_t i = 0; i < commit->batch_count && problem == PROBLEM_NONE; i++) {
        struct run *run = batch_run_of(reactor, stream, &commit->batches[i], &problem);
        if (run == NULL)
            break;
        problem = PROBLEM_NONE;
        assert(run->next == NULL && run->stream == stream);
        bound += run_bound(run);
        last->next = run;
        last = run;
    }
    if (problem == PROBLEM_NONE && bound > log_run_bound_max(reactor->log))
        problem = PROBLEM_BODY_TOO_LARGE;
    if (problem != PROBLEM_NONE) {
        free_chain(first);
        return problem;
    }
    assert(first != NULL && last->next == NULL && !last->glued); /* the last one ends the group */
    while (first != NULL) { /* from here on nothing can fail: all, or none of it */
        struct run *next = first->next;
        first->glued = next != NULL;
        first->queued_us = reactor->loop.monotonic_us;
        log_enqueue(reactor->log, first);
        first = next;
    }
    return PROBLEM_NONE;
}
