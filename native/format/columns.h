/* The one table of the columns of chunks and batches. Ids, fields, checks, Arrow's buffers and the
 * names that Python asks by all come from it; only loops over events know single columns. */
#ifndef BARCO_COLUMNS_H
#define BARCO_COLUMNS_H

#include <stdbool.h>
#include <string.h>

#include "format/format.h"

/* What may be asked for alone: a bit each. */
enum column_bit { COLUMN_KEY = 1, COLUMN_VALUE = 2, COLUMN_TIMESTAMP = 4, COLUMN_HEADERS = 8 };

/* LENS, LOW and HIGH are u32[count], one for each event. BYTES: those of all events, back to back,
 * their lengths in the section beside; KEY_NULL there says that an event has none; without the
 * section no event has any. Always: the section is there whatever the events are. LOW: the low half
 * of a 64-bit number, HIGH: the other half of the one beside, for whatever does not fit 32 bits; a
 * section that is absent is all zero. The time is counted from base_timestamp, so that its halves
 * are needed for more than 71 minutes only. */
#define COLUMNS(X)                                                                                \
    /* id, section, field, kind, bit, its name, beside, always there */                           \
    X(1, TS_DELTA, ts_delta, LOW, COLUMN_TIMESTAMP, "timestamp", 0, false)                        \
    X(2, KEY_LEN, key_len, LENS, COLUMN_KEY, "key", 0, false)                                     \
    X(3, VAL_LEN, val_len, LENS, COLUMN_VALUE, "value", 0, true)                                  \
    X(4, KEYS, keys, BYTES, COLUMN_KEY, "key", SECTION_KEY_LEN, false)                            \
    X(5, VALUES, vals, BYTES, COLUMN_VALUE, "value", SECTION_VAL_LEN, true)                       \
    X(6, TS_HIGH, ts_high, HIGH, COLUMN_TIMESTAMP, "timestamp", SECTION_TS_DELTA, false)          \
    X(7, HDR_LEN, hdr_len, LENS, COLUMN_HEADERS, "headers", 0, false)                             \
    X(8, HDRS, hdrs, BYTES, COLUMN_HEADERS, "headers", SECTION_HDR_LEN, false)

#define COLUMN_ID(id, section, ...) SECTION_##section = id,
enum section_id {
    COLUMNS(COLUMN_ID)
    SECTION_PRODUCERS = 16 /* struct chunk_producer[], always raw, never in a client's batch */
};

#define COLUMN_ONE(...) +1
enum { COLUMN_COUNT = 0 COLUMNS(COLUMN_ONE), CHUNK_SECTIONS_MAX = COLUMN_COUNT + 1 };

/* NULL where a section is absent. */
#define COLUMN_LENS_FIELD(field) const uint32_t *field;
#define COLUMN_LOW_FIELD(field) const uint32_t *field;
#define COLUMN_HIGH_FIELD(field) const uint32_t *field;
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

enum column_kind { COLUMN_LENS, COLUMN_LOW, COLUMN_HIGH, COLUMN_BYTES };

struct column {
    const char *name;
    uint8_t id, kind, bit;
    uint8_t beside; /* a section without which there is none; 0: free */
    bool always;
    uint8_t at; /* of its pointer in struct batch_columns; the size of bytes is behind it */
};

#define COLUMN_ROW(id, section, field, kind, bit, name, beside, always)                           \
    {name, id, COLUMN_##kind, bit, beside, always, offsetof(struct batch_columns, field)},
static const struct column columns_table[COLUMN_COUNT] = {COLUMNS(COLUMN_ROW)};

/* Bytes are handled singly, each in its own way, where events are made, cut and shown: who does so
 * asserts how many columns of them there are. */
#define COLUMN_IS_BYTES(id, section, field, kind, ...) +(COLUMN_##kind == COLUMN_BYTES)
enum { COLUMN_BYTES_COUNT = 0 COLUMNS(COLUMN_IS_BYTES) };

/* Each number has two halves. */
#define COLUMN_HALVES(id, section, field, kind, ...)                                           \
    +(COLUMN_##kind == COLUMN_LOW) - (COLUMN_##kind == COLUMN_HIGH)
_Static_assert((0 COLUMNS(COLUMN_HALVES)) == 0, "a LOW has a HIGH beside it");

/* Ids are places in the table: as many as there are, and none twice. */
#define COLUMN_MASK(id, ...) | 1u << (id)
_Static_assert((0 COLUMNS(COLUMN_MASK)) == (2u << COLUMN_COUNT) - 2, "ids count up from 1");

/* The section's column; NULL for what is none. */
static inline const struct column *column_of(uint8_t id)
{
    return id >= 1 && id <= COLUMN_COUNT ? &columns_table[id - 1] : NULL;
}

/* The other half of a number (LOW); each has one. */
static inline const struct column *column_high(const struct column *low)
{
    const struct column *high = columns_table;
    while (high->kind != COLUMN_HIGH || high->beside != low->id)
        high++;
    return high;
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

/* How many bytes an event has of a column, by its length in the section beside. */
static inline uint32_t bytes_of(uint32_t len) { return len == KEY_NULL ? 0 : len; }

/* Whether each event has a value and none has headers: earlier versions read nothing else. */
static inline bool columns_plain(const struct batch_columns *c)
{
    uint32_t nulls = 0;
    for (uint32_t i = 0; i < c->count; i++)
        nulls |= c->val_len[i] == KEY_NULL;
    return c->hdr_len == NULL && nulls == 0;
}

static inline void column_set(struct batch_columns *c, const struct column *column, const void *p)
{
    memcpy((char *)c + column->at, &p, sizeof p);
}

static inline void column_set_bytes(struct batch_columns *c, const struct column *column,
                                    uint32_t bytes)
{
    memcpy((char *)c + column->at + sizeof(void *), &bytes, sizeof bytes);
}

/* A column of numbers, for loops over events. */
struct column_numbers {
    const struct column *column;
    const uint32_t *low, *high;
    uint64_t base;
};

/* Those of all columns of numbers, in the table's order, their times counted from base_us. How
 * many. */
static inline uint32_t columns_numbers(const struct batch_columns *c, int64_t base_us,
                                       struct column_numbers out[COLUMN_COUNT])
{
    uint32_t found = 0;
    for (const struct column *each = columns_table; each < columns_table + COLUMN_COUNT; each++)
        if (each->kind == COLUMN_LOW)
            out[found++] = (struct column_numbers){
                each, column_pointer(c, each), column_pointer(c, column_high(each)),
                each->id == SECTION_TS_DELTA ? (uint64_t)base_us : 0};
    return found;
}

static inline int64_t number_at(const struct column_numbers *numbers, uint32_t event)
{
    uint64_t value = numbers->low == NULL ? 0 : numbers->low[event];
    if (numbers->high != NULL)
        value |= (uint64_t)numbers->high[event] << 32;
    return (int64_t)(numbers->base + value);
}

#endif
