/* Fuzzes the reader of client batches. Whatever the bytes: no crash, no read past the end, no
 * memory out of proportion; what is accepted becomes a chunk that holds the same events. */
#include "format/batch.h"

#include "format/headers.h"
#include "fuzz_codec.h"

static void forge_batch(uint8_t *data, size_t len)
{
    struct batch_header h;
    if (len < sizeof h)
        return;
    memcpy(&h, data, sizeof h);
    h.total_bytes = (uint32_t)len;
    memcpy(data, &h, sizeof h);
    size_t head = sizeof h + (size_t)h.section_count * SECTION_ENTRY_BYTES;
    if (head <= len)
        forge_sections(data + sizeof h, h.section_count, data + head, len - head);
}

static void check_stored(const struct batch_view *view, const struct batch_columns *columns)
{
    struct chunk_producer run = {.event_count = view->count};
    struct chunk_columns meta = {.topic = "topic", .topic_len = 5, .count = view->count,
                                 .base_timestamp_us = view->base_timestamp_us,
                                 .producers = &run, .producer_count = 1};
    size_t bound = chunk_bound_batch(view, &meta);
    uint8_t *out = malloc(bound);
    REQUIRE(chunk_seal_batch(view, &meta, out, bound) == bound);
    require_chunk(out, bound, columns);
    free(out);
}

static void check_batch(const uint8_t *data, size_t len)
{
    struct batch_view view;
    struct batch_columns columns;
    if (batch_open(data, len, &view) < 0)
        return;
    size_t scratch_bytes = batch_scratch_bytes(&view);
    REQUIRE(scratch_bytes <= (size_t)SECTION_RATIO_MAX * len + 64 * CHUNK_SECTIONS_MAX);
    uint8_t *scratch = malloc(scratch_bytes + 1);
    if (batch_unpack(&view, 1 << 20, scratch, scratch_bytes, &columns) == 0)
        check_stored(&view, &columns);
    free(scratch);
}

/* Whatever is valid can be walked, and written again, the same. */
static void check_headers(const uint8_t *data, size_t len)
{
    static uint8_t again[HEADERS_STORED_MAX];
    struct headers_draft draft = {.out = again};
    const uint8_t *at = data;
    if (!headers_valid(data, len))
        return;
    for (uint32_t left = headers_begin(&at); left > 0; left--) {
        const struct header header = headers_next(&at);
        REQUIRE(headers_add(&draft, &header));
    }
    REQUIRE(at == data + len && draft.len == len && memcmp(again, data, len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint8_t *copy = copy_of(data, len);
    check_headers(copy, len);
    check_batch(copy, len);
    forge_batch(copy, len);
    check_batch(copy, len);
    free(copy);
    return 0;
}
