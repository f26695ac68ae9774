/* Chunks: what is sealed comes back; what is damaged, cut or dishonest is refused. */
#include "base/crc32c.h"
#include "codec_testing.h"

static struct chunk_sealer *sealer;

static uint8_t *seal(const struct chunk_columns *c, size_t *stored)
{
    size_t bound = chunk_bound(c);
    uint8_t *out = malloc(bound);
    CHECK(out != NULL);
    *stored = chunk_seal(sealer, c, out, bound);
    CHECK(*stored > 0 && *stored <= bound && *stored % 8 == 0);
    return out;
}

static void check_round_trip(const struct chunk_columns *c)
{
    size_t stored;
    uint8_t *sealed = seal(c, &stored);
    uint8_t *exact = exact_copy(sealed, stored);
    struct chunk_view view;
    struct batch_columns back;

    CHECK(chunk_open(exact, stored, &view) == 0);
    CHECK(chunk_verify(&view) == 0);
    CHECK(view.stored_bytes == stored && view.count == c->count && view.slice == c->slice);
    CHECK(view.epoch == c->epoch && view.base_offset == c->base_offset);
    CHECK(view.base_timestamp_us == c->base_timestamp_us);
    CHECK(view.max_timestamp_us == c->max_timestamp_us);
    CHECK(view.token_min == c->token_min && view.token_max == c->token_max);
    CHECK(view.topic_len == c->topic_len && memcmp(view.topic, c->topic, c->topic_len) == 0);
    size_t scratch_bytes = chunk_scratch_bytes(&view);
    uint8_t *scratch = malloc(scratch_bytes);
    CHECK(chunk_unpack_columns(&view, scratch, scratch_bytes, &back) == 0);
    CHECK(columns_equal(c, &back));
    CHECK(chunk_unpack_columns(&view, scratch, scratch_bytes - 1, &back) == -1);
    free(scratch);
    free(exact);
    free(sealed);
}

static void test_round_trips(void)
{
    static const struct { uint32_t count, val_max; } shapes[] = {
        {1, 0}, {1, 1}, {1, 255}, {1, 256}, {1, 1024}, {1, 1 << 20}, {2, 100}, {63, 40}, {64, 40},
        {65, 1}, {1000, 130}, {5000, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int noise = 0; noise < 2; noise++) {
            struct test_columns t;
            columns_make(&t, i + 1, shapes[i].count, shapes[i].val_max, noise);
            check_round_trip(&t.c);
            t.c.ts_high = t.ts_high;
            check_round_trip(&t.c);
            t.c.ts_delta = t.c.ts_high = NULL;
            check_round_trip(&t.c);
            t.c.key_len = NULL;
            t.c.keys_bytes = 0;
            check_round_trip(&t.c);
            columns_head(&t, i);
            check_round_trip(&t.c);
            columns_free(&t);
        }
}

/* One sealer over blocks that compress, do not, and are tiny or large: every block must decode
 * by itself, whatever the sealer saw before it. */
static void test_blocks_are_independent(void)
{
    uint64_t seed = 99;
    for (int i = 0; i < 300; i++) {
        struct test_columns t;
        uint32_t val_max = random_next(&seed) % 4 == 0 ? 40000 : 3000;
        columns_make(&t, seed, 1 + random_next(&seed) % 3, val_max, random_next(&seed) % 2);
        check_round_trip(&t.c);
        columns_free(&t);
    }
}

static void test_compression(void)
{
    struct test_columns t;
    struct chunk_view view;
    size_t stored;
    columns_make(&t, 5, 100, 1200, 0);
    uint8_t *text = seal(&t.c, &stored);
    CHECK(stored < t.c.vals_bytes / 4);
    CHECK(chunk_open(text, stored, &view) == 0);
    CHECK(chunk_section_get(view.sections, view.section_count, SECTION_VALUES)->codec == CODEC_LZ4);
    free(text);
    columns_free(&t);
    columns_make(&t, 5, 100, 1200, 1);
    uint8_t *noise = seal(&t.c, &stored);
    CHECK(chunk_open(noise, stored, &view) == 0);
    CHECK(chunk_section_get(view.sections, view.section_count, SECTION_VALUES)->codec == CODEC_RAW);
    free(noise);
    columns_free(&t);
}

static void test_small_capacity(void)
{
    struct test_columns t;
    columns_make(&t, 3, 10, 300, 0);
    size_t stored;
    uint8_t *whole = seal(&t.c, &stored);
    for (size_t cap = 0; cap < stored; cap++) {
        uint8_t *out = malloc(cap + 1);
        CHECK(chunk_seal(sealer, &t.c, out, cap) == 0);
        free(out);
    }
    uint8_t *fits = malloc(stored);
    CHECK(chunk_seal(sealer, &t.c, fits, stored) == stored);
    CHECK(memcmp(fits, whole, stored) == 0);
    free(fits);
    free(whole);
    columns_free(&t);
}

static void test_producers(void)
{
    struct test_columns t;
    struct chunk_view view;
    struct chunk_producer runs[2] = {
        {.id = {1, 2, 3}, .epoch = 4, .first_event = 0, .seq = 9, .event_count = 5},
        {.id = {4, 5, 6}, .epoch = 1, .first_event = 5, .seq = 1u << 31, .event_count = 5}};
    columns_make(&t, 3, 10, 30, 0);
    t.c.producers = runs;
    t.c.producer_count = 2;
    check_round_trip(&t.c);
    size_t stored;
    uint8_t *sealed = seal(&t.c, &stored);
    CHECK(chunk_open(sealed, stored, &view) == 0);
    const struct chunk_section *section =
        chunk_section_get(view.sections, view.section_count, SECTION_PRODUCERS);
    CHECK(section->raw_len == sizeof runs && memcmp(section->p, runs, sizeof runs) == 0);
    free(sealed);

    runs[1].event_count = 6; /* One more than the chunk has. */
    sealed = seal(&t.c, &stored);
    CHECK(chunk_open(sealed, stored, &view) == 0 && chunk_verify(&view) == -1);
    free(sealed);
    columns_free(&t);
}

static void test_every_cut(void)
{
    struct test_columns t;
    struct chunk_view view;
    size_t stored;
    columns_make(&t, 3, 20, 30, 0);
    uint8_t *sealed = seal(&t.c, &stored);
    for (size_t len = 0; len < stored; len++) {
        uint8_t *cut = exact_copy(sealed, len);
        CHECK(chunk_open(cut, len, &view) == -2);
        free(cut);
    }
    free(sealed);
    columns_free(&t);
}

/* No flipped bit anywhere passes both the opening and the verification. */
static void test_every_bit(void)
{
    struct test_columns t;
    struct chunk_view view;
    size_t stored;
    columns_make(&t, 3, 20, 30, 0);
    uint8_t *sealed = seal(&t.c, &stored);
    for (size_t bit = 0; bit < stored * 8; bit++) {
        sealed[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CHECK(chunk_open(sealed, stored, &view) != 0 || chunk_verify(&view) == -1);
        sealed[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    CHECK(chunk_open(sealed, stored, &view) == 0 && chunk_verify(&view) == 0);
    free(sealed);
    columns_free(&t);
}

/* Makes the header's crc right again, as someone would who wants to deceive. */
static void forge(uint8_t *chunk, size_t head)
{
    memset(chunk + 76, 0, 4);
    uint32_t crc = crc32c(0, chunk, head);
    memcpy(chunk + 76, &crc, 4);
}

static void test_dishonest_lengths(void)
{
    struct test_columns t;
    struct chunk_view view;
    size_t stored, head = 80 + 8 + 5 * 16;
    columns_make(&t, 3, 20, 300, 0);
    uint8_t *sealed = seal(&t.c, &stored);
    CHECK(chunk_open(sealed, stored, &view) == 0 && view.section_count == 5);
    static const uint32_t lies[] = {0, 1, 4, 79, 81, 1u << 16, 1u << 26, (1u << 26) + 1,
                                    0x7FFFFFFF, 0x80000000, 0xFFFFFFF8, 0xFFFFFFFF};
    static const size_t fields[] = {8, 12, 68, 72}; /* stored_bytes count raw_bytes flags */
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        for (size_t f = 0; f < 4 + 5 * 2; f++) {
            size_t at = f < 4 ? fields[f] : 88 + (f - 4) / 2 * 16 + 4 + (f - 4) % 2 * 4;
            uint8_t *bad = exact_copy(sealed, stored);
            if (memcmp(bad + at, &lies[i], 4) != 0) {
                memcpy(bad + at, &lies[i], 4);
                forge(bad, head);
                CHECK(chunk_open(bad, stored, &view) < 0);
            }
            free(bad);
        }
    }
    free(sealed);
    columns_free(&t);
}

/* A column whose crc is right but whose lengths do not add up is refused when unpacked. */
static void test_lengths_that_do_not_add_up(void)
{
    struct test_columns t;
    struct chunk_view view;
    struct batch_columns back;
    size_t stored;
    columns_make(&t, 3, 20, 30, 0);
    t.val_len[7]++;
    uint8_t *sealed = seal(&t.c, &stored);
    CHECK(chunk_open(sealed, stored, &view) == 0 && chunk_verify(&view) == 0);
    size_t scratch_bytes = chunk_scratch_bytes(&view);
    uint8_t *scratch = malloc(scratch_bytes);
    CHECK(chunk_unpack_columns(&view, scratch, scratch_bytes, &back) == -1);
    free(scratch);
    free(sealed);
    columns_free(&t);
}

int main(void)
{
    sealer = chunk_sealer_new(1);
    CHECK(sealer != NULL);
    test_round_trips();
    test_blocks_are_independent();
    test_compression();
    test_small_capacity();
    test_producers();
    test_every_cut();
    test_every_bit();
    test_dishonest_lengths();
    test_lengths_that_do_not_add_up();
    chunk_sealer_free(sealer);
    return 0;
}
