/* A process of a ring of three without a network: it leads slices 0 to 7, processes 1 and 2 lead
 * the others, and what it sends to them and to one client lies in their connections. */
#ifndef BARCO_HANDOFF_TESTING_H
#define BARCO_HANDOFF_TESTING_H

#include "codec_testing.h"
#include "broker/reactor.h"

static struct reactor *reactor;
static struct conn *table[3]; /* a client, and processes 1 and 2 */

static inline void no_conn(struct net *net, struct conn *conn) {}
static inline void no_send(struct net *net, struct conn *conn, const void *bytes, size_t len) {}
static inline void no_free(struct net *net) {}
static struct net no_net = {.name = "none", .free = no_free, .adopt = no_conn, .close = no_conn,
                            .recv_start = no_conn, .recv_stop = no_conn, .send = no_send};

static inline struct conn *connect_one(uint32_t index, const struct protocol *protocol)
{
    static uint32_t generation;
    struct conn *conn = conn_new(&reactor->loop, -1, protocol, &plain_transport);
    CHECK(conn != NULL);
    conn->index = index;
    conn->generation = ++generation;
    if (protocol == &peer_protocol) {
        peer_of(conn)->outgoing = true;
        peer_of(conn)->peer = index;
        conn->unsent = &reactor->peer_out_bytes;
        reactor->peers[index] = conn;
    }
    return table[index] = conn;
}

static inline void start(void)
{
    struct reactor_options options = {
        .log = {.arena_bytes = 8u << 20, .epoch = 1, .acceleration = 1},
        .request_bytes_max = 256u << 10, .event_bytes_max = 64u << 10, .memory_max = 1u << 20,
        .workers = 1, .slices = 8, .slice_last = 7, .ring_size = 3, .peers = 9,
        .connections_max = 10, .range_start = INT64_MIN, .auto_create = true, .engine = 2};
    const char *error;
    reactor = reactor_new(&options, &error);
    CHECK(reactor != NULL);
    reactor->loop.net->free(reactor->loop.net);
    reactor->loop.net = &no_net;
    reactor->log->open = true;
    reactor->loop.table = table;
    reactor->loop.table_used = reactor->loop.table_capacity = 3;
    CHECK(reactor_set_route(reactor, 0, 8, 0, "127.0.0.1:9300") == 0);
    CHECK(reactor_set_route(reactor, 8, 8, 1, "127.0.0.2:9300") == 0);
    CHECK(reactor_set_route(reactor, 16, 8, 2, "127.0.0.3:9300") == 0);
    connect_one(0, &client_protocol);
    connect_one(1, &peer_protocol);
    connect_one(2, &peer_protocol);
}

static inline void drop(uint32_t index)
{
    struct conn *conn = table[index];
    conn_close(conn);
    reactor->loop.dirty = reactor->loop.closing = NULL;
    conn_free(conn);
    table[index] = NULL;
}

/* What waits is stored, what was sent has gone, upcalls are heard. */
static inline void forget_all(void)
{
    struct run *run = reactor->log->queue;
    reactor->log->queue = NULL;
    reactor->log->queue_end = &reactor->log->queue;
    reactor->log->queued_bytes = reactor->log->queued_runs = 0;
    while (run != NULL) {
        struct run *next = run->next;
        run->waiter.kind = WAITER_NONE;
        reactor->log->stable(reactor, run);
        run_free(run);
        run = next;
    }
    for (uint32_t i = 0; i < reactor->upcall_count; i++) {
        free(reactor->upcalls[i].head);
        if (reactor->upcalls[i].body != NULL)
            body_release(reactor->upcalls[i].body);
    }
    reactor->upcall_count = 0;
    for (uint32_t i = 0; i < 3; i++) {
        struct conn *conn = table[i];
        if (is_guest(conn)) { /* a turn has passed: who was refused often goes on */
            guest_unyield(guest_of(conn));
            guest_of(conn)->refused = 0;
        }
        outputs_free(conn->out_first);
        conn->out_first = conn->out_last = NULL;
        if (conn->unsent != NULL && !conn->closed)
            *conn->unsent -= conn->out_bytes;
        conn->out_bytes = 0;
    }
}

static inline bool has_text(const struct conn *conn, const char *text)
{
    static char all[1u << 16];
    size_t len = 0;
    for (const struct output *piece = conn->out_first; piece != NULL; piece = piece->next) {
        CHECK(len + piece->len < sizeof all);
        memcpy(all + len, piece->bytes, piece->len);
        len += piece->len;
    }
    all[len] = 0;
    return strstr(all, text) != NULL;
}

/* A client's event that goes to process 1; the tag of the call. */
static inline uint64_t hand_out(void)
{
    static const char request[] =
        "POST /v1/topic/t/messages?token=-3074457345618259968&slice=0 HTTP/1.1\r\nHost: h\r\n"
        "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    const uint64_t before = reactor->handed_out;
    conn_input(table[0], (const uint8_t *)request, sizeof request - 1);
    CHECK(reactor->handed_out == before + 1);
    struct call_frame frame;
    CHECK(table[1]->out_first != NULL && table[1]->out_first->len >= sizeof frame);
    memcpy(&frame, table[1]->out_first->bytes, sizeof frame);
    CHECK(frame.op == OP_CALL);
    return frame.tag;
}

static inline void say(struct conn *conn, const void *bytes, size_t len)
{
    uint8_t *copy = exact_copy(bytes, len);
    conn_input(conn, copy, len);
    free(copy);
}

static inline struct answer_frame answer_to(uint64_t tag, uint16_t problem, uint64_t detail)
{
    return (struct answer_frame){.bytes = sizeof(struct answer_frame), .op = OP_ANSWER,
                                 .problem = problem, .tag = tag, .detail = detail, .number = 8,
                                 .count = 1, .epoch = 2};
}

static inline size_t call_of(const char *topic, const char *body, uint8_t *out)
{
    struct call_frame frame = {.op = OP_CALL, .content = CONTENT_EVENT,
                               .topic_len = (uint8_t)strlen(topic), .tag = 7,
                               .body_len = (uint32_t)strlen(body)};
    frame.bytes = (uint32_t)(sizeof frame + frame.topic_len + frame.body_len);
    memcpy(out, &frame, sizeof frame);
    memcpy(out + sizeof frame, topic, frame.topic_len);
    memcpy(out + sizeof frame + frame.topic_len, body, frame.body_len);
    return frame.bytes;
}

static inline struct answer_frame told(void)
{
    struct answer_frame frame = {0};
    CHECK(table[1]->out_first != NULL && table[1]->out_first->len >= sizeof frame);
    memcpy(&frame, table[1]->out_first->bytes, sizeof frame);
    CHECK(frame.op == OP_ANSWER && frame.tag == 7);
    return frame;
}

static inline void say_call_for(uint32_t number)
{
    uint8_t bytes[256];
    const size_t len = call_of("t", "event", bytes);
    memcpy(bytes + offsetof(struct call_frame, number), &number, sizeof number);
    say(table[1], bytes, len);
}

/* The run that is queued is stored, and whoever waits for it is told. */
static inline void store(void)
{
    struct run *run = reactor->log->queue;
    CHECK(run != NULL && run->next == NULL);
    reactor->log->queue = NULL;
    reactor->log->queue_end = &reactor->log->queue;
    reactor->log->queued_bytes = reactor->log->queued_runs = 0;
    reactor->log->stable(reactor, run);
    run_free(run);
}

#endif
