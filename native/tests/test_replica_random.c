/* Random calls through a leader and two followers: whatever group it builds they take, and know the
 * same after it. test_replica_random [seeds] [first seed]: longer, or one seed again. */
#include "format/batch.h"
#include "replica_testing.h"
#include "log/replica.h"
#include "log/group_build.h"

#define STEPS 2000
#define POOL_BYTES (1u << 20)

struct ring {
    struct member members[3];
    struct member *leader;
    uint64_t seed, epoch, taken;
    int64_t now;
    uint32_t disks[3]; /* segments that each was given */
    uint8_t *pool;     /* values that lie in a row, as lanes have them */
    size_t pool_used;
    struct chunk_sealer *sealer;
};

static uint32_t below(struct ring *ring, uint32_t end)
{
    return (uint32_t)(random_next(&ring->seed) % end);
}

static bool chance(struct ring *ring, uint32_t percent) { return below(ring, 100) < percent; }

/* ---- calls ---- */

/* Small mostly, now and then as large as a call may be. */
static uint32_t size_of_value(struct ring *ring)
{
    const uint32_t most[] = {1, 40, 300, 300, 3000, 70000, 400000};
    return below(ring, most[below(ring, 7)]) + 1;
}

static void fill(struct ring *ring, uint8_t *out, uint32_t len)
{
    const bool noise = chance(ring, 30), same = chance(ring, 10);
    for (uint32_t i = 0; i < len; i++)
        out[i] = same ? 'a' : noise ? (uint8_t)random_next(&ring->seed) : (uint8_t)('a' + i % 7);
}

static struct run *event_run(struct ring *ring, struct stream *stream)
{
    const bool keyed = chance(ring, 60) || stream->topic->compacted, lane = chance(ring, 50);
    const bool kept = stream->topic->compacted; /* a snapshot has to hold them all */
    const uint32_t longest = !kept && chance(ring, 5) ? 40000 : 12;
    const uint32_t key_len = keyed ? below(ring, longest) + kept : 0;
    uint32_t len = lane || kept ? below(ring, 300) + 1 : size_of_value(ring);
    if (kept && chance(ring, 20))
        len = 0;
    struct run *run = run_new(stream, key_len + len);
    CHECK(run != NULL);
    fill(ring, run->tail, key_len + len);
    if (kept && key_len > 0)
        run->tail[0] = (uint8_t)('0' + stream->slice); /* a key is of one slice */
    run->keys = keyed ? run->tail : NULL;
    run->key_len = key_len;
    run->values = run->tail + key_len;
    if (lane && ring->pool_used + len <= POOL_BYTES) {
        memcpy(ring->pool + ring->pool_used, run->values, len);
        run->values = ring->pool + ring->pool_used;
        ring->pool_used += len;
    }
    run->count = 1;
    run->value_len = len;
    run->bytes = key_len + len;
    return run;
}

static struct run *lines_run(struct ring *ring, struct stream *stream)
{
    const uint32_t count = below(ring, chance(ring, 5) ? 40000 : 300) + 1;
    const uint32_t key_len = chance(ring, 50) ? below(ring, 10) : 0, most = below(ring, 30) + 1;
    struct run *run = run_new(stream, (size_t)count * (4 + most) + key_len);
    CHECK(run != NULL);
    uint32_t *lens = (uint32_t *)run->tail;
    uint32_t total = 0;
    for (uint32_t i = 0; i < count; i++)
        total += lens[i] = below(ring, most) + 1;
    uint8_t *values = run->tail + (size_t)count * 4;
    fill(ring, values, total);
    run->keys = key_len ? values + total : NULL;
    if (key_len)
        fill(ring, values + total, key_len);
    run->key_len = key_len;
    run->values = values;
    run->value_lens = lens;
    run->count = count;
    run->bytes = total + key_len * count;
    return run;
}

static struct run *cut_run(struct ring *ring, struct stream *stream)
{
    const uint32_t count = below(ring, 100) + 1;
    struct run *run = run_new(stream, sizeof(struct batch_columns) + (size_t)count * (16 + 60));
    CHECK(run != NULL);
    struct batch_columns *c = (struct batch_columns *)run->tail;
    uint32_t *low = (uint32_t *)(c + 1), *high = low + count, *key_len = high + count;
    uint32_t *val_len = key_len + count;
    uint8_t *keys = (uint8_t *)(val_len + count), *vals = keys + (size_t)count * 20;
    const int64_t scale = chance(ring, 70) ? 1 : below(ring, 20000) + 1; /* decades apart */
    *c = (struct batch_columns){.count = count, .val_len = val_len, .keys = keys, .vals = vals};
    for (uint32_t i = 0; i < count; i++) {
        key_len[i] = chance(ring, 30) ? KEY_NULL : below(ring, 20);
        c->keys_bytes += key_len[i] == KEY_NULL ? 0 : key_len[i];
        val_len[i] = below(ring, 40);
        c->vals_bytes += val_len[i];
        const int64_t delta = below(ring, UINT32_MAX) * scale;
        low[i] = (uint32_t)delta;
        high[i] = (uint32_t)(delta >> 32);
    }
    fill(ring, keys, c->keys_bytes);
    fill(ring, vals, c->vals_bytes);
    c->key_len = chance(ring, 80) ? key_len : NULL;
    if (c->key_len == NULL)
        c->keys_bytes = 0;
    if (chance(ring, 50)) {
        run->timestamp = ring->now + below(ring, 1000) * (int64_t)below(ring, 100000000);
        c->ts_delta = low;
        c->ts_high = scale > 1 || chance(ring, 50) ? high : NULL;
    }
    run->columns = c;
    run->count = count;
    run->bytes = c->vals_bytes + c->keys_bytes;
    return run;
}

static struct run *batch_run(struct ring *ring, struct stream *stream)
{
    struct test_columns t;
    columns_make(&t, random_next(&ring->seed), below(ring, 200) + 1, below(ring, 300) + 1,
                 chance(ring, 50));
    t.c.ts_high = chance(ring, 30) ? t.ts_high : NULL;
    if (chance(ring, 30)) { /* the broker's clock */
        t.c.base_timestamp_us = 0;
        t.c.ts_delta = t.c.ts_high = NULL;
    }
    const size_t bound = chunk_bound(&t.c) + 1024;
    struct run *run = run_new(stream, sizeof(struct batch_view) + bound);
    CHECK(run != NULL);
    struct batch_view *view = (struct batch_view *)run->tail;
    uint8_t *bytes = run->tail + ((sizeof *view + 7) & ~(size_t)7);
    const size_t len = batch_seal(ring->sealer, &t.c, bytes, bound - 8);
    CHECK(len > 0 && batch_open(bytes, len, view) == 0);
    run->sealed = true;
    run->batch = view;
    run->count = t.c.count;
    run->bytes = t.c.vals_bytes + t.c.keys_bytes;
    run->timestamp = t.c.base_timestamp_us;
    run->max_timestamp = run->timestamp + 10 * (int64_t)t.c.count;
    columns_free(&t);
    return run;
}

/* As queue_run() does it. */
static void number(struct ring *ring, struct run *run)
{
    struct producer *row;
    memset(run->producer_id, (int)below(ring, 60), PRODUCER_ID_BYTES);
    run->producer_epoch = below(ring, 30) == 0;
    uint64_t expected = chance(ring, 10) ? 9 : 0;
    enum dedup verdict = DEDUP_GAP;
    for (int i = 0; i < 2 && verdict != DEDUP_NEW && (i == 0 || chance(ring, 80)); i++)
        verdict = shard_dedup(ring->leader->shard, run->stream, run->producer_id,
                              run->producer_epoch, run->producer_seq = expected, false, ring->now,
                              &row, &expected);
    if (verdict == DEDUP_NEW) {
        row->last_seq = run->producer_seq;
        run->has_producer = true;
        return;
    }
    run->count = run->bytes = 0;
    run->sealed = false;
    run->problem = verdict == DEDUP_DUPLICATE ? 0 : 1;
}

static struct stream *any_stream(struct ring *ring, bool internal)
{
    char name[16];
    snprintf(name, sizeof name, internal ? "__%u" : "t%u", below(ring, internal ? 3 : 12));
    return stream_of_new(ring->leader, name, below(ring, 8));
}

static void enqueue(struct ring *ring, struct run *run, bool glued)
{
    if (run_bound(run) > log_run_bound_max(ring->leader->log)) {
        run_free(run);
        return;
    }
    run->glued = glued;
    log_enqueue(ring->leader->log, run);
}

static void call(struct ring *ring)
{
    if (chance(ring, 15)) {
        enqueue(ring, event_run(ring, any_stream(ring, true)), false);
        return;
    }
    struct stream *stream = any_stream(ring, false);
    if (chance(ring, 5)) { /* a commit: batches of one stream, then what says so */
        for (uint32_t left = below(ring, 4); left > 0; left--)
            enqueue(ring, batch_run(ring, stream), true);
        struct run *mark = event_run(ring, any_stream(ring, true));
        enqueue(ring, mark, false);
        return;
    }
    struct run *(*const kinds[])(struct ring *, struct stream *) = {event_run, event_run, lines_run,
                                                                   cut_run, batch_run};
    struct run *run = kinds[below(ring, 5)](ring, stream);
    if (chance(ring, 40))
        number(ring, run);
    enqueue(ring, run, false);
}

/* ---- what both must know ---- */

static void same_streams(const struct ring *ring, const struct member *other)
{
    const struct shard *shard = ring->leader->shard;
    for (uint32_t t = 0; t < shard->topic_count; t++)
        for (uint32_t s = 0; s < shard->slice_count; s++) {
            const struct stream *one = shard->topics[t]->streams[s];
            if (one == NULL || one->next_offset == 0)
                continue;
            const struct stream *two = stream_of(other, shard->topics[t]->name, s);
            CHECK(two != NULL && two->next_offset == one->next_offset);
            CHECK(two->max_timestamp == one->max_timestamp);
            CHECK(two->last_timestamp == one->last_timestamp);
            CHECK(two->stable_offset <= one->next_offset);
        }
}

static void same_producers(const struct shard *a, const struct shard *b)
{
    for (uint32_t i = 0; i <= a->producer_mask; i++) {
        const struct producer *row = &a->producers[i];
        if (!row->used || !row->logged)
            continue;
        bool found = false;
        for (uint32_t j = 0; j <= b->producer_mask && !found; j++) {
            const struct producer *other = &b->producers[j];
            found = other->used && other->logged && other->slice == row->slice &&
                    other->logged_seq == row->logged_seq &&
                    other->logged_epoch == row->logged_epoch &&
                    memcmp(other->id, row->id, PRODUCER_ID_BYTES) == 0 &&
                    strcmp(b->topics[other->topic]->name, a->topics[row->topic]->name) == 0;
        }
        CHECK(found);
    }
}

static void same_values(const struct shard *a, const struct shard *b)
{
    for (uint32_t i = 0; i <= a->compacted_mask; i++) {
        const struct compacted *row = &a->compacted[i];
        if (row->bytes == NULL || row->value_len == 0)
            continue;
        bool found = false;
        for (uint32_t j = 0; j <= b->compacted_mask && !found; j++) {
            const struct compacted *other = &b->compacted[j];
            found = other->bytes != NULL && other->key_len == row->key_len &&
                    other->value_len == row->value_len &&
                    memcmp(other->bytes, row->bytes, row->key_len + row->value_len) == 0 &&
                    strcmp(b->topics[other->topic]->name, a->topics[row->topic]->name) == 0;
        }
        CHECK(found);
    }
}

static void compare(const struct ring *ring, const struct member *follower)
{
    if (follower->log->next_gseq != ring->leader->log->next_gseq)
        return;
    same_streams(ring, follower);
    same_producers(ring->leader->shard, follower->shard);
    same_producers(follower->shard, ring->leader->shard);
    same_values(ring->leader->shard, follower->shard);
    same_values(follower->shard, ring->leader->shard);
}

/* ---- the course of things ---- */

static void supply(struct ring *ring, struct member *m)
{
    uint32_t *given = &ring->disks[m - ring->members];
    if (m->log->segment_asked && *given < DISKS) {
        m->disk[*given] = calloc(1, DISK_BYTES);
        log_add_segment(m->log, *given, (int)*given, DISK_BYTES);
        ++*given;
    }
}

/* What the links do: a group as it lies in memory by now, if it does. */
static void deliver(struct ring *ring, struct member *to)
{
    struct member *from = ring->leader;
    const uint64_t gseq = to->log->next_gseq;
    if (to == from || gseq >= from->log->next_gseq)
        return;
    const uint64_t pos = from->sent_pos[gseq];
    if (pos >= log_memory_low(from->log))
        CHECK(memcmp(log_memory(from->log, pos), from->sent[gseq], from->sent_bytes[gseq]) == 0);
    const enum foreign verdict = hand(to, from, gseq);
    CHECK(verdict == FOREIGN_TAKEN || verdict == FOREIGN_WAIT);
    ring->taken += verdict == FOREIGN_TAKEN;
}

static void hear(struct ring *ring, struct member *follower)
{
    struct log *log = ring->leader->log;
    if (follower == ring->leader)
        return;
    log_replicated(log, follower->log->stable_gseq);
    log_replicated(follower->log, log_committed(log));
}

static void finish(struct ring *ring)
{
    for (int turn = 0; turn < 3000; turn++) {
        bool waits = false;
        for (int i = 0; i < 3; i++) {
            struct member *m = &ring->members[i];
            supply(ring, m);
            while (m->submitted_count > 0)
                complete(m, 0);
            deliver(ring, m);
            hear(ring, m);
            waits |= m->log->next_gseq < ring->leader->log->next_gseq || m->submitted_count > 0;
        }
        if (!waits)
            break;
    }
    for (int i = 0; i < 3; i++) {
        struct member *m = &ring->members[i];
        CHECK(m->log->next_gseq == ring->leader->log->next_gseq && m->submitted_count == 0);
        if (m == ring->leader)
            continue;
        compare(ring, m);
        for (uint32_t d = 0; d < ring->disks[m - ring->members]; d++)
            if (ring->leader->disk[d] != NULL)
                CHECK(memcmp(m->disk[d], ring->leader->disk[d], DISK_BYTES) == 0);
    }
}

/* Another generation, led by somebody who has all that was committed. */
static void next_generation(struct ring *ring)
{
    if (ring->leader != NULL) {
        struct log *log = ring->leader->log;
        if (chance(ring, 50)) {
            log_drain(log);
            finish(ring);
        }
        const uint64_t committed = log_committed(log);
        for (int i = 0; i < 3; i++) {
            log_fence(ring->members[i].log);
            while (!log_settled(ring->members[i].log))
                complete(&ring->members[i], 0);
        }
        do
            ring->leader = &ring->members[below(ring, 3)];
        while (ring->leader->log->stable_gseq < committed);
    } else {
        ring->leader = &ring->members[0];
    }
    ring->epoch++;
    ring->pool_used = 0;
    for (int i = 0; i < 3; i++) {
        struct member *m = &ring->members[i];
        log_begin(m->log, ring->epoch, ring->epoch * 100, true);
        new_disks(m, 0);
        ring->disks[i] = 0;
        if (m == ring->leader)
            log_open_generation(m->log, (const uint8_t *)"parents", 7);
        else
            log_follow(m->log);
        supply(ring, m);
    }
    log_pump(ring->leader->log, ring->now);
}

static void step(struct ring *ring)
{
    struct member *any = &ring->members[below(ring, 3)];
    struct log *log = ring->leader->log;
    /* Backwards as well; never so far that a producer expires, here or there first. */
    ring->now += chance(ring, 1) ? 20000000 : chance(ring, 2) ? -5000000 : 1000;
    switch (below(ring, 8)) {
    case 0:
    case 1:
        for (uint32_t left = below(ring, chance(ring, 10) ? 300 : 8); left > 0; left--)
            call(ring);
        break;
    case 2: log_pump(log, ring->now); break;
    case 3:
        if (any->submitted_count > 0)
            complete(any, below(ring, any->submitted_count));
        break;
    case 4: deliver(ring, any); break;
    case 5: hear(ring, any); break;
    case 6: supply(ring, any); break;
    default:
        log_heartbeat(log, ring->now, GROUP_HEARTBEAT);
        compare(ring, any);
    }
    if (chance(ring, 1) || log->current > DISKS - 2 || log->next_gseq > GROUPS_MAX - 20)
        next_generation(ring);
}

static uint64_t run_seed(uint64_t seed)
{
    struct ring *ring = calloc(1, sizeof *ring);
    ring->seed = seed;
    ring->now = NOW;
    ring->epoch = 1;
    ring->pool = malloc(POOL_BYTES);
    ring->sealer = chunk_sealer_new(1);
    CHECK(ring->pool && ring->sealer);
    for (int i = 0; i < 3; i++)
        join(&ring->members[i]);
    next_generation(ring);
    for (int i = 0; i < STEPS; i++)
        step(ring);
    finish(ring);
    const uint64_t taken = ring->taken;
    for (int i = 0; i < 3; i++) {
        log_fence(ring->members[i].log);
        leave(&ring->members[i]);
    }
    chunk_sealer_free(ring->sealer);
    free(ring->pool);
    free(ring);
    return taken;
}

int main(int argc, char **argv)
{
    const uint64_t seeds = argc > 1 ? strtoull(argv[1], NULL, 10) : 4;
    const uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    uint64_t taken = 0;
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        fprintf(stderr, "seed %llu\r", (unsigned long long)seed);
        taken += run_seed(seed);
    }
    CHECK(taken > 10 * seeds);
    printf("%llu groups taken\n", (unsigned long long)taken);
    return 0;
}
