/* Calls that wait for the next leader of their slice: their order, who gets them, and every way in
 * which that ends. */
#include "handoff_testing.h"

#define MOST_MS 4000
#define GUEST_MS 1000 /* as in park.c */

/* A client's event for a slice of the ring. */
static void post(uint32_t number, const char *body)
{
    char request[512];
    const long long token = range_token(reactor, number / 8);
    const int len = snprintf(request, sizeof request,
                             "POST /v1/topic/t/messages?token=%lld&slice=%u HTTP/1.1\r\nHost: h\r\n"
                             "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                             token, number % 8, strlen(body), body);
    CHECK(len > 0 && (size_t)len < sizeof request);
    say(table[0], request, (size_t)len);
}

static void later(int64_t ms)
{
    reactor->loop.now_ms += ms;
    park_tend(reactor);
}

static bool leads(uint32_t number, int32_t peer)
{
    const bool set = reactor_set_route(reactor, number, 1, peer, peer < 0 ? "" : "h:1") == 0;
    park_tend(reactor);
    return set;
}

/* The nth frame that was sent to another process, and its body; false: there is none. */
static bool sent(uint32_t to, uint32_t nth, struct call_frame *frame, char *body)
{
    static uint8_t all[1u << 16];
    size_t len = 0;
    for (const struct output *piece = table[to]->out_first; piece != NULL; piece = piece->next) {
        CHECK(len + piece->len <= sizeof all);
        memcpy(all + len, piece->bytes, piece->len);
        len += piece->len;
    }
    for (size_t at = 0; at < len; at += frame->bytes) {
        CHECK(len - at >= sizeof *frame);
        memcpy(frame, all + at, sizeof *frame);
        if (nth-- > 0)
            continue;
        const size_t from = at + sizeof *frame + frame->topic_len + frame->key_len;
        CHECK(from + frame->body_len == at + frame->bytes && frame->body_len < 64);
        memcpy(body, all + from, frame->body_len);
        body[frame->body_len] = 0;
        return true;
    }
    return false;
}

static bool sent_is(uint32_t to, uint32_t nth, uint8_t op, const char *expected)
{
    struct call_frame frame;
    char body[64];
    return sent(to, nth, &frame, body) && frame.op == op && strcmp(body, expected) == 0;
}

static bool sent_nothing(uint32_t to) { return table[to]->out_first == NULL; }

/* The values that wait to be written, one behind the other. */
static bool queued(const char *expected)
{
    char all[256];
    size_t len = 0;
    for (const struct run *run = reactor->log->queue; run != NULL; run = run->next) {
        memcpy(all + len, run->values, run->value_len);
        len += run->value_len;
    }
    return len == strlen(expected) && memcmp(all, expected, len) == 0;
}

/* Everything is as at the beginning, and no byte is kept of what was. */
static void anew(void)
{
    for (uint32_t index = 0; index < 3; index++) {
        drop(index);
        connect_one(index, index == 0 ? &client_protocol : &peer_protocol);
    }
    forget_all();
    reactor->log->open = true;
    reactor->log->draining = false;
    reactor->park.hold_until_ms = 0;
    CHECK(reactor_set_route(reactor, 0, 8, 0, "127.0.0.1:9300") == 0);
    CHECK(reactor_set_route(reactor, 8, 8, 1, "127.0.0.2:9300") == 0);
    CHECK(reactor_set_route(reactor, 16, 8, 2, "127.0.0.3:9300") == 0);
    later(1);
    CHECK(reactor->park.count == 0 && reactor->park.bytes == 0 && reactor->body_bytes == 0);
    CHECK(client_of(table[0])->parked == 0);
    for (uint32_t number = 0; reactor->park.lanes != NULL && number < 24; number++)
        reactor->park.lanes[number].shut_ms = 0;
}

static void test_a_leader_is_awaited(void)
{
    CHECK(leads(8, ROUTE_NONE));
    post(8, "one");
    post(8, "two");
    CHECK(reactor->park.count == 2 && sent_nothing(0) && sent_nothing(1) && sent_nothing(2));
    later(100);
    CHECK(reactor->park.count == 2 && sent_nothing(0));
    CHECK(reactor_set_route(reactor, 8, 1, 2, "h:1") == 0);
    post(8, "three"); /* the others are before it, though it could go now */
    CHECK(reactor->park.count == 3 && sent_nothing(2));
    park_tend(reactor);
    CHECK(sent_is(2, 0, OP_CALL, "one") && sent_is(2, 1, OP_CALL, "two"));
    CHECK(sent_is(2, 2, OP_CALL, "three") && sent_nothing(1) && sent_nothing(0));
    post(8, "four");
    CHECK(reactor->park.count == 0 && sent_is(2, 3, OP_CALL, "four"));
    anew();
}

/* A route of several slices of which one is new: the others' calls are where they were. */
static void test_a_route_that_stays_is_none_again(void)
{
    CHECK(leads(8, ROUTE_NONE));
    post(8, "one"); /* lanes are made with the first that waits */
    CHECK(leads(8, 1) && reactor->park.lanes != NULL);
    reactor->park.lanes[8].again = reactor->park.lanes[9].again = false;
    CHECK(leads(8, ROUTE_NONE));
    reactor->park.lanes[8].again = false;
    CHECK(reactor_set_route(reactor, 8, 8, 1, "h:1") == 0);
    CHECK(reactor->park.lanes[8].again && !reactor->park.lanes[9].again);
    anew();
}

static void test_a_connection_is_awaited(void)
{
    drop(1);
    post(9, "one");
    CHECK(reactor->park.count == 1);
    connect_one(1, &peer_protocol);
    park_stir(reactor); /* as reactor_attach_peer() does */
    later(0);
    CHECK(sent_is(1, 0, OP_CALL, "one"));
    anew();
}

static void test_the_log_here_is_awaited(void)
{
    reactor->log->open = false;
    post(3, "one");
    post(4, "two");
    post(3, "three");
    post(9, "elsewhere");
    CHECK(reactor->park.count == 3 && queued("") && sent_is(1, 0, OP_CALL, "elsewhere"));
    later(50);
    CHECK(reactor->park.count == 3);
    reactor->log->open = true;
    park_stir(reactor);
    post(3, "four");
    CHECK(reactor->park.count == 4);
    later(0);
    CHECK(reactor->park.count == 0 && (queued("onethreefourtwo") || queued("twoonethreefour")));
    anew();
    reactor->log->draining = true; /* nothing is built of what would be queued now */
    post(3, "one");
    CHECK(reactor->park.count == 1 && queued(""));
    anew();
}

static void test_what_is_held(void)
{
    park_hold(reactor, 100);
    post(3, "one");
    say_call_for(2);
    CHECK(reactor->park.count == 2 && queued("") && sent_nothing(1));
    CHECK(park_in_ms(reactor) == 100);
    later(99);
    CHECK(reactor->park.count == 2);
    later(1);
    CHECK(reactor->park.count == 0 && (queued("oneevent") || queued("eventone")));
    anew();
}

/* What was sent to a process that does not lead comes back, and goes to who does, before others. */
static void test_what_comes_back(void)
{
    struct call_frame frame;
    char body[64];
    uint8_t bytes[256];
    post(8, "one");
    CHECK(sent(1, 0, &frame, body) && (frame.flags & FLAG_RETURNS));
    size_t len = 0;
    for (const struct output *piece = table[1]->out_first; piece != NULL; piece = piece->next) {
        memcpy(bytes + len, piece->bytes, piece->len);
        len += piece->len;
    }
    CHECK(len == frame.bytes);
    forget_all();
    CHECK(leads(8, ROUTE_NONE));
    post(8, "two");
    bytes[4] = OP_RETURN;
    say(table[1], bytes, len);
    CHECK(!table[1]->closed && reactor->park.count == 2 && sent_nothing(0));
    CHECK(leads(8, 2));
    CHECK(sent_is(2, 0, OP_CALL, "one") && sent_is(2, 1, OP_CALL, "two"));
    CHECK(sent(2, 0, &frame, body));
    struct answer_frame answer = answer_to(frame.tag, PROBLEM_NONE, 0);
    say(table[2], &answer, sizeof answer);
    CHECK(has_text(table[0], "HTTP/1.1 200"));
    say(table[1], bytes, len); /* twice: it is answered already */
    CHECK(!table[1]->closed && reactor->park.count == 0);
    anew();
}

/* What is still with who led a slice is not overtaken on the way to who leads it now. */
static void test_what_is_abroad(void)
{
    struct call_frame frame;
    char body[64];
    uint8_t bytes[256];
    post(8, "one");
    CHECK(sent(1, 0, &frame, body));
    const size_t len = call_of("t", "one", bytes);
    bytes[4] = OP_RETURN;
    memcpy(bytes + offsetof(struct call_frame, tag), &frame.tag, sizeof frame.tag);
    forget_all();
    CHECK(leads(8, 2) && reactor->abroad[8] == 1);
    post(8, "two");
    post(9, "other"); /* of another slice */
    CHECK(reactor->park.count == 1 && sent_nothing(2) && sent_is(1, 0, OP_CALL, "other"));
    say(table[1], bytes, len);
    park_tend(reactor);
    CHECK(reactor->abroad[8] == 0 && reactor->park.count == 0);
    CHECK(sent_is(2, 0, OP_CALL, "one") && sent_is(2, 1, OP_CALL, "two"));
    anew();
    post(8, "one"); /* it is answered after all */
    CHECK(sent(1, 0, &frame, body) && leads(8, 2) && reactor->abroad[8] == 1);
    post(8, "two");
    struct answer_frame answer = answer_to(frame.tag, PROBLEM_NONE, 0);
    say(table[1], &answer, sizeof answer);
    park_tend(reactor);
    CHECK(reactor->abroad[8] == 0 && sent_is(2, 0, OP_CALL, "two"));
    anew();
    post(8, "one"); /* nothing is heard of it */
    forget_all();
    CHECK(leads(8, 2));
    post(8, "two");
    later(299);
    handoff_deadlines(reactor);
    later(0);
    CHECK(reactor->park.count == 1 && sent_nothing(2));
    later(1);
    handoff_deadlines(reactor);
    later(0);
    CHECK(reactor->park.count == 0 && sent_is(2, 0, OP_CALL, "two"));
    CHECK(has_text(table[0], "HTTP/1.1 500"));
    anew();
}

/* How long a slice was shut is over when it opens, also if nobody is there to see it. */
static void test_shut_and_open_unseen(void)
{
    reactor->log->open = false;
    post(3, "one");
    CHECK(reactor->park.count == 1 && reactor->park.lanes[3].shut_ms != 0);
    drop(0);
    connect_one(0, &client_protocol);
    CHECK(reactor->park.count == 0);
    reactor->log->open = true;
    park_stir(reactor);
    later(0);
    CHECK(reactor->park.lanes[3].shut_ms == 0 && !reactor->park.stirred);
    later(10 * MOST_MS);
    reactor->log->open = false;
    post(3, "two");
    CHECK(reactor->park.count == 1); /* it waits, as if it were the first time */
    anew();
}

/* Who sends calls back and leads all the same, as far as is known, is asked again a bit later. */
static void test_who_sends_back_is_asked_again(void)
{
    struct call_frame frame;
    uint8_t bytes[256];
    const uint64_t tag = hand_out();
    const size_t len = call_of("t", "{}", bytes);
    memcpy(&frame, bytes, sizeof frame);
    frame.op = OP_RETURN;
    frame.tag = tag;
    frame.number = 5; /* what it says of the slice does not count */
    memcpy(bytes, &frame, sizeof frame);
    forget_all();
    say(table[1], bytes, len);
    later(10);
    post(8, "two");
    CHECK(reactor->park.count == 2 && sent_nothing(1));
    later(20);
    CHECK(sent_is(1, 0, OP_CALL, "{}") && sent_is(1, 1, OP_CALL, "two"));
    anew();
    const uint64_t third = hand_out();
    memcpy(bytes + offsetof(struct call_frame, tag), &third, sizeof third);
    say(table[1], bytes, len);
    CHECK(reactor->park.count == 1 && leads(8, 2)); /* another leads, and is asked at once */
    CHECK(sent_is(2, 0, OP_CALL, "{}"));
    anew();
    const uint64_t other = hand_out();
    memcpy(bytes + offsetof(struct call_frame, tag), &other, sizeof other);
    say(table[2], bytes, len); /* nobody sends back what another has */
    CHECK(table[2]->closed && reactor->park.count == 0 && sent_nothing(0));
    anew();
}

/* One call goes back as its leader does not know yet: those behind it must not be taken then. */
static void test_what_is_behind_what_goes_back(void)
{
    uint8_t bytes[256];
    struct call_frame frame;
    const size_t len = call_of("t", "event", bytes);
    const uint32_t number = 4;
    bytes[5] |= FLAG_RETURNS | FLAG_ORDERED;
    memcpy(bytes + offsetof(struct call_frame, number), &number, sizeof number);
    for (uint32_t parked = 0; parked < 2; parked++) {
        reactor->log->open = false;
        CHECK(leads(4, parked ? 0 : 2));
        say(table[1], bytes, len);
        CHECK(reactor->park.count == parked && sent_nothing(1) == (bool)parked && leads(4, 2));
        CHECK(sent_is(1, 0, OP_RETURN, "event"));
        forget_all();
        reactor->log->open = true;
        CHECK(leads(4, 0));
        say(table[1], bytes, len);
        CHECK(sent_is(1, 0, OP_RETURN, "event") && queued(""));
        forget_all();
        memcpy(&frame, bytes, sizeof frame);
        frame.flags |= FLAG_AGAIN;
        memcpy(bytes, &frame, sizeof frame);
        say(table[1], bytes, len);
        CHECK(queued("event") && sent_nothing(1));
        forget_all();
        bytes[5] = (uint8_t)(bytes[5] & ~FLAG_AGAIN);
        say(table[1], bytes, len);
        CHECK(queued("event") && sent_nothing(1));
        forget_all();
    }
    anew();
}

/* Who gets one back waits for the others that are there, and says then that they are back. */
static void test_what_is_out_with_what_came_back(void)
{
    struct call_frame frame;
    char body[64];
    uint8_t bytes[256];
    uint64_t tags[2];
    const size_t len = call_of("t", "one", bytes);
    bytes[4] = OP_RETURN;
    CHECK(leads(8, 2) && leads(8, 1));
    post(8, "one");
    post(8, "two");
    CHECK(sent(1, 0, &frame, body) && (frame.flags & FLAG_AGAIN) && (frame.flags & FLAG_ORDERED));
    tags[0] = frame.tag;
    CHECK(sent(1, 1, &frame, body) && !(frame.flags & FLAG_AGAIN));
    tags[1] = frame.tag;
    forget_all();
    memcpy(bytes + offsetof(struct call_frame, tag), &tags[0], sizeof tags[0]);
    say(table[1], bytes, len);
    later(30);
    CHECK(sent_nothing(1) && reactor->abroad[8] == 1 && reactor->park.count == 1);
    post(8, "three");
    memcpy(bytes + offsetof(struct call_frame, tag), &tags[1], sizeof tags[1]);
    memcpy(bytes + len - 3, "two", 3);
    say(table[1], bytes, len);
    later(30);
    CHECK(reactor->abroad[8] == 0 && reactor->park.count == 0);
    CHECK(sent_is(1, 0, OP_CALL, "one") && sent_is(1, 1, OP_CALL, "two"));
    CHECK(sent_is(1, 2, OP_CALL, "three") && sent(1, 0, &frame, body));
    CHECK((frame.flags & FLAG_AGAIN) && sent(1, 1, &frame, body) && !(frame.flags & FLAG_AGAIN));
    anew();
}

static void test_guests(void)
{
    reactor->log->open = false;
    say_call_for(3); /* who handed it over does not take it back: it is told */
    uint8_t bytes[256];
    const size_t len = call_of("t", "event", bytes);
    const uint32_t number = 4;
    bytes[5] |= FLAG_RETURNS;
    memcpy(bytes + offsetof(struct call_frame, number), &number, sizeof number);
    say(table[1], bytes, len);
    CHECK(reactor->park.count == 2 && sent_nothing(1));
    CHECK(leads(3, 2));
    CHECK(told().problem == PROBLEM_NOT_READY);
    forget_all();
    CHECK(leads(4, 2));
    CHECK(sent_is(1, 0, OP_RETURN, "event") && reactor->park.count == 0 && queued(""));
    forget_all();
    say(table[1], bytes, len); /* of which it is known at once that it is not for here */
    CHECK(sent_is(1, 0, OP_RETURN, "event") && reactor->park.count == 0);
    forget_all();
    CHECK(leads(4, 0));
    say(table[1], bytes, len);
    CHECK(reactor->park.count == 1);
    reactor->log->open = true;
    park_stir(reactor);
    later(0);
    CHECK(queued("event") && sent_nothing(1));
    reactor->log->open = false;
    forget_all();
    say(table[1], bytes, len);
    drop(1); /* who asked tells its client that nothing is known of it */
    connect_one(1, &peer_protocol);
    reactor->log->open = true;
    park_stir(reactor);
    later(0);
    CHECK(queued("") && reactor->park.count == 0);
    anew();
}

static void test_time(void)
{
    uint8_t bytes[256];
    const size_t len = call_of("t", "event", bytes);
    const uint64_t expired = reactor->park.expired;
    bytes[5] |= FLAG_RETURNS;
    reactor->log->open = false;
    post(3, "one");
    say(table[1], bytes, len);
    later(GUEST_MS - 1);
    CHECK(reactor->park.count == 2);
    later(1); /* it is told, and does not go back: others may be on their way from there */
    CHECK(reactor->park.count == 1 && told().problem == PROBLEM_NOT_READY);
    later(MOST_MS / 2 - GUEST_MS);
    post(3, "two");
    later(MOST_MS / 2);
    CHECK(has_text(table[0], "HTTP/1.1 503") && has_text(table[0], "not-written"));
    CHECK(reactor->park.count == 1 && reactor->park.expired == expired + 2);
    later(MOST_MS / 2);
    CHECK(reactor->park.count == 0);
    forget_all();
    post(3, "three"); /* nobody has led it for so long: there is nothing to wait for */
    CHECK(reactor->park.count == 0 && has_text(table[0], "HTTP/1.1 503"));
    forget_all();
    reactor->log->open = true;
    park_stir(reactor);
    post(3, "four");
    CHECK(queued("four")); /* and nothing of what was refused */
    reactor->log->open = false;
    forget_all();
    post(3, "five");
    CHECK(reactor->park.count == 1 && sent_nothing(0));
    anew();
}

/* What goes back to processes that do not read has one bound, however many they are; who has taken
 * or lost it makes room. */
static void test_what_goes_back_is_bounded(void)
{
    static uint8_t bytes[64u << 10];
    static char body[40u << 10];
    const uint32_t number = 3, fit = 6; /* of a quarter of 1 MiB */
    memset(body, 'x', sizeof body - 1);
    const size_t len = call_of("t", body, bytes);
    bytes[5] |= FLAG_RETURNS;
    memcpy(bytes + offsetof(struct call_frame, number), &number, sizeof number);
    for (uint32_t index = 1; index < 3; index++) {
        drop(index);
        table[index] = conn_new(&reactor->loop, -1, &peer_protocol, &plain_transport);
        CHECK(table[index] != NULL);
        table[index]->index = index;
        table[index]->generation = 1000 + index;
    }
    reactor->log->open = false;
    CHECK(leads(3, 8));
    const uint64_t before = reactor->park.given_back;
    for (uint32_t i = 0; i < 2 * fit; i++) /* in turn: neither has too much by itself */
        say(table[1 + i % 2], bytes, len);
    CHECK(reactor->park.given_back == before + fit);
    CHECK(reactor->peer_back_bytes == table[1]->out_bytes + table[2]->out_bytes);
    CHECK(reactor->peer_back_bytes > fit * sizeof body && reactor->peer_out_bytes == 0);
    CHECK(!table[1]->closed && !table[2]->closed); /* the others were told: not written */
    CHECK(reactor->peer_back_bytes >= fit * (uint64_t)len + fit * sizeof(struct answer_frame));
    drop(1);
    connect_one(1, &peer_protocol);
    CHECK(reactor->peer_back_bytes == table[2]->out_bytes);
    say(table[2], bytes, len);
    CHECK(reactor->park.given_back == before + fit + 1);
    drop(2);
    connect_one(2, &peer_protocol);
    CHECK(reactor->peer_back_bytes == 0);
    anew();
}

/* What a slice was without a leader before it had one does not count. */
static void test_a_slice_that_is_shut_again(void)
{
    reactor->log->open = false;
    post(3, "one");
    later(MOST_MS - 1);
    reactor->log->open = true;
    park_stir(reactor);
    later(0);
    CHECK(queued("one"));
    forget_all();
    reactor->log->open = false;
    later(2);
    post(3, "two");
    CHECK(reactor->park.count == 1 && sent_nothing(0));
    anew();
}

static void test_a_client_goes(void)
{
    CHECK(leads(8, ROUTE_NONE));
    post(8, "one");
    post(9, "elsewhere");
    post(8, "two");
    CHECK(client_of(table[0])->parked == 2 && reactor->body_bytes > 0);
    drop(0);
    connect_one(0, &client_protocol);
    CHECK(reactor->park.count == 0 && reactor->park.bytes == 0 && reactor->body_bytes == 0);
    CHECK(leads(8, 2) && sent_nothing(2));
    anew();
}

/* Who has closed its side may have given up, and have written something else since. */
static void test_a_client_that_says_no_more(void)
{
    uint8_t bytes[256];
    const uint64_t tag = hand_out();
    const size_t len = call_of("t", "{}", bytes);
    memcpy(bytes + offsetof(struct call_frame, tag), &tag, sizeof tag);
    bytes[4] = OP_RETURN;
    forget_all();
    CHECK(leads(16, ROUTE_NONE));
    post(16, "one");
    post(9, "elsewhere");
    table[0]->peer_eof = true;
    table[0]->protocol->half_closed(table[0]);
    CHECK(!table[0]->closed && reactor->park.count == 0);
    say(table[1], bytes, len); /* nor does what comes back wait for it */
    CHECK(reactor->park.count == 0 && has_text(table[0], "HTTP/1.1 503"));
    CHECK(leads(16, 1) && leads(8, 2) && sent_nothing(2));
    anew();
}

static void test_answers_stay_in_order(void)
{
    CHECK(leads(8, ROUTE_NONE));
    post(8, "one");
    post(9, "two");
    struct call_frame frame;
    char body[64];
    CHECK(sent(1, 0, &frame, body) && strcmp(body, "two") == 0);
    struct answer_frame answer = answer_to(frame.tag, PROBLEM_STALE_EPOCH, 0);
    say(table[1], &answer, sizeof answer);
    CHECK(sent_nothing(0));
    CHECK(leads(8, 2) && sent(2, 0, &frame, body));
    answer = answer_to(frame.tag, PROBLEM_NONE, 0);
    say(table[2], &answer, sizeof answer);
    CHECK(has_text(table[0], "HTTP/1.1 200") && has_text(table[0], "HTTP/1.1 403"));
    anew();
}

static void test_bounds(void)
{
    static char body[300];
    memset(body, 'x', sizeof body - 1);
    CHECK(leads(8, ROUTE_NONE));
    for (uint32_t i = 0; i < 100; i++)
        post(8, body);
    CHECK(reactor->park.count == 100 && reactor->park.bytes > 100 * sizeof body);
    const uint64_t memory_max = reactor->options.memory_max;
    reactor->options.memory_max = 4 * reactor->park.bytes + 100;
    const uint64_t before = reactor->problems;
    post(8, body);
    CHECK(reactor->park.count == 100 && reactor->problems == before + 1);
    reactor->options.memory_max = memory_max;
    anew();
}

static void test_the_end(void)
{
    uint8_t bytes[256];
    const size_t len = call_of("t", "event", bytes);
    bytes[5] |= FLAG_RETURNS;
    reactor->log->open = false;
    post(3, "one");
    say(table[1], bytes, len);
    reactor_drain(reactor);
    CHECK(has_text(table[0], "HTTP/1.1 503") && sent_is(1, 0, OP_RETURN, "event"));
    forget_all();
    say(table[1], bytes, len);
    CHECK(reactor->park.count == 0 && told().problem == PROBLEM_NOT_READY);
    reactor->draining = false;
    anew();
}

static void test_who_waits_for_nothing(void)
{
    reactor->park.most_ms = 0;
    CHECK(leads(8, ROUTE_NONE));
    post(8, "one");
    CHECK(reactor->park.count == 0 && has_text(table[0], "HTTP/1.1 503"));
    uint8_t bytes[256];
    const size_t len = call_of("t", "event", bytes);
    bytes[4] = OP_RETURN;
    say(table[1], bytes, len);
    CHECK(table[1]->closed); /* nothing was to come back */
    reactor->park.most_ms = MOST_MS;
    anew();
}

/* Any order of what may happen: what waits is what is counted, and in the end nothing is left. */
static void test_anything(void)
{
    uint64_t seed = 5;
    uint8_t bytes[256];
    for (uint32_t i = 0; i < 40000; i++) {
        const uint64_t what = random_next(&seed) % 12, number = random_next(&seed) % 24;
        const int32_t peer = (int32_t)(random_next(&seed) % 4) - 1;
        const size_t len = call_of("t", "event", bytes);
        struct call_frame frame;
        switch (what) {
        case 0: reactor->log->open = !reactor->log->open; park_stir(reactor); break;
        case 1: later((int64_t)(random_next(&seed) % 3000)); break;
        case 2:
        case 3: reactor_set_route(reactor, (uint32_t)number, 1, peer, peer < 0 ? "" : "h:1"); break;
        case 4: park_hold(reactor, (uint32_t)(random_next(&seed) % 400)); break;
        case 5:
        case 6:
            memcpy(&frame, bytes, sizeof frame);
            frame.number = (uint32_t)(random_next(&seed) % 8);
            frame.flags = random_next(&seed) % 2 ? FLAG_RETURNS : 0;
            frame.op = random_next(&seed) % 4 ? OP_CALL : OP_RETURN;
            frame.tag = (uint64_t)1 << 32 | random_next(&seed) % 4;
            if (random_next(&seed) % 4 && reactor->call_capacity > 0)
                frame.tag = (uint64_t)reactor->calls[0].generation << 32;
            memcpy(bytes, &frame, sizeof frame);
            say(table[1 + random_next(&seed) % 2], bytes, len);
            break;
        default: post((uint32_t)number, "body"); break;
        }
        park_tend(reactor);
        forget_all();
        for (uint32_t index = 0; index < 3; index++)
            if (table[index]->closed || random_next(&seed) % 64 == 0) {
                drop(index);
                connect_one(index, index == 0 ? &client_protocol : &peer_protocol);
                park_stir(reactor);
            }
        CHECK(client_of(table[0])->parked <= reactor->park.count);
    }
    anew();
}

int main(void)
{
    start();
    reactor->park.most_ms = MOST_MS;
    reactor->loop.now_ms = 1000000;
    test_a_leader_is_awaited();
    test_a_route_that_stays_is_none_again();
    test_a_connection_is_awaited();
    test_the_log_here_is_awaited();
    test_what_is_held();
    test_what_comes_back();
    test_what_is_abroad();
    test_shut_and_open_unseen();
    test_who_sends_back_is_asked_again();
    test_what_is_behind_what_goes_back();
    test_what_is_out_with_what_came_back();
    test_guests();
    test_time();
    test_what_goes_back_is_bounded();
    test_a_slice_that_is_shut_again();
    test_a_client_goes();
    test_a_client_that_says_no_more();
    test_answers_stay_in_order();
    test_bounds();
    test_the_end();
    test_who_waits_for_nothing();
    test_anything();
    for (uint32_t index = 0; index < 3; index++)
        drop(index);
    reactor->loop.table = NULL;
    reactor->loop.table_used = reactor->loop.table_capacity = 0;
    reactor_free(reactor);
    return 0;
}
