/* Every value has one bucket, and the buckets' bounds say which. */
#include "base/histogram.h"

#include "codec_testing.h"

static void test_bounds_and_buckets_say_the_same(void)
{
    uint64_t from = 0;
    for (uint32_t bucket = 0; bucket < HISTOGRAM_BUCKETS; bucket++) {
        const uint64_t bound = histogram_bound(bucket);
        CHECK(bound > from);
        CHECK(histogram_bucket(from) == bucket && histogram_bucket(bound - 1) == bucket);
        if (bucket >= HISTOGRAM_PARTS && bucket < HISTOGRAM_BUCKETS - 1)
            CHECK((bound - from) * HISTOGRAM_PARTS <= from); /* at most a quarter wide */
        from = bound;
    }
    CHECK(from == UINT64_MAX && histogram_bucket(UINT64_MAX) == HISTOGRAM_BUCKETS - 1);
    CHECK(histogram_bound(HISTOGRAM_BUCKETS - 2) == (uint64_t)1 << HISTOGRAM_BITS);
}

static void test_powers_of_two_are_bounds(void)
{
    for (uint32_t bits = 0; bits < HISTOGRAM_BITS; bits++) {
        const uint64_t power = (uint64_t)1 << bits;
        CHECK(histogram_bound(histogram_bucket(power) - 1) == power);
    }
}

static void test_notes_are_counted(void)
{
    struct histogram histogram = {.sum = 0};
    uint64_t seed = 7, sum = 0, count = 0;
    for (int i = 0; i < 10000; i++) {
        const uint64_t value = random_next(&seed) >> (i % 60 + 4);
        histogram_note(&histogram, (int64_t)value);
        sum += value;
    }
    histogram_note(&histogram, -1); /* nothing */
    histogram_note(&histogram, INT64_MIN);
    for (uint32_t bucket = 0; bucket < HISTOGRAM_BUCKETS; bucket++)
        count += histogram.counts[bucket];
    CHECK(count == 10002 && histogram.sum == sum && histogram.counts[0] >= 2);
}

int main(void)
{
    test_bounds_and_buckets_say_the_same();
    test_powers_of_two_are_bounds();
    test_notes_are_counted();
    return 0;
}
