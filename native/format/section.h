/* The columns inside chunks and batches: their directory, checks and unpacking. Internal to
 * chunk.c and batch.c. */
#ifndef BARCO_SECTION_H
#define BARCO_SECTION_H

#include <stdbool.h>

#include "format/chunk.h"

/* How many sections the columns make. */
uint32_t sections_count(const struct chunk_columns *columns);

/* Writes the columns to out, padded, and their directory to entries. sealer NULL: everything raw.
 * Returns the bytes written, or SIZE_MAX if cap is too small. */
size_t sections_write(struct chunk_sealer *sealer, const struct chunk_columns *columns,
                      uint8_t *out, size_t cap, struct section_entry entries[CHUNK_SECTIONS_MAX]);

/* A directory and the bytes behind it, of unchecked origin. */
struct section_source {
    const uint8_t *directory, *data;
    size_t data_len;
    uint32_t section_count, event_count;
    bool producers_allowed;
};

/* Reads section_count directory entries; their bytes must fill data[0,data_len) exactly. Checks
 * every length against the event count and the limits. 0, or -1. *raw_bytes: the sum. */
int sections_read(const struct section_source *source, struct chunk_section *out,
                  uint32_t *raw_bytes);

/* Every crc, and zeros in the padding: 0, or -1. */
int sections_verify(const struct chunk_section *sections, uint32_t section_count);

/* Raw bytes to out, which holds raw_len: 0, or -1. */
int section_unpack(const struct chunk_section *section, uint8_t *out);

size_t sections_scratch_bytes(const struct chunk_section *sections, uint32_t section_count);

/* All columns; 0, or -1 malformed or scratch too small. */
int sections_unpack(const struct chunk_section *sections, uint32_t section_count,
                    uint32_t event_count, uint8_t *scratch, size_t scratch_cap,
                    struct batch_columns *out);

/* Whether base and high deltas are times: no sum is over INT64_MAX. */
bool times_valid(const struct batch_columns *columns, int64_t base_us);

/* Header, topic and directory in front of sections already written behind them. */
void chunk_write_head(const struct chunk_columns *columns, const struct section_entry *entries,
                      uint32_t section_count, size_t stored_bytes, uint8_t *out);

/* Header, topic and directory of a chunk. */
size_t chunk_head_bytes(uint8_t topic_len, uint32_t section_count);

#endif
