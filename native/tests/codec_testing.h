/* What the codec's tests share: checks that stay on, a small generator, buffers that end where
 * the page ends. */
#ifndef BARCO_CODEC_TESTING_H
#define BARCO_CODEC_TESTING_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/chunk.h"
#include "format/headers.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #condition);               \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Deterministic: the same numbers in every run (splitmix64). */
static inline uint64_t random_next(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* A copy on the heap of exactly len bytes, so that a sanitizer sees a read beyond it. */
static inline uint8_t *exact_copy(const void *p, size_t len)
{
    uint8_t *copy = calloc(1, len > 0 ? len : 1);
    CHECK(copy != NULL);
    if (len > 0)
        memcpy(copy, p, len);
    return copy;
}

/* Columns of count random events. Values are text that compresses or, if noise, bytes that do
 * not. Freed by columns_free(). */
struct test_columns {
    struct chunk_columns c;
    uint32_t *ts_delta, *ts_high, *key_len, *val_len;
    uint8_t *keys, *vals;
    uint32_t *hdr_len; /* these are not in c, unless columns_head() puts them there */
    uint8_t *hdrs;
};

static inline void columns_make(struct test_columns *t, uint64_t seed, uint32_t count,
                                uint32_t val_max, int noise)
{
    *t = (struct test_columns){.hdr_len = NULL};
    t->ts_delta = calloc(count, 4);
    t->ts_high = calloc(count, 4); /* Not in c, unless a test sets it. */
    t->key_len = calloc(count, 4);
    t->val_len = calloc(count, 4);
    t->keys = malloc((size_t)count * 16 + 1);
    t->vals = malloc((size_t)count * val_max + 1);
    CHECK(t->ts_delta && t->ts_high && t->key_len && t->val_len && t->keys && t->vals);
    uint32_t keys = 0, vals = 0;
    for (uint32_t i = 0; i < count; i++) {
        t->ts_delta[i] = i * 10;
        t->ts_high[i] = i * 7 % 20000;
        t->val_len[i] = (uint32_t)(random_next(&seed) % (val_max + 1));
        t->key_len[i] = i % 3 == 0 ? KEY_NULL : (uint32_t)(random_next(&seed) % 17);
        for (uint32_t k = 0; t->key_len[i] != KEY_NULL && k < t->key_len[i]; k++)
            t->keys[keys++] = (uint8_t)('a' + random_next(&seed) % 26);
        for (uint32_t k = 0; k < t->val_len[i]; k++)
            t->vals[vals++] = noise ? (uint8_t)random_next(&seed) : (uint8_t)('a' + k % 9);
    }
    t->c = (struct chunk_columns){
        .topic = "flights", .topic_len = 7, .slice = 3, .count = count, .epoch = 7,
        .base_offset = 1000, .base_timestamp_us = 1700000000000000,
        .max_timestamp_us = 1700000000000000 + 10 * (int64_t)count, .token_min = INT64_MIN,
        .token_max = INT64_MAX, .ts_delta = t->ts_delta, .key_len = t->key_len,
        .val_len = t->val_len, .keys = t->keys, .vals = t->vals, .keys_bytes = keys,
        .vals_bytes = vals};
}

/* Gives some events headers, and takes the values of some others. */
static inline void columns_head(struct test_columns *t, uint64_t seed)
{
    t->hdr_len = calloc(t->c.count, 4);
    t->hdrs = malloc((size_t)t->c.count * 64 + HEADERS_STORED_MAX);
    CHECK(t->hdr_len && t->hdrs);
    const uint8_t *from = t->vals;
    t->c.vals_bytes = 0;
    for (uint32_t i = 0; i < t->c.count; i++) {
        struct headers_draft draft = {.out = t->hdrs + t->c.hdrs_bytes};
        const uint32_t len = t->val_len[i];
        for (uint64_t n = random_next(&seed) % 3; n > 0; n--) {
            const struct header header = {(const uint8_t *)"name-7", from, 5 + (uint32_t)n / 2,
                                          len < 16 ? len : 16};
            CHECK(headers_add(&draft, &header));
        }
        t->hdr_len[i] = draft.len > 0 ? (uint32_t)draft.len : KEY_NULL;
        t->c.hdrs_bytes += (uint32_t)draft.len;
        const bool is_null = random_next(&seed) % 3 == 0;
        memmove(t->vals + t->c.vals_bytes, from, is_null ? 0 : len);
        t->val_len[i] = is_null ? KEY_NULL : len;
        t->c.vals_bytes += is_null ? 0 : len;
        from += len;
    }
    t->c.hdr_len = t->hdr_len;
    t->c.hdrs = t->hdrs;
}

static inline void columns_free(struct test_columns *t)
{
    free(t->ts_delta);
    free(t->ts_high);
    free(t->key_len);
    free(t->val_len);
    free(t->keys);
    free(t->vals);
    free(t->hdr_len);
    free(t->hdrs);
}

/* Whether unpacked columns are the ones that were sealed. */
static inline int columns_equal(const struct chunk_columns *a, const struct batch_columns *b)
{
    size_t lengths = (size_t)a->count * 4;
    if (a->count != b->count || a->vals_bytes != b->vals_bytes || a->keys_bytes != b->keys_bytes)
        return 0;
    if ((a->ts_delta == NULL) != (b->ts_delta == NULL) ||
        (a->ts_high == NULL) != (b->ts_high == NULL) ||
        (a->key_len == NULL) != (b->key_len == NULL) ||
        (a->hdr_len == NULL) != (b->hdr_len == NULL) || a->hdrs_bytes != b->hdrs_bytes)
        return 0;
    return (a->ts_delta == NULL || memcmp(a->ts_delta, b->ts_delta, lengths) == 0) &&
           (a->ts_high == NULL || memcmp(a->ts_high, b->ts_high, lengths) == 0) &&
           (a->key_len == NULL || memcmp(a->key_len, b->key_len, lengths) == 0) &&
           (a->hdr_len == NULL || memcmp(a->hdr_len, b->hdr_len, lengths) == 0) &&
           (a->hdrs_bytes == 0 || memcmp(a->hdrs, b->hdrs, a->hdrs_bytes) == 0) &&
           memcmp(a->val_len, b->val_len, lengths) == 0 &&
           (a->keys_bytes == 0 || memcmp(a->keys, b->keys, a->keys_bytes) == 0) &&
           (a->vals_bytes == 0 || memcmp(a->vals, b->vals, a->vals_bytes) == 0);
}

#endif
