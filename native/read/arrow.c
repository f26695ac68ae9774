#include "read/arrow.h"

#include <stdbool.h>
#include <string.h>

#include "base/crc32c.h"
#include "format/section.h"

uint32_t arrow_parts(uint32_t columns)
{
    uint32_t parts = 0;
    for (const struct column *each = columns_table; each < columns_table + COLUMN_COUNT; each++)
        if (columns & each->bit)
            parts |= 1u << each->id;
    return parts;
}

/* Unpacks one section, its crc checked. The bytes, 0 if it is absent, or -1. */
static int64_t unpack(const struct chunk_view *view, uint8_t id, void *out)
{
    const struct chunk_section *s = chunk_section_get(view->sections, view->section_count, id);
    if (s == NULL || s->raw_len == 0)
        return 0;
    if (s->p == NULL || crc32c(0, s->p, s->stored_len) != s->crc || section_unpack(s, out) < 0)
        return -1;
    return s->raw_len;
}

static int append_numbers(struct arrow_columns *c, const struct chunk_view *view,
                          const struct column *column)
{
    int64_t *out = c->numbers[column - columns_table] + c->rows;
    int64_t bytes = unpack(view, column->id, c->scratch);
    if (bytes < 0)
        return -1;
    uint64_t base = column->id == SECTION_TS_DELTA ? (uint64_t)view->base_timestamp_us : 0;
    for (uint32_t i = 0; i < view->count; i++)
        out[i] = (int64_t)(base + (bytes > 0 ? c->scratch[i] : 0));
    if ((bytes = unpack(view, column_high(column)->id, c->scratch)) < 0)
        return -1;
    for (uint32_t i = 0; bytes > 0 && i < view->count; i++)
        out[i] = (int64_t)((uint64_t)out[i] + ((uint64_t)c->scratch[i] << 32));
    return 0;
}

static void set_bits(uint8_t *bits, size_t first, size_t count)
{
    size_t at = first, end = first + count;
    for (; at < end && at % 8 != 0; at++)
        bits[at / 8] |= (uint8_t)(1u << at % 8);
    for (; at + 8 <= end; at += 8)
        bits[at / 8] = 0xFF;
    for (; at < end; at++)
        bits[at / 8] |= (uint8_t)(1u << at % 8);
}

/* Marks the rows that have bytes, and makes the lengths of the others 0. How many those are. */
static size_t mark_rows(struct arrow_bytes *b, uint32_t *lengths, size_t first, uint32_t count)
{
    size_t nulls = 0;
    for (uint32_t i = 0; i < count; i++)
        nulls += lengths[i] == KEY_NULL;
    b->nulls += nulls;
    if (nulls == 0) {
        set_bits(b->validity, first, count);
        return 0;
    }
    for (uint32_t i = 0; i < count; i++)
        if (lengths[i] != KEY_NULL)
            set_bits(b->validity, first + i, 1);
        else
            lengths[i] = 0;
    return nulls;
}

static int append_bytes(struct arrow_columns *c, const struct chunk_view *view,
                        const struct column *column)
{
    struct arrow_bytes *b = &c->bytes[column - columns_table];
    int32_t *offsets = b->offsets + c->rows;
    uint64_t end = b->filled;
    int64_t lengths = unpack(view, column->beside, c->scratch);
    int64_t bytes = unpack(view, column->id, b->data + b->filled);
    if (lengths < 0 || bytes < 0)
        return -1;
    if (lengths == 0)
        memset(c->scratch, 0xFF, (size_t)view->count * 4); /* KEY_NULL, every one */
    if (mark_rows(b, c->scratch, c->rows, view->count) > 0 && column->always &&
        view->version == FORMAT_PLAIN)
        return -1;
    for (uint32_t i = 0; i < view->count; i++) {
        offsets[i] = (int32_t)end;
        end += c->scratch[i];
    }
    offsets[view->count] = (int32_t)end;
    if (end != b->filled + (uint64_t)bytes)
        return -1;
    b->filled = end;
    return 0;
}

int arrow_append(struct arrow_columns *c, const struct chunk_view *view)
{
    for (uint32_t i = 0; i < COLUMN_COUNT; i++)
        if ((c->numbers[i] != NULL && append_numbers(c, view, &columns_table[i]) < 0) ||
            (c->bytes[i].offsets != NULL && append_bytes(c, view, &columns_table[i]) < 0))
            return -1;
    c->rows += view->count;
    return 0;
}
