/* Chunks: consecutive events of one (topic, slice), in columns, each its own LZ4 block with its
 * own crc, so that a reader can check and unpack one column without the others.
 * Nothing here allocates per call or blocks; outputs point into the caller's buffers. */
#ifndef BARCO_CHUNK_H
#define BARCO_CHUNK_H

#include <stddef.h>
#include <stdint.h>

#include "format/section.h"

/* Upper bound of the stored size: what the chunk takes when nothing compresses. */
size_t chunk_bound(const struct chunk_columns *columns);

/* Writes the chunk to out (8-byte aligned). sealer NULL: nothing is compressed. Returns the bytes
 * written, a multiple of 8, or 0 if cap is too small; cap >= chunk_bound() always suffices. */
size_t chunk_seal(struct chunk_sealer *sealer, const struct chunk_columns *columns, uint8_t *out,
                  size_t cap);

struct chunk_view {
    const uint8_t *base;
    uint32_t stored_bytes, count, slice, raw_bytes;
    uint64_t epoch, base_offset;
    int64_t base_timestamp_us, max_timestamp_us, token_min, token_max;
    const char *topic; /* not terminated */
    uint8_t topic_len, section_count;
    uint8_t version; /* enum format_version */
    struct chunk_section sections[CHUNK_SECTIONS_MAX];
};

/* Reads the header, topic and directory at buf, checks their crc and every length, and points out
 * into buf. 0; -1 malformed; -2 buf ends before the chunk does. */
int chunk_open(const uint8_t *buf, size_t len, struct chunk_view *out);

/* A part of a chunk: header, topic and directory as they are stored, then only some of the
 * sections, a bit for each id. The header's crc and those of the sections hold as they are, so that
 * nothing is unpacked or computed where a part is made. It may be written over the chunk itself or
 * before it. */
size_t chunk_part_bytes(const struct chunk_view *view, uint32_t parts);
void chunk_part_write(const struct chunk_view *view, uint32_t parts, uint8_t *out);

/* Reads such a part, of *part_bytes. Sections that are not in it have no p; view->stored_bytes
 * says what the whole chunk has. 0; -1 malformed; -2 buf ends before the part does. */
int chunk_open_part(const uint8_t *buf, size_t len, uint32_t parts, struct chunk_view *out,
                    size_t *part_bytes);

/* Checks every section's crc and padding: 0, or -1. */
int chunk_verify(const struct chunk_view *view);

/* The section with this id, or NULL. */
const struct chunk_section *chunk_section_get(const struct chunk_section *sections, uint32_t count,
                                              uint8_t id);

/* Bytes of scratch chunk_unpack_columns() needs. */
size_t chunk_scratch_bytes(const struct chunk_view *view);

/* Unpacks every column; checks that the lengths add up and that times can be. scratch must be
 * 8-byte aligned.
 * 0; -1 malformed or scratch too small. The crcs are chunk_verify()'s business. */
int chunk_unpack_columns(const struct chunk_view *view, uint8_t *scratch, size_t scratch_cap,
                         struct batch_columns *out);

/* For batch.c, whose chunks have sections that are there already. */
/* Header, topic and directory in front of sections already written behind them. */
void chunk_write_head(const struct chunk_columns *columns, uint16_t version,
                      const struct section_entry *entries, uint32_t section_count,
                      size_t stored_bytes, uint8_t *out);

/* Header, topic and directory of a chunk. */
size_t chunk_head_bytes(uint8_t topic_len, uint32_t section_count);

#endif
