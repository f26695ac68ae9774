/* What the codec's fuzzers share. Checksums would stop them at the door, so every input is tried
 * twice: as it is, and with its checksums made right, as a forger would. */
#ifndef BARCO_FUZZ_CODEC_H
#define BARCO_FUZZ_CODEC_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "format/chunk.h"
#include "base/crc32c.h"
#include "format/format.h"

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

/* A copy of exactly len bytes, so that AddressSanitizer sees the first byte too many. */
static inline uint8_t *copy_of(const uint8_t *data, size_t len)
{
    uint8_t *copy = calloc(1, len > 0 ? len : 1);
    REQUIRE(copy != NULL);
    if (len > 0)
        memcpy(copy, data, len);
    return copy;
}

/* Makes the crc of every section right whose bytes lie inside. */
static inline void forge_sections(uint8_t *directory, uint32_t count, uint8_t *data, size_t left)
{
    for (uint32_t i = 0; i < count; i++) {
        struct section_entry e;
        memcpy(&e, directory + (size_t)i * SECTION_ENTRY_BYTES, sizeof e);
        if (pad8(e.stored_len) > left)
            return;
        e.crc = crc32c(0, data, e.stored_len);
        memcpy(directory + (size_t)i * SECTION_ENTRY_BYTES, &e, sizeof e);
        data += pad8(e.stored_len);
        left -= pad8(e.stored_len);
    }
}

static inline int same_bytes(const void *a, const void *b, size_t len)
{
    return len == 0 || memcmp(a, b, len) == 0;
}

static inline void require_same_columns(const struct batch_columns *a,
                                        const struct batch_columns *b)
{
    size_t lengths = (size_t)a->count * 4;
    REQUIRE(a->count == b->count && a->vals_bytes == b->vals_bytes);
    REQUIRE(a->keys_bytes == b->keys_bytes && (a->key_len == NULL) == (b->key_len == NULL));
    REQUIRE((a->ts_delta == NULL) == (b->ts_delta == NULL));
    REQUIRE(same_bytes(a->val_len, b->val_len, lengths));
    REQUIRE(a->key_len == NULL || same_bytes(a->key_len, b->key_len, lengths));
    REQUIRE(a->ts_delta == NULL || same_bytes(a->ts_delta, b->ts_delta, lengths));
    REQUIRE((a->ts_high == NULL) == (b->ts_high == NULL));
    REQUIRE(a->ts_high == NULL || same_bytes(a->ts_high, b->ts_high, lengths));
    REQUIRE((a->hdr_len == NULL) == (b->hdr_len == NULL) && a->hdrs_bytes == b->hdrs_bytes);
    REQUIRE(a->hdr_len == NULL || same_bytes(a->hdr_len, b->hdr_len, lengths));
    REQUIRE(same_bytes(a->hdrs, b->hdrs, a->hdrs_bytes));
    REQUIRE(same_bytes(a->keys, b->keys, a->keys_bytes));
    REQUIRE(same_bytes(a->vals, b->vals, a->vals_bytes));
}

/* Opens a chunk that must be good, and requires its columns. */
static inline void require_chunk(const uint8_t *chunk, size_t len,
                                 const struct batch_columns *expected)
{
    struct chunk_view view;
    struct batch_columns columns;
    REQUIRE(chunk_open(chunk, len, &view) == 0 && chunk_verify(&view) == 0);
    size_t scratch_bytes = chunk_scratch_bytes(&view);
    uint8_t *scratch = malloc(scratch_bytes);
    REQUIRE(chunk_unpack_columns(&view, scratch, scratch_bytes, &columns) == 0);
    require_same_columns(expected, &columns);
    free(scratch);
}

static inline struct chunk_sealer *shared_sealer(void)
{
    static struct chunk_sealer *sealer;
    if (sealer == NULL)
        sealer = chunk_sealer_new(1);
    REQUIRE(sealer != NULL);
    return sealer;
}

#endif
