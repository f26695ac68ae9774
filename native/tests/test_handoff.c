/* What another worker says on a hand-off connection: calls that are refused, answers to calls that
 * it was not asked for, and frames of which any field may be anything. */
#include "handoff_testing.h"

#include "core/spans.h"

#define FRAMES 60000

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

/* Who took an event may not have heard yet that its topic's values are looked at. */
static void test_values_nobody_looked_at(void)
{
    uint8_t bytes[256];
    struct call_frame frame;
    struct topic *topic = shard_topic_make(reactor->shard, "t", 1);
    CHECK(topic != NULL);
    topic->checked = true;
    const size_t len = call_of("t", "event", bytes);
    say(table[1], bytes, len);
    CHECK(!table[1]->closed && reactor->log->queue == NULL);
    CHECK(told().problem == PROBLEM_NOT_READY);
    forget_all();
    memcpy(&frame, bytes, sizeof frame);
    frame.flags |= FLAG_CHECKED;
    memcpy(bytes, &frame, sizeof frame);
    say(table[1], bytes, len);
    CHECK(!table[1]->closed && reactor->log->queue != NULL);
    forget_all();
    topic->checked = false;
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

/* A machine without a battery begins in 1970, until somebody tells it the time. */
static void test_a_clock_that_nobody_has_set(void)
{
    static const char request[] = "POST /v1/topic/t/messages HTTP/1.1\r\nHost: h\r\n"
                                  "Content-Type: application/vnd.barco.events+x-ndjson\r\n"
                                  "Content-Length: 12\r\n\r\n{\"value\":1}\n";
    const int64_t now_us = reactor->loop.wall_us;
    reactor->loop.wall_us = 1000000;
    say(table[0], request, sizeof request - 1);
    CHECK(reactor->log->queued_runs == 1);
    forget_all();
    drop(0);
    connect_one(0, &client_protocol);
    reactor->loop.wall_us = now_us;
}

/* Who cut it has verified what it cut: whether it came as it was sent is verified here. */
static void test_a_cut_of_another_process_is_verified(void)
{
    static const uint32_t lens[] = {5};
    struct chunk_columns made = {.count = 1, .val_len = lens, .vals = (const uint8_t *)"event",
                                 .vals_bytes = 5};
    uint8_t batch[512], bytes[1024];
    const size_t len = batch_seal(NULL, &made, batch, sizeof batch);
    CHECK(len > 0);
    for (int broken = 0; broken < 2; broken++) {
        struct call_frame frame = {.op = OP_CALL, .content = CONTENT_CUT, .topic_len = 1,
                                   .tag = 7, .body_len = (uint32_t)len};
        frame.bytes = (uint32_t)(sizeof frame + 1 + len);
        memcpy(bytes, &frame, sizeof frame);
        bytes[sizeof frame] = 't';
        memcpy(bytes + sizeof frame + 1, batch, len);
        bytes[sizeof frame + 1 + len - 8] ^= (uint8_t)broken; /* of the value */
        say(table[1], bytes, frame.bytes);
        CHECK(!table[1]->closed && (reactor->log->queue == NULL) == (broken == 1));
        CHECK(!broken || told().problem == PROBLEM_BAD_BATCH);
        forget_all();
    }
}

#define TRACE "0af7651916cd43dd8448eb211c80319c"

/* A traced event of a client that goes to process 1: what is sent with it, and the call's tag. */
static uint64_t hand_out_traced(struct trace_frame *told, bool *is_told)
{
    static const char request[] =
        "POST /v1/topic/t/messages?token=-3074457345618259968&slice=0 HTTP/1.1\r\nHost: h\r\n"
        "traceparent: 00-" TRACE "-b7ad6b7169203331-01\r\nX-Request-Id: order-7\r\n"
        "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    uint8_t sent[4096];
    size_t len = 0, at = 0;
    struct call_frame call;
    conn_input(table[0], (const uint8_t *)request, sizeof request - 1);
    for (const struct output *piece = table[1]->out_first; piece != NULL; piece = piece->next) {
        CHECK(len + piece->len <= sizeof sent);
        memcpy(sent + len, piece->bytes, piece->len);
        len += piece->len;
    }
    if ((*is_told = len > sizeof *told && sent[4] == OP_TRACE)) {
        memcpy(told, sent, sizeof *told);
        CHECK(told->bytes == sizeof *told);
        at = sizeof *told;
    }
    memcpy(&call, sent + at, sizeof call);
    CHECK(call.op == OP_CALL && at + call.bytes == len);
    return call.tag;
}

/* A version before it would hang up on the frame, so who takes it has said so. */
static void test_a_trace_is_handed_on(void)
{
    struct trace_frame told;
    bool is_told;
    CHECK(spans_begin(reactor, 0));
    struct answer_frame answer = answer_to(hand_out_traced(&told, &is_told), PROBLEM_NONE, 0);
    CHECK(!is_told);
    say(table[1], &answer, sizeof answer); /* of an older one */
    CHECK(has_text(table[0], "Barco-Request-Id: order-7\r\n"));
    forget_all();
    answer = answer_to(hand_out_traced(&told, &is_told), PROBLEM_NONE, 0);
    CHECK(!is_told);
    answer.flags = FLAG_TRACES;
    say(table[1], &answer, sizeof answer);
    forget_all();
    answer = answer_to(hand_out(), PROBLEM_NONE, 0); /* of no trace */
    say(table[1], &answer, sizeof answer);
    forget_all();
    reactor->spans->count = 0;
    answer = answer_to(hand_out_traced(&told, &is_told), PROBLEM_NONE, 0);
    CHECK(is_told && told.trace[0] == 0x0a && told.trace[15] == 0x9c);
    CHECK(told.id_len == 7 && memcmp(told.id, "order-7", 7) == 0);
    say(table[1], &answer, sizeof answer);
    const struct span *kept = reactor->spans->kept;
    CHECK(reactor->spans->count == 1 && kept->handed_on && !kept->handed_in);
    CHECK(memcmp(kept->handed_as, told.parent, sizeof told.parent) == 0 && kept->handed_us > 0);
    CHECK(strcmp(kept->id, "order-7") == 0);
    forget_all();
    drop(1);
    connect_one(1, &peer_protocol);
}

static void say_trace(const char *id)
{
    struct trace_frame told = {.bytes = sizeof told, .op = OP_TRACE, .trace = {1},
                               .parent = {2}, .id_len = (uint8_t)strlen(id)};
    memcpy(told.id, id, strlen(id));
    say(table[1], &told, sizeof told);
}

static void test_a_trace_is_handed_in(void)
{
    struct spans *spans = reactor->spans;
    const struct span *kept = spans->kept;
    spans->count = 0;
    say_trace("order-7");
    say_call_for(3);
    CHECK(spans->handed_in_count == 1 && spans->open == 1);
    store();
    CHECK(told().problem == PROBLEM_NONE && (told().flags & FLAG_TRACES));
    CHECK(spans->count == 1 && spans->handed_in_count == 0 && spans->open == 0);
    CHECK(kept->handed_in && kept->status == 200 && kept->events == 1 && kept->has_parent);
    CHECK(kept->trace[0] == 1 && kept->parent[0] == 2 && strcmp(kept->id, "order-7") == 0);
    CHECK(kept->topic_len == 1 && kept->topic[0] == 't');
    forget_all();
    say_call_for(3); /* it was of one call */
    CHECK(spans->handed_in_count == 0);
    forget_all();
    say_trace("");
    say_call_for(8); /* process 1 leads it */
    CHECK(spans->count == 2 && kept[1].status == 503 && kept[1].events == 0 && !spans->open);
    forget_all();
    for (uint32_t i = 0; i <= SPANS_HANDED_IN_MAX; i++) {
        say_trace("");
        say_call_for(3);
    }
    CHECK(spans->handed_in_count == SPANS_HANDED_IN_MAX && spans->lost == 1);
    drop(1); /* nobody waits for them */
    CHECK(spans->handed_in_count == 0 && spans->open == 0 && spans->count == 2);
    connect_one(1, &peer_protocol);
    forget_all();
    say_trace("a b"); /* no program of ours says that */
    CHECK(table[1]->closed);
    drop(1);
    connect_one(1, &peer_protocol);
    struct trace_frame frame = {.bytes = sizeof frame + 8, .op = OP_TRACE};
    uint8_t longer[sizeof frame + 8] = {0};
    memcpy(longer, &frame, sizeof frame);
    say(table[1], longer, sizeof longer);
    CHECK(table[1]->closed);
    drop(1);
    connect_one(1, &peer_protocol);
    spans_free(reactor);
    say_trace("order-7"); /* nobody asks for spans here */
    say_call_for(3);
    CHECK(!table[1]->closed && peer_of(table[1])->trace == NULL && reactor->log->queue != NULL);
    forget_all();
}

int main(void)
{
    start();
    test_a_clock_that_nobody_has_set();
    test_a_detail_is_no_index();
    test_nobody_answers_for_another();
    test_a_route_that_changes();
    test_internal_topics_are_not_handed_off();
    test_slices_that_have_gone();
    test_values_nobody_looked_at();
    test_partial_frames();
    test_a_cut_of_another_process_is_verified();
    test_a_trace_is_handed_on();
    test_a_trace_is_handed_in();
    test_anything();
    for (uint32_t i = 0; i < 3; i++)
        drop(i);
    return 0;
}
