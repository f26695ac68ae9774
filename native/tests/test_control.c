/* When requests wait for the upper layer, and how many it is given. */
#include <stdlib.h>

#include "admission/control.h"
#include "codec_testing.h"

#define CROWD (ASKING_CROWD + 1)

static struct reactor busy(struct log *log, uint32_t asked)
{
    *log = (struct log){.append_count = 1};
    return (struct reactor){
        .loop.monotonic_us = 1000000, .log = log, .asking = {.count = asked, .gave_us = 1000000}};
}

static void test_a_crowd_waits_for_appends_and_not_for_ever(void)
{
    struct log *log = calloc(1, sizeof *log);
    struct reactor reactor = busy(log, CROWD);
    CHECK(control_held_us(&reactor) == HELD_US_MAX);
    reactor.loop.monotonic_us += HELD_US_MAX - 1;
    CHECK(control_held_us(&reactor) == 1);
    reactor.loop.monotonic_us += 1; /* no append ever ends */
    CHECK(control_held_us(&reactor) == 0);
    reactor.loop.monotonic_us += 1000 * HELD_US_MAX;
    CHECK(control_held_us(&reactor) == 0);
    free(log);
}

static void test_nobody_else_waits(void)
{
    struct log *log = calloc(1, sizeof *log);
    struct reactor reactor = busy(log, CROWD - 1);
    CHECK(control_held_us(&reactor) == 0);
    reactor = busy(log, CROWD);
    log->append_count = 0;
    CHECK(control_held_us(&reactor) == 0);
    log->held_count = 1; /* on its way to a follower */
    CHECK(control_held_us(&reactor) > 0);
    free(log);
}

static void test_less_is_given_where_it_takes_long(void)
{
    struct log *log = calloc(1, sizeof *log);
    struct reactor reactor = busy(log, 0);
    reactor.asking.share = ASKING_SHARE_MAX;
    uint32_t before = ASKING_SHARE_MAX;
    for (int i = 0; i < 10; i++) {
        control_pace(&reactor, AWAY_US_MAX + 1);
        CHECK(reactor.asking.share == (before > 2 ? before / 2 : 1));
        before = reactor.asking.share;
    }
    CHECK(before == 1);
    control_pace(&reactor, AWAY_US_MAX); /* as long as it may be: no more of them */
    CHECK(reactor.asking.share == 1);
    for (int i = 0; i < 100; i++)
        control_pace(&reactor, AWAY_US_MAX / 2 - 1);
    CHECK(reactor.asking.share == ASKING_SHARE_MAX);
    free(log);
}

int main(void)
{
    test_a_crowd_waits_for_appends_and_not_for_ever();
    test_nobody_else_waits();
    test_less_is_given_where_it_takes_long();
    return 0;
}
