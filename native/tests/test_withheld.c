/* Produces that somebody looks at before they are stored: how much of them is withheld, how they go
 * on, and what is left of them when their client has gone. */
#include "handoff_testing.h"

#include "broker/checked.h"
#include "broker/slots.h"

/* As docs and budgets have them. */
#define REQUESTS 1024u
#define BYTES (64u << 20)
#define COST(len) (3u * (len) + 256u) /* of one event */

static void offer(const char *body)
{
    char request[512];
    const int len = snprintf(request, sizeof request,
                             "POST /v1/topic/t/messages?token=-9223372036854775808&slice=0 "
                             "HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
                             "Content-Length: %zu\r\n\r\n%s",
                             strlen(body), body);
    CHECK(len > 0 && (size_t)len < sizeof request);
    say(table[0], request, (size_t)len);
}

/* What the upper layer has heard last: the id; the upcall's parts are freed. */
static uint64_t heard(const char *body)
{
    CHECK(reactor->upcall_count == 1 && reactor->upcalls[0].kind == UPCALL_CHECK);
    struct upcall *up = &reactor->upcalls[0];
    CHECK(up->body->len == strlen(body) && memcmp(up->body->data, body, up->body->len) == 0);
    CHECK(up->status == (CONTENT_EVENT | CHECK_JSON));
    CHECK(up->head_len == 3 * sizeof(uint32_t) + 1 && up->head[3 * sizeof(uint32_t)] == 't');
    const uint64_t id = up->id;
    free(up->head);
    body_release(up->body);
    reactor->upcall_count = 0;
    return id;
}

static void is_withheld(uint64_t requests, uint64_t bytes)
{
    CHECK(reactor->withheld == requests && reactor->withheld_bytes == bytes);
}

/* The client is told that nobody has room for it now, and nobody hears of it. */
static void is_busy(void)
{
    CHECK(reactor->upcall_count == 0 && has_text(table[0], "HTTP/1.1 503 "));
    forget_all();
}

static uint16_t produce(uint64_t id, bool told, const char *body)
{
    return checked_produce(reactor, id, told, (const uint8_t *)body, strlen(body));
}

static uint32_t queued(void) { return (uint32_t)reactor->log->queued_runs; }

static void is_told(uint64_t id, uint16_t problem)
{
    CHECK(reactor->upcall_count == 1 && reactor->upcalls[0].kind == UPCALL_PRODUCED);
    CHECK(reactor->upcalls[0].id == id && reactor->upcalls[0].status == problem);
    free(reactor->upcalls[0].head); /* who is told has it; it says where what was stored is */
    reactor->upcall_count = 0;
}

static void is_aborted(uint64_t id)
{
    CHECK(reactor->upcall_count == 1 && reactor->upcalls[0].kind == UPCALL_ABORTED);
    CHECK(reactor->upcalls[0].id == id);
    reactor->upcall_count = 0;
}

static void test_it_goes_on(void)
{
    offer("{}");
    is_withheld(1, COST(2));
    const uint64_t id = heard("{}");
    CHECK(queued() == 0 && !has_text(table[0], "HTTP"));
    CHECK(produce(id, false, "{}") == PROBLEM_NONE);
    is_withheld(0, 0);
    CHECK(queued() == 1 && !has_text(table[0], "HTTP"));
    CHECK(produce(id, false, "{}") == PROBLEM_NOT_READY && queued() == 1); /* not once more */
    store();
    CHECK(has_text(table[0], "HTTP/1.1 200 ") && reactor->upcall_count == 0);
    forget_all();
}

static void test_other_topics_pay_nothing(void)
{
    struct topic *topic = shard_topic_make(reactor->shard, "t", 1);
    topic->checked = false;
    offer("{}");
    CHECK(reactor->upcall_count == 0 && queued() == 1);
    is_withheld(0, 0);
    store();
    forget_all();
    topic->checked = true;
}

static void test_bound_of_requests(void)
{
    reactor->withheld = REQUESTS - 1; /* of others */
    offer("{}");
    is_withheld(REQUESTS, COST(2));
    const uint64_t id = heard("{}");
    offer("{}");
    CHECK(reactor->upcall_count == 0);
    is_withheld(REQUESTS, COST(2));
    CHECK(produce(id, false, "{}") == PROBLEM_NONE);
    is_withheld(REQUESTS - 1, 0);
    store();
    is_busy(); /* and the first was answered before it */
    reactor->withheld = 0;
}

static void test_bound_of_bytes(void)
{
    reactor->withheld = 1;
    reactor->withheld_bytes = BYTES - COST(4);
    offer("[123]");
    is_withheld(1, BYTES - COST(4));
    is_busy();
    offer("[12]");
    is_withheld(2, BYTES);
    const uint64_t id = heard("[12]");
    CHECK(produce(id, false, "[12]") == PROBLEM_NONE);
    is_withheld(1, BYTES - COST(4));
    store();
    forget_all();
    reactor->withheld = reactor->withheld_bytes = 0;
}

/* It is there as it came, as bytes of Python, and parsed. */
static void test_bound_of_memory(void)
{
    const uint64_t most = reactor->options.memory_max;
    reactor->options.memory_max = reactor->body_bytes + COST(4) - 1;
    offer("[12]");
    is_withheld(0, 0);
    is_busy();
    reactor->options.memory_max++;
    offer("[12]");
    is_withheld(1, COST(4));
    const uint64_t id = heard("[12]");
    reactor->options.memory_max = reactor->body_bytes + 3; /* what it becomes has no room */
    CHECK(produce(id, true, "[12]") == PROBLEM_BUSY);
    is_withheld(1, COST(4));
    CHECK(produce(id, false, "[12]") == PROBLEM_NONE && queued() == 0);
    is_withheld(0, 0);
    is_busy();
    reactor->options.memory_max = most;
}

static void test_what_is_told(void)
{
    offer("{}");
    const uint64_t id = heard("{}");
    for (int times = 0; times < 2; times++) { /* letters, then what is left of it */
        CHECK(produce(id, true, "{\"a\": 1}") == PROBLEM_NONE && queued() == 1);
        is_withheld(1, COST(2));
        store();
        is_told(id, PROBLEM_NONE);
        CHECK(!has_text(table[0], "HTTP"));
    }
    reactor->draining = true;
    CHECK(produce(id, true, "{}") == PROBLEM_NOT_READY && reactor->upcall_count == 0);
    is_withheld(1, COST(2)); /* the answer is the upper layer's */
    CHECK(produce(id, false, "{}") == PROBLEM_NONE && has_text(table[0], "HTTP/1.1 503 "));
    is_withheld(0, 0);
    reactor->draining = false;
    forget_all();
}

static void test_who_has_gone(void)
{
    offer("{}");
    uint64_t id = heard("{}");
    drop(0);
    is_withheld(0, 0);
    is_aborted(id);
    CHECK(produce(id, false, "{}") == PROBLEM_NOT_READY);
    CHECK(produce(id, true, "{}") == PROBLEM_NOT_READY);
    CHECK(queued() == 0);
    connect_one(0, &client_protocol);

    offer("{}");
    id = heard("{}");
    CHECK(produce(id, true, "{}") == PROBLEM_NONE);
    drop(0); /* while it is stored */
    is_withheld(0, 0);
    is_told(id, PROBLEM_UNKNOWN_OUTCOME);
    store();
    CHECK(reactor->upcall_count == 0);
    connect_one(0, &client_protocol);

    offer("{}");
    id = heard("{}");
    CHECK(produce(id, false, "{}") == PROBLEM_NONE);
    drop(0);
    store();
    CHECK(reactor->upcall_count == 0);
    is_withheld(0, 0);
    connect_one(0, &client_protocol);
}

int main(void)
{
    start();
    shard_topic_make(reactor->shard, "t", 1)->checked = true;
    test_it_goes_on();
    test_other_topics_pay_nothing();
    test_bound_of_requests();
    test_bound_of_bytes();
    test_bound_of_memory();
    test_what_is_told();
    test_who_has_gone();
    for (uint32_t index = 0; index < 3; index++)
        drop(index);
    reactor->loop.table = NULL;
    reactor->loop.table_used = reactor->loop.table_capacity = 0;
    reactor_free(reactor);
    return 0;
}
