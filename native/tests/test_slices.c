/* A shard that gets other slices between two generations: it keeps what a cut of its state has,
 * retries are known in it, nobody appends to what it has lost, and what was waiting is told. */
#include "replica_testing.h"

#include "log/state.h"

#define SLICES 8u

struct bytes {
    uint8_t *at;
    size_t len;
};

static struct bytes snapshot(const struct shard *shard)
{
    struct bytes made;
    made.at = shard_snapshot(shard, (const uint8_t *)"parents", 7, NOW, &made.len);
    CHECK(made.at != NULL);
    return made;
}

/* Rows in their order, topics without any left out: states that say the same are the same bytes. */
static struct bytes cut_of(const struct shard *shard, uint32_t first, uint32_t count)
{
    struct bytes all = snapshot(shard), made = {0};
    const char *why = NULL;
    made.at = state_cut(all.at, all.len, first, count, &made.len, &why);
    CHECK(made.at != NULL && why == NULL);
    free(all.at);
    return made;
}

static void check_state(const struct shard *shard, struct bytes state)
{
    struct bytes own = cut_of(shard, shard->slice_first, shard->slice_count);
    CHECK(own.len == state.len && memcmp(own.at, state.at, own.len) == 0);
    free(own.at);
}

static void note(struct shard *shard, const char *name, uint32_t slice, int at)
{
    struct topic *topic = shard_topic_make(shard, name, strlen(name));
    char key[32], value[64];
    const int key_len = snprintf(key, sizeof key, "%u.%d", (unsigned)slice, at % 7);
    const int value_len = at % 11 ? snprintf(value, sizeof value, "value %d", at) : 0;
    shard_compact(shard, topic,
                  &(struct keyed){slice, (uint64_t)at, (const uint8_t *)key,
                                  (const uint8_t *)value, (size_t)key_len, (size_t)value_len});
}

/* Streams with places in the log, producers, group offsets of all slices, settings of topics. */
static struct shard *sample(uint64_t seed, uint32_t rows)
{
    struct shard *shard = shard_new(0, SLICES);
    for (uint32_t i = 0; i < rows; i++) {
        char name[32];
        const uint32_t slice = (uint32_t)(random_next(&seed) % SLICES);
        snprintf(name, sizeof name, "t%u", (unsigned)(random_next(&seed) % 30));
        struct topic *topic = shard_topic_make(shard, name, strlen(name));
        struct stream *stream = shard_stream(shard, topic, slice);
        struct index_entry entry = {.base_offset = stream->next_offset, .count = 3};
        stream_index(shard, stream, &entry);
        stream->next_offset += 3;
        const uint64_t number = random_next(&seed) % 50;
        struct producer row = {.last_us = NOW, .logged_seq = i};
        memcpy(row.id, &number, sizeof number);
        (void)shard_remember(shard, stream, &row); /* once for each stream */
        note(shard, "__offsets", slice, (int)i);
        note(shard, SHARED_TOPIC, slice, (int)i);
        topic->declared = random_next(&seed) % 2;
    }
    return shard;
}

/* Of any slices: the rows, their sizes, the places of what stays. */
static void test_a_part_is_the_cut(void)
{
    for (uint32_t first = 0; first < SLICES; first++)
        for (uint32_t count = 1; count <= SLICES - first; count++) {
            struct shard *shard = sample(first * 17 + count, 600);
            struct shard *fresh = shard_new(first, count);
            struct topic *topic = shard_topic(shard, "t1", 2);
            struct stream *stream = shard_stream(shard, topic, first);
            const uint32_t entries = stream->entry_count;
            struct bytes part = cut_of(shard, first, count);
            uint64_t total = 0;
            CHECK(shard_set_slices(shard, first, count));
            CHECK(shard->slice_first == first && shard->slice_count == count);
            check_state(shard, part);
            CHECK(shard_topic(shard, "t1", 2) == topic && topic->streams[0] == stream);
            CHECK(stream->entry_count == entries && shard_stream_get(shard, topic, 99) == NULL);
            CHECK(shard_restore(fresh, part.at, part.len) == 0);
            CHECK(shard->producer_count == fresh->producer_count);
            for (uint32_t t = 0; t < shard->topic_count; t++) {
                for (uint32_t s = 0; s < count; s++)
                    if (shard->topics[t]->streams[s] != NULL)
                        total += shard->topics[t]->streams[s]->entry_count;
                if (shard_topic(fresh, shard->topics[t]->name, shard->topics[t]->name_len) == NULL)
                    fresh->state_bytes += 2 + shard->topics[t]->name_len; /* it stays as a name */
            }
            CHECK(total == shard->entries_total && shard->state_bytes == fresh->state_bytes);
            shard_free(fresh);
            shard_free(shard);
            free(part.at);
        }
}

/* More than it had: all that was known is, and what is new begins with nothing. */
static void test_more_slices(void)
{
    struct shard *shard = sample(5, 300);
    CHECK(shard_set_slices(shard, 2, 3));
    struct bytes before = cut_of(shard, 2, 3);
    CHECK(shard_set_slices(shard, 0, SLICES));
    struct bytes after = cut_of(shard, 2, 3);
    CHECK(before.len == after.len && memcmp(before.at, after.at, after.len) == 0);
    for (uint32_t t = 0; t < shard->topic_count; t++)
        CHECK(shard_stream_get(shard, shard->topics[t], 5) == NULL);
    CHECK(shard_stream(shard, shard->topics[0], 7)->next_offset == 0);
    CHECK(shard_set_slices(shard, 6, 1)); /* and nothing in common */
    CHECK(shard->producer_count == 0 && shard->entries_total == 0);
    free(before.at);
    free(after.at);
    shard_free(shard);
}

/* A state that is read says of which slices it is; a leader's has to be of those that are known. */
static void test_a_state_says_its_slices(void)
{
    struct shard *whole = sample(3, 300), *shard = shard_new(0, SLICES);
    struct bytes part = cut_of(whole, 4, 4);
    struct topic *topic = shard_topic_make(shard, "t1", 2);
    CHECK(shard_restore(shard, part.at, part.len) == -1 && shard->slice_count == SLICES);
    shard->slices_all = 7;
    CHECK(shard_adopt(shard, part.at, part.len) == -1 && shard->slice_count == SLICES);
    shard->slices_all = SLICES;
    CHECK(shard_adopt(shard, part.at, part.len - 1) == -1 && shard->slice_count == SLICES);
    CHECK(shard_adopt(shard, part.at, part.len) == 0);
    CHECK(shard->slice_first == 4 && shard->slice_count == 4 && shard->slices_all == SLICES);
    CHECK(shard_topic(shard, "t1", 2) == topic); /* requests under way hold it */
    check_state(shard, part);
    CHECK(shard_restore(shard, part.at, part.len) == 0);
    free(part.at);
    shard_free(whole);
    shard_free(shard);
}

static enum dedup seen(struct member *m, uint32_t slice, uint8_t producer, uint64_t seq)
{
    struct producer *row;
    uint64_t expected;
    uint8_t id[PRODUCER_ID_BYTES];
    memset(id, producer, sizeof id);
    struct stream *stream = shard_stream(m->shard, shard_topic(m->shard, "t", 1), slice);
    return shard_dedup(m->shard, stream, id, 0, seq, false, NOW, &row, &expected);
}

static void end(struct member *m)
{
    log_drain(m->log);
    settle(m);
    log_fence(m->log);
}

/* 0 to 7 become 0 to 3 here and 4 to 7 elsewhere; then all of them are here again. */
static void test_a_split_of_a_log(void)
{
    struct member a, b, other;
    join(&a);
    join(&b);
    join(&other);
    lead(&a, 2);
    follow(&b, 2);
    for (uint32_t slice = 0; slice < SLICES; slice++)
        for (uint64_t seq = 0; seq < 3; seq++)
            put(&a, "t", slice, 100, 7, seq);
    replicate(&a, &b);
    log_drain(a.log); /* the end is being agreed upon; calls go on waiting */
    put(&a, "t", 1, 100, 7, 3);
    put(&a, "t", 5, 100, 7, 3);
    settle(&a);
    CHECK(a.answered == 24 && a.log->queued_runs == 2);
    end(&a);
    CHECK(a.refused == 2 && a.unknown == 0); /* surely not written */
    end(&b);
    struct bytes right = cut_of(b.shard, 4, 4);

    log_begin(a.log, 3, 300, true);
    CHECK(shard_set_slices(a.shard, 0, 4));
    lead(&a, 3);
    settle(&a);
    follow(&b, 3); /* who has not heard of the split does not take it */
    CHECK(hand(&b, &a, 1) == FOREIGN_DAMAGED);
    log_fence(b.log);
    log_begin(b.log, 3, 300, true);
    CHECK(shard_set_slices(b.shard, 0, 4));
    follow(&b, 3);
    put(&a, "t", 1, 100, 7, 2); /* stored before the split */
    put(&a, "t", 1, 100, 7, 3); /* refused before it: its first time */
    replicate(&a, &b);
    CHECK(a.answered == 26 && stream_of(&a, "t", 1)->next_offset == 4);
    check_same(&a, &b);
    CHECK(seen(&a, 1, 7, 3) == DEDUP_DUPLICATE);
    CHECK(shard_stream_get(a.shard, a.shard->topics[0], 5) == NULL);

    CHECK(log_restore(other.log, right.at, right.len) == 0 && other.shard->slice_first == 4);
    lead(&other, 3);
    settle(&other);
    CHECK(seen(&other, 5, 7, 2) == DEDUP_DUPLICATE && seen(&other, 5, 7, 3) == DEDUP_NEW);
    CHECK(shard_stream(other.shard, other.shard->topics[0], 5)->next_offset == 3);
    free(right.at);
    leave(&a);
    leave(&b);
    leave(&other);
}

/* A start gets the slices of the log that it finds, and goes on in them. */
static void test_a_start(void)
{
    struct member a, b;
    join(&a);
    join(&b);
    log_begin(a.log, 3, 300, true);
    CHECK(shard_set_slices(a.shard, 4, 4));
    lead(&a, 3);
    settle(&a);
    struct topic *topic = shard_topic_make(a.shard, "t", 1);
    CHECK(shard_stream(a.shard, topic, 6) != NULL);
    put(&a, "t", 6, 100, 7, 0);
    settle(&a);
    log_begin(b.log, 3, 300, true);
    b.disk[0] = calloc(1, DISK_BYTES);
    log_load_segment(b.log, 0, 0, DISK_BYTES);
    for (uint64_t gseq = 1; gseq <= 2; gseq++)
        CHECK(log_load_group(b.log, a.sent[gseq], a.sent_bytes[gseq]) == 0);
    CHECK(b.shard->slice_first == 4 && b.shard->slice_count == 4);
    CHECK(seen(&b, 6, 7, 0) == DEDUP_DUPLICATE);
    leave(&a);
    leave(&b);
}

/* Another state while calls wait, as where two ranges become one: they lead into the old one. */
static void test_calls_wait_while_the_state_changes(void)
{
    struct member a;
    join(&a);
    lead(&a, 2);
    settle(&a);
    put(&a, "t", 1, 100, 7, 0);
    settle(&a); /* stable here, and nowhere else */
    struct bytes state = cut_of(a.shard, 0, SLICES);
    log_drain(a.log);
    put(&a, "t", 2, 100, 7, 0);
    CHECK(log_restore(a.log, state.at, state.len) == 0);
    CHECK(a.unknown == 1 && a.refused == 1 && !a.log->open && a.log->queue == NULL);
    log_replicated(a.log, 2);
    CHECK(a.answered == 0);
    free(state.at);
    leave(&a);
}

int main(void)
{
    test_a_part_is_the_cut();
    test_more_slices();
    test_a_state_says_its_slices();
    test_a_split_of_a_log();
    test_a_start();
    test_calls_wait_while_the_state_changes();
    return 0;
}
