#include "format/section.h"

#include <lz4.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "format/headers.h"

/* Below this, resetting LZ4's table lazily is cheaper than clearing its 16 KiB (0.86 against
 * 1.44 us for 1 KiB of JSON); above, a cleared table compresses faster (113 against 124 us for
 * 128 KiB, and twice as fast where nothing compresses). */
enum { LAZY_RESET_BYTES = 4096 };

struct chunk_sealer {
    LZ4_stream_t stream;
    int acceleration;
};

struct chunk_sealer *chunk_sealer_new(int acceleration)
{
    struct chunk_sealer *sealer = malloc(sizeof *sealer);
    if (sealer == NULL)
        return NULL;
    LZ4_initStream(&sealer->stream, sizeof sealer->stream);
    sealer->acceleration = acceleration < 1 ? 1 : acceleration;
    return sealer;
}

void chunk_sealer_free(struct chunk_sealer *sealer)
{
    free(sealer);
}

/* A section to be written, in the order of the ids. */
struct part {
    uint8_t id;
    bool compress;
    uint32_t len;
    const void *p;
};

/* Whether the column goes into a chunk. Bytes that an event may lack are left out with the last. */
static bool wanted(const struct batch_columns *c, const struct column *column)
{
    if (column->always)
        return true;
    const struct column *beside = column_of(column->beside);
    if (beside != NULL && column_pointer(c, beside) == NULL)
        return false;
    return column->kind == COLUMN_BYTES ? column_bytes(c, column) > 0
                                        : column_pointer(c, column) != NULL;
}

static uint32_t list_parts(const struct chunk_columns *c, struct part parts[CHUNK_SECTIONS_MAX])
{
    uint32_t n = 0;
    for (const struct column *each = columns_table; each < columns_table + COLUMN_COUNT; each++)
        if (wanted(&c->columns, each))
            parts[n++] = (struct part){each->id, true, column_bytes(&c->columns, each),
                                       column_pointer(&c->columns, each)};
    if (c->producer_count > 0)
        parts[n++] = (struct part){SECTION_PRODUCERS, false, c->producer_count * PRODUCER_BYTES,
                                   c->producers};
    return n;
}

/* Keys are short and alike: at 8, what the broker takes for values, LZ4 steps over most of what
 * they share (9.5 bytes of 11 left against 6.2); at 1 a key costs 0 to 8 ns more (tuning.md). */
static int acceleration_of(const struct chunk_sealer *sealer, const struct part *part)
{
    return part->id == SECTION_KEYS ? 1 : sealer->acceleration;
}

/* One independent LZ4 block; its size, or 0 when it does not fit in cap. */
static uint32_t compress(struct chunk_sealer *sealer, const struct part *part, uint8_t *out,
                         size_t cap)
{
    if (part->len < LAZY_RESET_BYTES)
        LZ4_resetStream_fast(&sealer->stream);
    else
        LZ4_initStream(&sealer->stream, sizeof sealer->stream);
    const int acceleration = acceleration_of(sealer, part);
    int stored = LZ4_compress_fast_continue(&sealer->stream, part->p, (char *)out, (int)part->len,
                                            (int)cap, acceleration);
    return stored > 0 ? (uint32_t)stored : 0;
}

/* Writes the section straight to its place. Returns its padded size, or SIZE_MAX if cap is
 * too small. LZ4's room ends where it no longer saves enough, so that it gives up early. */
static size_t write_part(struct chunk_sealer *sealer, const struct part *part, uint8_t *out,
                         size_t cap, struct section_entry *entry)
{
    uint32_t stored = 0;
    if (sealer != NULL && part->compress && part->len >= SECTION_COMPRESS_MIN) {
        size_t room = part->len - (part->len >> SECTION_SAVING_SHIFT);
        stored = compress(sealer, part, out, room < cap ? room : cap);
    }
    uint8_t codec = stored > 0 ? CODEC_LZ4 : CODEC_RAW;
    if (codec == CODEC_RAW) {
        stored = part->len;
        if (stored > cap)
            return SIZE_MAX;
        if (stored > 0)
            memcpy(out, part->p, stored);
    }
    size_t padded = pad8(stored);
    if (padded > cap)
        return SIZE_MAX;
    memset(out + stored, 0, padded - stored);
    *entry = (struct section_entry){.id = part->id,
                                    .codec = codec,
                                    .raw_len = part->len,
                                    .stored_len = stored,
                                    .crc = crc32c(0, out, stored)};
    return padded;
}

uint32_t sections_count(const struct chunk_columns *c)
{
    struct part parts[CHUNK_SECTIONS_MAX];
    return list_parts(c, parts);
}

size_t sections_write(struct chunk_sealer *sealer, const struct chunk_columns *c, uint8_t *out,
                      size_t cap, struct section_entry entries[CHUNK_SECTIONS_MAX])
{
    struct part parts[CHUNK_SECTIONS_MAX];
    uint32_t section_count = list_parts(c, parts);
    size_t at = 0;
    for (uint32_t i = 0; i < section_count; i++) {
        size_t padded = write_part(sealer, &parts[i], out + at, cap - at, &entries[i]);
        if (padded == SIZE_MAX)
            return SIZE_MAX;
        at += padded;
    }
    return at;
}

static bool entry_valid(const struct section_entry *e)
{
    if (e->reserved != 0 || e->raw_len > SECTION_RAW_MAX)
        return false;
    if (e->codec == CODEC_RAW)
        return e->raw_len == e->stored_len;
    /* An honest LZ4 block never claims more than 255 times its size: a bomb is refused unread. */
    return e->codec == CODEC_LZ4 && e->stored_len > 0 && e->stored_len <= SECTION_RAW_MAX &&
           e->raw_len <= (uint64_t)e->stored_len * SECTION_RATIO_MAX + 64;
}

/* Whether the section's size fits the number of events. */
static bool size_valid(const struct section_entry *e, const struct section_source *s)
{
    const uint32_t event_count = s->event_count;
    if (e->id == SECTION_PRODUCERS)
        return s->producers_allowed && e->codec == CODEC_RAW && e->raw_len > 0 &&
               e->raw_len % PRODUCER_BYTES == 0 && e->raw_len / PRODUCER_BYTES <= event_count;
    const struct column *column = column_of(e->id);
    if (column == NULL || (column->bit == COLUMN_HEADERS && s->version == FORMAT_PLAIN))
        return false;
    return column->kind != COLUMN_BYTES ? e->raw_len == (uint64_t)event_count * 4
                                        : column->always || e->raw_len > 0;
}

/* Which sections must be there: those that always are, and what others stand beside. */
static bool presence_valid(uint32_t present)
{
    for (const struct column *each = columns_table; each < columns_table + COLUMN_COUNT; each++) {
        bool there = present >> each->id & 1;
        if (there ? each->beside != 0 && !(present >> each->beside & 1) : each->always)
            return false;
    }
    return true;
}

int sections_read(const struct section_source *s, struct chunk_section *out, uint32_t *raw_bytes)
{
    size_t at = 0;
    uint32_t present = 0, last_id = 0, raw = 0;

    if (s->section_count > CHUNK_SECTIONS_MAX || s->event_count == 0)
        return -1;
    for (uint32_t i = 0; i < s->section_count; i++) {
        struct section_entry e;
        memcpy(&e, s->directory + (size_t)i * SECTION_ENTRY_BYTES, sizeof e);
        if (e.id <= last_id || !entry_valid(&e) || !size_valid(&e, s))
            return -1;
        if (pad8(e.stored_len) > s->data_len - at)
            return -1;
        out[i] = (struct chunk_section){.id = e.id,
                                        .codec = e.codec,
                                        .raw_len = e.raw_len,
                                        .stored_len = e.stored_len,
                                        .crc = e.crc,
                                        .p = s->data + at};
        at += pad8(e.stored_len);
        raw += e.raw_len;
        last_id = e.id;
        present |= 1u << e.id;
    }
    *raw_bytes = raw;
    return at == s->data_len && presence_valid(present) ? 0 : -1;
}

int sections_verify(const struct chunk_section *sections, uint32_t section_count)
{
    for (uint32_t i = 0; i < section_count; i++) {
        const struct chunk_section *s = &sections[i];
        if (crc32c(0, s->p, s->stored_len) != s->crc)
            return -1;
        for (size_t at = s->stored_len; at < pad8(s->stored_len); at++)
            if (s->p[at] != 0)
                return -1;
    }
    return 0;
}

int section_unpack(const struct chunk_section *s, uint8_t *out)
{
    if (s->codec == CODEC_RAW) {
        memcpy(out, s->p, s->raw_len);
        return 0;
    }
    int raw = LZ4_decompress_safe((const char *)s->p, (char *)out, (int)s->stored_len,
                                  (int)s->raw_len);
    return raw >= 0 && (uint32_t)raw == s->raw_len ? 0 : -1;
}

/* Words are copied even when stored raw, for their alignment; bytes are not. */
static bool needs_scratch(const struct chunk_section *s)
{
    const struct column *column = column_of(s->id);
    return column != NULL && (column->kind != COLUMN_BYTES || s->codec == CODEC_LZ4);
}

size_t sections_scratch_bytes(const struct chunk_section *sections, uint32_t section_count)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < section_count; i++)
        if (needs_scratch(&sections[i]))
            bytes += pad8(sections[i].raw_len);
    return bytes;
}

static bool lengths_add_up(const struct batch_columns *c, uint16_t version)
{
    for (const struct column *each = columns_table; each < columns_table + COLUMN_COUNT; each++) {
        if (each->kind != COLUMN_BYTES)
            continue;
        const uint32_t *lengths = column_pointer(c, column_of(each->beside));
        /* 0 adds nothing either way. The first version has a value for each event. */
        const uint32_t none = each->always && version == FORMAT_PLAIN ? 0 : KEY_NULL;
        uint64_t bytes = 0;
        for (uint32_t i = 0; lengths != NULL && i < c->count; i++)
            bytes += lengths[i] == none ? 0 : lengths[i];
        if (bytes != column_bytes(c, each))
            return false;
    }
    return true;
}

static bool all_headers_valid(const struct batch_columns *c)
{
    const uint8_t *at = c->hdrs;
    for (uint32_t i = 0; c->hdr_len != NULL && i < c->count; i++) {
        if (c->hdr_len[i] == KEY_NULL)
            continue;
        if (at == NULL || !headers_valid(at, c->hdr_len[i]))
            return false;
        at += c->hdr_len[i];
    }
    return true;
}

bool times_valid(const struct batch_columns *c, int64_t base_us)
{
    for (uint32_t i = 0; c->ts_high != NULL && i < c->count; i++) {
        uint64_t delta = column_delta(c, i);
        int64_t sum;
        if (delta > INT64_MAX || __builtin_add_overflow(base_us, (int64_t)delta, &sum))
            return false;
    }
    return true;
}

static void assign_column(struct batch_columns *out, const struct chunk_section *s,
                          const uint8_t *p)
{
    const struct column *column = column_of(s->id);
    if (column == NULL)
        return;
    /* Words are always in scratch, which is aligned. */
    column_set(out, column, p);
    if (column->kind == COLUMN_BYTES)
        column_set_bytes(out, column, s->raw_len);
}

int sections_unpack(const struct chunk_section *sections, uint32_t section_count,
                    uint32_t event_count, uint16_t version, uint8_t *scratch,
                    size_t scratch_cap, struct batch_columns *out)
{
    size_t at = 0;
    *out = (struct batch_columns){.count = event_count};
    if (sections_scratch_bytes(sections, section_count) > scratch_cap)
        return -1;
    for (uint32_t i = 0; i < section_count; i++) {
        const struct chunk_section *s = &sections[i];
        if (!needs_scratch(s)) {
            assign_column(out, s, s->p);
            continue;
        }
        if (section_unpack(s, scratch + at) < 0)
            return -1;
        assign_column(out, s, scratch + at);
        at += pad8(s->raw_len);
    }
    return lengths_add_up(out, version) && all_headers_valid(out) ? 0 : -1;
}
