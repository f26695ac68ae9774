/* Which produces are traced, how many at a time, and what their groups are noted to have taken. */
#include "core/spans.h"

#include "codec_testing.h"

#define TRACE "0af7651916cd43dd8448eb211c80319c"
#define PARENT "b7ad6b7169203331"
#define SAMPLED "traceparent: 00-" TRACE "-" PARENT "-01\r\n"

static struct reactor *reactor;
static struct topic topic = {.name_len = 6, .name = "orders"};

static void begin(uint64_t share)
{
    reactor = calloc(1, sizeof *reactor);
    CHECK(reactor != NULL && (reactor->log = calloc(1, sizeof *reactor->log)) != NULL);
    reactor->log->options.epoch = 3;
    CHECK(spans_begin(reactor, share));
}

static void end(void)
{
    spans_free(reactor);
    CHECK(reactor->spans == NULL);
    free(reactor->log);
    free(reactor);
}

static struct slot opened(const char *fields)
{
    char text[1024];
    struct http1_request head;
    struct slot slot = {.topic = &topic, .begun_us = 1000};
    const int len = snprintf(text, sizeof text, "POST / HTTP/1.1\r\nHost: h\r\n%s\r\n", fields);
    CHECK(http1_parse_head(text, (size_t)len, 0, &head) == len);
    span_open(reactor, &head, &slot);
    return slot;
}

static bool is_traced(const char *fields)
{
    struct slot slot = opened(fields);
    const bool traced = slot.span != NULL;
    span_drop(reactor, &slot);
    CHECK(slot.span == NULL && reactor->spans->open == 0);
    return traced;
}

static void test_who_is_traced(void)
{
    begin(0);
    struct slot slot = opened("TraceParent: 00-" TRACE "-" PARENT "-01\r\n");
    CHECK(slot.span != NULL && slot.span->has_parent && slot.span->topic_len == 6);
    CHECK(slot.span->trace[0] == 0x0a && slot.span->trace[15] == 0x9c);
    CHECK(slot.span->parent[0] == 0xb7 && slot.span->parent[7] == 0x31);
    span_drop(reactor, &slot);
    CHECK(!is_traced("") && !is_traced(SAMPLED SAMPLED) && !is_traced("traceparenu: 0\r\n"));
    CHECK(!is_traced("traceparent: 00-" TRACE "-" PARENT "-00\r\n"));
    CHECK(!is_traced("traceparent: 00-" TRACE "-" PARENT "\r\n"));
    end();
    begin(1ull << 32); /* all that say nothing */
    CHECK(is_traced("") && is_traced(SAMPLED) && is_traced("traceparent: x\r\n"));
    CHECK(!is_traced("traceparent: 00-" TRACE "-" PARENT "-00\r\n"));
    slot = opened("");
    CHECK(!slot.span->has_parent);
    span_drop(reactor, &slot);
    end();
}

static void test_bounds(void)
{
    static struct slot slots[SPANS_OPEN_MAX];
    begin(0);
    for (uint32_t i = 0; i < SPANS_OPEN_MAX; i++)
        CHECK((slots[i] = opened(SAMPLED)).span != NULL);
    struct slot more = opened(SAMPLED);
    CHECK(more.span == NULL && reactor->spans->lost == 1);
    for (uint32_t i = 0; i < SPANS_OPEN_MAX; i++) {
        slots[i].kind = SLOT_PRODUCED;
        slots[i].part_count = 1;
        slots[i].part.count = 7;
        span_answered(reactor, &slots[i], 200);
        CHECK(slots[i].span == NULL);
    }
    CHECK(reactor->spans->open == 0 && reactor->spans->count == SPANS_KEPT_MAX);
    CHECK(reactor->spans->kept[0].events == 7 && reactor->spans->kept[0].status == 200);
    more = opened(SAMPLED);
    more.kind = SLOT_PROBLEM;
    span_answered(reactor, &more, 503); /* nobody has taken the others */
    CHECK(reactor->spans->lost == 2 && reactor->spans->count == SPANS_KEPT_MAX);
    spans_taken(reactor);
    more = opened(SAMPLED);
    span_answered(reactor, &more, 400);
    CHECK(reactor->spans->count == 1 && reactor->spans->kept[0].events == 0);
    end();
}

static const struct span_group *group(uint64_t gseq)
{
    const struct span_group *found = &reactor->spans->groups[gseq & (BUILT_KEPT - 1)];
    return found->gseq == gseq ? found : NULL;
}

static void test_groups(void)
{
    begin(0);
    span_group_written(reactor, 5, 1); /* it began before anybody asked */
    CHECK(group(5) == NULL);
    span_group_built(reactor, 5, 100);
    span_group_built(reactor, 6, 110);
    span_group_written(reactor, 5, 90); /* by the clock of the turn */
    span_group_written(reactor, 6, 150);
    CHECK(group(5)->written_us == 100 && group(6)->written_us == 150);
    reactor->log->replicated = 4;
    span_groups_replicated(reactor, 5, 200);
    reactor->log->replicated = 5;
    span_groups_replicated(reactor, 6, 210);
    span_groups_replicated(reactor, 6, 220);
    CHECK(group(5)->replicated_us == 200 && group(6)->replicated_us == 210);
    span_group_built(reactor, 5 + BUILT_KEPT, 300); /* in its place */
    span_groups_replicated(reactor, 6 + 1000 * BUILT_KEPT, 400); /* and not a long look */
    CHECK(group(5) == NULL && group(5 + BUILT_KEPT)->replicated_us == 0);
    reactor->log->options.epoch = 4; /* another generation's are others */
    span_group_written(reactor, 5 + BUILT_KEPT, 500);
    CHECK(group(5 + BUILT_KEPT)->written_us == 0);
    end();
}

int main(void)
{
    test_who_is_traced();
    test_bounds();
    test_groups();
    return 0;
}
