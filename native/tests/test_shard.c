/* A shard: names, offsets to index, the rules of deduplication, and snapshots that give it back. */
#include "log/shard.h"

#include "codec_testing.h"

#define NOW 1700000000000000

static struct stream *stream_of(struct shard *shard, const char *name, uint32_t slice)
{
    struct topic *topic = shard_topic_make(shard, name, strlen(name));
    CHECK(topic != NULL && shard_topic(shard, name, strlen(name)) == topic);
    struct stream *stream = shard_stream(shard, topic, slice);
    CHECK(stream != NULL && shard_stream_get(shard, topic, slice) == stream);
    return stream;
}

static void test_topics(void)
{
    struct shard *shard = shard_new(4, 4);
    char name[32];
    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof name, "topic-%d", i);
        CHECK(stream_of(shard, name, 4 + (uint32_t)i % 4)->topic->index == (uint32_t)i);
    }
    CHECK(shard->topic_count == 3000 && shard_topic(shard, "topic", 5) == NULL);
    CHECK(shard_topic_make(shard, "", 0) == NULL && shard_topic_make(shard, "a/b", 3) == NULL);
    CHECK(shard_topic_make(shard, "..", 2) == NULL);
    const struct topic *topic = shard_topic(shard, "topic-0", 7);
    CHECK(shard_stream_get(shard, topic, 3) == NULL && shard_stream_get(shard, topic, 8) == NULL);
    CHECK(!topic->internal && shard_topic_make(shard, "__x", 3)->compacted);
    shard_free(shard);
}

static void test_index(void)
{
    struct shard *shard = shard_new(0, 1);
    struct stream *stream = stream_of(shard, "t", 0);
    CHECK(stream_find(stream, 0) == 0);
    for (uint64_t i = 0; i < 100; i++) /* events 0-9, 20-29, 40-49, … */
        stream_index(shard, stream, &(struct index_entry){.base_offset = i * 20, .count = 10});
    for (uint64_t i = 0; i < 100; i++) {
        CHECK(stream_find(stream, i * 20) == i && stream_find(stream, i * 20 + 9) == i);
        CHECK(stream_find(stream, i * 20 + 10) == i + 1);
    }
    CHECK(stream_find(stream, UINT64_MAX / 2) == 100 && shard->entries_total == 100);
    shard_free(shard);
}

struct asked {
    enum dedup verdict;
    uint64_t expected;
};

static struct asked ask(struct shard *shard, const struct stream *stream, uint32_t producer,
                        uint32_t epoch, uint64_t seq, bool one_shot, int64_t now)
{
    uint8_t id[PRODUCER_ID_BYTES] = {0};
    struct producer *row;
    struct asked asked;
    memcpy(id, &producer, sizeof producer);
    asked.verdict = shard_dedup(shard, stream, id, epoch, seq, one_shot, now, &row,
                                &asked.expected);
    if (asked.verdict == DEDUP_NEW) {
        row->last_seq = seq;
        shard_logged(shard, stream, id, epoch, seq);
    }
    return asked;
}

static void test_deduplication(void)
{
    struct shard *shard = shard_new(0, 2);
    struct stream *one = stream_of(shard, "t", 0), *two = stream_of(shard, "t", 1);
    CHECK(ask(shard, one, 1, 5, 1, false, NOW).verdict == DEDUP_GAP);
    CHECK(ask(shard, one, 1, 5, 0, false, NOW).verdict == DEDUP_NEW);
    CHECK(ask(shard, one, 1, 5, 0, false, NOW).verdict == DEDUP_DUPLICATE);
    CHECK(ask(shard, two, 1, 0, 0, false, NOW).verdict == DEDUP_NEW); /* each stream for itself */
    struct asked gap = ask(shard, one, 1, 5, 2, false, NOW);
    CHECK(gap.verdict == DEDUP_GAP && gap.expected == 1);
    for (uint64_t seq = 1; seq < 2000; seq++)
        CHECK(ask(shard, one, 1, 5, seq, false, NOW).verdict == DEDUP_NEW);
    CHECK(ask(shard, one, 1, 5, 1999 - PRODUCER_WINDOW + 1, false, NOW).verdict ==
          DEDUP_DUPLICATE);
    CHECK(ask(shard, one, 1, 5, 1999 - PRODUCER_WINDOW, false, NOW).verdict == DEDUP_GAP);
    CHECK(ask(shard, one, 1, 4, 2000, false, NOW).verdict == DEDUP_STALE_EPOCH);
    CHECK(ask(shard, one, 1, 6, 2000, false, NOW).verdict == DEDUP_GAP);
    CHECK(ask(shard, one, 1, 6, 0, false, NOW).verdict == DEDUP_NEW);
    CHECK(ask(shard, one, 1, 5, 2000, false, NOW).verdict == DEDUP_STALE_EPOCH);
    CHECK(ask(shard, one, 2, 0, 0, true, NOW).verdict == DEDUP_NEW);
    CHECK(ask(shard, one, 2, 0, 0, true, NOW).verdict == DEDUP_DUPLICATE);
    shard_free(shard);
}

static void test_a_full_table(void)
{
    struct shard *shard = shard_new(0, 1);
    struct stream *stream = stream_of(shard, "t", 0);
    for (uint32_t i = 0; i < PRODUCERS_MAX; i++)
        CHECK(ask(shard, stream, i, 0, 0, false, NOW + i).verdict == DEDUP_NEW);
    for (uint32_t i = 0; i < 100000; i++) /* cheap: not a look through the table for each */
        CHECK(ask(shard, stream, PRODUCERS_MAX + i, 0, 0, false, NOW + i).verdict == DEDUP_FULL);
    CHECK(ask(shard, stream, 7, 0, 1, false, NOW).verdict == DEDUP_NEW); /* known ones go on */
    CHECK(ask(shard, stream, 7, 0, 1, false, NOW).verdict == DEDUP_DUPLICATE);
    int64_t later = NOW + PRODUCER_IDLE_US + 1000000;
    CHECK(ask(shard, stream, UINT32_MAX, 0, 0, false, later).verdict == DEDUP_NEW);
    CHECK(shard->producer_count < PRODUCERS_MAX);
    shard_free(shard);
}

static void keep(struct shard *shard, const struct topic *topic, uint32_t slice, uint64_t offset,
                 const char *key, const char *value, size_t value_len)
{
    shard_compact(shard, topic,
                  &(struct keyed){slice, offset, (const uint8_t *)key, (const uint8_t *)value,
                                  strlen(key), value_len});
}

static struct shard *sample(uint64_t seed)
{
    struct shard *shard = shard_new(2, 4);
    char name[32], value[200];
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "t%u", (unsigned)(random_next(&seed) % 40));
        struct stream *stream = stream_of(shard, name, 2 + (uint32_t)(random_next(&seed) % 4));
        stream->next_offset += random_next(&seed) % 1000;
        stream->stable_offset = stream->next_offset;
        stream->last_timestamp = NOW + i;
        ask(shard, stream, (uint32_t)(random_next(&seed) % 50), 0, 0, true, NOW);
        struct topic *topic = shard_topic_make(shard, "__offsets", 9);
        size_t len = 1 + random_next(&seed) % (sizeof value - 1);
        memset(value, i, sizeof value);
        keep(shard, topic, 2, (uint64_t)i, name, value, len);
    }
    return shard;
}

static void test_snapshots(void)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct shard *shard = sample(seed);
        size_t len, again_len;
        uint8_t *bytes = shard_snapshot(shard, (const uint8_t *)"lineage", 7, NOW, &len);
        /* Onto a shard that is already in use, as recovery does it: it is replaced. */
        struct shard *back = sample(seed + 100);
        CHECK(bytes != NULL && shard_restore(back, bytes, len) == 0);
        /* A topic that the snapshot does not know stays as a name: requests may hold it. */
        CHECK(back->topic_count >= shard->topic_count);
        CHECK(back->producer_count == shard->producer_count);
        CHECK(back->compacted_count == shard->compacted_count);
        uint8_t *again = shard_snapshot(back, (const uint8_t *)"lineage", 7, NOW, &again_len);
        CHECK(again_len >= len && again_len < len + 40 * 8);
        for (uint32_t t = 0; t < shard->topic_count; t++)
            CHECK(strcmp(shard->topics[t]->name, back->topics[t]->name) == 0);
        for (uint32_t t = 0; t < shard->topic_count; t++)
            for (uint32_t s = 0; s < 4; s++) {
                const struct stream *a = shard->topics[t]->streams[s];
                const struct stream *b = back->topics[t]->streams[s];
                CHECK((a == NULL) == (b == NULL));
                CHECK(a == NULL || a->next_offset == b->next_offset);
                CHECK(a == NULL || a->last_timestamp == b->last_timestamp);
            }
        struct stream *stream = stream_of(back, "t0", 2);
        CHECK(ask(back, stream, 999, 0, 0, false, NOW).verdict == DEDUP_NEW);
        free(again);
        free(bytes);
        shard_free(back);
        shard_free(shard);
    }
}

/* Whatever the bytes, nothing is read beyond them; and what is refused changes nothing. */
static void test_a_full_shard_takes_nothing_new(void)
{
    struct shard *shard = sample(3);
    size_t len, empty_len;
    free(shard_snapshot(shard, NULL, 0, NOW, &len));
    struct shard *empty = shard_new(2, 4);
    free(shard_snapshot(empty, NULL, 0, NOW, &empty_len));
    shard_free(empty);
    for (uint32_t i = 0; i <= shard->producer_mask; i++)
        shard->producers[i].logged = shard->producers[i].used;
    free(shard_snapshot(shard, NULL, 0, NOW, &len));
    CHECK(shard_state_bytes(shard) == len - empty_len);
    CHECK(!shard_full(shard));
    shard->state_bytes_max = shard_state_bytes(shard);
    CHECK(shard_full(shard) && shard_topic_asked(shard, "another", 7) == NULL);
    struct topic *known = shard_topic_asked(shard, "t0", 2);
    CHECK(known != NULL);
    struct stream *stream = shard_stream(shard, known, 2);
    ask(shard, stream, 77, 0, 0, true, NOW); /* what the log holds is applied all the same */
    uint8_t seventy_seven[PRODUCER_ID_BYTES] = {0}, other[PRODUCER_ID_BYTES] = {1, 2, 3, 4, 5};
    uint32_t number = 77;
    memcpy(seventy_seven, &number, sizeof number);
    CHECK(shard_takes_producer(shard, stream, seventy_seven));
    CHECK(!shard_takes_producer(shard, stream, other));
    struct topic *offsets = shard_topic_make(shard, "__offsets", 9);
    for (int i = 0; i < 40; i++) { /* Deleted keys make room. */
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        keep(shard, offsets, 2, 1000, name, NULL, 0);
    }
    CHECK(!shard_full(shard) && shard_topic_asked(shard, "another", 7) != NULL);
    shard_free(shard);
}

static void test_broken_snapshots(void)
{
    struct shard *shard = sample(3), *victim = sample(4);
    uint32_t topics = victim->topic_count;
    size_t len;
    uint8_t *bytes = shard_snapshot(shard, NULL, 0, NOW, &len);
    for (size_t cut = 0; cut < len; cut += 1 + cut / 50) {
        uint8_t *copy = exact_copy(bytes, cut);
        CHECK(shard_restore(victim, copy, cut) == -1 && victim->topic_count == topics);
        free(copy);
    }
    uint64_t seed = 5;
    for (int i = 0; i < 3000; i++) {
        uint8_t *copy = exact_copy(bytes, len);
        for (uint64_t flips = 1 + random_next(&seed) % 4; flips > 0; flips--)
            copy[random_next(&seed) % (i % 2 ? len : 64)] ^= 1u << random_next(&seed) % 8;
        struct shard *fresh = shard_new(2, 4);
        (void)shard_restore(fresh, copy, len);
        shard_free(fresh);
        free(copy);
    }
    free(bytes);
    shard_free(victim);
    shard_free(shard);
}

static struct topic *made(struct shard *shard, const char *name)
{
    struct topic *topic = shard_topic_make(shard, name, strlen(name));
    CHECK(topic != NULL);
    return topic;
}

/* What waits is no value of a key, its topic is known to be one, also after a restore that numbers
 * topics otherwise; and it is the topic itself that somebody asked for. */
static void test_topics_of_what_waits(void)
{
    static const char *const others[] = {"__delays", "__delayed", "__delayed.", "__delayed.__t",
                                         "__delayed..", "_delayed.t", "x__delayed.t"};
    struct shard *shard = shard_new(2, 4), *back = shard_new(2, 4);
    char name[32];
    size_t len;
    made(back, "first");
    made(back, "__delayed.t4");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const struct topic *topic = made(shard, others[i]);
        const bool reserved = strncmp(others[i], "__", 2) == 0;
        CHECK(!topic->delayed && topic->internal == reserved && !topic->any_time);
        CHECK(shard_topic_meant(shard, topic) == topic);
    }
    for (int i = 0; i < 9; i++) {
        snprintf(name, sizeof name, "__delayed.t%d", i);
        const struct topic *topic = made(shard, name);
        CHECK(topic->delayed && topic->any_time && !topic->internal && !topic->compacted);
        CHECK(shard_topic_meant(shard, topic) == NULL);
        CHECK(made(shard, name + 10) == shard_topic_meant(shard, topic));
        CHECK(shard->delayed_count == (uint32_t)i + 1 && shard->delayed[i] == topic->index);
    }
    uint8_t *bytes = shard_snapshot(shard, NULL, 0, NOW, &len);
    CHECK(bytes != NULL && shard_restore(back, bytes, len) == 0 && back->delayed_count == 9);
    for (uint32_t i = 0; i < back->delayed_count; i++) {
        const struct topic *topic = back->topics[back->delayed[i]];
        CHECK(topic->delayed && topic->index == back->delayed[i]);
    }
    free(bytes);
    shard_free(back);
    shard_free(shard);
}

static void grown(struct shard *shard, struct topic *topic, uint32_t slice)
{
    shard_delayed_news(shard, shard_stream(shard, topic, slice));
}

/* Each stream once, however often it has become longer; and of too many that it may be any. */
static void test_news_of_what_waits(void)
{
    struct shard *shard = shard_new(0, DELAYED_NEWS_MAX), *back = shard_new(0, DELAYED_NEWS_MAX);
    struct topic *a = made(shard, "__delayed.a"), *b = made(shard, "__delayed.b");
    size_t len;
    CHECK(shard->news.count == 0);
    for (int again = 0; again < 3; again++) {
        grown(shard, a, 5);
        grown(shard, b, 5);
        grown(shard, a, 6);
    }
    CHECK(shard->news.count == 3 && shard->news.of[0].topic == a->index);
    CHECK(shard->news.of[1].topic == b->index && shard->news.of[1].slice == 5);
    CHECK(shard->news.of[2].topic == a->index && shard->news.of[2].slice == 6);
    shard->news.count = 0;
    for (uint32_t slice = 0; slice < DELAYED_NEWS_MAX; slice++)
        grown(shard, b, slice);
    CHECK(shard->news.count == DELAYED_NEWS_MAX);
    grown(shard, b, 0);
    CHECK(shard->news.count == DELAYED_NEWS_MAX);
    grown(shard, a, 0);
    grown(shard, a, 1);
    CHECK(shard->news.count == DELAYED_NEWS_MAX + 1);
    /* A restore numbers topics otherwise: what was heard of them is nothing any more. */
    made(back, "first");
    grown(back, made(back, "__delayed.b"), 7);
    uint8_t *bytes = shard_snapshot(shard, NULL, 0, NOW, &len);
    CHECK(bytes != NULL && shard_restore(back, bytes, len) == 0);
    CHECK(back->news.count == DELAYED_NEWS_MAX + 1);
    free(bytes);
    shard_free(back);
    shard_free(shard);
}

int main(void)
{
    test_topics_of_what_waits();
    test_news_of_what_waits();
    test_topics();
    test_index();
    test_deduplication();
    test_a_full_table();
    test_snapshots();
    test_a_full_shard_takes_nothing_new();
    test_broken_snapshots();
    return 0;
}
