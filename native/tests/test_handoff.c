/* What another worker says on a hand-off connection: calls that are refused, answers to calls that
 * it was not asked for, and frames of which any field may be anything. */
#include "codec_testing.h"
#include "broker/reactor.h"

#define FRAMES 60000

static struct reactor *reactor;
static struct conn *table[3]; /* a client, and processes 1 and 2 */

static void no_conn(struct net *net, struct conn *conn) {}
static void no_send(struct net *net, struct conn *conn, const void *bytes, size_t len) {}
static void no_free(struct net *net) {}
static struct net no_net = {.name = "none", .free = no_free, .adopt = no_conn, .close = no_conn,
                            .recv_start = no_conn, .recv_stop = no_conn, .send = no_send};

static struct conn *connect_one(uint32_t index, const struct protocol *protocol)
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

static void start(void)
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

static void drop(uint32_t index)
{
    struct conn *conn = table[index];
    conn_close(conn);
    reactor->loop.dirty = reactor->loop.closing = NULL;
    conn_free(conn);
    table[index] = NULL;
}

/* What waits is stored, what was sent has gone, upcalls are heard. */
static void forget_all(void)
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

static bool has_text(const struct conn *conn, const char *text)
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
static uint64_t hand_out(void)
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

static void say(struct conn *conn, const void *bytes, size_t len)
{
    uint8_t *copy = exact_copy(bytes, len);
    conn_input(conn, copy, len);
    free(copy);
}

static struct answer_frame answer_to(uint64_t tag, uint16_t problem, uint64_t detail)
{
    return (struct answer_frame){.bytes = sizeof(struct answer_frame), .op = OP_ANSWER,
                                 .problem = problem, .tag = tag, .detail = detail, .number = 8,
                                 .count = 1, .epoch = 2};
}

static void test_a_detail_is_no_index(void)
{
    struct answer_frame frame = answer_to(hand_out(), PROBLEM_MISDIRECTED, UINT64_MAX / 2);
    say(table[1], &frame, sizeof frame);
    CHECK(table[1]->closed && has_text(table[0], "HTTP/1.1 500")); /* its outcome is unknown */
    drop(1);
    connect_one(1, &peer_protocol);
    forget_all();
}

static void test_nobody_answers_for_another(void)
{
    const uint64_t tag = hand_out();
    struct answer_frame frame = answer_to(tag, PROBLEM_NONE, 0);
    say(table[2], &frame, sizeof frame);
    CHECK(table[2]->closed && table[0]->out_first == NULL);
    say(table[1], &frame, sizeof frame);
    CHECK(!table[1]->closed && has_text(table[0], "HTTP/1.1 200"));
    drop(2);
    connect_one(2, &peer_protocol);
    forget_all();
}

/* Only what another process is to have from now on is waited for briefly. */
static void test_a_route_that_changes(void)
{
    const uint64_t tag = hand_out();
    struct call *call = &reactor->calls[(uint32_t)tag];
    const int64_t since_ms = call->since_ms;
    CHECK(call->number == 8 && call->peer == 1);
    CHECK(reactor_set_route(reactor, 9, 15, 2, "127.0.0.3:9300") == 0); /* its neighbours' */
    CHECK(reactor_set_route(reactor, 8, 1, 1, "127.0.0.9:9300") == 0); /* another name for it */
    CHECK(call->since_ms == since_ms);
    CHECK(reactor_set_route(reactor, 8, 1, 2, "127.0.0.3:9300") == 0);
    CHECK(call->used && call->since_ms < since_ms);
    CHECK(reactor_set_route(reactor, 8, 8, 1, "127.0.0.2:9300") == 0);
    struct answer_frame frame = answer_to(tag, PROBLEM_NONE, 0);
    say(table[1], &frame, sizeof frame);
    CHECK(has_text(table[0], "HTTP/1.1 200"));
    forget_all();
}

static size_t call_of(const char *topic, const char *body, uint8_t *out)
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

static void test_internal_topics_are_not_handed_off(void)
{
    static const char *const names[] = {"__topics", "__groups", "__", "..", ""};
    uint8_t bytes[256];
    const uint64_t before = reactor->handed_in;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        say(table[1], bytes, call_of(names[i], "poison", bytes));
        CHECK(table[1]->closed && reactor->log->queue == NULL && reactor->handed_in == before);
        drop(1);
        connect_one(1, &peer_protocol);
    }
    say(table[1], bytes, call_of("_fine", "event", bytes));
    CHECK(!table[1]->closed && reactor->log->queue != NULL && reactor->handed_in == before + 1);
    forget_all();
}

static struct answer_frame told(void)
{
    struct answer_frame frame = {0};
    CHECK(table[1]->out_first != NULL && table[1]->out_first->len >= sizeof frame);
    memcpy(&frame, table[1]->out_first->bytes, sizeof frame);
    CHECK(frame.op == OP_ANSWER && frame.tag == 7);
    return frame;
}

static void say_call_for(uint32_t number)
{
    uint8_t bytes[256];
    const size_t len = call_of("t", "event", bytes);
    memcpy(bytes + offsetof(struct call_frame, number), &number, sizeof number);
    say(table[1], bytes, len);
}

/* Who has not heard yet that a slice has gone is told that its call is not written, and stays. */
static void test_slices_that_have_gone(void)
{
    const uint64_t before = reactor->handed_in;
    CHECK(reactor_set_slices(reactor, 0, 3) == -1); /* a generation is open */
    reactor->log->open = false;
    CHECK(reactor_set_slices(reactor, 0, 8) == -1 && reactor_set_slices(reactor, 3, 2) == -1);
    CHECK(reactor_set_slices(reactor, 0, 3) == 0);
    CHECK(reactor->routes[3] == 0 && reactor->routes[4] == ROUTE_NONE && reactor->routes[8] == 1);
    CHECK(reactor_set_route(reactor, 0, 8, 0, "127.0.0.1:9300") == -1);
    reactor->log->open = true;
    say_call_for(5);
    CHECK(!table[1]->closed && reactor->log->queue == NULL && reactor->handed_in == before);
    CHECK(told().problem == PROBLEM_NOT_READY);
    forget_all();
    say_call_for(3);
    CHECK(reactor->log->queue != NULL && reactor->handed_in == before + 1);
    forget_all();
    say_call_for(24); /* no slice at all */
    CHECK(table[1]->closed && reactor->log->queue == NULL);
    drop(1);
    connect_one(1, &peer_protocol);
    reactor->log->open = false;
    CHECK(reactor_set_slices(reactor, 0, 7) == 0 && reactor->routes[5] == ROUTE_NONE);
    reactor->log->open = true;
    CHECK(reactor_set_route(reactor, 0, 8, 0, "127.0.0.1:9300") == 0);
    say_call_for(5);
    CHECK(reactor->log->queue != NULL);
    forget_all();
}

/* Frames that begin, and do not go on: what is kept of them is bounded, and so is how long. */
static void test_partial_frames(void)
{
    uint8_t bytes[256];
    static uint8_t filler[128u << 10];
    struct call_frame frame;
    call_of("t", "", bytes);
    memcpy(&frame, bytes, sizeof frame);
    frame.bytes = 1u << 20;
    reactor->loop.conns = table[1]; /* as table_add() links them */
    table[1]->next = table[2];
    reactor->options.memory_max = 256u << 10;
    for (uint32_t index = 1; index <= 2; index++) {
        say(table[index], &frame, sizeof frame);
        say(table[index], filler, index * (48u << 10));
    }
    CHECK(reactor->partial_bytes > reactor->options.memory_max / 2);
    say(table[1], filler, 1);
    CHECK(table[2]->closed && !table[1]->closed && table[2]->in == NULL);
    CHECK(reactor->partial_bytes <= reactor->options.memory_max / 2);
    table[1]->protocol->deadline(table[1], table[1]->since_ms + FRAME_GRACE_MS);
    CHECK(!table[1]->closed);
    table[1]->protocol->deadline(table[1], table[1]->since_ms + FRAME_GRACE_MS + 1000);
    CHECK(table[1]->closed);
    reactor->loop.conns = NULL;
    for (uint32_t index = 1; index <= 2; index++) {
        table[index]->next = NULL;
        drop(index);
        connect_one(index, &peer_protocol);
    }
    CHECK(reactor->partial_bytes == 0);
    reactor->options.memory_max = 1u << 20;
    forget_all();
}

/* Any field anything, in pieces of any size, with a call under way: the process lives, and what it
 * holds stays within its budget. */
static void test_anything(void)
{
    uint64_t seed = 11;
    uint8_t bytes[512];
    for (uint32_t i = 0; i < FRAMES; i++) {
        const uint64_t tag = hand_out();
        size_t len = call_of(i % 3 ? "t" : "__topics", "some body of an event", bytes);
        if (random_next(&seed) % 2) {
            struct answer_frame frame = answer_to(tag, (uint16_t)(random_next(&seed) % 40), 3);
            memcpy(bytes, &frame, len = sizeof frame);
        }
        for (uint64_t wrong = random_next(&seed) % 4; wrong > 0; wrong--) {
            uint64_t number = random_next(&seed) >> random_next(&seed) % 64;
            const size_t at = random_next(&seed) % (len - 8);
            memcpy(bytes + at, &number, 1u << random_next(&seed) % 4);
        }
        const size_t cut = 1 + random_next(&seed) % (len - 1);
        say(table[1], bytes, cut);
        if (!table[1]->closed)
            say(table[1], bytes + cut, len - cut);
        forget_all();
        drop(1); /* gives up the call, if that was not answered */
        connect_one(1, &peer_protocol);
        forget_all();
        CHECK(reactor->body_bytes <= reactor->options.memory_max);
        for (uint32_t index = 0; index < 3; index += 2)
            if (table[index]->closed) {
                drop(index);
                connect_one(index, index == 0 ? &client_protocol : &peer_protocol);
            }
    }
}

int main(void)
{
    start();
    test_a_detail_is_no_index();
    test_nobody_answers_for_another();
    test_a_route_that_changes();
    test_internal_topics_are_not_handed_off();
    test_slices_that_have_gone();
    test_partial_frames();
    test_anything();
    for (uint32_t i = 0; i < 3; i++)
        drop(i);
    return 0;
}
