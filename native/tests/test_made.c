/* What the upper layer produces of a request: how that ends is told once, whatever happens, and the
 * answer is the upper layer's. */
#include "handoff_testing.h"

#include "admission/control.h"
#include "broker/made.h"
#include "broker/park.h"
#include "broker/slots.h"
#include "format/batch.h"

#define MOST_MS 4000

/* A client asks, and the upper layer has it: its id. */
static uint64_t ask(void)
{
    static const char request[] = "POST /services/collector/event HTTP/1.1\r\nHost: h\r\n"
                                  "Content-Length: 2\r\n\r\n{}";
    say(table[0], request, sizeof request - 1);
    control_give_up(reactor);
    CHECK(reactor->upcall_count == 1 && reactor->upcalls[0].kind == UPCALL_REQUEST);
    const uint64_t id = reactor->upcalls[0].id;
    free(reactor->upcalls[0].head);
    body_release(reactor->upcalls[0].body);
    reactor->upcall_count = 0;
    return id;
}

/* A batch of events without keys. */
static uint16_t produce(uint64_t id, const char *topic, uint32_t count)
{
    uint32_t lens[4] = {1, 1, 1, 1};
    const uint8_t values[] = "abcd";
    struct chunk_columns c = {.count = count, .val_len = lens, .vals = values, .vals_bytes = count};
    uint8_t batch[512];
    const size_t len = batch_seal(NULL, &c, batch, sizeof batch);
    CHECK(len > 0 && count <= 4);
    return made_produce(reactor, id, topic, strlen(topic), false, -1, batch, len);
}

/* The only upcall of its kind. */
static void is_told(uint64_t id, uint16_t problem)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < reactor->upcall_count; i++) {
        if (reactor->upcalls[i].kind != UPCALL_PRODUCED)
            continue;
        CHECK(reactor->upcalls[i].id == id && reactor->upcalls[i].status == problem);
        found++;
    }
    CHECK(found == 1);
    reactor->upcall_count = 0;
}

static struct slot *slot_of(uint64_t id)
{
    struct conn *conn;
    uint32_t number;
    return slot_of_request(reactor, id, &conn, &number);
}

/* Each of three processes leads its slices, or nobody any. */
static void route_all(bool led)
{
    for (uint32_t peer = 0; peer < 3; peer++)
        CHECK(reactor_set_route(reactor, peer * 8, 8, led ? (int32_t)peer : ROUTE_NONE,
                                led ? "h:1" : "") == 0);
    park_tend(reactor);
}

/* What is queued is gathered, not as it came, and stored. */
static void store_made(void)
{
    CHECK(reactor->log->queue != NULL && !reactor->log->queue->sealed);
    store();
}

static void test_what_is_stored_is_told(void)
{
    route_all(true);
    const uint64_t id = ask();
    for (uint32_t count = 1; count < 4; count++) { /* one after the other, of one request */
        CHECK(produce(id, "t", count) == PROBLEM_NONE && reactor->upcall_count == 0);
        CHECK(slot_of(id)->waiting == 1);
        store_made();
        is_told(id, PROBLEM_NONE);
        CHECK(slot_of(id) != NULL && slot_of(id)->waiting == 0 && !has_text(table[0], "HTTP"));
    }
    forget_all();
}

static void test_what_is_refused_at_once_is_not_told(void)
{
    const uint64_t id = ask();
    CHECK(produce(id, "a b", 1) == PROBLEM_BAD_TOPIC);
    CHECK(produce(id, "__x", 1) == PROBLEM_RESERVED_TOPIC);
    CHECK(made_produce(reactor, id, "t", 1, false, -1, (const uint8_t *)"x", 1) ==
          PROBLEM_BAD_BATCH);
    CHECK(made_produce(reactor, id, "t", 1, false, ring_slices(reactor), (const uint8_t *)"x", 1) ==
          PROBLEM_BAD_SLICE);
    reactor->draining = true;
    CHECK(produce(id, "t", 1) == PROBLEM_NOT_READY);
    reactor->draining = false;
    CHECK(produce(id + 1, "t", 1) == PROBLEM_NOT_READY); /* of nobody */
    CHECK(reactor->upcall_count == 0 && slot_of(id)->waiting == 0);
    CHECK(produce(id, "t", 1) == PROBLEM_NONE);
    store_made();
    is_told(id, PROBLEM_NONE);
}

static void test_a_leader_is_awaited(void)
{
    const uint64_t id = ask();
    route_all(false);
    CHECK(produce(id, "t", 1) == PROBLEM_NONE && reactor->park.count == 1);
    reactor->loop.now_ms += MOST_MS + 1;
    park_tend(reactor);
    is_told(id, PROBLEM_NOT_READY);
    route_all(true);
    CHECK(produce(id, "t", 2) == PROBLEM_NONE); /* and what was wrong is forgotten */
    store_made();
    is_told(id, PROBLEM_NONE);
    forget_all();
}

static void test_who_has_gone_is_told_of(void)
{
    const uint64_t parked = ask();
    route_all(false);
    reactor->loop.now_ms += 1;
    for (uint32_t i = 0; reactor->park.lanes != NULL && i < 24; i++)
        reactor->park.lanes[i].shut_ms = 0;
    CHECK(produce(parked, "t", 1) == PROBLEM_NONE && reactor->park.count == 1);
    drop(0);
    is_told(parked, PROBLEM_UNKNOWN_OUTCOME);
    CHECK(reactor->park.count == 0);
    connect_one(0, &client_protocol);
    route_all(true);
    const uint64_t queued = ask();
    CHECK(produce(queued, "t", 1) == PROBLEM_NONE);
    drop(0);
    is_told(queued, PROBLEM_UNKNOWN_OUTCOME);
    store_made();
    CHECK(reactor->upcall_count == 0); /* not a second time */
    connect_one(0, &client_protocol);
    const uint64_t idle = ask();
    drop(0); /* nothing is produced: nobody waits for that */
    for (uint32_t i = 0; i < reactor->upcall_count; i++)
        CHECK(reactor->upcalls[i].kind == UPCALL_ABORTED && reactor->upcalls[i].id == idle);
    reactor->upcall_count = 0;
    connect_one(0, &client_protocol);
}

int main(void)
{
    start();
    reactor->park.most_ms = MOST_MS;
    reactor->loop.now_ms = 1000000;
    test_what_is_stored_is_told();
    test_what_is_refused_at_once_is_not_told();
    test_a_leader_is_awaited();
    test_who_has_gone_is_told_of();
    for (uint32_t index = 0; index < 3; index++)
        drop(index);
    reactor->loop.table = NULL;
    reactor->loop.table_used = reactor->loop.table_capacity = 0;
    reactor_free(reactor);
    return 0;
}
