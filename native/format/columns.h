/* The one table of the columns of chunks and batches. Ids, fields, checks, Arrow's buffers and the
 * names that Python asks by all come from it; only loops over events know single columns. */
#ifndef BARCO_COLUMNS_H
#define BARCO_COLUMNS_H

#include <stdbool.h>
#include <string.h>

#include "format/format.h"

/* What may be asked for alone: a bit each. */
enum column_bit { COLUMN_KEY = 1, COLUMN_VALUE = 2, COLUMN_TIMESTAMP = 4 };

/* WORDS: u32[count], one for each event. BYTES: those of all events, back to back, their lengths
 * in the section beside; KEY_NULL there says that an event has none, unless they are always there.
 * A section that is absent is all zero (TS), or no event has any (KEY). TS_HIGH holds bits 32 to 62
 * of the microseconds after base_timestamp, for whatever spans more than 71 minutes. */
#define COLUMNS(X)                                                                                \
    /* id, section, field, kind, bit, its name, beside, always there */                           \
    X(1, TS_DELTA, ts_delta, WORDS, COLUMN_TIMESTAMP, "timestamp", 0, false)                      \
    X(2, KEY_LEN, key_len, WORDS, COLUMN_KEY, "key", 0, false)                                    \
    X(3, VAL_LEN, val_len, WORDS, COLUMN_VALUE, "value", 0, true)                                 \
    X(4, KEYS, keys, BYTES, COLUMN_KEY, "key", SECTION_KEY_LEN, false)                            \
    X(5, VALUES, vals, BYTES, COLUMN_VALUE, "value", SECTION_VAL_LEN, true)                       \
    X(6, TS_HIGH, ts_high, WORDS, COLUMN_TIMESTAMP, "timestamp", SECTION_TS_DELTA, false)

#define COLUMN_ID(id, section, ...) SECTION_##section = id,
enum section_id {
    COLUMNS(COLUMN_ID)
    SECTION_PRODUCERS = 16 /* struct chunk_producer[], always raw, never in a client's batch */
};

#define COLUMN_ONE(...) +1
enum { COLUMN_COUNT = 0 COLUMNS(COLUMN_ONE), CHUNK_SECTIONS_MAX = COLUMN_COUNT + 1 };

/* NULL where a section is absent. */
#define COLUMN_WORDS_FIELD(field) const uint32_t *field;
#define COLUMN_BYTES_FIELD(field)                                                                 \
    const uint8_t *field;                                                                         \
    uint32_t field##_bytes; /* at most SECTION_RAW_MAX */
#define COLUMN_FIELD(id, section, field, kind, ...) COLUMN_##kind##_FIELD(field)

/* Unpacked columns of a chunk or a batch. Pointers lead into the scratch or, for byte columns that
 * were stored raw, into the chunk or batch itself: both must outlive them. */
struct batch_columns {
    uint32_t count;
    COLUMNS(COLUMN_FIELD)
};

enum column_kind { COLUMN_WORDS, COLUMN_BYTES };

struct column {
    const char *name;
    uint8_t id, kind, bit, beside; /* beside: a section without which there is none; 0: free */
    bool always;
    uint8_t at; /* of its pointer in struct batch_columns; the size of bytes is behind it */
};

#define COLUMN_ROW(id, section, field, kind, bit, name, beside, always)                           \
    {name, id, COLUMN_##kind, bit, beside, always, offsetof(struct batch_columns, field)},
static const struct column columns_table[COLUMN_COUNT] = {COLUMNS(COLUMN_ROW)};

/* Ids are places in the table: as many as there are, and none twice. */
#define COLUMN_MASK(id, ...) | 1u << (id)
_Static_assert((0 COLUMNS(COLUMN_MASK)) == (2u << COLUMN_COUNT) - 2, "ids count up from 1");

/* The section's column; NULL for what is none. */
static inline const struct column *column_of(uint8_t id)
{
    return id >= 1 && id <= COLUMN_COUNT ? &columns_table[id - 1] : NULL;
}

static inline const void *column_pointer(const struct batch_columns *c, const struct column *column)
{
    const void *p;
    memcpy(&p, (const char *)c + column->at, sizeof p);
    return p;
}

static inline uint32_t column_bytes(const struct batch_columns *c, const struct column *column)
{
    uint32_t bytes = c->count * 4;
    if (column->kind == COLUMN_BYTES)
        memcpy(&bytes, (const char *)c + column->at + sizeof(void *), sizeof bytes);
    return bytes;
}

#endif
