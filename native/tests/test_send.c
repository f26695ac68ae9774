/* In which order connections send while clients wait for appends, and how much at a time. */
#include <stdlib.h>

#include "loop/loop.h"
#include "loop/output.h"
#include "loop/send.h"
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

static struct loop lab(bool is_urgent)
{
    static int64_t now_us = 1000000;
    now_us += 10 * URGENT_US;
    if (is_urgent)
        urgent_note(now_us);
    return (struct loop){.net = &net, .monotonic_us = now_us};
}

static const struct protocol clients = {.clients = true}, others;

static void answer(struct loop *loop, struct conn *conn, struct output *output, uint32_t bytes)
{
    *output = (struct output){.len = bytes};
    *conn = (struct conn){
        .loop = loop, .protocol = &clients, .transport = &plain_transport,
        .out_first = output, .out_last = output};
}

static void test_long_answers_wait_and_take_turns(void)
{
    struct loop loop = lab(true);
    struct conn one, two, small;
    struct output outputs[3];
    answer(&loop, &one, &outputs[0], LONG);
    answer(&loop, &two, &outputs[1], LONG);
    answer(&loop, &small, &outputs[2], 100);
    send_ready(&one);
    send_ready(&two);
    CHECK(sent_count == 0);
    send_ready(&small);
    CHECK(was_sent(&small, 100));
    send_late(&loop);
    CHECK(was_sent(&one, URGENT_PORTION_BYTES));
    outputs[0].sent = URGENT_PORTION_BYTES;
    one.sending = false;
    send_ready(&one); /* behind the other */
    send_late(&loop);
    CHECK(was_sent(&two, URGENT_PORTION_BYTES));
    send_late(&loop);
    CHECK(was_sent(&one, URGENT_PORTION_BYTES));
    CHECK(loop.late_first == NULL && loop.late_last == NULL);
}

static void test_the_rest_of_an_answer_is_no_long_one(void)
{
    struct loop loop = lab(true);
    struct conn conn;
    struct output output;
    answer(&loop, &conn, &output, LONG);
    output.sent = LONG - URGENT_PORTION_BYTES;
    send_ready(&conn);
    CHECK(was_sent(&conn, URGENT_PORTION_BYTES));
}

static void test_calls_to_another_process_are_not_put_off(void)
{
    struct loop loop = lab(true);
    struct conn conn;
    struct output output;
    answer(&loop, &conn, &output, LONG);
    conn.protocol = &others;
    send_ready(&conn);
    CHECK(was_sent(&conn, LONG));
}

static void test_all_goes_when_nobody_waits_any_more(void)
{
    struct loop loop = lab(true);
    struct conn one, two;
    struct output outputs[2];
    answer(&loop, &one, &outputs[0], LONG);
    answer(&loop, &two, &outputs[1], LONG);
    send_ready(&one);
    send_ready(&two);
    loop.monotonic_us += URGENT_US;
    send_late(&loop);
    CHECK(sent_count == 2 && sent_bytes[0] == LONG && sent_bytes[1] == LONG);
    sent_count = 0;
}

static void test_a_connection_that_goes_is_forgotten(void)
{
    for (int gone = 0; gone < 3; gone++) {
        struct loop loop = lab(true);
        struct conn conns[3];
        struct output outputs[3];
        for (int i = 0; i < 3; i++) {
            answer(&loop, &conns[i], &outputs[i], LONG);
            send_ready(&conns[i]);
        }
        send_forget(&conns[gone]);
        send_forget(&conns[gone]);
        for (int i = 0; i < 3; i++) {
            if (i == gone)
                continue;
            send_late(&loop);
            CHECK(was_sent(&conns[i], URGENT_PORTION_BYTES));
        }
        CHECK(loop.late_first == NULL && loop.late_last == NULL);
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
