#include "format/batch.h"

#include <string.h>

#include "base/crc32c.h"
#include "format/section.h"

/* Timestamps of the client: adding a u32 of microseconds cannot overflow. */
static const int64_t TIMESTAMP_MAX = INT64_MAX - UINT32_MAX;

static bool header_valid(const struct batch_header *h, size_t len)
{
    return h->magic == BATCH_MAGIC &&
           (h->version == FORMAT_PLAIN || h->version == FORMAT_HEADERS) && h->flags == 0 &&
           h->reserved == 0 && h->count > 0 && h->total_bytes == len && len % 8 == 0 &&
           h->section_count <= CHUNK_SECTIONS_MAX && h->base_timestamp_us >= TIMESTAMP_US_MIN &&
           h->base_timestamp_us <= TIMESTAMP_MAX;
}

size_t batch_seal(struct chunk_sealer *sealer, const struct chunk_columns *meta, uint8_t *out,
                  size_t cap)
{
    struct section_entry entries[CHUNK_SECTIONS_MAX];
    struct chunk_columns columns = *meta;
    columns.producer_count = 0; /* Who produced is said by the request, not by its body. */
    uint32_t section_count = sections_count(&columns);
    size_t head = sizeof(struct batch_header) + (size_t)section_count * SECTION_ENTRY_BYTES;

    if (head > cap)
        return 0;
    size_t written = sections_write(sealer, &columns, out + head, cap - head, entries);
    if (written == SIZE_MAX)
        return 0;
    struct batch_header h = {.magic = BATCH_MAGIC,
                             .version = columns_plain(&columns.columns) ? FORMAT_PLAIN
                                                                         : FORMAT_HEADERS,
                             .section_count = (uint8_t)section_count,
                             .count = meta->count,
                             .total_bytes = (uint32_t)(head + written),
                             .base_timestamp_us = meta->base_timestamp_us};
    memcpy(out, &h, sizeof h);
    memcpy(out + sizeof h, entries, (size_t)section_count * SECTION_ENTRY_BYTES);
    return head + written;
}

int batch_read(const uint8_t *buf, size_t len, struct batch_view *out)
{
    struct batch_header h;
    if (len < sizeof h)
        return -1;
    memcpy(&h, buf, sizeof h);
    size_t head = sizeof h + (size_t)h.section_count * SECTION_ENTRY_BYTES;
    if (!header_valid(&h, len) || len < head)
        return -1;

    struct section_source source = {.directory = buf + sizeof h,
                                    .data = buf + head,
                                    .data_len = len - head,
                                    .section_count = h.section_count,
                                    .event_count = h.count,
                                    .version = h.version,
                                    .producers_allowed = false};
    if (sections_read(&source, out->sections, &out->raw_bytes) < 0)
        return -1;
    if (h.base_timestamp_us == 0 &&
        chunk_section_get(out->sections, h.section_count, SECTION_TS_DELTA) != NULL)
        return -1;
    out->base = buf;
    out->total_bytes = h.total_bytes;
    out->count = h.count;
    out->base_timestamp_us = h.base_timestamp_us;
    out->version = h.version;
    out->section_count = h.section_count;
    return 0;
}

int batch_open(const uint8_t *buf, size_t len, struct batch_view *out)
{
    if (batch_read(buf, len, out) < 0)
        return -1;
    return sections_verify(out->sections, out->section_count);
}

bool batch_is_raw(const struct batch_view *view)
{
    for (uint32_t i = 0; i < view->section_count; i++)
        if (view->sections[i].codec != CODEC_RAW)
            return false;
    return true;
}

size_t batch_scratch_bytes(const struct batch_view *view)
{
    return sections_scratch_bytes(view->sections, view->section_count);
}

int batch_unpack(const struct batch_view *view, uint32_t event_bytes_max, uint8_t *scratch,
                 size_t scratch_cap, struct batch_columns *out)
{
    if (sections_unpack(view->sections, view->section_count, view->count, view->version, scratch,
                        scratch_cap, out) < 0 ||
        !times_valid(out, view->base_timestamp_us))
        return -1;
    uint32_t longest = 0;
    for (uint32_t i = 0; i < view->count; i++)
        longest = bytes_of(out->val_len[i]) > longest ? out->val_len[i] : longest;
    if (out->key_len != NULL)
        for (uint32_t i = 0; i < view->count; i++)
            if (out->key_len[i] != KEY_NULL && out->key_len[i] > KEY_BYTES_MAX)
                return -1;
    return longest > event_bytes_max ? -3 : 0;
}

size_t chunk_bound_batch(const struct batch_view *view, const struct chunk_columns *meta)
{
    size_t bytes = chunk_head_bytes(meta->topic_len, view->section_count);
    for (uint32_t i = 0; i < view->section_count; i++)
        bytes += pad8(view->sections[i].stored_len);
    if (meta->producer_count > 0)
        bytes += SECTION_ENTRY_BYTES + (size_t)meta->producer_count * PRODUCER_BYTES;
    return bytes;
}

size_t chunk_seal_batch(const struct batch_view *view, const struct chunk_columns *meta,
                        uint8_t *out, size_t cap)
{
    struct section_entry entries[CHUNK_SECTIONS_MAX];
    size_t total = chunk_bound_batch(view, meta);
    uint32_t section_count = view->section_count + (meta->producer_count > 0);
    size_t at = chunk_head_bytes(meta->topic_len, section_count);

    if (total > cap || section_count > CHUNK_SECTIONS_MAX)
        return 0;
    for (uint32_t i = 0; i < view->section_count; i++) {
        const struct chunk_section *s = &view->sections[i];
        entries[i] = (struct section_entry){.id = s->id,
                                            .codec = s->codec,
                                            .raw_len = s->raw_len,
                                            .stored_len = s->stored_len,
                                            .crc = s->crc};
        /* The padding comes along: batch_open() saw that it is zero. */
        memcpy(out + at, s->p, pad8(s->stored_len));
        at += pad8(s->stored_len);
    }
    if (meta->producer_count > 0) {
        uint32_t len = meta->producer_count * PRODUCER_BYTES;
        memcpy(out + at, meta->producers, len);
        entries[section_count - 1] = (struct section_entry){.id = SECTION_PRODUCERS,
                                                            .codec = CODEC_RAW,
                                                            .raw_len = len,
                                                            .stored_len = len,
                                                            .crc = crc32c(0, out + at, len)};
        at += len;
    }
    chunk_write_head(meta, view->version, entries, section_count, at, out);
    return at;
}
