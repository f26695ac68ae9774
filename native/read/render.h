/* Events as JSON, and as PolarStreams' records: what consumers that speak those get. As JSON, a
 * value that is valid JSON is spliced as it is, other valid UTF-8 becomes a JSON string, anything
 * else {"base64":"..."}; no value is null. */
#ifndef BARCO_RENDER_H
#define BARCO_RENDER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "format/chunk.h"
#include "read/condition.h"

/* Renders the events of one chunk with from <= offset < to. The crcs are not checked here:
 * chunk_verify() first. scratch: 8-byte aligned, chunk_scratch_bytes() bytes.
 * With `next`, as many whole events as fit, and there the offset of the first that does not.
 * Return the bytes written (0: no event in the range); -1 malformed; -3 out is too small, with
 * `next` for the first event already. */

/* The values with commas between them: neither brackets nor a comma at either end. */
ssize_t render_json_values(const struct chunk_view *view, uint64_t from, uint64_t to,
                           uint8_t *scratch, size_t scratch_cap, char *out, size_t cap,
                           uint64_t *next);

/* What lines have beside their event. */
struct line_frame {
    int64_t token;       /* of the start of the shard's range */
    const char *id;      /* of what a queue hands out: what stands before the offset; else NULL */
    size_t id_len;       /* 64 at most */
    uint32_t deliveries; /* how many times it was given */
    const struct conditions *where; /* which events are meant; NULL: all */
};

/* A line for each event, {"topic","token","rangeIndex","version","offset","timestamp","key",
 * "value"} and, where an event has any, "headers", each name once: the last one's. Token (start of
 * the shard's range) and offset are strings, timestamp is microseconds. Of a queue "id" and
 * "deliveries" stand behind the offset. With `where` the others are passed over: 0 may be returned
 * then with *next where an event that is meant did not fit. */
ssize_t render_ndjson(const struct chunk_view *view, uint64_t from, uint64_t to,
                      const struct line_frame *frame, uint8_t *scratch, size_t scratch_cap,
                      char *out, size_t cap, uint64_t *next);

/* PolarStreams' records: timestamp in microseconds (8 bytes) and length (4), both big-endian, and
 * the value, which is empty where there is none. */
ssize_t render_records(const struct chunk_view *view, uint64_t from, uint64_t to, uint8_t *scratch,
                       size_t scratch_cap, char *out, size_t cap, uint64_t *next);

/* How far the events of one chunk reach for a budget of rendered bytes, where each takes `frame`
 * more than its key, value and headers: in *end the offset behind them, one at least; what they
 * come to. */
int chunk_events_fit(const struct chunk_view *view, uint64_t from, uint64_t to, uint32_t frame,
                     uint64_t budget, uint8_t *scratch, size_t scratch_cap, uint64_t *end,
                     uint64_t *cost);

/* The first event of the chunk that is as late as this, else the offset behind its last. */
int chunk_find_timestamp(const struct chunk_view *view, int64_t timestamp_us, uint8_t *scratch,
                         size_t scratch_cap, uint64_t *offset);

#endif
