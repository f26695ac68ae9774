/* Hand-off: produce calls that reached the wrong process, batched to the one that leads the slice:
 * over a Unix socket in the same broker, over TCP (behind a hello that says who and which version)
 * in another.
 *
 * Frames, little-endian as all that barco runs on: CALL head, topic, key, body; ANSWER head. Many
 * frames share one send: 74-189 ns a message. What a call was handed to never hands it on. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "loop/conn.h"
#include "base/murmur3.h"
#include "broker/reactor.h"
#include "http/uri.h"

#define CALLS_MAX 65536u
#define OP_CALL 1
#define OP_ANSWER 2
#define FLAG_KEY 1
#define FLAG_PRODUCER 2
#define FLAG_ONE_SHOT 4
#define FLAG_DUPLICATE 8
#define DEADLINE_MS 10000 /* an answer that takes so long is none */
#define REROUTED_MS 300   /* the same, from a process that leads the shard no more: one that lives
                           * has answered what it had before another could lead */

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames between machines");

struct call_frame {
    uint32_t bytes; /* of the whole frame */
    uint8_t op, flags, content, topic_len;
    uint64_t tag;
    int64_t timestamp;
    uint64_t producer_seq;
    uint8_t producer_id[PRODUCER_ID_BYTES];
    uint32_t producer_epoch, place, key_len, body_len;
};

struct answer_frame {
    uint32_t bytes;
    uint8_t op, flags;
    uint16_t problem;
    uint64_t tag, epoch, offset, detail;
    uint32_t place, count;
};

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
    reactor->call_free = call->next_free;
    call->used = true;
    call->generation++;
    *tag = (uint64_t)call->generation << 32 | at;
    return call;
}

static void call_close(struct reactor *reactor, uint32_t at)
{
    reactor->calls[at].used = false;
    reactor->calls[at].next_free = reactor->call_free;
    reactor->call_free = at;
}

/* Largest frame a peer may send: twice a full request, and its key, topic and head. */
static uint64_t frame_bytes_max(const struct reactor *reactor)
{
    return reactor->options.request_bytes_max * 2 + (1u << 20);
}

uint16_t handoff_send(struct reactor *reactor, uint32_t peer, const struct produce *produce,
                      uint32_t place, struct waiter waiter, const uint8_t *bytes, size_t len)
{
    struct conn *conn = reactor->peers[peer];
    if (conn == NULL || conn->closed)
        return PROBLEM_NO_LEADER;
    /* Many tiny events of a batch can be more as rows than they were in it. */
    if (len > reactor->options.request_bytes_max * 2)
        return PROBLEM_BODY_TOO_LARGE;
    /* The owner's back-pressure: unsent calls are bounded like everything else. */
    if (!reactor_memory(reactor, reactor->peer_out_bytes + len))
        return PROBLEM_BUSY;
    struct call_frame frame = {
        .op = OP_CALL,
        .content = produce->content,
        .topic_len = produce->topic->name_len,
        .timestamp = produce->timestamp,
        .place = place,
        .key_len = produce->has_key ? produce->key_len : 0,
        .body_len = (uint32_t)len,
        .producer_seq = produce->producer_seq,
        .producer_epoch = produce->producer_epoch,
    };
    frame.flags = (produce->has_key ? FLAG_KEY : 0) | (produce->has_producer ? FLAG_PRODUCER : 0) |
                  (produce->one_shot ? FLAG_ONE_SHOT : 0);
    memcpy(frame.producer_id, produce->producer_id, PRODUCER_ID_BYTES);
    frame.bytes = (uint32_t)(sizeof frame + frame.topic_len + frame.key_len + len);
    struct call *call = call_open(reactor, &frame.tag);
    if (call == NULL)
        return PROBLEM_BUSY;
    call->peer = peer;
    call->shard = shard_of_place(reactor, place);
    call->since_ms = reactor->now_ms;
    call->waiter = waiter;
    conn_write(conn, &frame, sizeof frame);
    conn_write(conn, produce->topic->name, frame.topic_len);
    if (frame.key_len)
        conn_write(conn, produce->key, frame.key_len);
    conn_write(conn, bytes, len);
    reactor->handed_out++;
    return PROBLEM_NONE;
}

void handoff_answer(struct reactor *reactor, const struct waiter *waiter, uint16_t problem,
                    bool duplicate, const struct part *part, uint64_t detail)
{
    struct conn *conn = reactor_conn(reactor, waiter->conn);
    if (conn == NULL || conn->closed)
        return;
    struct answer_frame frame = {
        .bytes = sizeof frame,
        .op = OP_ANSWER,
        .flags = duplicate ? FLAG_DUPLICATE : 0,
        .problem = problem,
        .tag = waiter->tag,
        .detail = detail,
    };
    if (part != NULL) {
        frame.place = part->place;
        frame.count = part->count;
        frame.epoch = part->epoch;
        frame.offset = part->offset;
    }
    conn_write(conn, &frame, sizeof frame);
}

/* Whether a call is one that a worker may have taken from a client: the sender is not asked to be
 * right, and internal topics are written by whoever leads the shard, never through here. */
static bool call_valid(const struct reactor *reactor, const struct call_frame *frame,
                       const char *topic)
{
    uint64_t lens = sizeof *frame + (uint64_t)frame->topic_len + frame->key_len + frame->body_len;
    return lens == frame->bytes && place_is_ours(reactor, frame->place) &&
           frame->content <= CONTENT_ROWS && frame->key_len <= KEY_BYTES_MAX &&
           topic_name_valid(topic, frame->topic_len) &&
           !topic_name_reserved(topic, frame->topic_len);
}

static bool take_call(struct conn *conn, const uint8_t *bytes, const struct call_frame *frame)
{
    struct reactor *reactor = conn->reactor;
    const uint8_t *topic = bytes + sizeof *frame, *key, *body;
    if (!call_valid(reactor, frame, (const char *)topic))
        return false;
    key = topic + frame->topic_len;
    body = key + frame->key_len;
    struct produce produce = {
        .topic = shard_topic_asked(reactor->shard, (const char *)topic, frame->topic_len),
        .content = frame->content,
        .has_key = frame->flags & FLAG_KEY,
        .has_producer = frame->flags & FLAG_PRODUCER,
        .one_shot = frame->flags & FLAG_ONE_SHOT,
        .place = frame->place,
        .timestamp = frame->timestamp,
        .key = key,
        .key_len = frame->key_len,
        .producer_epoch = frame->producer_epoch,
        .producer_seq = frame->producer_seq,
    };
    if (produce.has_key)
        produce.key_token = murmur3_token(key, frame->key_len);
    memcpy(produce.producer_id, frame->producer_id, PRODUCER_ID_BYTES);
    struct waiter waiter = {.kind = WAITER_PEER, .conn = conn_id(conn), .tag = frame->tag};
    uint64_t detail = 0;
    uint16_t problem = PROBLEM_TOO_MANY_TOPICS;
    if (produce.topic != NULL)
        problem = produce_slice(reactor, &produce, frame->place, waiter, body, frame->body_len,
                                NULL, &detail);
    reactor->handed_in++;
    if (problem != PROBLEM_NONE)
        handoff_answer(reactor, &waiter, problem, false, NULL, detail);
    return true;
}

static bool take_answer(struct conn *conn, const struct answer_frame *frame)
{
    struct reactor *reactor = conn->reactor;
    uint32_t at = (uint32_t)frame->tag;
    /* PROBLEM_MISDIRECTED is for calls that may not be handed on; its detail is a shard here. */
    if (frame->bytes != sizeof *frame || !conn->outgoing || at >= reactor->call_capacity ||
        frame->problem >= PROBLEM_COUNT || frame->problem == PROBLEM_MISDIRECTED ||
        frame->place >= reactor->options.ring_size * reactor->options.slices)
        return false;
    if (!reactor->calls[at].used || reactor->calls[at].generation != frame->tag >> 32)
        return true; /* it came too late: the call was answered without it */
    if (reactor->calls[at].peer != conn->peer)
        return false; /* nobody answers for another */
    struct waiter waiter = reactor->calls[at].waiter;
    call_close(reactor, at);
    struct part part = {frame->place, frame->count, frame->epoch, frame->offset};
    slot_part_done(reactor, &waiter, frame->problem, frame->flags & FLAG_DUPLICATE, &part,
                   frame->detail);
    return true;
}

void handoff_input(struct conn *conn)
{
    struct reactor *reactor = conn->reactor;
    size_t used = 0;
    while (!conn->closed && conn->in_len - used >= 8) {
        const uint8_t *bytes = conn->in + used;
        uint32_t len;
        memcpy(&len, bytes, 4);
        bool ok = len >= sizeof(struct answer_frame) && len <= frame_bytes_max(reactor);
        if (ok && conn->in_len - used < len)
            break;
        if (ok && bytes[4] == OP_CALL && len >= sizeof(struct call_frame)) {
            if (!reactor_memory(reactor, len)) {
                conn->blocked = reactor->blocked_any = true;
                conn->blocked_ms = reactor->now_ms;
                break;
            }
            struct call_frame frame;
            memcpy(&frame, bytes, sizeof frame);
            ok = take_call(conn, bytes, &frame);
        } else if (ok && bytes[4] == OP_ANSWER) {
            struct answer_frame frame;
            memcpy(&frame, bytes, sizeof frame);
            ok = take_answer(conn, &frame);
        } else {
            ok = false;
        }
        if (!ok) { /* not our program: this cannot be mended */
            conn_close(conn);
            return;
        }
        used += len;
    }
    if (used > 0 && used < conn->in_len)
        memmove(conn->in, conn->in + used, conn->in_len - used);
    conn->in_len -= used;
}

/* The events may have been stored before the leader went away. */
static void give_up(struct reactor *reactor, uint32_t at)
{
    struct waiter waiter = reactor->calls[at].waiter;
    call_close(reactor, at);
    slot_part_done(reactor, &waiter, PROBLEM_UNKNOWN_OUTCOME, false, NULL, 0);
}

void handoff_lost(struct reactor *reactor, struct conn *conn)
{
    if (!conn->outgoing)
        return;
    if (reactor->peers[conn->peer] == conn)
        reactor->peers[conn->peer] = NULL;
    reactor->peer_out_bytes -= conn->out_bytes;
    reactor_upcall(reactor, UPCALL_PEER_CLOSED, conn->peer);
    for (uint32_t i = 0; i < reactor->call_capacity; i++)
        if (reactor->calls[i].used && reactor->calls[i].peer == conn->peer)
            give_up(reactor, i);
}

void handoff_rerouted(struct reactor *reactor, uint32_t shard, uint32_t peer)
{
    int64_t since_ms = reactor->now_ms - DEADLINE_MS + REROUTED_MS;
    for (uint32_t i = 0; i < reactor->call_capacity; i++) {
        struct call *call = &reactor->calls[i];
        if (call->used && call->shard == shard && call->peer == peer && call->since_ms > since_ms)
            call->since_ms = since_ms;
    }
    reactor->give_up_ms = reactor->now_ms + REROUTED_MS;
}

void handoff_deadlines(struct reactor *reactor)
{
    for (uint32_t i = 0; i < reactor->call_capacity; i++)
        if (reactor->calls[i].used && reactor->now_ms - reactor->calls[i].since_ms >= DEADLINE_MS)
            give_up(reactor, i);
}
