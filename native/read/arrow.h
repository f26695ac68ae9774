/* Events of many chunks as columns in Arrow's layout: what Spark's readers are made of. */
#ifndef BARCO_ARROW_H
#define BARCO_ARROW_H

#include <stddef.h>
#include <stdint.h>

#include "format/chunk.h"

enum arrow_column { ARROW_KEY = 1, ARROW_VALUE = 2, ARROW_TIMESTAMP = 4 };

/* The sections, a bit for each id, that these columns are stored in. */
uint32_t arrow_parts(uint32_t columns);

/* Room for the events of some chunks, and how much of it is filled. What is not wanted is NULL. */
struct arrow_columns {
    int64_t *timestamps;    /* [rows], microseconds since 1970 */
    int32_t *key_offsets;   /* [rows + 1] */
    int32_t *value_offsets; /* [rows + 1] */
    uint8_t *key_validity;  /* a bit a row, zeros at first */
    uint8_t *keys, *values;
    uint32_t *scratch; /* [the largest count of a chunk] */
    size_t rows, key_nulls, keys_bytes, values_bytes;
};

/* Adds a chunk's events. Checks the crc of each section that it reads, and that lengths add up.
 * The sums of raw lengths must fit the room, and 31 bits. 0, or -1 malformed. */
int arrow_append(struct arrow_columns *columns, const struct chunk_view *view);

#endif
