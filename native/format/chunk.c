#include "format/chunk.h"

#include <stdbool.h>
#include <string.h>

#include "base/crc32c.h"
#include "format/section.h"

size_t chunk_head_bytes(uint8_t topic_len, uint32_t section_count)
{
    return CHUNK_HEADER_BYTES + pad8(topic_len) + (size_t)section_count * SECTION_ENTRY_BYTES;
}

size_t chunk_bound(const struct chunk_columns *c)
{
    size_t bytes = chunk_head_bytes(c->topic_len, CHUNK_SECTIONS_MAX);
    for (const struct column *each = columns_table; each < columns_table + COLUMN_COUNT; each++)
        if (column_pointer(&c->columns, each) != NULL)
            bytes += pad8(column_bytes(&c->columns, each));
    return bytes + (size_t)c->producer_count * PRODUCER_BYTES;
}

void chunk_write_head(const struct chunk_columns *c, uint16_t version,
                      const struct section_entry *entries, uint32_t section_count,
                      size_t stored_bytes, uint8_t *out)
{
    uint8_t *topic = out + CHUNK_HEADER_BYTES;
    uint8_t *directory = topic + pad8(c->topic_len);
    size_t head = chunk_head_bytes(c->topic_len, section_count);
    struct chunk_header h = {
        .magic = CHUNK_MAGIC,
        .version = version,
        .topic_len = c->topic_len,
        .section_count = (uint8_t)section_count,
        .stored_bytes = (uint32_t)stored_bytes,
        .count = c->count,
        .epoch = c->epoch,
        .base_offset = c->base_offset,
        .base_timestamp_us = c->base_timestamp_us,
        .max_timestamp_us = c->max_timestamp_us,
        .token_min = c->token_min,
        .token_max = c->token_max,
        .slice = c->slice,
    };
    for (uint32_t i = 0; i < section_count; i++)
        h.raw_bytes += entries[i].raw_len;
    memset(topic, 0, pad8(c->topic_len));
    memcpy(topic, c->topic, c->topic_len);
    memcpy(directory, entries, (size_t)section_count * SECTION_ENTRY_BYTES);
    memcpy(out, &h, sizeof h);
    h.header_crc = crc32c(0, out, head);
    memcpy(out, &h, sizeof h);
}

size_t chunk_seal(struct chunk_sealer *sealer, const struct chunk_columns *c, uint8_t *out,
                  size_t cap)
{
    struct section_entry entries[CHUNK_SECTIONS_MAX];
    uint32_t section_count = sections_count(c);
    size_t head = chunk_head_bytes(c->topic_len, section_count);

    if (head > cap)
        return 0;
    size_t written = sections_write(sealer, c, out + head, cap - head, entries);
    if (written == SIZE_MAX)
        return 0;
    const uint16_t version = columns_plain(&c->columns) ? FORMAT_PLAIN : FORMAT_HEADERS;
    chunk_write_head(c, version, entries, section_count, head + written, out);
    return head + written;
}

/* The header's crc covers itself with the field at zero, the topic and the directory. */
static bool head_crc_valid(const uint8_t *buf, const struct chunk_header *header, size_t head)
{
    struct chunk_header h = *header;
    h.header_crc = 0;
    uint32_t crc = crc32c(0, &h, sizeof h);
    return crc32c(crc, buf + sizeof h, head - sizeof h) == header->header_crc;
}

static bool header_valid(const struct chunk_header *h)
{
    return h->magic == CHUNK_MAGIC &&
           (h->version == FORMAT_PLAIN || h->version == FORMAT_HEADERS) && h->flags == 0 &&
           h->topic_len > 0 && h->topic_len <= TOPIC_NAME_BYTES_MAX &&
           h->section_count <= CHUNK_SECTIONS_MAX && h->count > 0 &&
           h->base_offset <= (uint64_t)INT64_MAX - h->count &&
           h->stored_bytes % 8 == 0 &&
           h->stored_bytes >= chunk_head_bytes(h->topic_len, h->section_count);
}

static void fill_view(const uint8_t *buf, const struct chunk_header *h, struct chunk_view *out)
{
    out->base = buf;
    out->stored_bytes = h->stored_bytes;
    out->count = h->count;
    out->slice = h->slice;
    out->raw_bytes = h->raw_bytes;
    out->epoch = h->epoch;
    out->base_offset = h->base_offset;
    out->base_timestamp_us = h->base_timestamp_us;
    out->max_timestamp_us = h->max_timestamp_us;
    out->token_min = h->token_min;
    out->token_max = h->token_max;
    out->topic = (const char *)buf + CHUNK_HEADER_BYTES;
    out->version = (uint8_t)h->version;
    out->topic_len = h->topic_len;
    out->section_count = h->section_count;
}

/* whole: every section has to be there too; else only what is in front of them. */
static int open_chunk(const uint8_t *buf, size_t len, bool whole, struct chunk_view *out)
{
    struct chunk_header h;
    if (len < sizeof h) {
        uint32_t magic = CHUNK_MAGIC;
        size_t shared = len < sizeof magic ? len : sizeof magic;
        return shared == 0 || memcmp(buf, &magic, shared) == 0 ? -2 : -1;
    }
    memcpy(&h, buf, sizeof h);
    if (!header_valid(&h))
        return -1;
    size_t head = chunk_head_bytes(h.topic_len, h.section_count);
    if (len < head)
        return -2;
    if (!head_crc_valid(buf, &h, head))
        return -1;
    if (whole && len < h.stored_bytes)
        return -2;

    size_t directory_bytes = (size_t)h.section_count * SECTION_ENTRY_BYTES;
    struct section_source source = {.directory = buf + head - directory_bytes,
                                    .data = buf + head,
                                    .data_len = h.stored_bytes - head,
                                    .section_count = h.section_count,
                                    .event_count = h.count,
                                    .version = h.version,
                                    .producers_allowed = true};
    uint32_t raw_bytes;
    if (sections_read(&source, out->sections, &raw_bytes) < 0 || raw_bytes != h.raw_bytes)
        return -1;
    fill_view(buf, &h, out);
    return 0;
}

int chunk_open(const uint8_t *buf, size_t len, struct chunk_view *out)
{
    return open_chunk(buf, len, true, out);
}

int chunk_open_part(const uint8_t *buf, size_t len, uint32_t parts, struct chunk_view *out,
                    size_t *part_bytes)
{
    int status = open_chunk(buf, len, false, out);
    if (status < 0)
        return status;
    size_t at = chunk_head_bytes(out->topic_len, out->section_count);
    for (uint32_t i = 0; i < out->section_count; i++) {
        struct chunk_section *s = &out->sections[i];
        s->p = NULL;
        if (!(parts >> s->id & 1))
            continue;
        if (pad8(s->stored_len) > len - at)
            return -2;
        s->p = buf + at;
        at += pad8(s->stored_len);
    }
    *part_bytes = at;
    return 0;
}

size_t chunk_part_bytes(const struct chunk_view *view, uint32_t parts)
{
    size_t bytes = chunk_head_bytes(view->topic_len, view->section_count);
    for (uint32_t i = 0; i < view->section_count; i++)
        if (parts >> view->sections[i].id & 1)
            bytes += pad8(view->sections[i].stored_len);
    return bytes;
}

void chunk_part_write(const struct chunk_view *view, uint32_t parts, uint8_t *out)
{
    size_t at = chunk_head_bytes(view->topic_len, view->section_count);
    memmove(out, view->base, at);
    for (uint32_t i = 0; i < view->section_count; i++) {
        const struct chunk_section *s = &view->sections[i];
        if (!(parts >> s->id & 1))
            continue;
        memmove(out + at, s->p, pad8(s->stored_len));
        at += pad8(s->stored_len);
    }
}

/* The runs of producers lie inside the chunk. */
static bool producers_valid(const struct chunk_view *view)
{
    const struct chunk_section *s = chunk_section_get(view->sections, view->section_count,
                                                      SECTION_PRODUCERS);
    for (uint32_t at = 0; s != NULL && at < s->raw_len; at += PRODUCER_BYTES) {
        struct chunk_producer p;
        memcpy(&p, s->p + at, sizeof p);
        if (p.first_event >= view->count || p.event_count == 0 ||
            p.event_count > view->count - p.first_event)
            return false;
    }
    return true;
}

int chunk_verify(const struct chunk_view *view)
{
    if (sections_verify(view->sections, view->section_count) < 0)
        return -1;
    return producers_valid(view) ? 0 : -1;
}

const struct chunk_section *chunk_section_get(const struct chunk_section *sections, uint32_t count,
                                              uint8_t id)
{
    for (uint32_t i = 0; i < count; i++)
        if (sections[i].id == id)
            return &sections[i];
    return NULL;
}

size_t chunk_scratch_bytes(const struct chunk_view *view)
{
    return sections_scratch_bytes(view->sections, view->section_count);
}

int chunk_unpack_columns(const struct chunk_view *view, uint8_t *scratch, size_t scratch_cap,
                         struct batch_columns *out)
{
    if (sections_unpack(view->sections, view->section_count, view->count, view->version, scratch,
                        scratch_cap, out) < 0)
        return -1;
    return times_valid(out, view->base_timestamp_us) ? 0 : -1;
}
