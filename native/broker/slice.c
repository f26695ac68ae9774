#include "broker/slice.h"

#include <assert.h>

#include "broker/batch_runs.h"
#include "core/route.h"
#include "broker/runs.h"

/* Whether there is the topic, as far as this shard knows: it was made, or has had events. */
static bool is_there(const struct reactor *reactor, const struct topic *topic)
{
    const struct shard *shard = reactor->shard;
    assert(!topic->internal);
    for (uint32_t i = 0; !topic->declared && i < shard->slice_count; i++) {
        const struct stream *stream = shard_stream_get(shard, topic, shard->slice_first + i);
        if (stream != NULL && stream->next_offset > stream->start_offset)
            return true;
    }
    return topic->declared;
}

uint16_t slice_takes(const struct reactor *reactor, const struct produce *produce,
                     const struct waiter *waiter)
{
    if (!reactor->log->open || reactor->draining || reactor->io_failed)
        return PROBLEM_NOT_READY;
    if (reactor_disk_full(reactor)) /* its own as well: whoever waits for that would for ever */
        return PROBLEM_DISK_FULL;
    if (waiter->kind == WAITER_APPEND) /* the broker's own */
        return PROBLEM_NONE;
    const struct topic *topic = shard_topic_meant(reactor->shard, produce->topic);
    if (!reactor->options.auto_create && (topic == NULL || !topic->declared))
        return PROBLEM_UNKNOWN_TOPIC;
    /* Who took it has not heard yet that this topic's values are checked. */
    if (topic != NULL && topic->checked && !produce->checked && waiter->kind == WAITER_PEER)
        return PROBLEM_NOT_READY;
    const bool known = topic != NULL && is_there(reactor, topic);
    return produce->known_only && !known ? PROBLEM_TOPIC_QUOTA : PROBLEM_NONE;
}

uint16_t produce_slice(struct reactor *reactor, const struct produce *produce, uint32_t number,
                       struct waiter waiter, const uint8_t *bytes, size_t len, struct body *body,
                       uint64_t *detail)
{
    const uint16_t problem = slice_takes(reactor, produce, &waiter);
    if (problem != PROBLEM_NONE)
        return problem;
    assert(produce->topic != NULL && number < ring_slices(reactor));
    switch (produce->content) {
    case CONTENT_EVENT:
        return event_run(reactor, produce, number, waiter, bytes, len, body, detail);
    case CONTENT_LINES:
        return lines_run(reactor, produce, number, waiter, bytes, len, body, detail);
    default:
        return batch_run(reactor, produce, number, waiter, bytes, len, body, detail);
    }
}
