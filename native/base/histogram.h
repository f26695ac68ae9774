/* histogram: how often something took how long, in buckets that are as fine as the value is small:
 * each power of two has HISTOGRAM_PARTS of them. Fixed memory, no lock: one thread notes and reads.
 */
#ifndef BARCO_HISTOGRAM_H
#define BARCO_HISTOGRAM_H

#include <assert.h>
#include <stdint.h>

#define HISTOGRAM_PART_BITS 2u
#define HISTOGRAM_PARTS (1u << HISTOGRAM_PART_BITS)
#define HISTOGRAM_BITS 26u /* values from 2^26 on (67 s, of microseconds) share the last bucket */
#define HISTOGRAM_BUCKETS ((HISTOGRAM_BITS - HISTOGRAM_PART_BITS + 1) * HISTOGRAM_PARTS + 1)

struct histogram {
    uint64_t counts[HISTOGRAM_BUCKETS];
    uint64_t sum;
};

/* Values below HISTOGRAM_PARTS have a bucket each; of others the first bits decide. */
static inline uint32_t histogram_bucket(uint64_t value)
{
    if (value < HISTOGRAM_PARTS)
        return (uint32_t)value;
    if (value >> HISTOGRAM_BITS != 0)
        return HISTOGRAM_BUCKETS - 1;
    const uint32_t shift = 63u - (uint32_t)__builtin_clzll(value) - HISTOGRAM_PART_BITS;
    return shift * HISTOGRAM_PARTS + (uint32_t)(value >> shift);
}

/* The lowest value that is in a later bucket. The last bucket has none: UINT64_MAX. */
static inline uint64_t histogram_bound(uint32_t bucket)
{
    assert(bucket < HISTOGRAM_BUCKETS);
    if (bucket == HISTOGRAM_BUCKETS - 1)
        return UINT64_MAX;
    const uint32_t next = bucket + 1;
    if (next < 2 * HISTOGRAM_PARTS)
        return next;
    const uint32_t shift = next / HISTOGRAM_PARTS - 1;
    return (uint64_t)(HISTOGRAM_PARTS + next % HISTOGRAM_PARTS) << shift;
}

/* What is less than nothing, as two clocks may have it, is nothing. */
static inline void histogram_note(struct histogram *histogram, int64_t value)
{
    const uint64_t least = value > 0 ? (uint64_t)value : 0;
    histogram->counts[histogram_bucket(least)]++;
    histogram->sum += least;
}

#endif
