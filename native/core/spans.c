#include "core/spans.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "http/traceparent.h"

bool spans_begin(struct reactor *reactor, uint64_t share)
{
    assert(share <= 1ull << 32);
    if (reactor->spans == NULL)
        reactor->spans = calloc(1, sizeof *reactor->spans);
    if (reactor->spans == NULL)
        return false;
    reactor->spans->share = share;
    return true;
}

void spans_free(struct reactor *reactor)
{
    /* Slots and connections are gone before. */
    assert(reactor->spans == NULL || reactor->spans->open == 0);
    free(reactor->spans);
    reactor->spans = NULL;
}

void spans_taken(struct reactor *reactor)
{
    assert(reactor->spans != NULL && reactor->spans->count <= SPANS_KEPT_MAX);
    reactor->spans->count = 0;
}

/* ---- requests ---- */

/* The only field of that name; NULL: there is none. *many: there is more than one. */
static const struct http1_slice *trace_of(const struct http1_request *head, bool *many)
{
    static const char lower[] = "traceparent";
    const struct http1_slice *found = NULL;
    *many = false;
    for (uint16_t i = 0; i < head->header_count; i++) {
        const struct http1_slice *name = &head->headers[i].name;
        uint32_t at = 0;
        while (name->len == sizeof lower - 1 && at < name->len &&
               (name->p[at] | 0x20) == lower[at])
            at++;
        if (at < sizeof lower - 1)
            continue;
        *many |= found != NULL;
        found = &head->headers[i].value;
    }
    return found;
}

/* Whether one that says nothing of a trace is traced, and under which id. */
static bool drawn(const struct spans *spans, struct span *span)
{
    uint32_t lot;
    return spans->share > 0 && getrandom(&lot, sizeof lot, 0) == sizeof lot &&
           lot < spans->share &&
           getrandom(span->trace, sizeof span->trace, 0) == sizeof span->trace;
}

void span_open(struct reactor *reactor, const struct http1_request *head, struct slot *slot)
{
    struct spans *spans = reactor->spans;
    struct span span = {.begun_us = slot->begun_us};
    bool many;
    const struct http1_slice *trace = trace_of(head, &many);
    assert(slot->span == NULL && slot->topic->name_len <= TOPIC_NAME_BYTES_MAX);
    span.has_parent = trace != NULL && !many && traceparent_valid(trace->p, trace->len);
    if (span.has_parent ? !traceparent_read(trace->p, span.trace, span.parent)
                        : !drawn(spans, &span))
        return;
    if (spans->open == SPANS_OPEN_MAX || (slot->span = malloc(sizeof span)) == NULL) {
        spans->lost++;
        return;
    }
    spans->open++;
    span.topic_len = (uint8_t)slot->topic->name_len;
    memcpy(span.topic, slot->topic->name, span.topic_len);
    if (slot->id != NULL)
        snprintf(span.id, sizeof span.id, "%s", slot->id);
    *slot->span = span;
}

static struct span_handed_in *handed_in_at(const struct reactor *reactor,
                                           const struct waiter *waiter)
{
    struct spans *spans = reactor->spans;
    assert(waiter->kind == WAITER_PEER && spans->handed_in_count <= SPANS_HANDED_IN_MAX);
    for (uint32_t i = 0; i < spans->handed_in_count; i++)
        if (spans->handed_in[i].conn == waiter->conn && spans->handed_in[i].tag == waiter->tag)
            return &spans->handed_in[i];
    return NULL;
}

static struct span *span_of(struct reactor *reactor, const struct waiter *waiter)
{
    if (waiter->kind == WAITER_PEER) {
        const struct span_handed_in *over = handed_in_at(reactor, waiter);
        return over == NULL ? NULL : over->span;
    }
    struct conn *conn = loop_conn(&reactor->loop, waiter->conn);
    assert(waiter->kind == WAITER_SLOT);
    struct slot *slot = conn != NULL && !conn->closed ? conn_slot(conn, waiter->slot) : NULL;
    return slot == NULL ? NULL : slot->span;
}

void span_stored(struct reactor *reactor, const struct waiter *waiter)
{
    struct span *span = span_of(reactor, waiter);
    const struct log *log = reactor->log;
    const struct span_group *group = &reactor->spans->groups[log->showing & (BUILT_KEPT - 1)];
    if (span == NULL || group->gseq != log->showing || group->epoch != log->options.epoch)
        return;
    if (group->written_us < span->begun_us)
        return; /* a duplicate: what it says was there before */
    span->group = *group;
}

void span_handed(struct reactor *reactor, const struct waiter *waiter)
{
    struct span *span = span_of(reactor, waiter);
    assert(span == NULL || span->answered_us == 0);
    if (span != NULL)
        span->handed_us = monotonic_us();
}

void span_holds(struct slot *slot)
{
    assert(slot->span != NULL);
    for (uint32_t i = 0; i < slot->part_count; i++)
        slot->span->events += slot->part_count == 1 ? slot->part.count : slot->parts[i].count;
}

static void keep(struct spans *spans, struct span *span, uint16_t status)
{
    span->status = status;
    span->answered_us = monotonic_us();
    if (spans->count < SPANS_KEPT_MAX)
        spans->kept[spans->count++] = *span;
    else
        spans->lost++;
}

static void drop(struct spans *spans, struct span *span)
{
    assert(spans->open > 0);
    spans->open--;
    free(span);
}

void span_answered(struct reactor *reactor, struct slot *slot, uint16_t status)
{
    assert(reactor->spans != NULL && slot->span != NULL);
    if (slot->kind == SLOT_PRODUCED)
        span_holds(slot);
    keep(reactor->spans, slot->span, status);
    span_drop(reactor, slot);
}

void span_drop(struct reactor *reactor, struct slot *slot)
{
    if (slot->span == NULL)
        return;
    drop(reactor->spans, slot->span);
    slot->span = NULL;
}

/* ---- parts at other processes ---- */

bool span_hand_on(struct reactor *reactor, const struct waiter *waiter, struct trace_frame *told)
{
    struct span *span = span_of(reactor, waiter);
    if (span == NULL || span->handed_in)
        return false;
    if (!span->handed_on) /* all parts of a call are of one span */
        span->handed_on = getrandom(span->handed_as, SPAN_PARENT_BYTES, 0) == SPAN_PARENT_BYTES;
    if (!span->handed_on)
        return false;
    *told = (struct trace_frame){
        .bytes = sizeof *told, .op = OP_TRACE, .id_len = (uint8_t)strlen(span->id)};
    memcpy(told->trace, span->trace, sizeof told->trace);
    memcpy(told->parent, span->handed_as, sizeof told->parent);
    memcpy(told->id, span->id, told->id_len);
    return true;
}

void span_hand_in(struct reactor *reactor, const struct waiter *waiter,
                  const struct trace_frame *told, const struct topic *topic)
{
    struct spans *spans = reactor->spans;
    struct span *span;
    assert(spans != NULL && topic->name_len <= TOPIC_NAME_BYTES_MAX);
    if (spans->open == SPANS_OPEN_MAX || spans->handed_in_count == SPANS_HANDED_IN_MAX ||
        (span = calloc(1, sizeof *span)) == NULL) {
        spans->lost++;
        return;
    }
    spans->open++;
    span->handed_in = span->has_parent = true;
    span->begun_us = span->received_us = reactor->loop.monotonic_us;
    memcpy(span->trace, told->trace, sizeof span->trace);
    memcpy(span->parent, told->parent, sizeof span->parent);
    memcpy(span->id, told->id, told->id_len);
    span->topic_len = (uint8_t)topic->name_len;
    memcpy(span->topic, topic->name, span->topic_len);
    spans->handed_in[spans->handed_in_count++] =
        (struct span_handed_in){waiter->conn, waiter->tag, span};
}

/* It is none of those that are open any more. */
static void handed_in_end(struct spans *spans, struct span_handed_in *over)
{
    drop(spans, over->span);
    *over = spans->handed_in[--spans->handed_in_count];
}

void span_handed_in_answered(struct reactor *reactor, const struct waiter *waiter, uint16_t status,
                             uint32_t events)
{
    struct span_handed_in *over = handed_in_at(reactor, waiter);
    if (over == NULL)
        return;
    over->span->events = events;
    if (status != 0)
        keep(reactor->spans, over->span, status);
    handed_in_end(reactor->spans, over);
}

void spans_handed_in_forget(struct reactor *reactor, uint64_t conn)
{
    struct spans *spans = reactor->spans;
    for (uint32_t i = spans->handed_in_count; i > 0; i--) /* the last one takes its place */
        if (spans->handed_in[i - 1].conn == conn)
            handed_in_end(spans, &spans->handed_in[i - 1]);
}

/* ---- groups ---- */

static struct span_group *group_at(struct reactor *reactor, uint64_t gseq)
{
    assert(reactor->spans != NULL);
    struct span_group *group = &reactor->spans->groups[gseq & (BUILT_KEPT - 1)];
    const bool same = group->gseq == gseq && group->epoch == reactor->log->options.epoch;
    return same ? group : NULL;
}

void span_group_built(struct reactor *reactor, uint64_t gseq, int64_t now_us)
{
    assert(reactor->spans != NULL && now_us > 0); /* 0 would be: not yet */
    reactor->spans->groups[gseq & (BUILT_KEPT - 1)] = (struct span_group){
        .epoch = reactor->log->options.epoch, .gseq = gseq, .built_us = now_us};
}

void span_group_written(struct reactor *reactor, uint64_t gseq, int64_t now_us)
{
    struct span_group *group = group_at(reactor, gseq);
    assert(now_us > 0);
    if (group != NULL) /* it may have begun after the clock of this turn was read */
        group->written_us = now_us > group->built_us ? now_us : group->built_us;
}

void span_groups_replicated(struct reactor *reactor, uint64_t gseq, int64_t now_us)
{
    uint64_t from = reactor->log->replicated + 1;
    if (gseq >= BUILT_KEPT && from < gseq - BUILT_KEPT + 1)
        from = gseq - BUILT_KEPT + 1;
    for (uint64_t at = from; at <= gseq; at++) {
        struct span_group *group = group_at(reactor, at);
        if (group != NULL && group->replicated_us == 0)
            group->replicated_us = now_us;
    }
}
