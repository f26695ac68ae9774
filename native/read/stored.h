/* Chunks of one stream, read from a segment by what an index says of them, checked, and moved
 * together: one call for many of them. Nothing is believed that the chunk itself does not say. */
#ifndef BARCO_STORED_H
#define BARCO_STORED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of an index: the layout of sidecar files. */
struct stored_entry {
    uint64_t base_offset;
    uint32_t position; /* in the segment, in units of STORED_UNIT */
    uint32_t stored_bytes, count, reserved;
    int64_t max_timestamp_us;
};
_Static_assert(sizeof(struct stored_entry) == 32, "no padding");

#define STORED_UNIT 8u
#define STORED_GAP_MAX (64u << 10) /* Bytes of other streams that are read along, not around. */

/* What the next read takes: entries in a row whose pages fit into bytes_max, at least one. */
struct stored_group {
    size_t count, bytes;
};
struct stored_group stored_next(const struct stored_entry *entries, size_t count, size_t bytes_max);

/* What is wanted of the chunks. */
struct stored_want {
    const char *topic;
    size_t topic_len;
    uint32_t slice;
    bool whole;     /* or only these sections, a bit for each id: chunk_part_write() */
    uint32_t parts;
};

struct stored_result {
    size_t chunks;           /* that are what the index says, from the first on */
    size_t bytes;            /* of them, back to back at the memory's start */
    uint64_t raw_bytes, end; /* of them; the offset after the last event */
};

/* A group: its entries, and page-aligned memory of its size. */
struct stored_part {
    const struct stored_entry *entries;
    size_t count;
    uint8_t *memory;
    struct stored_result result;
};

/* Reads the groups (fd: direct I/O or not), all at once, and takes what is wanted of them, up to
 * the first chunk that is not right. Blocks. -1 without memory of its own, which is a little. */
int stored_read(int fd, struct stored_part *parts, size_t count, const struct stored_want *want);

#endif
