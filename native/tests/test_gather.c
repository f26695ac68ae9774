/* When a leader with followers builds its next group, by a clock of our own. */
#include <stdlib.h>

#include "broker/reactor.h"
#include "codec_testing.h"

#define MS 1000

/* A leader of a busy log: `last` calls in its newest group, and nothing on its way. */
static struct reactor leader(struct log *log, uint32_t last)
{
    *log = (struct log){.gated = true, .open = true, .last_group_runs = last};
    return (struct reactor){.loop.monotonic_us = 1000 * MS, .log = log};
}

static void wait_for(struct log *log, uint32_t runs, uint64_t bytes)
{
    log->queued_runs = runs;
    log->queued_bytes = bytes;
}

/* One group is built, and committed after so long. */
static void round_of(struct reactor *reactor, struct log *log, int64_t us)
{
    log->append_count = 1;
    gather_built(reactor);
    log->append_count = 0;
    log->held_count = 1;
    reactor->loop.monotonic_us += us;
    gather_ended(reactor);
    log->held_count = 0;
    gather_ended(reactor);
}

static void test_small_groups_wait_for_the_one_before(void)
{
    struct log *log = calloc(1, sizeof *log);
    struct reactor reactor = leader(log, 8);
    log->held_count = 1;
    gather_built(&reactor);
    wait_for(log, 3, 3000);
    CHECK(gather_left_us(&reactor) == 1000 * MS);
    reactor.loop.monotonic_us += 1000 * MS; /* no follower says a word */
    CHECK(gather_left_us(&reactor) == 0);
    reactor.loop.monotonic_us -= 1;
    CHECK(gather_left_us(&reactor) == 1);
    wait_for(log, 3, 512 << 10);
    CHECK(gather_left_us(&reactor) == 0);
    free(log);
}

static void test_a_quiet_log_waits_for_nobody(void)
{
    struct log *log = calloc(1, sizeof *log);
    struct reactor reactor = leader(log, 1);
    log->append_count = 1;
    gather_built(&reactor);
    wait_for(log, 2, 2000);
    CHECK(gather_left_us(&reactor) == 0);
    wait_for(log, 3, 3000);
    CHECK(gather_left_us(&reactor) > 0);
    wait_for(log, 0, 0);
    CHECK(gather_left_us(&reactor) == 0);
    wait_for(log, 3, 3000);
    log->gated = false; /* a single broker: what is on its own disk is answered */
    CHECK(gather_left_us(&reactor) == 0);
    free(log);
}

static void test_those_who_were_answered_may_come_back(void)
{
    struct log *log = calloc(1, sizeof *log);
    struct reactor reactor = leader(log, 16);
    for (int i = 0; i < 100; i++)
        round_of(&reactor, log, 2 * MS);
    CHECK(reactor.round_us > MS && reactor.round_us <= 2 * MS);
    const int64_t round_us = reactor.round_us;
    wait_for(log, 13, 13000);
    CHECK(gather_left_us(&reactor) == round_us);
    wait_for(log, 14, 14000); /* almost all */
    CHECK(gather_left_us(&reactor) == 0);
    wait_for(log, 13, 13000);
    reactor.loop.monotonic_us += round_us; /* some never do */
    CHECK(gather_left_us(&reactor) == 0);
    for (int i = 0; i < 100; i++)
        round_of(&reactor, log, 100 * MS);
    CHECK(gather_left_us(&reactor) == 5 * MS);
    free(log);
}

/* What a poll commits goes with what others append, or when it is 20 ms old. */
static void test_what_nobody_waits_for_is_in_no_hurry(void)
{
    struct log *log = calloc(1, sizeof *log);
    struct run *run = run_new(NULL, 0);
    struct reactor reactor = leader(log, 1);
    log->queue_end = &log->queue;
    run->waiter.unhurried = true;
    run->queued_us = reactor.loop.monotonic_us;
    log_enqueue(log, run);
    CHECK(log->queued_unhurried == 1 && gather_left_us(&reactor) == 20 * MS);
    log->held_count = 1; /* also behind others */
    CHECK(gather_left_us(&reactor) == 20 * MS);
    reactor.loop.monotonic_us += 20 * MS;
    CHECK(gather_left_us(&reactor) == 0);
    reactor.loop.monotonic_us -= 1;
    CHECK(gather_left_us(&reactor) == 1);
    log->queued_bytes = 512 << 10;
    CHECK(gather_left_us(&reactor) == 0);
    log->queued_bytes = 0;
    log->queued_runs++; /* of somebody who waits */
    CHECK(gather_left_us(&reactor) == 0);
    run_free(run);
    free(log);
}

int main(void)
{
    test_small_groups_wait_for_the_one_before();
    test_a_quiet_log_waits_for_nobody();
    test_those_who_were_answered_may_come_back();
    test_what_nobody_waits_for_is_in_no_hurry();
    return 0;
}
