/* In which order connections send while clients wait for appends, and how much at a time. */
#include <stdlib.h>

#include "broker/reactor.h"
#include "base/urgent.h"
#include "codec_testing.h"

#define LONG (3 * URGENT_PORTION_BYTES)

static struct conn *sent[8];
static size_t sent_bytes[8], sent_count;

static void on_send(struct net *net, struct conn *conn, const void *bytes, size_t len)
{
    sent[sent_count] = conn;
    sent_bytes[sent_count++] = len;
}

static bool was_sent(struct conn *conn, size_t bytes)
{
    bool as_said = sent_count == 1 && sent[0] == conn && sent_bytes[0] == bytes;
    sent_count = 0;
    return as_said;
}

static struct net net = {.send = on_send};

static struct reactor lab(bool is_urgent)
{
    static int64_t now_us = 1000000;
    now_us += 10 * URGENT_US;
    if (is_urgent)
        urgent_note(now_us);
    return (struct reactor){.net = &net, .monotonic_us = now_us};
}

static void answer(struct conn *conn, struct output *output, uint32_t bytes)
{
    *output = (struct output){.len = bytes};
    *conn = (struct conn){.out_first = output, .out_last = output};
}

static void test_long_answers_wait_and_take_turns(void)
{
    struct reactor reactor = lab(true);
    struct conn one, two, small;
    struct output outputs[3];
    answer(&one, &outputs[0], LONG);
    answer(&two, &outputs[1], LONG);
    answer(&small, &outputs[2], 100);
    send_ready(&reactor, &one);
    send_ready(&reactor, &two);
    CHECK(sent_count == 0);
    send_ready(&reactor, &small);
    CHECK(was_sent(&small, 100));
    send_late(&reactor);
    CHECK(was_sent(&one, URGENT_PORTION_BYTES));
    outputs[0].sent = URGENT_PORTION_BYTES;
    one.sending = false;
    send_ready(&reactor, &one); /* behind the other */
    send_late(&reactor);
    CHECK(was_sent(&two, URGENT_PORTION_BYTES));
    send_late(&reactor);
    CHECK(was_sent(&one, URGENT_PORTION_BYTES));
    CHECK(reactor.late_first == NULL && reactor.late_last == NULL);
}

static void test_the_rest_of_an_answer_is_no_long_one(void)
{
    struct reactor reactor = lab(true);
    struct conn conn;
    struct output output;
    answer(&conn, &output, LONG);
    output.sent = LONG - URGENT_PORTION_BYTES;
    send_ready(&reactor, &conn);
    CHECK(was_sent(&conn, URGENT_PORTION_BYTES));
}

static void test_calls_to_another_process_are_not_put_off(void)
{
    struct reactor reactor = lab(true);
    struct conn conn;
    struct output output;
    answer(&conn, &output, LONG);
    conn.kind = CONN_PEER;
    send_ready(&reactor, &conn);
    CHECK(was_sent(&conn, LONG));
}

static void test_all_goes_when_nobody_waits_any_more(void)
{
    struct reactor reactor = lab(true);
    struct conn one, two;
    struct output outputs[2];
    answer(&one, &outputs[0], LONG);
    answer(&two, &outputs[1], LONG);
    send_ready(&reactor, &one);
    send_ready(&reactor, &two);
    reactor.monotonic_us += URGENT_US;
    send_late(&reactor);
    CHECK(sent_count == 2 && sent_bytes[0] == LONG && sent_bytes[1] == LONG);
    sent_count = 0;
}

static void test_a_connection_that_goes_is_forgotten(void)
{
    for (int gone = 0; gone < 3; gone++) {
        struct reactor reactor = lab(true);
        struct conn conns[3];
        struct output outputs[3];
        for (int i = 0; i < 3; i++) {
            answer(&conns[i], &outputs[i], LONG);
            send_ready(&reactor, &conns[i]);
        }
        send_forget(&reactor, &conns[gone]);
        send_forget(&reactor, &conns[gone]);
        for (int i = 0; i < 3; i++) {
            if (i == gone)
                continue;
            send_late(&reactor);
            CHECK(was_sent(&conns[i], URGENT_PORTION_BYTES));
        }
        CHECK(reactor.late_first == NULL && reactor.late_last == NULL);
    }
}

int main(void)
{
    test_long_answers_wait_and_take_turns();
    test_the_rest_of_an_answer_is_no_long_one();
    test_calls_to_another_process_are_not_put_off();
    test_all_goes_when_nobody_waits_any_more();
    test_a_connection_that_goes_is_forgotten();
    return 0;
}
