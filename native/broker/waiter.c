#include "broker/waiter.h"

#include <assert.h>

#include "broker/answer.h"
#include "core/frames.h"
#include "core/route.h"
#include "core/spans.h"
#include "broker/slots.h"

/* Of what was left of a body it is told where that is: the answer says so. */
static void tell_produced(struct reactor *reactor, uint64_t request, const struct slot *slot,
                          bool duplicate)
{
    struct upcall *up = reactor_upcall(reactor, UPCALL_PRODUCED, request);
    assert(slot->problem < PROBLEM_COUNT);
    up->status = slot->problem;
    if (slot->problem == PROBLEM_NONE && slot->withheld != NULL && slot->checked && !duplicate)
        up->head = answer_stored(reactor, slot, &up->head_len);
}

void slot_part_done(struct reactor *reactor, const struct waiter *waiter, uint16_t problem,
                    bool duplicate, const struct part *part, uint64_t detail)
{
    struct conn *conn = loop_conn(&reactor->loop, waiter->conn);
    struct slot *slot = conn && !conn->closed ? conn_slot(conn, waiter->slot) : NULL;
    if (slot == NULL || slot->kind != SLOT_OPEN)
        return; /* the client is gone */
    assert(slot->waiting > 0 && slot->waiting <= slot->part_count); /* each part answers once */
    if (problem != PROBLEM_NONE) {
        /* Parts that are stored make a refused part's outcome "unknown" for the whole. All of them
         * are refused for a timestamp that one of them has. */
        bool alone = slot->part_count == 1, first = slot->part_count == slot->waiting;
        bool alike = problem == PROBLEM_FAR_TIMESTAMP && (first || slot->problem == problem);
        slot->problem = alone || alike ? problem : PROBLEM_UNKNOWN_OUTCOME;
        slot->expected = detail;
    } else if (slot->part_count == 1) {
        slot->part = *part;
    } else {
        if (slot->problem == PROBLEM_FAR_TIMESTAMP)
            slot->problem = PROBLEM_UNKNOWN_OUTCOME;
        assert(slot->parts != NULL && part != NULL);
        slot->parts[slot->part_count - slot->waiting] = *part;
    }
    if (--slot->waiting > 0)
        return;
    if (slot_is_told(slot)) { /* the upper layer answers, and may produce more before */
        if (slot->span != NULL && slot->problem == PROBLEM_NONE && slot->checked)
            span_holds(slot);
        tell_produced(reactor, request_id(waiter->conn, waiter->slot), slot, duplicate);
        slot_parts_clear(slot);
        return;
    }
    if (slot->problem != PROBLEM_NONE) {
        conn_problem(conn, slot, slot->problem);
        return;
    }
    slot->kind = duplicate ? SLOT_DUPLICATE : SLOT_PRODUCED;
    const int64_t turn_us = reactor->loop.monotonic_us, safe_us = reactor->stages.released_us;
    assert(slot->begun_us <= turn_us); /* in this turn at the latest */
    histogram_note(&reactor->stages.of[STAGE_WHOLE],
                   (safe_us > turn_us ? safe_us : turn_us) - slot->begun_us);
    conn_answer(conn, slot);
}

void handoff_answer(struct reactor *reactor, const struct waiter *waiter, uint16_t problem,
                    bool duplicate, const struct part *part, uint64_t detail)
{
    struct conn *conn = loop_conn(&reactor->loop, waiter->conn);
    assert(problem != PROBLEM_NONE || part != NULL); /* where it is, if it is anywhere */
    if (reactor->spans != NULL)
        span_handed_in_answered(reactor, waiter,
                                problem == PROBLEM_NONE ? 200 : answer_status(problem),
                                problem == PROBLEM_NONE ? part->count : 0);
    if (conn == NULL || conn->closed)
        return;
    struct answer_frame frame = {
        .bytes = sizeof frame,
        .op = OP_ANSWER,
        .flags = FLAG_TRACES | (duplicate ? FLAG_DUPLICATE : 0),
        .problem = problem,
        .tag = waiter->tag,
        .detail = detail,
    };
    if (part != NULL) {
        frame.number = part->number;
        frame.count = part->count;
        frame.epoch = part->epoch;
        frame.offset = part->offset;
    }
    conn_write(conn, &frame, sizeof frame);
}

static void tell_appended(struct reactor *reactor, uint64_t tag, uint16_t status,
                          const struct part *part)
{
    struct upcall *up = reactor_upcall(reactor, UPCALL_APPENDED, tag);
    up->status = status;
    up->part = *part;
}

void produce_lost(struct reactor *reactor, struct run *run, enum lost_how how)
{
    const bool unknown = how == LOST_GROUPED && run->problem == PROBLEM_NONE;
    const uint16_t refused = how == LOST_NO_ROOM ? PROBLEM_DISK_FULL : PROBLEM_NOT_READY;
    const uint16_t problem = unknown ? PROBLEM_UNKNOWN_OUTCOME : refused;
    struct part part = {slice_in_ring(reactor, run->stream->slice), 0, 0, 0};
    switch (run->waiter.kind) {
    case WAITER_NONE: break;
    case WAITER_SLOT: slot_part_done(reactor, &run->waiter, problem, false, &part, 0); break;
    case WAITER_PEER: handoff_answer(reactor, &run->waiter, problem, false, &part, 0); break;
    case WAITER_APPEND:
        tell_appended(reactor, run->waiter.tag, answer_status(problem), &part);
        break;
    }
}

void produce_stable(struct reactor *reactor, struct run *run)
{
    struct part part = {slice_in_ring(reactor, run->stream->slice), run->count,
                        reactor->log->options.epoch, run->base_offset};
    const uint64_t expected = run->problem ? run->producer_seq : 0;
    assert(run->problem == PROBLEM_NONE || run->count == 0); /* what is refused is not stored */
    switch (run->waiter.kind) {
    case WAITER_NONE: break;
    case WAITER_SLOT:
        if (reactor->spans != NULL)
            span_stored(reactor, &run->waiter);
        slot_part_done(reactor, &run->waiter, run->problem, run->count == 0, &part, expected);
        break;
    case WAITER_PEER:
        if (reactor->spans != NULL)
            span_stored(reactor, &run->waiter);
        handoff_answer(reactor, &run->waiter, run->problem, run->count == 0, &part, expected);
        break;
    case WAITER_APPEND: tell_appended(reactor, run->waiter.tag, 200, &part); break;
    }
}
