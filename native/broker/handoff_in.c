/* What other processes of the cluster hand over, and answer to what was handed to them. */
#include "broker/handoff_in.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/murmur3.h"
#include "broker/calls.h"
#include "core/frames.h"
#include "broker/park.h"
#include "core/route.h"
#include "core/spans.h"
#include "broker/slice.h"
#include "broker/waiter.h"
#include "http/uri.h"
#include "loop/tls.h"

#define FRAME_KEPT_MAX 65536u /* room that is kept; what is over of a large frame is given back */

/* Largest frame a peer may send: twice a full request, and its key, topic and head. */
static uint64_t frame_bytes_max(const struct reactor *reactor)
{
    return reactor->options.request_bytes_max * 2 + (1u << 20);
}

/* Whether a call is one that a worker may have taken from a client: the sender is not asked to be
 * right, nor to know by now whose a slice is, and internal topics are written by whoever leads the
 * shard, never through here. */
static bool call_valid(const struct reactor *reactor, const struct call_frame *frame,
                       const char *topic)
{
    uint64_t lens = sizeof *frame + (uint64_t)frame->topic_len + frame->key_len + frame->body_len;
    return lens == frame->bytes && frame->number < ring_slices(reactor) &&
           frame->content <= CONTENT_CUT && frame->key_len <= KEY_BYTES_MAX &&
           topic_name_valid(topic, frame->topic_len) &&
           (!topic_name_reserved(topic, frame->topic_len) ||
            topic_name_delayed(topic, frame->topic_len));
}

/* A new field of a call comes out of the frame here; calls.c puts it in. */
static_assert(sizeof(struct produce) == 120, "call_in() copies each field");

static struct produce call_in(struct reactor *reactor, const struct call_frame *frame,
                              const uint8_t *topic)
{
    const uint8_t *key = topic + frame->topic_len;
    struct produce produce = {
        .topic = shard_topic_asked(reactor->shard, (const char *)topic, frame->topic_len),
        .content = frame->content,
        .has_key = frame->flags & FLAG_KEY,
        .has_producer = frame->flags & FLAG_PRODUCER,
        .one_shot = frame->flags & FLAG_ONE_SHOT,
        .known_only = frame->flags & FLAG_KNOWN_ONLY,
        .checked = frame->flags & FLAG_CHECKED,
        .number = frame->number,
        .timestamp = frame->timestamp,
        .key = key,
        .key_len = frame->key_len,
        .producer_epoch = frame->producer_epoch,
        .producer_seq = frame->producer_seq,
    };
    if (produce.has_key)
        produce.key_token = murmur3_token(key, frame->key_len);
    memcpy(produce.producer_id, frame->producer_id, PRODUCER_ID_BYTES);
    return produce;
}

/* Whether a call is to go back because of one before it. */
static bool goes_back(struct conn *conn, const struct call_frame *frame)
{
    struct peer_conn *peer = peer_of(conn);
    const uint8_t bit = (uint8_t)(1u << frame->number % 8);
    peer->ordered |= (frame->flags & FLAG_ORDERED) != 0;
    if (peer->back == NULL || !(frame->flags & FLAG_ORDERED))
        return false;
    if (frame->flags & FLAG_AGAIN)
        peer->back[frame->number / 8] &= (uint8_t)~bit;
    return (peer->back[frame->number / 8] & bit) != 0;
}

/* What its next call is a part of. */
static bool take_trace(struct conn *conn, const uint8_t *bytes)
{
    struct peer_conn *peer = peer_of(conn);
    struct trace_frame told;
    memcpy(&told, bytes, sizeof told);
    assert(told.bytes == sizeof told && told.op == OP_TRACE);
    if (told.id_len > 0 && !given_id_valid(told.id, told.id_len))
        return false;
    if (conn_reactor(conn)->spans == NULL) /* nobody here asks for it */
        return true;
    if (peer->trace == NULL && (peer->trace = malloc(sizeof told)) == NULL)
        return true;
    *peer->trace = told;
    return true;
}

/* The call that comes now is a part of that, if it was told of what. */
static void trace_call(struct conn *conn, const struct waiter *waiter, const struct topic *topic)
{
    struct peer_conn *peer = peer_of(conn);
    assert(waiter->kind == WAITER_PEER);
    if (peer->trace == NULL)
        return;
    if (topic != NULL)
        span_hand_in(conn_reactor(conn), waiter, peer->trace, topic);
    free(peer->trace);
    peer->trace = NULL;
}

static bool take_call(struct conn *conn, const uint8_t *bytes, const struct call_frame *frame)
{
    struct reactor *reactor = conn_reactor(conn);
    const uint8_t *topic = bytes + sizeof *frame, *body;
    if (!call_valid(reactor, frame, (const char *)topic))
        return false;
    body = topic + frame->topic_len + frame->key_len;
    assert(body + frame->body_len == bytes + frame->bytes); /* nothing is behind it */
    struct waiter waiter = {.kind = WAITER_PEER, .conn = conn_id(conn), .tag = frame->tag};
    const struct produce produce = call_in(reactor, frame, topic);
    const bool returns = frame->flags & FLAG_RETURNS;
    const uint32_t number = frame->number;
    uint64_t detail = 0;
    uint16_t problem = PROBLEM_TOO_MANY_TOPICS;
    const bool back = goes_back(conn, frame) || park_strange(reactor, number);
    trace_call(conn, &waiter, produce.topic);
    if (produce.topic != NULL && returns && back) {
        handoff_return(reactor, &waiter, &produce, number, body, frame->body_len);
        return true;
    }
    if (!slice_is_ours(reactor, number)) /* no longer, or not yet: it is not written */
        problem = PROBLEM_NOT_READY;
    else if (produce.topic != NULL && park_due(reactor, number, true))
        problem = park_add(reactor, &produce, number, waiter, turn_new(reactor), returns, body,
                           frame->body_len, NULL);
    else if (produce.topic != NULL)
        problem = produce_slice(reactor, &produce, number, waiter, body, frame->body_len, NULL,
                                &detail);
    reactor->handed_in += slice_is_ours(reactor, number);
    if (problem != PROBLEM_NONE)
        handoff_answer(reactor, &waiter, problem, false, NULL, detail);
    return true;
}

/* A call of ours that was not written comes back: it waits for the slice's next leader. */
static bool take_back(struct conn *conn, const uint8_t *bytes, const struct call_frame *frame)
{
    struct reactor *reactor = conn_reactor(conn);
    const uint8_t *topic = bytes + sizeof *frame;
    struct waiter waiter;
    struct turn_of turn;
    uint32_t number;
    if (!call_valid(reactor, frame, (const char *)topic) ||
        !handoff_returned(conn, frame, &waiter, &turn, &number))
        return false;
    if (waiter.kind == WAITER_NONE)
        return true;
    assert(number < ring_slices(reactor) && turn.order <= reactor->park.order);
    if (park_again(reactor, number))
        handoff_await_others(reactor, peer_of(conn)->peer, number);
    const struct produce produce = call_in(reactor, frame, topic);
    uint16_t problem = PROBLEM_NOT_READY;
    if (produce.topic != NULL && !reactor->draining)
        problem = park_add(reactor, &produce, number, waiter, turn, false,
                           topic + frame->topic_len + frame->key_len, frame->body_len, NULL);
    if (problem != PROBLEM_NONE)
        slot_part_done(reactor, &waiter, problem, false, NULL, 0);
    else if (reactor->routes[number] == (int32_t)peer_of(conn)->peer)
        park_later(reactor, number); /* as far as is known here it leads the slice all the same */
    else
        park_stir(reactor);
    return true;
}

static void take_frames(struct conn *conn)
{
    struct reactor *reactor = conn_reactor(conn);
    size_t used = 0;
    while (!conn->closed && conn->in_len - used >= 8) {
        const uint8_t *bytes = conn->in + used;
        uint32_t len;
        memcpy(&len, bytes, 4);
        bool ok = len >= sizeof(struct answer_frame) && len <= frame_bytes_max(reactor);
        if (ok && conn->in_len - used < len)
            break;
        assert(!ok || len <= conn->in_len - used); /* whole frames only */
        if (ok && bytes[4] == OP_CALL && len >= sizeof(struct call_frame)) {
            if (!reactor_memory(reactor, len)) {
                conn->blocked = reactor->blocked_any = true;
                conn->blocked_ms = reactor->loop.now_ms;
                break;
            }
            struct call_frame frame;
            memcpy(&frame, bytes, sizeof frame);
            ok = take_call(conn, bytes, &frame);
        } else if (ok && bytes[4] == OP_RETURN && len >= sizeof(struct call_frame)) {
            struct call_frame frame;
            memcpy(&frame, bytes, sizeof frame);
            ok = take_back(conn, bytes, &frame);
        } else if (ok && bytes[4] == OP_TRACE && len == sizeof(struct trace_frame)) {
            ok = take_trace(conn, bytes);
        } else if (ok && bytes[4] == OP_ANSWER) {
            struct answer_frame frame;
            memcpy(&frame, bytes, sizeof frame);
            ok = handoff_answered(conn, &frame);
        } else {
            ok = false;
        }
        if (!ok) { /* not our program: this cannot be mended */
            conn_close(conn);
            return;
        }
        used += len;
    }
    conn_used(conn, used);
}

/* Frames that have begun do not take more than half of the budget: whoever has most of it goes. */
static void bound_partials(struct reactor *reactor)
{
    if (reactor->partial_bytes <= reactor->options.memory_max / 2)
        return;
    struct conn *most = NULL;
    for (struct conn *conn = reactor->loop.conns; conn != NULL; conn = conn->next)
        if (conn->protocol == &peer_protocol && !conn->closed &&
            (most == NULL || conn->in_capacity > most->in_capacity))
            most = conn;
    if (most == NULL)
        return;
    conn_drop_input(most);
    conn_close(most);
}

/* Frames of another worker; what is over of a large one is given back. */
static void go_on(struct conn *conn)
{
    const size_t before = conn->in_len;
    take_frames(conn);
    if (conn->in_len < before) /* a frame has ended: the next one has its own time */
        conn->since_ms = conn->loop->now_ms;
    if (conn->in_len == 0 && conn->in_capacity > FRAME_KEPT_MAX)
        conn_drop_input(conn);
}

/* ---- the protocol ---- */

static void peer_opened(struct conn *conn)
{
    conn->kept = &conn_reactor(conn)->partial_bytes;
    conn->unsent = &conn_reactor(conn)->peer_back_bytes;
}

static void peer_input(struct conn *conn, const uint8_t *bytes, size_t len)
{
    if (conn->in_len == 0)
        conn->since_ms = conn->loop->now_ms;
    bound_partials(conn_reactor(conn));
    if (conn->closed)
        return;
    if (!conn_keep(conn, bytes, len))
        conn_close(conn);
    else
        go_on(conn);
}

static uint8_t *peer_room(const struct conn *conn, size_t len)
{
    return len <= conn->in_capacity - conn->in_len ? conn->in + conn->in_len : NULL;
}

static void peer_closed(struct conn *conn)
{
    if (conn_reactor(conn)->spans != NULL)
        spans_handed_in_forget(conn_reactor(conn), conn_id(conn));
    handoff_lost(conn_reactor(conn), conn);
    park_forget(conn_reactor(conn), conn_id(conn));
}

static void peer_freed(struct conn *conn)
{
    free(peer_of(conn)->back);
    free(peer_of(conn)->trace);
}

static void peer_deadline(struct conn *conn, int64_t now_ms)
{
    if (frame_too_slow(conn, conn->in_len, now_ms))
        conn_close(conn);
}

const struct protocol peer_protocol = {
    .bytes = sizeof(struct peer_conn),
    .opened = peer_opened,
    .input = peer_input,
    .room = peer_room,
    .resume = go_on,
    .closed = peer_closed,
    .freed = peer_freed,
    .deadline = peer_deadline,
};

int reactor_attach_peer(struct reactor *reactor, uint32_t peer, int fd, struct seal *seal)
{
    if (peer >= reactor->options.peers || peer == reactor->options.peer)
        return -1;
    if (reactor->peers[peer] != NULL)
        conn_close(reactor->peers[peer]);
    assert(reactor->peers[peer] == NULL); /* what was handed to it is given up */
    struct conn *conn = tls_adopt(&reactor->loop, fd, &peer_protocol, seal);
    if (conn == NULL)
        return -1;
    assert(conn->out_bytes == 0 && !peer_of(conn)->from_afar);
    peer_of(conn)->outgoing = true;
    peer_of(conn)->peer = peer;
    conn->unsent = &reactor->peer_out_bytes;
    reactor->peers[peer] = conn;
    park_stir(reactor);
    return 0;
}

int reactor_adopt_peer(struct reactor *reactor, int fd, uint32_t peer, struct seal *seal)
{
    for (struct conn *conn = reactor->loop.conns; conn != NULL; conn = conn->next)
        if (conn->protocol == &peer_protocol && peer_of(conn)->from_afar &&
            peer_of(conn)->peer == peer && !conn->closed)
            conn_close(conn);
    struct conn *conn = tls_adopt(&reactor->loop, fd, &peer_protocol, seal);
    if (conn == NULL)
        return -1;
    peer_of(conn)->from_afar = true;
    peer_of(conn)->peer = peer;
    return 0;
}
