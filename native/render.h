/* Events as JSON, and as PolarStreams' records: what consumers that speak those get. As JSON, a
 * value that is valid JSON is spliced as it is, other valid UTF-8 becomes a JSON string, anything
 * else {"base64":"..."}. */
#ifndef BARCO_RENDER_H
#define BARCO_RENDER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "chunk.h"

/* Bytes that any of these of the whole chunk can need at most: about
 * 6 x its raw size, because a control character becomes 6. Trying with 2 x first is sensible. */
size_t render_bound(const struct chunk_view *view);

/* Renders the events of one chunk with from <= offset < to. The crcs are not checked here:
 * chunk_verify() first. scratch: 8-byte aligned, chunk_scratch_bytes() bytes.
 * Return the bytes written (0: no event in the range); -1 malformed; -3 out is too small. */

/* The values with commas between them: neither brackets nor a comma at either end. */
ssize_t render_json_values(const struct chunk_view *view, uint64_t from, uint64_t to,
                           uint8_t *scratch, size_t scratch_cap, char *out, size_t cap);

/* A line for each event, {"topic","token","rangeIndex","version","offset","timestamp","key",
 * "value"}: token (start of the shard's range) and offset as strings, timestamp in microseconds. */
ssize_t render_ndjson(const struct chunk_view *view, uint64_t from, uint64_t to, int64_t token,
                      uint8_t *scratch, size_t scratch_cap, char *out, size_t cap);

/* PolarStreams' records: timestamp in microseconds (8 bytes) and length (4), both big-endian, and
 * the value. */
ssize_t render_records(const struct chunk_view *view, uint64_t from, uint64_t to, uint8_t *scratch,
                       size_t scratch_cap, char *out, size_t cap);

#endif
