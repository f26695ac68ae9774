/* Fuzzes the reader of chunks. Whatever the bytes: no crash, no read past the end, no memory out
 * of proportion, and what is accepted can be sealed and read again. */
#include "fuzz_codec.h"

#include "read/arrow.h"

static void forge_chunk(uint8_t *data, size_t len)
{
    struct chunk_header h;
    if (len < sizeof h)
        return;
    memcpy(&h, data, sizeof h);
    size_t directory = CHUNK_HEADER_BYTES + pad8(h.topic_len);
    size_t head = directory + (size_t)h.section_count * SECTION_ENTRY_BYTES;
    if (head > len)
        return;
    forge_sections(data + directory, h.section_count, data + head, len - head);
    h.header_crc = 0;
    memcpy(data, &h, sizeof h);
    h.header_crc = crc32c(0, data, head);
    memcpy(data, &h, sizeof h);
}

/* Seals the columns again: they must come back the same. */
static void check_again(const struct chunk_view *view, const struct batch_columns *columns)
{
    struct chunk_columns c = {.topic = view->topic, .topic_len = view->topic_len,
                              .count = columns->count, .base_offset = view->base_offset,
                              .ts_delta = columns->ts_delta, .ts_high = columns->ts_high,
                              .key_len = columns->key_len,
                              .val_len = columns->val_len, .keys = columns->keys,
                              .vals = columns->vals, .keys_bytes = columns->keys_bytes,
                              .vals_bytes = columns->vals_bytes,
                              .hdr_len = columns->hdr_len, .hdrs = columns->hdrs,
                              .hdrs_bytes = columns->hdrs_bytes};
    size_t bound = chunk_bound(&c);
    uint8_t *out = malloc(bound);
    size_t stored = chunk_seal(shared_sealer(), &c, out, bound);
    REQUIRE(stored > 0 && stored <= bound && stored % 8 == 0);
    require_chunk(out, stored, columns);
    free(out);
}

/* Fills Arrow's columns from a chunk or a part of one. */
static int fill_columns(const struct chunk_view *view, uint32_t columns)
{
    struct arrow_columns c = {0};
    c.scratch = malloc((size_t)view->count * 4);
    for (uint32_t i = 0; i < COLUMN_COUNT; i++) {
        const struct column *column = &columns_table[i];
        if (column->kind == COLUMN_LOW && columns & column->bit)
            c.numbers[i] = malloc((size_t)view->count * 8);
        if (column->kind != COLUMN_BYTES || !(columns & column->bit))
            continue;
        const struct chunk_section *s = chunk_section_get(view->sections, view->section_count,
                                                          column->id);
        c.bytes[i].offsets = malloc((size_t)view->count * 4 + 4);
        c.bytes[i].data = malloc(s == NULL ? 1 : s->raw_len + (size_t)column->always);
        c.bytes[i].validity = calloc(1, view->count / 8 + 1);
    }
    int status = arrow_append(&c, view);
    REQUIRE(status == -1 || (status == 0 && c.rows == view->count));
    free(c.scratch);
    for (uint32_t i = 0; i < COLUMN_COUNT; i++) {
        free(c.numbers[i]);
        free(c.bytes[i].offsets);
        free(c.bytes[i].validity);
        free(c.bytes[i].data);
    }
    return status;
}

/* A part made of a chunk is read as the chunk itself; any bytes may be taken for a part. */
static void check_parts(const uint8_t *data, size_t len, const struct chunk_view *whole)
{
    for (uint32_t columns = 0; columns < 16; columns++) {
        uint32_t parts = arrow_parts(columns);
        struct chunk_view view;
        size_t bytes;
        if (chunk_open_part(data, len, parts, &view, &bytes) == 0) {
            REQUIRE(bytes <= len);
            fill_columns(&view, columns);
        }
        if (whole == NULL)
            continue;
        size_t made = chunk_part_bytes(whole, parts);
        uint8_t *part = malloc(made);
        chunk_part_write(whole, parts, part);
        REQUIRE(chunk_open_part(part, made, parts, &view, &bytes) == 0 && bytes == made);
        REQUIRE(chunk_open_part(part, made - 1, parts, &view, &bytes) == -2);
        chunk_open_part(part, made, parts, &view, &bytes);
        REQUIRE(fill_columns(&view, columns) == fill_columns(whole, columns));
        free(part);
    }
}

static void check_chunk(const uint8_t *data, size_t len)
{
    struct chunk_view view;
    struct batch_columns columns;
    int status = chunk_open(data, len, &view);
    REQUIRE(status == 0 || status == -1 || status == -2);
    check_parts(data, len, status == 0 ? &view : NULL);
    if (status != 0)
        return;
    REQUIRE(view.stored_bytes <= len && view.section_count <= CHUNK_SECTIONS_MAX);
    int verified = chunk_verify(&view);
    size_t scratch_bytes = chunk_scratch_bytes(&view);
    REQUIRE(scratch_bytes <= (size_t)SECTION_RATIO_MAX * len + 64 * CHUNK_SECTIONS_MAX);
    uint8_t *scratch = malloc(scratch_bytes + 1);
    if (chunk_unpack_columns(&view, scratch, scratch_bytes, &columns) == 0 && verified == 0)
        check_again(&view, &columns);
    free(scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint8_t *copy = copy_of(data, len);
    check_chunk(copy, len);
    forge_chunk(copy, len);
    check_chunk(copy, len);
    free(copy);
    return 0;
}
