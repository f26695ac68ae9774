/* A state in parts and together again: cut(state, A) and cut(state, B) are the state, nothing of
 * other slices comes along, and what is damaged or forged is refused. */
#include "log/state.h"

#include "codec_testing.h"
#include "log/shard.h"

#define NOW 1700000000000000
#define SECOND 1000000LL
#define FIRST 8u
#define SLICES 8u

struct bytes {
    uint8_t *at;
    size_t len;
};

static void note(struct shard *shard, const struct topic *topic, uint32_t slice, uint64_t offset,
                 const char *key, const char *value)
{
    shard_compact(shard, topic,
                  &(struct keyed){slice, offset, (const uint8_t *)key, (const uint8_t *)value,
                                  strlen(key), strlen(value)});
}

static void produce(struct shard *shard, struct stream *stream, uint32_t number, int64_t at)
{
    struct producer row = {.last_offset = stream->next_offset, .last_us = at, .logged_epoch = 3};
    memcpy(row.id, &number, sizeof number);
    row.logged_seq = number + 5;
    (void)shard_remember(shard, stream, &row); /* once for each stream */
}

/* Streams, producers, group offsets and marks of all slices, settings of topics in the first. */
static struct shard *sample(uint64_t seed, uint32_t first, uint32_t count)
{
    struct shard *shard = shard_new(first, count);
    struct topic *offsets = shard_topic_make(shard, "__offsets", 9);
    struct topic *marks = shard_topic_make(shard, "__commits", 9);
    struct topic *settings = shard_topic_make(shard, "__topics", 8);
    for (int i = 0; i < 200; i++) {
        char name[32], key[64], value[64];
        const uint32_t slice = first + (uint32_t)(random_next(&seed) % count);
        snprintf(name, sizeof name, "t%u", (unsigned)(random_next(&seed) % 30));
        struct topic *topic = shard_topic_make(shard, name, strlen(name));
        struct stream *stream = shard_stream(shard, topic, slice);
        stream->next_offset += random_next(&seed) % 1000;
        stream->start_offset = stream->next_offset / 3;
        stream->last_timestamp = NOW + i;
        stream->max_timestamp = NOW - i;
        produce(shard, stream, (uint32_t)(random_next(&seed) % 20), NOW - i * SECOND);
        snprintf(key, sizeof key, "g%%%s%%%u", name, slice);
        snprintf(value, sizeof value, "value %d", i);
        note(shard, offsets, slice, (uint64_t)i, key, value);
        snprintf(key, sizeof key, "%u.%u", slice, (unsigned)(random_next(&seed) % 3));
        note(shard, marks, slice, (uint64_t)i, key, value);
        note(shard, settings, first, (uint64_t)i, name, value);
        topic->declared = random_next(&seed) % 2;
    }
    return shard;
}

static struct bytes snapshot(const struct shard *shard)
{
    struct bytes made;
    made.at = shard_snapshot(shard, (const uint8_t *)"parents", 7, NOW, &made.len);
    CHECK(made.at != NULL);
    return made;
}

static struct bytes cut(struct bytes state, uint32_t first, uint32_t count)
{
    const char *why = NULL;
    struct bytes made = {0};
    made.at = state_cut(state.at, state.len, first, count, &made.len, &why);
    CHECK(made.at != NULL && why == NULL);
    return made;
}

static struct bytes join(struct bytes one, struct bytes other)
{
    const char *why = NULL;
    struct bytes made = {0};
    made.at = state_union(one.at, one.len, other.at, other.len, &made.len, &why);
    if (why != NULL)
        fprintf(stderr, "%s\n", why);
    CHECK(made.at != NULL && why == NULL);
    return made;
}

static void refused(struct bytes one, struct bytes other, const char *words)
{
    const char *why = NULL;
    size_t len;
    uint8_t *made = state_union(one.at, one.len, other.at, other.len, &len, &why);
    CHECK(made == NULL && strcmp(why, words) == 0);
}

static bool same(struct bytes a, struct bytes b)
{
    return a.len == b.len && memcmp(a.at, b.at, a.len) == 0;
}

static const struct compacted *kept(struct shard *shard, const char *topic, uint32_t slice,
                                    const char *key)
{
    const struct topic *named = shard_topic(shard, topic, strlen(topic));
    for (uint32_t i = 0; named != NULL && i <= shard->compacted_mask; i++) {
        const struct compacted *row = &shard->compacted[i];
        if (row->bytes != NULL && row->topic == named->index && row->slice == slice &&
            row->key_len == strlen(key) && memcmp(row->bytes, key, row->key_len) == 0)
            return row;
    }
    return NULL;
}

static bool says(struct shard *shard, const char *topic, uint32_t slice, const char *key,
                 const char *value)
{
    const struct compacted *row = kept(shard, topic, slice, key);
    return row != NULL && row->value_len == strlen(value) &&
           memcmp(row->bytes + row->key_len, value, row->value_len) == 0;
}

/* A core with other first slices takes the part as it is: numbers mean the same in it. */
static void check_part(const struct shard *whole, struct bytes part, uint32_t first, uint32_t count)
{
    struct shard *child = shard_new(first, count);
    CHECK(shard_restore(child, part.at, part.len) == 0);
    uint32_t streams = 0, producers = 0, values = 0;
    for (uint32_t t = 0; t < whole->topic_count; t++) {
        struct topic *topic = whole->topics[t];
        struct topic *mine = shard_topic(child, topic->name, topic->name_len);
        CHECK(mine == NULL || mine->declared == topic->declared);
        CHECK(mine != NULL || !topic->declared);
        for (uint32_t slice = first; slice < first + count; slice++) {
            const struct stream *a = shard_stream_get(whole, topic, slice);
            const struct stream *b = mine ? shard_stream_get(child, mine, slice) : NULL;
            CHECK((a == NULL) == (b == NULL));
            if (a == NULL)
                continue;
            streams++;
            CHECK(a->next_offset == b->next_offset && a->start_offset == b->start_offset);
            CHECK(a->last_timestamp == b->last_timestamp && a->max_timestamp == b->max_timestamp);
            CHECK(b->stable_offset == b->next_offset);
        }
    }
    for (uint32_t i = 0; i <= whole->producer_mask; i++) {
        const struct producer *row = &whole->producers[i];
        if (!row->used || row->slice < first || row->slice >= first + count)
            continue;
        producers++;
        const struct topic *topic = whole->topics[row->topic];
        struct topic *mine = shard_topic(child, topic->name, topic->name_len);
        const struct stream *stream = shard_stream_get(child, mine, row->slice);
        CHECK(shard_has_sequence(child, stream, row->id, row->logged_epoch, row->logged_seq));
        CHECK(!shard_has_sequence(child, stream, row->id, row->logged_epoch, row->logged_seq + 1));
    }
    for (uint32_t i = 0; i <= whole->compacted_mask; i++) {
        const struct compacted *row = &whole->compacted[i];
        if (row->bytes == NULL || (!whole->topics[row->topic]->shared &&
                                   (row->slice < first || row->slice >= first + count)))
            continue;
        values++;
        char key[128] = {0};
        memcpy(key, row->bytes, row->key_len);
        const struct compacted *mine =
            kept(child, whole->topics[row->topic]->name, row->slice, key);
        CHECK(mine != NULL && mine->offset == row->offset && mine->value_len == row->value_len);
        CHECK(memcmp(mine->bytes, row->bytes, row->key_len + row->value_len) == 0);
    }
    CHECK(streams > 0 && producers == child->producer_count && values == child->compacted_count);
    shard_free(child);
}

static void test_a_state_is_its_parts(void)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct shard *shard = sample(seed, FIRST, SLICES);
        struct bytes state = snapshot(shard), whole = cut(state, FIRST, SLICES);
        for (uint32_t border = 1; border < SLICES; border++) {
            struct bytes low = cut(state, FIRST, border);
            struct bytes high = cut(state, FIRST + border, SLICES - border);
            check_part(shard, low, FIRST, border);
            check_part(shard, high, FIRST + border, SLICES - border);
            struct bytes one = join(low, high), other = join(high, low);
            CHECK(same(one, whole) && same(other, whole));
            CHECK(shard_snapshot_time(low.at, low.len) == NOW);
            free(low.at);
            free(high.at);
            free(one.at);
            free(other.at);
        }
        check_part(shard, whole, FIRST, SLICES);
        free(state.at);
        free(whole.at);
        shard_free(shard);
    }
}

/* A part of a part is the part: it does not matter in how many steps a cluster grew. */
static void test_parts_of_parts(void)
{
    struct shard *shard = sample(77, FIRST, SLICES);
    struct bytes state = snapshot(shard), half = cut(state, FIRST + 2, 5);
    struct bytes one = cut(half, FIRST + 3, 2), other = cut(state, FIRST + 3, 2);
    CHECK(same(one, other));
    size_t len;
    const char *why;
    CHECK(state_cut(half.at, half.len, FIRST + 2, 6, &len, &why) == NULL);
    CHECK(strcmp(why, "it is a state of other slices") == 0);
    CHECK(state_cut(half.at, half.len, FIRST + 1, 2, &len, &why) == NULL);
    CHECK(state_cut(half.at, half.len, FIRST + 2, 0, &len, &why) == NULL);
    CHECK(state_cut(half.at, half.len, FIRST + 2, UINT32_MAX, &len, &why) == NULL);
    struct shard *stranger = shard_new(FIRST, SLICES);
    CHECK(shard_restore(stranger, half.at, half.len) == -1); /* not the state of all its slices */
    refused(half, one, "their slices are no neighbours");
    refused(half, half, "their slices are no neighbours");
    shard_free(stranger);
    free(one.at);
    free(other.at);
    free(half.at);
    free(state.at);
    shard_free(shard);
}

/* Settings are in both children, each of which goes on by itself. Of what was written in a slice
 * the one knows most who has that slice; of what is nobody's any more the later event counts. */
static void test_settings_that_went_apart(void)
{
    struct shard *shard = sample(5, FIRST, SLICES);
    note(shard, shard_topic_make(shard, "__topics", 8), FIRST, 900, "t", "before");
    note(shard, shard_topic_make(shard, "__topics", 8), FIRST, 900, "gone", "before");
    struct bytes state = snapshot(shard);
    struct bytes low = cut(state, FIRST, 4), high = cut(state, FIRST + 4, 4);
    struct shard *left = shard_new(FIRST, 4), *right = shard_new(FIRST + 4, 4);
    CHECK(shard_restore(left, low.at, low.len) == 0);
    CHECK(shard_restore(right, high.at, high.len) == 0);
    note(left, shard_topic(left, "__topics", 8), FIRST, 901, "t", "of the left");
    note(left, shard_topic(left, "__topics", 8), FIRST, 902, "gone", "");
    note(right, shard_topic(right, "__topics", 8), FIRST + 4, 0, "t", "of the right");
    struct bytes a = snapshot(left), b = snapshot(right), both = join(b, a);
    struct shard *again = shard_new(FIRST, SLICES);
    CHECK(shard_restore(again, both.at, both.len) == 0);
    CHECK(says(again, "__topics", FIRST, "t", "of the left"));
    CHECK(says(again, "__topics", FIRST + 4, "t", "of the right"));
    CHECK(says(right, "__topics", FIRST, "gone", "before"));
    CHECK(kept(again, "__topics", FIRST, "gone") == NULL);
    /* The first two slices go elsewhere: the next two have newer settings than the right. */
    struct bytes third = cut(a, FIRST + 2, 2), later = join(b, third);
    struct shard *rest = shard_new(FIRST + 2, 6);
    CHECK(shard_restore(rest, later.at, later.len) == 0);
    CHECK(says(rest, "__topics", FIRST, "t", "of the left"));
    /* One event has one value. */
    note(right, shard_topic(right, "__topics", 8), FIRST, 901, "t", "of a liar");
    struct bytes lie = snapshot(right);
    refused(third, lie, "they have two values of one event");
    /* And the other way round; a topic exists if one of them has it. */
    note(right, shard_topic(right, "__topics", 8), FIRST, 950, "t", "of the right, later");
    shard_topic_make(right, "declared", 8)->declared = true;
    struct bytes newer = snapshot(right), last = join(third, newer);
    CHECK(shard_restore(rest, last.at, last.len) == 0);
    CHECK(says(rest, "__topics", FIRST, "t", "of the right, later"));
    CHECK(shard_topic(rest, "declared", 8)->declared);
    shard_topic_make(left, "declared", 8)->declared = false;
    note(left, shard_topic(left, "__offsets", 9), FIRST, 999, "k", "v");
    struct stream *stream = shard_stream(left, shard_topic(left, "declared", 8), FIRST + 3);
    CHECK(stream != NULL);
    struct bytes unsure = snapshot(left), sure = join(unsure, newer);
    CHECK(shard_restore(again, sure.at, sure.len) == 0);
    CHECK(shard_topic(again, "declared", 8)->declared);
    struct bytes *each[] = {&state, &low,   &high, &a,     &b,    &both,   &third,
                            &later, &lie, &newer, &last, &unsure, &sure};
    for (struct bytes **at = each, **end = each + sizeof each / sizeof *each;
         at < end; at++)
        free((*at)->at);
    shard_free(shard);
    shard_free(left);
    shard_free(right);
    shard_free(again);
    shard_free(rest);
}

/* Each log has a clock of its own: nobody is forgotten early because another one's is ahead. */
static void test_clocks_that_differ(void)
{
    struct shard *early = shard_new(0, 1), *late = shard_new(1, 1), *both = shard_new(0, 2);
    struct stream *one = shard_stream(early, shard_topic_make(early, "t", 1), 0);
    struct stream *other = shard_stream(late, shard_topic_make(late, "t", 1), 1);
    const int64_t hour = 3600 * SECOND;
    produce(early, one, 1, NOW - SECOND);
    produce(late, other, 2, NOW + hour - 2 * SECOND);
    struct bytes a = {0}, b = {0};
    a.at = shard_snapshot(early, NULL, 0, NOW, &a.len);
    b.at = shard_snapshot(late, NULL, 0, NOW + hour, &b.len);
    struct bytes made = join(a, b);
    CHECK(shard_snapshot_time(made.at, made.len) == NOW + hour);
    CHECK(shard_restore(both, made.at, made.len) == 0 && both->producer_count == 2);
    for (uint32_t i = 0; i <= both->producer_mask; i++)
        if (both->producers[i].used)
            CHECK(both->producers[i].last_us ==
                  NOW + hour - (both->producers[i].slice == 0 ? 1 : 2) * SECOND);
    free(a.at);
    free(b.at);
    free(made.at);
    shard_free(early);
    shard_free(late);
    shard_free(both);
}

/* Two full ranges become one, which then takes no new producer, and forgets none. */
static void test_two_full_tables(void)
{
    struct shard *half[2], *both = shard_new(0, 2);
    struct bytes state[2];
    for (uint32_t i = 0; i < 2; i++) {
        half[i] = shard_new(i, 1);
        struct stream *stream = shard_stream(half[i], shard_topic_make(half[i], "t", 1), i);
        for (uint32_t n = 0; n < PRODUCERS_MAX; n++)
            produce(half[i], stream, n, NOW);
        state[i] = snapshot(half[i]);
        CHECK(half[i]->producer_count == PRODUCERS_MAX);
    }
    struct bytes made = join(state[0], state[1]);
    CHECK(shard_restore(both, made.at, made.len) == 0);
    CHECK(both->producer_count == 2 * PRODUCERS_MAX);
    const struct stream *stream = shard_stream_get(both, shard_topic(both, "t", 1), 1);
    uint8_t id[PRODUCER_ID_BYTES] = {0xff, 0xff, 0xff, 0xff};
    struct producer *row;
    uint64_t expected;
    CHECK(shard_dedup(both, stream, id, 0, 0, false, NOW, &row, &expected) == DEDUP_FULL);
    const int64_t later = NOW + PRODUCER_IDLE_US + 2 * SECOND;
    CHECK(shard_dedup(both, stream, id, 0, 0, false, later, &row, &expected) == DEDUP_NEW);
    for (uint32_t i = 0; i < 2; i++) {
        free(state[i].at);
        shard_free(half[i]);
    }
    free(made.at);
    shard_free(both);
}

static void forge(uint8_t *bytes, size_t len, size_t at, uint32_t value)
{
    CHECK(at + 4 <= len);
    memcpy(bytes + at, &value, 4);
}

/* Nothing is read beyond what there is, and no count is believed before there is room for it. */
static void test_what_is_forged(void)
{
    struct shard *shard = sample(9, FIRST, SLICES);
    struct bytes state = snapshot(shard), part = cut(state, FIRST + 4, 4);
    size_t len;
    const char *why;
    for (size_t short_of = 0; short_of < part.len; short_of += 1 + short_of / 50) {
        uint8_t *copy = exact_copy(part.at, short_of);
        CHECK(state_cut(copy, short_of, FIRST + 4, 4, &len, &why) == NULL);
        free(copy);
    }
    for (size_t count = 8; count < 24; count += 4) { /* topics, streams, producers, values */
        for (uint32_t more = 1; more < 3; more++) {
            uint8_t *copy = exact_copy(part.at, part.len);
            uint32_t said;
            memcpy(&said, copy + count, 4);
            forge(copy, part.len, count, more == 1 ? said + 1 : UINT32_MAX);
            CHECK(state_cut(copy, part.len, FIRST + 4, 4, &len, &why) == NULL);
            forge(copy, part.len, count, said - 1);
            CHECK(state_cut(copy, part.len, FIRST + 4, 4, &len, &why) == NULL);
            free(copy);
        }
    }
    uint64_t seed = 5;
    for (int i = 0; i < 3000; i++) {
        uint8_t *copy = exact_copy(part.at, part.len), *made;
        for (uint64_t flips = 1 + random_next(&seed) % 4; flips > 0; flips--)
            copy[random_next(&seed) % (i % 2 ? part.len : 64)] ^= 1u << random_next(&seed) % 8;
        if ((made = state_cut(copy, part.len, FIRST + 4, 4, &len, &why)) != NULL) {
            struct shard *child = shard_new(FIRST + 4, 4); /* what is let through can be used */
            CHECK(shard_restore(child, made, len) == 0);
            shard_free(child);
        }
        free(made);
        free(copy);
    }
    free(state.at);
    free(part.at);
    shard_free(shard);
}

/* Rows that are in range each, and not together. */
static void test_rows_of_others(void)
{
    struct shard *shard = shard_new(0, 2);
    struct stream *stream = shard_stream(shard, shard_topic_make(shard, "a", 1), 0);
    produce(shard, stream, 1, NOW);
    produce(shard, stream, 2, NOW);
    shard_stream(shard, stream->topic, 1);
    note(shard, shard_topic_make(shard, "__offsets", 9), 0, 1, "k", "v");
    struct bytes state = {0};
    state.at = shard_snapshot(shard, NULL, 0, NOW, &state.len);
    const size_t streams = sizeof(struct state_header) + 2 + 1 + 2 + 9;
    const size_t second = streams + sizeof(struct stream_row);
    const size_t producers = second + sizeof(struct stream_row);
    const size_t values = producers + 2 * sizeof(struct producer_row);
    struct bytes good = cut(state, 0, 2);
    free(good.at);
    const struct {
        size_t at;
        uint32_t value;
    } wrong[] = {
        {0, 1}, {4, 1}, {4, 3}, {24, 1}, {32, 1}, {36, 0}, {32, UINT32_MAX},
        {streams, 2}, {streams + 20, 1u << 31}, {second + 4, 2}, {second + 4, 0},
        {producers + 16, 2}, {producers + 16, 1}, {producers + 20, 9},
        {producers + 28, 1}, {producers + 52, 0x7fffffff},
        {values, 0}, {values, 2}, {values + 4, 2}, {values + 8, 2}, {values + 12, 0},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        uint8_t *copy = exact_copy(state.at, state.len);
        size_t len;
        const char *why;
        forge(copy, state.len, wrong[i].at, wrong[i].value);
        uint8_t *made = state_cut(copy, state.len, 0, 2, &len, &why);
        if (made != NULL)
            fprintf(stderr, "forged at %zu: %u\n", wrong[i].at, wrong[i].value);
        CHECK(made == NULL && strcmp(why, "it is no state") == 0);
        free(copy);
    }
    uint8_t *copy = exact_copy(state.at, state.len); /* one producer twice */
    memcpy(copy + producers + sizeof(struct producer_row), copy + producers, 16);
    size_t len;
    const char *why;
    CHECK(state_cut(copy, state.len, 0, 2, &len, &why) == NULL);
    free(copy);
    free(state.at);
    shard_free(shard);
}

/* Nothing of a shard is changed by what it can not read. */
static void test_another_version(void)
{
    struct shard *shard = shard_new(4, 4);
    struct stream *stream = shard_stream(shard, shard_topic_make(shard, "a", 1), 5);
    produce(shard, stream, 1, NOW);
    size_t len;
    uint8_t *bytes = shard_snapshot(shard, NULL, 0, NOW, &len);
    CHECK(shard_restore(shard, bytes, len) == 0 && shard->producer_count == 1);
    for (uint32_t version = 0; version < 4; version++) {
        memcpy(bytes + 4, &version, sizeof version);
        CHECK(shard_restore(shard, bytes, len) == (version == STATE_VERSION ? 0 : -1));
        CHECK(shard_adopt(shard, bytes, len) == (version == STATE_VERSION ? 0 : -1));
        CHECK(shard->producer_count == 1);
    }
    CHECK(shard_adopt(shard, NULL, 0) == 0); /* none at all: of its own slices nothing is known */
    CHECK(shard->producer_count == 0 && shard->slice_first == 4 && shard->slice_count == 4);
    CHECK(shard_stream_get(shard, shard->topics[0], 5) == NULL);
    free(bytes);
    shard_free(shard);
}

int main(void)
{
    test_a_state_is_its_parts();
    test_parts_of_parts();
    test_settings_that_went_apart();
    test_clocks_that_differ();
    test_two_full_tables();
    test_what_is_forged();
    test_rows_of_others();
    test_another_version();
    return 0;
}
