/* Client batches: what is sealed comes back, is stored as it came, and lies are refused. */
#include "format/batch.h"

#include "base/crc32c.h"
#include "codec_testing.h"

static struct chunk_sealer *sealer;

static uint8_t *seal(struct chunk_sealer *with, const struct chunk_columns *c, size_t *len)
{
    size_t bound = chunk_bound(c);
    uint8_t *large = malloc(bound);
    *len = batch_seal(with, c, large, bound);
    CHECK(*len > 0 && *len % 8 == 0);
    uint8_t *exact = exact_copy(large, *len);
    free(large);
    return exact;
}

/* batch_unpack() with fresh scratch, given back to free. */
static int unpack(const uint8_t *batch, size_t len, uint32_t event_max, uint8_t **scratch,
                  struct batch_columns *out)
{
    struct batch_view view;
    *scratch = NULL;
    if (batch_open(batch, len, &view) < 0)
        return -1;
    size_t bytes = batch_scratch_bytes(&view);
    *scratch = malloc(bytes + 1);
    return batch_unpack(&view, event_max, *scratch, bytes, out);
}

static void test_round_trips(void)
{
    for (int i = 0; i < 60; i++) {
        struct test_columns t;
        struct batch_columns back;
        uint8_t *scratch;
        size_t len;
        columns_make(&t, (uint64_t)i, 1 + (uint32_t)i * 7, 200, i % 2);
        if (i % 3 == 2)
            t.c.ts_high = t.ts_high;
        if (i % 3 == 1)
            t.c.ts_delta = NULL;
        if (i % 5 == 1) {
            t.c.key_len = NULL;
            t.c.keys_bytes = 0;
        }
        uint8_t *batch = seal(i % 4 == 0 ? NULL : sealer, &t.c, &len);
        CHECK(unpack(batch, len, 200, &scratch, &back) == 0);
        CHECK(columns_equal(&t.c, &back));
        free(scratch);
        free(batch);
        columns_head(&t, (uint64_t)i);
        batch = seal(sealer, &t.c, &len);
        CHECK(unpack(batch, len, 200, &scratch, &back) == 0);
        CHECK(columns_equal(&t.c, &back));
        free(scratch);
        free(batch);
        columns_free(&t);
    }
}

static void test_stored_as_it_came(void)
{
    struct test_columns t;
    struct batch_view batch;
    struct chunk_view chunk;
    struct chunk_producer run = {.id = {9}, .event_count = 50};
    size_t len;
    columns_make(&t, 4, 50, 300, 0);
    uint8_t *bytes = seal(sealer, &t.c, &len);
    CHECK(batch_open(bytes, len, &batch) == 0);
    t.c.producers = &run;
    t.c.producer_count = 1;
    size_t bound = chunk_bound_batch(&batch, &t.c);
    uint8_t *out = malloc(bound);
    CHECK(chunk_seal_batch(&batch, &t.c, out, bound - 1) == 0);
    CHECK(chunk_seal_batch(&batch, &t.c, out, bound) == bound);
    CHECK(chunk_open(out, bound, &chunk) == 0 && chunk_verify(&chunk) == 0);
    CHECK(chunk.section_count == batch.section_count + 1);
    CHECK(chunk.raw_bytes == batch.raw_bytes + PRODUCER_BYTES);
    for (uint32_t i = 0; i < batch.section_count; i++) {
        CHECK(chunk.sections[i].stored_len == batch.sections[i].stored_len);
        CHECK(memcmp(chunk.sections[i].p, batch.sections[i].p, batch.sections[i].stored_len) == 0);
    }
    struct batch_columns back;
    size_t scratch_bytes = chunk_scratch_bytes(&chunk);
    uint8_t *scratch = malloc(scratch_bytes);
    CHECK(chunk_unpack_columns(&chunk, scratch, scratch_bytes, &back) == 0);
    CHECK(columns_equal(&t.c, &back));
    free(scratch);
    free(out);
    free(bytes);
    columns_free(&t);
}

static void test_limits(void)
{
    uint32_t val_len[2] = {10, 100}, key_len[2] = {KEY_BYTES_MAX + 1, KEY_NULL};
    uint8_t *bytes = calloc(1, KEY_BYTES_MAX + 1), *scratch;
    struct chunk_columns c = {.topic = "", .count = 2, .val_len = val_len, .vals = bytes,
                              .vals_bytes = 110, .keys = bytes};
    struct batch_columns back;
    size_t len;
    uint8_t *batch = seal(sealer, &c, &len);
    CHECK(unpack(batch, len, 100, &scratch, &back) == 0);
    free(scratch);
    CHECK(unpack(batch, len, 99, &scratch, &back) == -3);
    free(scratch);
    free(batch);

    c.key_len = key_len;
    c.keys_bytes = KEY_BYTES_MAX + 1;
    batch = seal(sealer, &c, &len);
    CHECK(unpack(batch, len, 100, &scratch, &back) == -1);
    free(scratch);
    free(batch);
    key_len[0]--;
    c.keys_bytes--;
    batch = seal(sealer, &c, &len);
    CHECK(unpack(batch, len, 100, &scratch, &back) == 0);
    free(scratch);
    free(batch);
    free(bytes);
}

static void test_every_cut_and_bit(void)
{
    struct test_columns t;
    struct batch_view view;
    struct batch_columns back;
    uint8_t *scratch;
    size_t len;
    columns_make(&t, 3, 20, 30, 0);
    uint8_t *batch = seal(sealer, &t.c, &len);
    for (size_t cut = 0; cut < len; cut++) {
        uint8_t *exact = exact_copy(batch, cut);
        CHECK(batch_open(exact, cut, &view) == -1);
        free(exact);
    }
    /* The directory is not under a crc: a wrong raw length only shows when it is unpacked. The base
     * time alone can change unnoticed. */
    for (size_t bit = 0; bit < len * 8; bit++) {
        if (bit / 8 >= 16 && bit / 8 < 24)
            continue;
        batch[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CHECK(unpack(batch, len, 1000, &scratch, &back) == -1);
        free(scratch);
        batch[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    free(batch);
    columns_free(&t);
}

/* A directory for two raw columns, one event of 8 bytes, to be bent. */
struct forged {
    struct batch_header header;
    struct section_entry entries[2];
    uint32_t val_len[2];
    uint8_t value[8];
};

static struct forged forge(void)
{
    struct forged f = {.header = {.magic = BATCH_MAGIC, .version = 1, .section_count = 2,
                                  .count = 1, .total_bytes = sizeof f},
                       .entries = {{.id = SECTION_VAL_LEN, .raw_len = 4, .stored_len = 4},
                                   {.id = SECTION_VALUES, .raw_len = 8, .stored_len = 8}},
                       .val_len = {8, 0}};
    f.entries[0].crc = crc32c(0, f.val_len, 4);
    f.entries[1].crc = crc32c(0, f.value, 8);
    return f;
}

static int open_forged(const struct forged *f)
{
    struct batch_view view;
    return batch_open((const uint8_t *)f, sizeof *f, &view);
}

static void test_lies(void)
{
    struct forged honest = forge(), f;
    CHECK(open_forged(&honest) == 0);
#define LIE(change)                                                                                \
    f = honest;                                                                                    \
    f.change;                                                                                      \
    CHECK(open_forged(&f) == -1)
    LIE(header.magic ^= 1);
    LIE(header.version = 3);
    LIE(header.version = 0);
    LIE(header.flags = 1);
    LIE(header.reserved = 1);
    LIE(header.count = 0);
    LIE(header.count = 2);
    LIE(header.count = 0x40000001); /* 4 x this is 4, in 32 bits. */
    LIE(header.total_bytes -= 8);
    LIE(header.base_timestamp_us = TIMESTAMP_US_MIN - 1);
    LIE(header.base_timestamp_us = INT64_MAX);
    LIE(header.section_count = 1);
    LIE(header.section_count = 3);
    LIE(header.section_count = 255);
    LIE(entries[0].id = 0);
    LIE(entries[0].id = SECTION_TS_HIGH);
    LIE(entries[1].id = SECTION_TS_HIGH);
    LIE(entries[1].id = 7);
    LIE(entries[0].id = SECTION_TS_DELTA);
    LIE(entries[1].id = SECTION_VAL_LEN);
    LIE(entries[1].id = SECTION_PRODUCERS);
    LIE(entries[1].id = SECTION_KEYS);
    LIE(entries[1].id = 255);
    LIE(entries[1].codec = 2);
    LIE(entries[1].codec = CODEC_LZ4; f.entries[1].raw_len = 8 * SECTION_RATIO_MAX + 65);
    LIE(entries[1].codec = CODEC_LZ4; f.entries[1].raw_len = UINT32_MAX);
    LIE(entries[1].reserved = 1);
    LIE(entries[1].raw_len = 9);
    LIE(entries[1].stored_len = UINT32_MAX);
    LIE(entries[1].stored_len = UINT32_MAX - 6; f.entries[1].raw_len = UINT32_MAX - 6);
    LIE(entries[0].crc ^= 1);
    LIE(val_len[1] = 1); /* Padding. */
#undef LIE
}

static void test_lies_inside(void)
{
    struct forged f = forge();
    struct batch_columns back;
    uint8_t *scratch;
    f.val_len[0] = 9;
    f.entries[0].crc = crc32c(0, f.val_len, 4);
    CHECK(unpack((const uint8_t *)&f, sizeof f, 100, &scratch, &back) == -1);
    free(scratch);
    f = forge(); /* Not an LZ4 block, under a right crc. */
    f.entries[1].codec = CODEC_LZ4;
    f.entries[1].raw_len = 500;
    memset(f.value, 0xFF, 8);
    f.entries[1].crc = crc32c(0, f.value, 8);
    CHECK(unpack((const uint8_t *)&f, sizeof f, 1000, &scratch, &back) == -1);
    free(scratch);
}

/* High halves of deltas whose sums with the base are no times. */
static void test_times_over_the_last(void)
{
    static const uint32_t highs[] = {0x7fffffff, 0x80000000, UINT32_MAX};
    struct test_columns t;
    struct batch_columns back;
    columns_make(&t, 3, 40, 20, 0);
    t.c.ts_high = t.ts_high;
    for (size_t i = 0; i <= sizeof highs / sizeof *highs; i++) {
        uint8_t *scratch;
        size_t len;
        t.ts_high[39] = i == 0 ? 0x7fffffff - 400000 : highs[i - 1];
        uint8_t *batch = seal(sealer, &t.c, &len);
        CHECK(unpack(batch, len, 100, &scratch, &back) == (i == 0 ? 0 : -1));
        free(scratch);
        free(batch);
    }
    columns_free(&t);
}

int main(void)
{
    sealer = chunk_sealer_new(1);
    test_round_trips();
    test_stored_as_it_came();
    test_limits();
    test_every_cut_and_bit();
    test_lies();
    test_lies_inside();
    test_times_over_the_last();
    chunk_sealer_free(sealer);
    return 0;
}
