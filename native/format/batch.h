/* Client batches, application/vnd.barco.batch: the columns of a chunk without topic, slice and
 * offsets, compressed by the client. What belongs to one slice is stored as it came. */
#ifndef BARCO_BATCH_H
#define BARCO_BATCH_H

#include "format/chunk.h"

struct batch_view {
    const uint8_t *base;
    uint32_t total_bytes, count, raw_bytes;
    int64_t base_timestamp_us; /* 0: the broker's clock */
    uint8_t version;           /* enum format_version */
    uint8_t section_count;
    struct chunk_section sections[CHUNK_SECTIONS_MAX];
};

/* Checks structure and lengths; buf must hold exactly one batch. 0, or -1 malformed. */
int batch_read(const uint8_t *buf, size_t len, struct batch_view *out);
/* And padding and the crc of every section: for what was not looked at in this process yet. */
int batch_open(const uint8_t *buf, size_t len, struct batch_view *out);
/* Whether nothing of it is compressed: it is what batch_seal() makes without a sealer. */
bool batch_is_raw(const struct batch_view *view);

/* Bytes of scratch batch_unpack() needs: at most SECTION_RATIO_MAX times the batch, so compare it
 * with the request's limit before allocating. */
size_t batch_scratch_bytes(const struct batch_view *view);

/* Unpacks every column into scratch (8-byte aligned) and checks the events: lengths add up, no
 * value over event_bytes_max, no key over KEY_BYTES_MAX. 0; -1 malformed, or scratch too small;
 * -3 an event is too large. */
int batch_unpack(const struct batch_view *view, uint32_t event_bytes_max, uint8_t *scratch,
                 size_t scratch_cap, struct batch_columns *out);

/* Writes a batch of meta's columns (topic, slice, offsets and producers are not looked at; with a
 * base_timestamp_us of 0, ts_delta and ts_high must be NULL). sealer NULL: nothing is
 * compressed. Returns the bytes written, or 0 if cap is too small; cap >= chunk_bound(meta) always
 * suffices. */
size_t batch_seal(struct chunk_sealer *sealer, const struct chunk_columns *meta, uint8_t *out,
                  size_t cap);

/* Exact size of the chunk that chunk_seal_batch() makes. */
size_t chunk_bound_batch(const struct batch_view *view, const struct chunk_columns *meta);

/* A chunk from the batch's sections as they are, once batch_unpack() has accepted them. meta gives
 * topic, slice, count, epoch, base_offset, timestamps, tokens and producers; its columns are not
 * looked at. With a SECTION_TS_DELTA in the batch, meta's base_timestamp_us must be the batch's.
 * Returns the bytes written, or 0 if cap is too small. */
size_t chunk_seal_batch(const struct batch_view *view, const struct chunk_columns *meta,
                        uint8_t *out, size_t cap);

#endif
