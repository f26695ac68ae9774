/* state: what a generation begins with, as bytes: the body of a GEN_START or SNAPSHOT group.
 *
 * Little-endian: this header, the prefix, then the rows: topics (u8 length of the name, u8 whether
 * it is declared, the name), streams, producers, values (each with its key and value behind it).
 * Rows name a topic by its number in these bytes and a slice by its number in the token range, so
 * they mean the same whichever slices a shard begins with. The group's crc covers it all.
 *
 * All here is pure, and nothing of what comes in is believed: a peer may have sent it.
 */
#ifndef BARCO_STATE_H
#define BARCO_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STATE_MAGIC 0x504e5342u /* "BSNP" */
#define STATE_VERSION 2u

struct state_header {
    uint32_t magic, version;
    uint32_t topics, streams, producers, values;
    uint32_t prefix_bytes;
    uint32_t clock_s; /* the log's own clock, in seconds since 1970; 0: it does not say */
    uint32_t slice_first, slice_count;
};
_Static_assert(sizeof(struct state_header) == 40, "no padding");

struct stream_row {
    uint32_t topic, slice;
    uint64_t start_offset, next_offset;
    int64_t last_timestamp, max_timestamp;
};
_Static_assert(sizeof(struct stream_row) == 40, "no padding");

struct producer_row {
    uint8_t id[16];
    uint32_t topic, slice, epoch, reserved; /* 0 */
    uint64_t seq, offset;
    int64_t last_us; /* by the log's own clock */
};
_Static_assert(sizeof(struct producer_row) == 56, "no padding");

struct value_row {
    uint32_t topic, slice, key_len, value_len;
    uint64_t offset; /* of the event in its stream */
};
_Static_assert(sizeof(struct value_row) == 24, "no padding");

/* Times of the log's own clock that a row may have: 140,000 years, so that sums do not overflow. */
#define STATE_TIME_MAX (1LL << 62)

/* Of which slices these bytes say to be the state; false: they are none. */
bool state_slices(const uint8_t *bytes, size_t len, uint32_t *first, uint32_t *count);
/* The state of some of its slices, malloc'd, in one order whatever the order was: a split's child
 * begins with it. Without a prefix. NULL: refused, and *why says for what. */
uint8_t *state_cut(const uint8_t *bytes, size_t len, uint32_t slice_first, uint32_t slice_count,
                   size_t *out_len, const char **why);
/* The state of the slices of both, which are neighbours, in any order: a join begins with it. As
 * state_cut. */
uint8_t *state_union(const uint8_t *one, size_t one_len, const uint8_t *other, size_t other_len,
                     size_t *out_len, const char **why);

#endif
