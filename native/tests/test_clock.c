/* The log's own clock: it goes as fast as time does, whatever wall clocks say, and it goes on at
 * the next leader. */
#include "replica_testing.h"
#include "log/clock.h"

#define SECOND 1000000LL
#define MINUTE (60 * SECOND)
#define MONTH (30LL * 24 * 60 * MINUTE)

/* Time goes by at a member, whose wall clock shows what it likes. */
static void wait_here(struct member *m, int64_t elapsed_us, int64_t wall_us)
{
    for (int64_t step = elapsed_us / 100; elapsed_us > 0; elapsed_us -= step)
        log_tick(m->log, step, wall_us);
}

static enum dedup again(struct member *m, uint8_t producer, uint64_t seq)
{
    uint8_t id[PRODUCER_ID_BYTES];
    struct producer *row;
    uint64_t expected;
    memset(id, producer, sizeof id);
    return shard_dedup(m->shard, stream_of(m, "t", 1), id, 0, seq, false, m->log->clock_us, &row,
                       &expected);
}

static void test_it_begins_and_goes(void)
{
    struct member a;
    join(&a);
    log_tick(a.log, SECOND, NOW);
    CHECK(a.log->clock_us == 0); /* nothing is known of the log yet */
    lead(&a, 2);
    CHECK(a.log->clock_us == NOW);
    log_tick(a.log, SECOND, NOW - MONTH); /* it never goes back, and never stops */
    CHECK(a.log->clock_us == NOW + SECOND);
    log_tick(a.log, 8 * SECOND, NOW + MONTH);
    CHECK(a.log->clock_us == NOW + SECOND + 10 * SECOND);
    log_tick(a.log, 8 * SECOND, NOW + 20 * SECOND); /* not beyond the wall clock */
    CHECK(a.log->clock_us == NOW + 20 * SECOND);
    log_pump(a.log, NOW + MONTH);
    CHECK(a.log->clock_us == NOW + 20 * SECOND);
    leave(&a);
    struct member b;
    for (int i = 0; i < 2; i++) { /* any first wall clock will do */
        join(&b);
        log_clock_begin(b.log, i ? INT64_MAX : -MONTH);
        CHECK(b.log->clock_us > 0 && b.log->clock_us / SECOND < UINT32_MAX);
        leave(&b);
    }
}

/* Promise D5, at a new leader whose wall clock is 21 minutes, or a month, ahead. */
static void test_a_leader_whose_clock_is_ahead_forgets_nobody(void)
{
    for (int i = 0; i < 2; i++) {
        const int64_t wall_us = NOW + (i ? MONTH : 21 * MINUTE);
        struct member a, b, c;
        join(&a);
        join(&b);
        join(&c);
        lead(&a, 2);
        follow(&b, 2);
        wait_here(&b, SECOND, wall_us); /* before it has heard anything of the log */
        replicate(&a, &b);
        put(&a, "t", 1, 10, 7, 0);
        replicate(&a, &b);
        wait_here(&a, 15 * MINUTE, NOW + 15 * MINUTE);
        wait_here(&b, 15 * MINUTE, wall_us + 15 * MINUTE);
        CHECK(b.log->clock_us - NOW <= 15 * MINUTE * 5 / 4 + SECOND);
        /* Its first group is the state of everybody: what it forgets is forgotten. */
        log_begin(b.log, 3, 300, true);
        new_disks(&b, DISKS);
        log_open_generation(b.log, (const uint8_t *)"parents", 7);
        log_pump(b.log, wall_us + 15 * MINUTE);
        follow(&c, 3);
        replicate(&b, &c);
        CHECK(again(&b, 7, 0) == DEDUP_DUPLICATE && again(&c, 7, 0) == DEDUP_DUPLICATE);
        CHECK((uint64_t)c.log->clock_us >= b.log->segments[0].min_time_us && c.log->clock_us > NOW);
        leave(&a);
        leave(&b);
        leave(&c);
    }
}

/* A follower's own reckoning does not add up: each group says anew how late it is. */
static void test_a_follower_goes_by_its_leader(void)
{
    struct member a, b;
    join(&a);
    join(&b);
    lead(&a, 2);
    follow(&b, 2);
    for (int i = 0; i < 100; i++) {
        put(&a, "t", 0, 10, 0, 0);
        replicate(&a, &b);
        CHECK(b.log->clock_us == a.log->clock_us);
        wait_here(&a, 10 * MINUTE, NOW);
        wait_here(&b, 10 * MINUTE, NOW + MONTH);
        CHECK(b.log->clock_us - a.log->clock_us <= 10 * MINUTE / 4);
    }
    CHECK(a.log->clock_us == NOW + 1000 * MINUTE);
    leave(&a);
    leave(&b);
}

static void test_a_producer_is_forgotten_in_the_end(void)
{
    struct member a, b;
    size_t len;
    join(&a);
    join(&b);
    lead(&a, 2);
    follow(&b, 2);
    put(&a, "t", 1, 10, 7, 0);
    replicate(&a, &b);
    wait_here(&a, PRODUCER_IDLE_US + SECOND, NOW - MONTH);
    uint8_t *bytes = shard_snapshot(a.shard, NULL, 0, a.log->clock_us, &len);
    struct shard *fresh = shard_new(0, 8);
    CHECK(shard_restore(fresh, bytes, len) == 0 && fresh->producer_count == 0);
    CHECK(shard_snapshot_time(bytes, len) >= a.log->clock_us &&
          shard_snapshot_time(bytes, len) < a.log->clock_us + SECOND);
    CHECK(shard_snapshot_time(bytes, 31) == 0);
    shard_free(fresh);
    free(bytes);
    leave(&a);
    leave(&b);
}

/* What index entries say of the append is the log's clock too. */
static void test_entries_know_when(void)
{
    struct member a, b;
    join(&a);
    join(&b);
    lead(&a, 2);
    follow(&b, 2);
    for (int i = 0; i < 3; i++) {
        put(&a, "t", 0, 10, 0, 0);
        log_pump(a.log, NOW + MONTH * i);
        replicate(&a, &b);
        wait_here(&a, MINUTE, NOW + MONTH * i);
    }
    const struct stream *one = stream_of(&a, "t", 0), *other = stream_of(&b, "t", 0);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(one->entries[i].appended_s == other->entries[i].appended_s);
        CHECK(one->entries[i].appended_s - NOW / SECOND <= 75 * i);
        CHECK(one->entries[i].appended_s - NOW / SECOND >= 60 * i);
    }
    leave(&a);
    leave(&b);
}

int main(void)
{
    test_it_begins_and_goes();
    test_a_leader_whose_clock_is_ahead_forgets_nobody();
    test_a_follower_goes_by_its_leader();
    test_a_producer_is_forgotten_in_the_end();
    test_entries_know_when();
    return 0;
}
