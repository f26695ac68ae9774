/* The columns inside chunks and batches: their directory, checks and unpacking. */
#ifndef BARCO_SECTION_H
#define BARCO_SECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/columns.h"

/* What a chunk is made of. The sizes of the columns must agree: keys_bytes is the sum of the key
 * lengths that are not KEY_NULL, vals_bytes and hdrs_bytes those of theirs; hdr_len is NULL where
 * no event has headers. */
struct chunk_columns {
    const char *topic;
    uint8_t topic_len;
    uint32_t slice;
    uint64_t epoch, base_offset;
    int64_t base_timestamp_us, max_timestamp_us, token_min, token_max;
    union { /* by name, or by the table */
        struct {
            uint32_t count;
            COLUMNS(COLUMN_FIELD)
        };
        struct batch_columns columns;
    };
    const struct chunk_producer *producers;
    uint32_t producer_count;
};

/* Holds the LZ4 state (16 KiB); one for each thread. acceleration: LZ4's, 1 is the default and the
 * best ratio, larger is faster. Returns NULL without memory. */
struct chunk_sealer;
struct chunk_sealer *chunk_sealer_new(int acceleration);
void chunk_sealer_free(struct chunk_sealer *sealer);

struct chunk_section {
    uint8_t id, codec;
    uint32_t raw_len, stored_len, crc;
    const uint8_t *p;
};

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
    uint16_t version; /* enum format_version */
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

/* All columns, their lengths and headers checked; 0, or -1 malformed or scratch too small. */
int sections_unpack(const struct chunk_section *sections, uint32_t section_count,
                    uint32_t event_count, uint16_t version, uint8_t *scratch, size_t scratch_cap,
                    struct batch_columns *out);

/* Microseconds of an event after the base timestamp. */
static inline uint64_t column_delta(const struct batch_columns *c, uint32_t event)
{
    uint64_t delta = c->ts_delta == NULL ? 0 : c->ts_delta[event];
    return c->ts_high == NULL ? delta : delta | (uint64_t)c->ts_high[event] << 32;
}

/* Whether base and high deltas are times: no sum is over INT64_MAX. */
bool times_valid(const struct batch_columns *columns, int64_t base_us);

#endif
