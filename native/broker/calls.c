/* Produce calls that were handed to the process that leads their slice, until they are answered. */
#include "broker/calls.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/frames.h"
#include "core/route.h"
#include "core/spans.h"
#include "broker/waiter.h"
#include "loop/output.h"

#define CALLS_MAX 65536u
#define DEADLINE_MS 10000 /* an answer that takes so long is none */
#define REROUTED_MS 300   /* the same, from a process that leads the slice no more: one that lives
                           * has answered what it had before another could lead */
#define RETURNS_SHARE 4   /* of the memory for bodies and queued events, as what waits here has */

/* A new field of a call goes into the frame here and comes out of it in handoff_in.c. Headers do
 * not: they are in the body by then; nor what was verified here. */
static_assert(sizeof(struct produce) == 120, "frame_of() copies each field");

static struct call *call_open(struct reactor *reactor, uint64_t *tag)
{
    if (reactor->call_free == UINT32_MAX) {
        uint32_t old = reactor->call_capacity, capacity = old ? old * 2 : 256;
        if (capacity > CALLS_MAX)
            return NULL;
        struct call *calls = realloc(reactor->calls, capacity * sizeof *calls);
        if (calls == NULL)
            return NULL;
        memset(calls + old, 0, (capacity - old) * sizeof *calls);
        for (uint32_t i = old; i < capacity; i++)
            calls[i].next_free = i + 1 < capacity ? i + 1 : UINT32_MAX;
        reactor->calls = calls;
        reactor->call_capacity = capacity;
        reactor->call_free = old;
    }
    uint32_t at = reactor->call_free;
    struct call *call = &reactor->calls[at];
    assert(at < reactor->call_capacity && !call->used);
    reactor->call_free = call->next_free;
    call->used = true;
    call->generation++;
    *tag = (uint64_t)call->generation << 32 | at;
    return call;
}

static void call_close(struct reactor *reactor, uint32_t at)
{
    struct call *call = &reactor->calls[at];
    assert(at < reactor->call_capacity && call->used);
    if (call->abroad) {
        assert(reactor->abroad[call->number] > 0);
        reactor->park.stirred |= --reactor->abroad[call->number] == 0;
    }
    call->used = call->abroad = false;
    reactor->calls[at].next_free = reactor->call_free;
    reactor->call_free = at;
}

struct turn_of turn_new(struct reactor *reactor)
{
    return (struct turn_of){++reactor->park.order, reactor->loop.now_ms};
}

static struct call_frame frame_of(const struct produce *produce, uint32_t number, size_t len)
{
    struct call_frame frame = {
        .content = produce->content,
        .topic_len = produce->topic->name_len,
        .timestamp = produce->timestamp,
        .number = number,
        .key_len = produce->has_key ? produce->key_len : 0,
        .body_len = (uint32_t)len,
        .producer_seq = produce->producer_seq,
        .producer_epoch = produce->producer_epoch,
    };
    frame.flags = (produce->has_key ? FLAG_KEY : 0) | (produce->has_producer ? FLAG_PRODUCER : 0) |
                  (produce->one_shot ? FLAG_ONE_SHOT : 0) |
                  (produce->known_only ? FLAG_KNOWN_ONLY : 0) |
                  (produce->checked ? FLAG_CHECKED : 0);
    memcpy(frame.producer_id, produce->producer_id, PRODUCER_ID_BYTES);
    frame.bytes = (uint32_t)(sizeof frame + frame.topic_len + frame.key_len + len);
    assert(frame.bytes - sizeof frame == (size_t)frame.topic_len + frame.key_len + len);
    return frame;
}

static void write_frame(struct conn *conn, const struct call_frame *frame,
                        const struct produce *produce, const uint8_t *bytes)
{
    conn_write(conn, frame, sizeof *frame);
    conn_write(conn, produce->topic->name, frame->topic_len);
    if (frame->key_len)
        conn_write(conn, produce->key, frame->key_len);
    conn_write(conn, bytes, frame->body_len);
}

uint16_t handoff_send(struct reactor *reactor, uint32_t peer, const struct produce *produce,
                      uint32_t number, struct waiter waiter, struct turn_of turn,
                      const uint8_t *bytes, size_t len)
{
    assert(peer < reactor->options.peers && peer != reactor->options.peer && !produce->headed);
    struct conn *conn = reactor->peers[peer];
    if (conn == NULL || conn->closed)
        return PROBLEM_NO_LEADER;
    /* Many tiny events of a batch can be more as rows than they were in it. */
    if (len > reactor->options.request_bytes_max * 2)
        return PROBLEM_BODY_TOO_LARGE;
    /* The owner's back-pressure: unsent calls are bounded like everything else. */
    if (!reactor_memory(reactor, reactor->peer_out_bytes + len))
        return PROBLEM_BUSY;
    struct call_frame frame = frame_of(produce, number, len);
    frame.op = OP_CALL;
    frame.flags |= reactor->park.most_ms > 0 ? FLAG_RETURNS | FLAG_ORDERED : 0;
    struct call *call = call_open(reactor, &frame.tag);
    if (call == NULL)
        return PROBLEM_BUSY;
    call->peer = peer;
    call->number = number;
    call->turn = turn;
    call->since_ms = reactor->loop.now_ms;
    call->waiter = waiter;
    struct parked_lane *lanes = reactor->park.lanes;
    if (lanes != NULL && lanes[number].again)
        frame.flags |= FLAG_AGAIN;
    if (lanes != NULL)
        lanes[number].again = false;
    struct trace_frame told;
    if (reactor->spans != NULL && peer_of(conn)->traces && span_hand_on(reactor, &waiter, &told))
        conn_write(conn, &told, sizeof told);
    write_frame(conn, &frame, produce, bytes);
    reactor->handed_out++;
    return PROBLEM_NONE;
}

/* What was sent behind a call that goes back goes back as well, whoever leads by then: it would
 * come before it. */
static void give_back_all(struct conn *conn, uint32_t number)
{
    struct peer_conn *peer = peer_of(conn);
    if (peer->ordered && peer->back == NULL)
        peer->back = calloc((ring_slices(conn_reactor(conn)) + 7) / 8, 1);
    if (peer->ordered && peer->back != NULL)
        peer->back[number / 8] |= (uint8_t)(1u << number % 8);
}

void handoff_return(struct reactor *reactor, const struct waiter *waiter,
                    const struct produce *produce, uint32_t number, const uint8_t *bytes,
                    size_t len)
{
    struct conn *conn = loop_conn(&reactor->loop, waiter->conn);
    assert(waiter->kind == WAITER_PEER);
    if (conn == NULL || conn->closed)
        return;
    /* Of all connections together: who never reads what it is given back has company. */
    if (*conn->unsent + len > reactor->options.memory_max / RETURNS_SHARE ||
        !reactor_memory(reactor, *conn->unsent + len)) {
        handoff_answer(reactor, waiter, PROBLEM_NOT_READY, false, NULL, 0);
        return;
    }
    struct call_frame frame = frame_of(produce, number, len);
    frame.op = OP_RETURN;
    frame.tag = waiter->tag;
    give_back_all(conn, number);
    if (reactor->spans != NULL)
        span_handed_in_answered(reactor, waiter, 0, 0);
    write_frame(conn, &frame, produce, bytes);
    reactor->park.given_back++;
}

/* The call that the other end of a connection speaks of; NULL: it was answered without it. */
static bool call_meant(struct conn *conn, uint64_t tag, struct call **call)
{
    struct reactor *reactor = conn_reactor(conn);
    const uint32_t at = (uint32_t)tag;
    assert(!conn->protocol->clients);
    *call = NULL;
    if (!peer_of(conn)->outgoing || at >= reactor->call_capacity)
        return false;
    if (!reactor->calls[at].used || reactor->calls[at].generation != tag >> 32)
        return true; /* it came too late */
    *call = &reactor->calls[at];
    return (*call)->peer == peer_of(conn)->peer; /* nobody answers for another */
}

bool handoff_returned(struct conn *conn, const struct call_frame *frame, struct waiter *waiter,
                      struct turn_of *turn, uint32_t *number)
{
    struct call *call;
    *waiter = (struct waiter){.kind = WAITER_NONE};
    if (conn_reactor(conn)->park.most_ms == 0 || !call_meant(conn, frame->tag, &call))
        return false; /* it was not to come back */
    if (call == NULL)
        return true;
    assert(call->waiter.kind == WAITER_SLOT && call->turn.order > 0); /* a client's, as it came */
    *waiter = call->waiter;
    *turn = call->turn;
    *number = call->number;
    call_close(conn_reactor(conn), (uint32_t)frame->tag);
    return true;
}

void handoff_await_others(struct reactor *reactor, uint32_t peer, uint32_t number)
{
    for (uint32_t i = 0; i < reactor->call_capacity; i++) {
        struct call *call = &reactor->calls[i];
        if (!call->used || call->abroad || call->number != number)
            continue;
        call->abroad = call->peer == peer;
        reactor->abroad[number] += call->abroad;
    }
}

bool handoff_answered(struct conn *conn, const struct answer_frame *frame)
{
    struct reactor *reactor = conn_reactor(conn);
    struct call *call;
    /* PROBLEM_MISDIRECTED is for calls that may not be handed on; its detail is a slice here. */
    if (frame->bytes != sizeof *frame || frame->problem >= PROBLEM_COUNT ||
        frame->problem == PROBLEM_MISDIRECTED || frame->number >= ring_slices(reactor) ||
        !call_meant(conn, frame->tag, &call))
        return false;
    if (call == NULL)
        return true;
    struct waiter waiter = call->waiter;
    peer_of(conn)->traces |= (frame->flags & FLAG_TRACES) != 0;
    call_close(reactor, (uint32_t)frame->tag);
    struct part part = {frame->number, frame->count, frame->epoch, frame->offset};
    if (reactor->spans != NULL)
        span_handed(reactor, &waiter);
    slot_part_done(reactor, &waiter, frame->problem, frame->flags & FLAG_DUPLICATE, &part,
                   frame->detail);
    return true;
}

/* The events may have been stored before the leader went away. */
static void give_up(struct reactor *reactor, uint32_t at)
{
    struct waiter waiter = reactor->calls[at].waiter;
    assert(waiter.kind == WAITER_SLOT); /* only clients' calls are handed on */
    call_close(reactor, at);
    slot_part_done(reactor, &waiter, PROBLEM_UNKNOWN_OUTCOME, false, NULL, 0);
}

void handoff_lost(struct reactor *reactor, struct conn *conn)
{
    assert(conn->unsent != NULL && conn->out_bytes <= *conn->unsent);
    *conn->unsent -= conn->out_bytes;
    if (!peer_of(conn)->outgoing)
        return;
    if (reactor->peers[peer_of(conn)->peer] == conn)
        reactor->peers[peer_of(conn)->peer] = NULL;
    reactor_upcall(reactor, UPCALL_PEER_CLOSED, peer_of(conn)->peer);
    for (uint32_t i = 0; i < reactor->call_capacity; i++)
        if (reactor->calls[i].used && reactor->calls[i].peer == peer_of(conn)->peer)
            give_up(reactor, i);
}

void handoff_rerouted(struct reactor *reactor)
{
    int64_t since_ms = reactor->loop.now_ms - DEADLINE_MS + REROUTED_MS;
    for (uint32_t i = 0; i < reactor->call_capacity; i++) {
        struct call *call = &reactor->calls[i];
        if (!call->used || reactor->routes[call->number] == (int32_t)call->peer)
            continue;
        if (call->since_ms > since_ms)
            call->since_ms = since_ms;
        reactor->abroad[call->number] += !call->abroad;
        call->abroad = true;
    }
    reactor->give_up_ms = reactor->loop.now_ms + REROUTED_MS;
}

void handoff_deadlines(struct reactor *reactor)
{
    const int64_t oldest_ms = reactor->loop.now_ms - DEADLINE_MS;
    for (uint32_t i = 0; i < reactor->call_capacity; i++)
        if (reactor->calls[i].used && reactor->calls[i].since_ms <= oldest_ms)
            give_up(reactor, i);
}
