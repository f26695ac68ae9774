/* Produces whose values somebody looks at first: how much of them there may be at a time, counted
 * by what they take and not by what came, and that nobody looks on once their client has gone. */
#include "handoff_testing.h"

#include "broker/checked.h"
#include "broker/slots.h"
#include "format/batch.h"
#include "format/keyed.h"
#include "log/shard.h"

#define BATCH "application/vnd.barco.batch"
#define LINES "application/x-ndjson"

static void send_body(const char *kind, const uint8_t *body, size_t len)
{
    char head[256];
    const int head_len = snprintf(head, sizeof head,
                                  "POST /v1/topic/t/messages HTTP/1.1\r\nHost: h\r\n"
                                  "Content-Type: %s\r\nContent-Length: %zu\r\n\r\n", kind, len);
    say(table[0], head, (size_t)head_len);
    say(table[0], (const char *)body, len);
}

/* Of so many events, of nothing or all of one letter: how long it is. */
static size_t make_batch(uint8_t *out, size_t cap, uint32_t count, uint32_t value_len)
{
    struct chunk_sealer *sealer = chunk_sealer_new(1);
    uint32_t *lens = calloc(count, sizeof *lens);
    uint8_t *values = calloc(count, value_len + 1);
    CHECK(lens != NULL && values != NULL);
    for (uint32_t i = 0; i < count; i++)
        lens[i] = value_len;
    struct chunk_columns c = {.count = count, .val_len = lens, .vals = values,
                              .vals_bytes = (size_t)count * value_len};
    const size_t len = batch_seal(sealer, &c, out, cap);
    chunk_sealer_free(sealer);
    CHECK(len > 0 && len <= cap);
    free(lens);
    free(values);
    return len;
}

static uint64_t is_looked_at(void)
{
    CHECK(reactor->upcall_count == 1 && reactor->upcalls[0].kind == UPCALL_CHECK);
    CHECK(reactor->withheld == 1);
    const uint64_t id = reactor->upcalls[0].id;
    free(reactor->upcalls[0].head);
    body_release(reactor->upcalls[0].body);
    reactor->upcall_count = 0;
    return id;
}

static void leave(void)
{
    drop(0);
    reactor->upcall_count = 0; /* UPCALL_ABORTED, which owns nothing */
    connect_one(0, &client_protocol);
}

static void is_refused(const char *type)
{
    CHECK(reactor->upcall_count == 0 && reactor->withheld == 0 && reactor->withheld_bytes == 0);
    CHECK(has_text(table[0], type));
    leave();
}

/* A batch of few bytes may be many values: it is refused before anybody makes them. */
static void test_what_is_too_much_is_not_handed_over(void)
{
    static uint8_t body[1u << 20];
    size_t len = make_batch(body, sizeof body, KEYED_LINES_MAX + 1, 0);
    CHECK(len < 16u << 10);
    send_body(BATCH, body, len);
    is_refused("body-too-large");
    len = make_batch(body, sizeof body, 9, 32u << 10); /* 288 KiB, of 256 */
    CHECK(len < 16u << 10);
    send_body(BATCH, body, len);
    is_refused("body-too-large");
    send_body(BATCH, (const uint8_t *)"no batch", 8);
    is_refused("malformed-batch");
    memset(body, '\n', sizeof body);
    reactor->options.request_bytes_max = sizeof body;
    send_body(LINES, body, KEYED_LINES_MAX + 1);
    is_refused("body-too-large");
    reactor->options.request_bytes_max = 256u << 10;
}

static void test_room_is_of_what_it_takes(void)
{
    static uint8_t body[64u << 10];
    const size_t len = make_batch(body, sizeof body, 3000, 0);
    CHECK(len < 1u << 10);
    send_body(BATCH, body, len);
    is_looked_at();
    CHECK(reactor->withheld_bytes > 3000 * 100); /* a value of Python takes as much, and more */
    leave();
    CHECK(reactor->withheld == 0 && reactor->withheld_bytes == 0);
    send_body(LINES, (const uint8_t *)"1\n2\n3", 5);
    is_looked_at();
    CHECK(reactor->withheld_bytes == 3 * 5 + 3 * 256);
    leave();
    reactor->options.memory_max = 3000 * 100;
    send_body(BATCH, body, len);
    is_refused("busy");
    reactor->options.memory_max = 1u << 20;
}

static void test_nobody_looks_on_for_who_has_gone(void)
{
    send_body(LINES, (const uint8_t *)"1\n", 2);
    const uint64_t id = is_looked_at();
    drop(0);
    CHECK(reactor->upcall_count == 1 && reactor->upcalls[0].kind == UPCALL_ABORTED);
    CHECK(reactor->upcalls[0].id == id);
    reactor->upcall_count = 0;
    connect_one(0, &client_protocol);
}

int main(void)
{
    start();
    struct topic *topic = shard_topic_make(reactor->shard, "t", 1);
    CHECK(topic != NULL);
    topic->checked = topic->declared = true;
    test_what_is_too_much_is_not_handed_over();
    test_room_is_of_what_it_takes();
    test_nobody_looks_on_for_who_has_gone();
    for (uint32_t index = 0; index < 3; index++)
        drop(index);
    reactor->loop.table = NULL;
    reactor->loop.table_used = reactor->loop.table_capacity = 0;
    reactor_free(reactor);
    return 0;
}
