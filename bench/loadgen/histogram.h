/* Latencies in a log-linear histogram: 128 steps to a power of two, within 0.8 % of the truth. */
#ifndef LOADGEN_HISTOGRAM_H
#define LOADGEN_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_STEP_BITS 7
#define HISTOGRAM_BUCKETS ((65 - HISTOGRAM_STEP_BITS) << HISTOGRAM_STEP_BITS)

struct histogram {
    uint64_t count, max;
    uint64_t buckets[HISTOGRAM_BUCKETS];
};

static inline uint32_t histogram_index(uint64_t value)
{
    if (value >> HISTOGRAM_STEP_BITS == 0)
        return (uint32_t)value;
    uint32_t shift = 63 - (uint32_t)__builtin_clzll(value) - HISTOGRAM_STEP_BITS;
    return (shift << HISTOGRAM_STEP_BITS) + (uint32_t)(value >> shift);
}

static inline void histogram_add(struct histogram *h, uint64_t value, uint64_t times)
{
    h->buckets[histogram_index(value)] += times;
    h->count += times;
    if (value > h->max)
        h->max = value;
}

/* The value below which the share of the samples lies; 0 if there are none. */
static inline uint64_t histogram_quantile(const struct histogram *h, double share)
{
    uint64_t wanted = (uint64_t)(share * (double)h->count), seen = 0;
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += h->buckets[i];
        if (seen > wanted) {
            uint32_t shift = i >> HISTOGRAM_STEP_BITS;
            if (shift < 2)
                return i;
            uint64_t step = (i & ((1u << HISTOGRAM_STEP_BITS) - 1)) | (1u << HISTOGRAM_STEP_BITS);
            return step << (shift - 1);
        }
    }
    return h->max;
}

#endif
