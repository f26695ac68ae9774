/* Leader and followers on disks that the test plays: what waits for whom, what a follower takes and
 * what it refuses, and one log that follows, leads and follows again. */
#include "base/crc32c.h"
#include "format/chunk.h"
#include "format/group.h"
#include "log/replica.h"
#include "replica_testing.h"

static void test_answers_wait_for_a_follower(void)
{
    struct member a;
    join(&a);
    lead(&a, 2);
    settle(&a);
    put(&a, "t", 0, 100, 1, 0);
    put(&a, "t", 0, 100, 1, 0); /* a duplicate waits with its original */
    log_pump(a.log, NOW);
    settle(&a);
    CHECK(a.log->stable_gseq == 2 && log_committed(a.log) == 0 && a.answered == 0);
    CHECK(stream_of(&a, "t", 0)->stable_offset == 0 && a.log->held_bytes > 0);
    put(&a, "t", 0, 100, 1, 0); /* and one that comes when nothing is being written as well */
    log_pump(a.log, NOW);
    CHECK(a.answered == 0 && a.log->queue == NULL && !log_idle(a.log));
    log_replicated(a.log, 1);
    CHECK(a.answered == 0);
    log_replicated(a.log, 7); /* no more than is stable here */
    CHECK(a.answered == 3 && log_committed(a.log) == 2 && a.log->held_bytes == 0);
    CHECK(stream_of(&a, "t", 0)->stable_offset == 1 && log_idle(a.log));
    put(&a, "t", 0, 100, 1, 1);
    log_pump(a.log, NOW);
    CHECK(a.answered == 3);
    complete(&a, 0); /* the follower was faster: stable here is what was missing */
    CHECK(a.answered == 4);
    leave(&a);
}

static void test_uncommitted_groups_are_bounded(void)
{
    struct member a;
    join(&a);
    lead(&a, 2);
    settle(&a);
    for (int i = 0; i < 200; i++) {
        put(&a, "t", 0, 100, 0, 0);
        log_pump(a.log, NOW);
        settle(&a);
    }
    CHECK(a.log->held_count == HELD_BUILD_MAX && a.log->queue != NULL && a.submitted_count == 0);
    log_replicated(a.log, a.log->stable_gseq);
    settle(&a);
    log_replicated(a.log, a.log->stable_gseq);
    CHECK(a.answered == 200 && log_idle(a.log));
    leave(&a);
}

static void test_a_follower_holds_the_same(void)
{
    struct member a, b;
    join(&a);
    join(&b);
    lead(&a, 2);
    follow(&b, 2);
    for (uint64_t i = 0; i < 300; i++) { /* over several segments */
        put(&a, i % 3 ? "t" : "__c", i % 8, 30000 + i * 13, i % 3 ? 0 : 7, i / 24);
        if (i % 5 == 0)
            replicate(&a, &b);
    }
    replicate(&a, &b);
    CHECK(a.answered == 300 && a.log->current > 1 && b.closed == a.closed && b.closed > 1);
    check_same(&a, &b);
    const struct stream *one = stream_of(&a, "t", 1), *other = stream_of(&b, "t", 1);
    CHECK(one->stable_offset == other->stable_offset && one->entry_count == other->entry_count);
    for (uint32_t i = 0; i < one->entry_count; i++)
        CHECK(one->entries[i].log_pos == other->entries[i].log_pos &&
              memcmp(log_memory(a.log, one->entries[i].log_pos),
                     log_memory(b.log, other->entries[i].log_pos),
                     one->entries[i].stored_bytes) == 0);
    leave(&a);
    leave(&b);
}

static void test_a_follower_shows_what_is_committed(void)
{
    struct member a, b;
    join(&a);
    join(&b);
    lead(&a, 2);
    follow(&b, 2);
    replicate(&a, &b);
    put(&a, "t", 0, 100, 0, 0);
    log_pump(a.log, NOW);
    CHECK(hand(&b, &a, 2) == FOREIGN_TAKEN);
    CHECK(stream_of(&b, "t", 0)->next_offset == 1 && stream_of(&b, "t", 0)->stable_offset == 0);
    log_replicated(b.log, 2); /* the leader and the third have it: not stable here */
    CHECK(stream_of(&b, "t", 0)->stable_offset == 0);
    settle(&b);
    CHECK(stream_of(&b, "t", 0)->stable_offset == 1);
    leave(&a);
    leave(&b);
}

/* It fetches more than it may hold, of a leader that died before it could say what is committed. */
static void test_a_follower_that_is_told_nothing_takes_everything(void)
{
    struct member a, b;
    const uint64_t groups = 2 * HELD_MAX + 10;
    join(&a);
    join(&b);
    lead(&a, 2);
    settle(&a);
    for (uint64_t gseq = 2; gseq <= groups; gseq++) {
        put(&a, "t", (uint32_t)gseq % 3, 100, 0, 0);
        log_pump(a.log, NOW);
        settle(&a);
        log_replicated(a.log, gseq);
    }
    follow(&b, 2);
    for (uint64_t gseq = 1; gseq <= groups; gseq++) {
        CHECK(hand(&b, &a, gseq) == FOREIGN_TAKEN);
        settle(&b);
    }
    CHECK(b.log->stable_gseq == groups && b.log->held_count == HELD_MAX);
    for (uint32_t slice = 0; slice < 3; slice++)
        CHECK(stream_of(&b, "t", slice)->stable_offset == 0);
    log_replicated(b.log, groups - 3); /* the last three show one event of each slice */
    for (uint32_t slice = 0; slice < 3; slice++)
        CHECK(stream_of(&b, "t", slice)->stable_offset ==
              stream_of(&a, "t", slice)->stable_offset - 1);
    log_replicated(b.log, groups);
    for (uint32_t slice = 0; slice < 3; slice++)
        CHECK(stream_of(&b, "t", slice)->stable_offset ==
              stream_of(&a, "t", slice)->stable_offset);
    CHECK(b.log->held_count == 0 && b.log->events == a.log->events);
    check_same(&a, &b);
    leave(&a);
    leave(&b);
}

/* Its leader's segments are smaller: it goes on to the next one long before its own is full. */
static void test_a_follower_asks_for_the_segment_that_it_needs(void)
{
    struct member a, b;
    join(&a);
    join(&b);
    log_begin(a.log, 2, 200, true);
    for (uint32_t i = 0; i < 2; i++) {
        a.disk[i] = calloc(1, DISK_BYTES);
        log_add_segment(a.log, i, (int)i, i ? DISK_BYTES : 64 << 10);
    }
    log_open_generation(a.log, (const uint8_t *)"parents", 7);
    log_pump(a.log, NOW);
    put(&a, "t", 0, 100000, 0, 0); /* not in the first segment */
    log_pump(a.log, NOW);
    settle(&a);
    CHECK(a.log->current == 1);
    log_begin(b.log, 2, 200, true);
    b.disk[0] = calloc(1, DISK_BYTES);
    log_add_segment(b.log, 0, 0, DISK_BYTES);
    log_follow(b.log);
    CHECK(hand(&b, &a, 1) == FOREIGN_TAKEN && b.wanted <= 1);
    b.wanted = 0;
    CHECK(hand(&b, &a, 2) == FOREIGN_WAIT && b.wanted == 1);
    CHECK(hand(&b, &a, 2) == FOREIGN_WAIT && b.wanted == 1);
    leave(&a);
    leave(&b);
}

static void test_what_a_follower_refuses(void)
{
    struct member a, b;
    join(&a);
    join(&b);
    lead(&a, 2);
    follow(&b, 2);
    replicate(&a, &b);
    for (int i = 0; i < 2; i++) {
        put(&a, "t", 0, 5000, 0, 0);
        log_pump(a.log, NOW);
    }
    CHECK(hand(&b, &a, 3) == FOREIGN_GAP && hand(&b, &a, 1) == FOREIGN_GAP);
    a.sent[2][GROUP_HEADER_BYTES + 700] ^= 1;
    CHECK(hand(&b, &a, 2) == FOREIGN_DAMAGED);
    a.sent[2][GROUP_HEADER_BYTES + 700] ^= 1;
    a.sent[2][40] ^= 1;
    CHECK(hand(&b, &a, 2) == FOREIGN_DAMAGED);
    a.sent[2][40] ^= 1;
    CHECK(log_take(b.log, a.sent[2], a.sent_bytes[2] - GROUP_ALIGN) == FOREIGN_DAMAGED);
    b.log->options.session++;
    CHECK(hand(&b, &a, 2) == FOREIGN_STRANGE);
    b.log->options.session--;
    b.log->options.cluster_uuid[3] ^= 1;
    CHECK(hand(&b, &a, 2) == FOREIGN_STRANGE);
    b.log->options.cluster_uuid[3] ^= 1;
    CHECK(b.log->next_gseq == 2 && stream_of(&b, "t", 0) == NULL);
    CHECK(hand(&b, &a, 2) == FOREIGN_TAKEN);
    log_drain(b.log);
    CHECK(hand(&b, &a, 3) == FOREIGN_CLOSED && !log_settled(b.log));
    settle(&b);
    CHECK(log_settled(b.log) && b.log->stable_gseq == 2);
    leave(&a);
    leave(&b);
}

/* A leader that lies: the group's checksums are right, and what it says cannot be. */
static void test_a_stream_that_comes_again_in_a_group(void)
{
    for (int lie = 0; lie < 3; lie++) {
        struct member a, b;
        struct group_header h;
        struct chunk_view chunk;
        join(&a);
        join(&b);
        lead(&a, 2);
        follow(&b, 2);
        replicate(&a, &b);
        put(&a, "t", 0, 100, 0, 0);
        put(&a, "t", 1, 100, 0, 0);
        log_pump(a.log, NOW);
        uint8_t *group = a.sent[2], *body = group + GROUP_HEADER_BYTES;
        CHECK(group_header_read(group, a.sent_bytes[2], &h) == 0 && h.chunk_count == 2);
        if (lie == 1) { /* the first one again, behind the second */
            CHECK(chunk_open(body, h.body_bytes, &chunk) == 0);
            CHECK(GROUP_HEADER_BYTES + h.body_bytes + chunk.stored_bytes <= h.group_bytes);
            memcpy(body + h.body_bytes, body, chunk.stored_bytes);
            h.body_bytes += chunk.stored_bytes;
            h.chunk_count++;
        } else if (lie == 2) {
            h.log_us = UINT64_MAX - 5; /* before all times */
        }
        h.body_crc = crc32c(0, body, h.body_bytes);
        group_header_write(&h, group);
        CHECK(hand(&b, &a, 2) == (lie ? FOREIGN_DAMAGED : FOREIGN_TAKEN));
        CHECK(b.log->next_gseq == (lie ? 2 : 3) && b.log->clock_us >= 0);
        CHECK(lie == 0 || stream_of(&b, "t", 0) == NULL || stream_of(&b, "t", 0)->entry_count == 0);
        leave(&a);
        leave(&b);
    }
}

/* Rule S5 for the follower's files: a header's durable_upto is true on its own disk. */
static void test_durable_upto_holds_on_every_disk(void)
{
    struct member a, b;
    join(&a);
    join(&b);
    lead(&a, 2);
    follow(&b, 2);
    for (uint64_t i = 0; i < 12; i++) {
        put(&a, "t", 0, 100, 0, 0);
        log_pump(a.log, NOW);
        if (a.submitted_count > 0)
            complete(&a, 0);
    }
    for (uint64_t gseq = 1; gseq < a.log->next_gseq; gseq++)
        CHECK(hand(&b, &a, gseq) == FOREIGN_TAKEN);
    CHECK(b.log->unsubmitted > 0);
    while (b.submitted_count > 0) {
        const struct append *newest = b.submitted[b.submitted_count - 1];
        struct group_header h;
        CHECK(group_header_read(log_memory(b.log, newest->pos), newest->bytes, &h) == 0);
        CHECK(h.durable_upto <= b.log->stable_gseq);
        complete(&b, b.submitted_count - 1); /* whatever the order */
    }
    CHECK(b.log->stable_gseq == a.log->next_gseq - 1 && b.log->unsubmitted == 0);
    leave(&a);
    leave(&b);
}

/* What would be restored is written together, however its headers depend on each other. */
static void test_kept_groups_go_together(void)
{
    struct member a, b;
    join(&a);
    join(&b);
    lead(&a, 2);
    settle(&a);
    follow(&b, 2);
    for (uint64_t i = 0; i < 20; i++) {
        put(&a, "t", 0, 8000, 0, 0);
        log_pump(a.log, NOW);
        settle(&a); /* each says that the one before it is stable */
    }
    for (uint64_t gseq = 1; gseq <= 21; gseq++)
        CHECK(hand(&b, &a, gseq) == FOREIGN_TAKEN);
    CHECK(b.submitted_count == 1 && b.log->unsubmitted == 20);
    log_kept(b.log, 16);
    CHECK(b.submitted_count == 2 && b.submitted[1]->gseq == 16 && b.log->unsubmitted == 5);
    complete(&b, 1); /* whatever the order */
    CHECK(b.log->stable_gseq == 0);
    complete(&b, 0);
    CHECK(b.log->stable_gseq == 16);
    settle(&b);
    CHECK(b.log->stable_gseq == 21 && log_settled(b.log) && !b.log->failed);
    CHECK(memcmp(a.disk[0], b.disk[0], DISK_BYTES) == 0);
    follow(&b, 3);
    CHECK(b.log->kept == 0);
    leave(&a);
    leave(&b);
}

static void test_a_fence(void)
{
    struct member a;
    join(&a);
    lead(&a, 2);
    settle(&a);
    log_replicated(a.log, 1);
    put(&a, "t", 0, 100, 1, 0);
    log_pump(a.log, NOW);
    settle(&a); /* held */
    for (int i = 0; i < 3; i++) {
        put(&a, "t", 0, 100, 0, 0);
        log_pump(a.log, NOW);
    }
    CHECK(a.submitted_count == APPENDS_IN_FLIGHT);
    put(&a, "t", 0, 100, 0, 0); /* in no group */
    put(&a, "t", 0, 100, 1, 0); /* in no group either, but its original is */
    log_drain(a.log);
    log_pump(a.log, NOW);
    CHECK(a.unknown == 0 && a.refused == 0);
    log_fence(a.log);
    CHECK(a.answered == 0 && a.unknown == 5 && a.refused == 1);
    log_replicated(a.log, 99);
    settle(&a);
    CHECK(a.answered == 0 && a.log->stable_gseq == 5 && log_settled(a.log) && log_idle(a.log));
    log_heartbeat(a.log, NOW, GROUP_SEAL);
    CHECK(a.submitted_count == 0);
    leave(&a);
}

/* A call that was in no group is answered "not written": its retry must be stored, also when the
 * same process leads on and takes its state for the history's. */
static void test_what_only_waited_never_happened(void)
{
    struct member a;
    join(&a);
    lead(&a, 2);
    for (uint8_t producer = 1; producer <= 40; producer += 2)
        put(&a, "t", producer % 8, 100, producer, 0);
    settle(&a);
    log_replicated(a.log, a.log->stable_gseq);
    const uint32_t known = a.shard->producer_count, answered = a.answered;
    log_drain(a.log);
    for (uint8_t producer = 1; producer <= 40; producer++) /* every other one is new */
        put(&a, "t", producer % 8, 100, producer, producer % 2);
    log_pump(a.log, NOW);
    log_fence(a.log);
    CHECK(a.refused == 40 && a.unknown == 0 && a.shard->producer_count == known);
    lead(&a, 3);
    for (uint8_t producer = 1; producer <= 40; producer++)
        put(&a, "t", producer % 8, 100, producer, producer % 2);
    settle(&a);
    log_replicated(a.log, a.log->stable_gseq);
    CHECK(a.answered == answered + 40);
    uint64_t events = 0;
    for (uint32_t slice = 0; slice < 8; slice++)
        events += stream_of(&a, "t", slice)->stable_offset;
    CHECK(events == 60);
    leave(&a);
}

static void refuse(struct member *m, const char *name, uint32_t slice)
{
    struct run *run = run_new(stream_of_new(m, name, slice), 0);
    CHECK(run != NULL);
    run->problem = 1;
    log_enqueue(m->log, run);
}

/* "No" is final for a client: whoever was deposed meanwhile must not say it. */
static void test_a_refusal_waits_for_a_group_of_its_own(void)
{
    struct member a, b;
    join(&a);
    join(&b);
    lead(&a, 2);
    follow(&b, 2);
    replicate(&a, &b);
    refuse(&a, "t", 0);
    log_pump(a.log, NOW);
    settle(&a);
    CHECK(a.answered == 0 && a.log->next_gseq == 3);
    put(&a, "t", 0, 100, 0, 0);
    refuse(&a, "t", 0);
    log_pump(a.log, NOW);
    CHECK(a.log->next_gseq == 4); /* behind events it needs no other */
    replicate(&a, &b);
    CHECK(a.answered == 3 && log_idle(a.log) && b.log->next_gseq == 4);
    check_same(&a, &b);
    refuse(&a, "t", 0);
    log_pump(a.log, NOW);
    refuse(&a, "t", 0);
    log_fence(a.log);
    CHECK(a.answered == 3 && a.unknown == 2);
    settle(&a);
    leave(&a);
    leave(&b);
}

/* Follower of 2, leader of 3, follower of 4; the leader of 2 comes back with a group too many. */
static void test_generations_in_one_log(void)
{
    struct member a, b;
    join(&a);
    join(&b);
    lead(&a, 2);
    follow(&b, 2);
    for (uint64_t i = 0; i < 20; i++)
        put(&a, "t", i % 8, 2000, 1, i / 8), replicate(&a, &b);
    put(&a, "t", 0, 100, 2, 0); /* B never gets it */
    put(&a, "late", 0, 100, 2, 0);
    log_pump(a.log, NOW);
    settle(&a);
    const struct topic *kept = shard_topic(a.shard, "t", 1);
    log_fence(a.log);
    log_fence(b.log);
    CHECK(a.unknown == 2);
    lead(&b, 3);
    CHECK(stream_of(&b, "t", 0)->stable_offset == stream_of(&b, "t", 0)->next_offset);
    follow(&a, 3);
    replicate(&b, &a);
    CHECK(shard_topic(a.shard, "t", 1) == kept && kept->streams[0]->topic == kept);
    CHECK(stream_of(&a, "t", 0)->next_offset == stream_of(&b, "t", 0)->next_offset);
    CHECK(stream_of(&a, "t", 0)->entry_count == stream_of(&a, "t", 0)->next_offset);
    CHECK(stream_of(&a, "late", 0) == NULL && shard_topic(a.shard, "late", 4) != NULL);
    put(&b, "t", 0, 100, 2, 0); /* its retry: new, as it never became history */
    replicate(&b, &a);
    CHECK(b.answered == 1 && stream_of(&a, "t", 0)->stable_offset ==
                                 stream_of(&b, "t", 0)->stable_offset);
    log_fence(a.log);
    log_fence(b.log);
    lead(&a, 4);
    follow(&b, 4);
    put(&a, "t", 3, 100, 2, 0);
    replicate(&a, &b);
    CHECK(a.log->options.session == 400 && a.answered == 21);
    for (uint32_t i = 0; i < DISKS; i++)
        CHECK(memcmp(a.disk[i], b.disk[i], DISK_BYTES) == 0);
    leave(&a);
    leave(&b);
}

static void test_a_generation_that_goes_on_after_a_restart(void)
{
    struct member a, b, c;
    join(&a);
    join(&b);
    lead(&a, 2);
    follow(&b, 2);
    for (uint64_t i = 0; i < 20; i++) {
        put(&a, "t", i % 8, 2000, 1, i / 8);
        replicate(&a, &b);
    }
    CHECK(b.log->current == 0);
    join(&c);
    log_begin(c.log, 2, 200, true);
    for (uint32_t i = 0; i < DISKS; i++) {
        c.disk[i] = malloc(DISK_BYTES);
        memcpy(c.disk[i], b.disk[i], DISK_BYTES);
    }
    log_load_segment(c.log, 0, 0, DISK_BYTES);
    struct group_header h;
    for (uint64_t at = 0; group_header_read(c.disk[0] + at, DISK_BYTES - at, &h) == 0;
         at += h.group_bytes)
        CHECK(log_load_group(c.log, c.disk[0] + at, h.group_bytes) == 0);
    log_add_segment(c.log, 1, 1, DISK_BYTES);
    log_follow(c.log);
    CHECK(c.log->next_gseq == b.log->next_gseq && c.log->stable_gseq == b.log->stable_gseq);
    /* What the last header called committed is shown, the rest when the leader says so. */
    CHECK(stream_of(&c, "t", 3)->stable_offset + 1 == stream_of(&c, "t", 3)->next_offset);
    CHECK(log_memory_low(c.log) == c.log->head);
    put(&a, "t", 0, 100, 3, 0);
    settle(&a);
    CHECK(hand(&b, &a, a.log->next_gseq - 1) == FOREIGN_TAKEN);
    replicate(&a, &c);
    settle(&b);
    check_same(&b, &c);
    CHECK(stream_of(&c, "t", 3)->stable_offset == stream_of(&a, "t", 3)->stable_offset);
    leave(&a);
    leave(&b);
    leave(&c);
}

/* The first group of a generation is its state. A second one would free what waits to be shown:
 * whoever leads may say anything. */
static void test_a_state_in_the_middle(void)
{
    struct member a, b, c;
    join(&a);
    join(&b);
    join(&c);
    lead(&a, 2);
    follow(&b, 2);
    put(&a, "t", 0, 100, 1, 0);
    settle(&a);
    CHECK(hand(&b, &a, 1) == FOREIGN_TAKEN && hand(&b, &a, 2) == FOREIGN_TAKEN);
    CHECK(b.log->held_count == 2);
    const uint32_t bytes = a.sent_bytes[1];
    uint8_t *again = exact_copy(a.sent[1], bytes);
    struct group_header h;
    CHECK(group_header_read(again, bytes, &h) == 0 && (h.flags & GROUP_GEN_START));
    h.gseq = b.log->next_gseq;
    h.prev_crc = b.log->prev_crc;
    h.segment_index = 1;
    h.durable_upto = h.committed = 0;
    group_header_write(&h, again);
    CHECK(log_take(b.log, again, bytes) == FOREIGN_DAMAGED);
    settle(&b);
    log_replicated(b.log, b.log->stable_gseq);
    CHECK(stream_of(&b, "t", 0)->stable_offset == 1);
    /* Nor is a generation that begins with anything else. */
    follow(&c, 2);
    h.gseq = 1;
    h.flags = GROUP_SNAPSHOT;
    h.prev_crc = h.segment_index = 0;
    group_header_write(&h, again);
    CHECK(log_take(c.log, again, bytes) == FOREIGN_DAMAGED);
    /* Recovery of a file that has one all the same: what waits leads into a state that goes. */
    leave(&c);
    join(&c);
    log_begin(c.log, 2, 200, true);
    log_load_segment(c.log, 0, 0, DISK_BYTES);
    for (uint64_t gseq = 1; gseq < a.log->next_gseq; gseq++)
        CHECK(log_load_group(c.log, a.sent[gseq], a.sent_bytes[gseq]) == 0);
    h.flags = GROUP_SNAPSHOT;
    h.gseq = c.log->next_gseq;
    h.prev_crc = c.log->prev_crc;
    group_header_write(&h, again);
    CHECK(log_load_group(c.log, again, bytes) == 0);
    log_replicated(c.log, c.log->stable_gseq);
    free(again);
    leave(&a);
    leave(&b);
    leave(&c);
}

int main(void)
{
    test_a_state_in_the_middle();
    test_answers_wait_for_a_follower();
    test_uncommitted_groups_are_bounded();
    test_a_follower_holds_the_same();
    test_a_follower_shows_what_is_committed();
    test_a_follower_that_is_told_nothing_takes_everything();
    test_a_follower_asks_for_the_segment_that_it_needs();
    test_what_a_follower_refuses();
    test_a_stream_that_comes_again_in_a_group();
    test_durable_upto_holds_on_every_disk();
    test_kept_groups_go_together();
    test_a_fence();
    test_what_only_waited_never_happened();
    test_a_refusal_waits_for_a_group_of_its_own();
    test_generations_in_one_log();
    test_a_generation_that_goes_on_after_a_restart();
    return 0;
}
