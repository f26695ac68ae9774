/* Events of many chunks as columns in Arrow's layout: what Spark's readers are made of. */
#ifndef BARCO_ARROW_H
#define BARCO_ARROW_H

#include <stddef.h>
#include <stdint.h>

#include "format/chunk.h"

/* The sections, a bit for each id, that these columns (enum column_bit, added up) are stored in. */
uint32_t arrow_parts(uint32_t columns);

/* Room for the bytes of one column, and how much of it is filled. offsets NULL: not wanted. */
struct arrow_bytes {
    int32_t *offsets;  /* [rows + 1] */
    uint8_t *validity; /* a bit a row, zeros at first */
    uint8_t *data;
    size_t nulls, filled;
};

/* Room for the events of some chunks. */
struct arrow_columns {
    int64_t *numbers[COLUMN_COUNT];         /* [rows], of LOWs by place; NULL: not wanted */
    struct arrow_bytes bytes[COLUMN_COUNT]; /* by place in the table */
    uint32_t *scratch;                      /* [the largest count of a chunk] */
    size_t rows;
};

/* Adds a chunk's events. Checks the crc of each section that it reads, and that lengths add up.
 * The sums of raw lengths must fit the room, and 31 bits. 0, or -1 malformed. */
int arrow_append(struct arrow_columns *columns, const struct chunk_view *view);

#endif
