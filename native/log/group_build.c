/* From runs to chunks: gathers each stream's events of one group into columns and seals them. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "format/chunk.h"
#include "log/log.h"

/* Events of one chunk at most; with the value target it bounds the scratch columns. */
#define CHUNK_EVENTS_MAX 32768u
/* Values that lie in a row are compressed from there. Others that follow are copied behind them,
 * unless there are already so many that a chunk of their own is the better bargain. */
#define CHUNK_VALUES_ENOUGH (CHUNK_VALUES_TARGET / 8 * 3)
#define CHUNK_KEYS_TARGET (128u << 10)
#define CHUNK_PRODUCERS_MAX 1024u

_Static_assert(COLUMN_COUNT == 6, "columns_flush() says which are there");

struct group_builder {
    struct chunk_sealer *sealer;
    struct chunk_columns columns;
    uint32_t *ts_delta, *ts_high, *key_len, *val_len;
    uint8_t *keys, *vals;
    size_t keys_capacity, vals_capacity;
    struct chunk_producer *producers;
    bool any_key, any_delta, any_high; /* before the first, their columns are not filled in */
    bool clocked; /* an event has the log's time: no high halves, see run_bound() */
    bool lent; /* the values are not in vals, but in a row where they came */
    /* Where the group grows. */
    struct log *log;
    uint8_t *out;
    uint64_t pos;
    size_t written;
    uint32_t chunks;
};

struct group_builder *builder_new(int acceleration)
{
    struct group_builder *b = calloc(1, sizeof *b);
    if (b == NULL)
        return NULL;
    b->sealer = chunk_sealer_new(acceleration);
    b->ts_delta = malloc(CHUNK_EVENTS_MAX * sizeof *b->ts_delta);
    b->ts_high = malloc(CHUNK_EVENTS_MAX * sizeof *b->ts_high);
    b->key_len = malloc(CHUNK_EVENTS_MAX * sizeof *b->key_len);
    b->val_len = malloc(CHUNK_EVENTS_MAX * sizeof *b->val_len);
    b->producers = malloc(CHUNK_PRODUCERS_MAX * sizeof *b->producers);
    b->keys_capacity = b->vals_capacity = 256u << 10;
    b->keys = malloc(b->keys_capacity);
    b->vals = malloc(b->vals_capacity);
    if (!b->sealer || !b->ts_delta || !b->ts_high || !b->key_len || !b->val_len ||
        !b->producers || !b->keys || !b->vals) {
        builder_free(b);
        return NULL;
    }
    return b;
}

void builder_free(struct group_builder *b)
{
    if (b == NULL)
        return;
    chunk_sealer_free(b->sealer);
    free(b->ts_delta);
    free(b->ts_high);
    free(b->key_len);
    free(b->val_len);
    free(b->producers);
    free(b->keys);
    free(b->vals);
    free(b);
}

size_t run_bound(const struct run *run)
{
    /* Columns (12 bytes an event, 16 where it brings its own time), LZ4's worst case (1/255), and
     * the frame of each chunk: header, topic, directory and padding, once for the run and once for
     * each full chunk; a run may also cut the chunk that an earlier run began. */
    size_t raw = run->bytes + (size_t)run->count * (run->timestamp != 0 ? 16 : 12);
    if (run->sealed)
        raw = run->batch->total_bytes;
    size_t frames = 3 + run->bytes / (CHUNK_VALUES_TARGET / 2) + run->count / CHUNK_EVENTS_MAX;
    return raw + raw / 200 + frames * 640;
}

static void account_chunk(struct group_builder *b, struct stream *stream, size_t stored)
{
    const struct chunk_columns *c = &b->columns;
    if (c->max_timestamp_us > stream->max_timestamp)
        stream->max_timestamp = c->max_timestamp_us;
    struct index_entry entry = {
        .base_offset = c->base_offset,
        .log_pos = b->pos + b->written,
        .max_timestamp = stream->max_timestamp,
        .stored_bytes = (uint32_t)stored,
        .count = c->count,
        .appended_s = (uint32_t)(b->log->clock_us / 1000000),
    };
    assert(c->count > 0 && c->base_offset == stream->next_offset);
    stream_index(b->log->shard, stream, &entry);
    stream->next_offset += c->count;
    b->written += stored;
    b->chunks++;
}

static void columns_start(struct group_builder *b, const struct stream *stream)
{
    b->columns = (struct chunk_columns){
        .topic = stream->topic->name,
        .topic_len = stream->topic->name_len,
        .slice = stream->slice,
        .epoch = b->log->options.epoch,
        .base_offset = stream->next_offset,
        .token_min = INT64_MAX,
        .token_max = INT64_MIN,
        .val_len = b->val_len,
        .keys = b->keys,
        .vals = b->vals,
        .producers = b->producers,
    };
    b->any_key = b->any_delta = b->any_high = b->clocked = b->lent = false;
}

/* NULL where the topic is to be stored as it is. */
static struct chunk_sealer *sealer_of(const struct group_builder *b, const struct topic *topic)
{
    const uint8_t own = topic->compression;
    const uint8_t wanted = own != COMPRESSION_DEFAULT ? own : b->log->options.compression;
    return wanted == COMPRESSION_NONE ? NULL : b->sealer;
}

static void columns_flush(struct group_builder *b, struct stream *stream)
{
    struct chunk_columns *c = &b->columns;
    if (c->count == 0)
        return;
    assert(c->count <= CHUNK_EVENTS_MAX && c->producer_count <= CHUNK_PRODUCERS_MAX);
    if (c->producer_count > 0) { /* the rest of a long run is in the next chunks */
        struct chunk_producer *last = &b->producers[c->producer_count - 1];
        if (last->event_count > c->count - last->first_event)
            last->event_count = c->count - last->first_event;
    }
    c->ts_delta = b->any_delta ? b->ts_delta : NULL;
    c->ts_high = b->any_high ? b->ts_high : NULL;
    c->key_len = b->any_key ? b->key_len : NULL;
    struct chunk_sealer *sealer = sealer_of(b, stream->topic);
    size_t stored = chunk_seal(sealer, c, b->out + b->written, chunk_bound(c));
    assert(stored > 0);
    account_chunk(b, stream, stored);
    columns_start(b, stream);
}

static void grow(uint8_t **bytes, size_t *capacity, size_t want)
{
    if (want <= *capacity)
        return;
    *bytes = realloc(*bytes, want);
    assert(*bytes != NULL);
    *capacity = want;
}

static void add_tokens(struct chunk_columns *c, const struct run *run)
{
    if (run->token_min < c->token_min)
        c->token_min = run->token_min;
    if (run->token_max > c->token_max)
        c->token_max = run->token_max;
}

/* Times further apart than 32 bits of microseconds go together only if they are all producers'. */
static bool time_fits(const struct group_builder *b, const struct run *run, int64_t timestamp)
{
    const int64_t base = b->columns.base_timestamp_us;
    if (run->timestamp == 0 && b->any_high)
        return false;
    return timestamp >= base && (timestamp - base <= UINT32_MAX ||
                                 (run->timestamp != 0 && !b->clocked));
}

static bool columns_fit(const struct group_builder *b, const struct run *run, uint32_t value_len,
                        uint32_t key_len, int64_t timestamp)
{
    const struct chunk_columns *c = &b->columns;
    uint32_t key_bytes = key_len == KEY_NULL ? 0 : key_len;
    return c->count == 0 ||
           (c->vals_bytes + value_len <= CHUNK_VALUES_TARGET && c->count < CHUNK_EVENTS_MAX &&
            c->keys_bytes + key_bytes <= CHUNK_KEYS_TARGET && time_fits(b, run, timestamp) &&
            c->producer_count < CHUNK_PRODUCERS_MAX);
}

/* Appends values that lie in a row, without a copy while they go on where the last ones ended. */
static void add_values(struct group_builder *b, const uint8_t *values, uint32_t bytes)
{
    struct chunk_columns *c = &b->columns;
    if (c->count == 0) {
        b->lent = true;
        c->vals = values;
    } else if (!b->lent || values != c->vals + c->vals_bytes) {
        grow(&b->vals, &b->vals_capacity, (size_t)c->vals_bytes + bytes);
        if (b->lent)
            memcpy(b->vals, c->vals, c->vals_bytes);
        memcpy(b->vals + c->vals_bytes, values, bytes);
        c->vals = b->vals;
        b->lent = false;
    }
    c->vals_bytes += bytes;
}

/* The keys of events [first, first + count), all the same. */
static void add_keys(struct group_builder *b, uint32_t first, uint32_t count, const uint8_t *key,
                     uint32_t key_len)
{
    struct chunk_columns *c = &b->columns;
    if (key_len == KEY_NULL && !b->any_key)
        return;
    if (!b->any_key)
        memset(b->key_len, 0xff, first * sizeof *b->key_len); /* KEY_NULL */
    b->any_key = true;
    size_t bytes = key_len == KEY_NULL ? 0 : (size_t)key_len * count;
    grow(&b->keys, &b->keys_capacity, c->keys_bytes + bytes);
    c->keys = b->keys;
    for (uint32_t i = 0; i < count; i++)
        b->key_len[first + i] = key_len;
    for (uint32_t i = 0; bytes > 0 && i < count; i++)
        memcpy(b->keys + c->keys_bytes + (size_t)i * key_len, key, key_len);
    c->keys_bytes += (uint32_t)bytes;
}

static void add_deltas(struct group_builder *b, uint32_t first, uint32_t count, int64_t timestamp)
{
    struct chunk_columns *c = &b->columns;
    uint64_t delta = (uint64_t)(timestamp - c->base_timestamp_us);
    if (timestamp > c->max_timestamp_us)
        c->max_timestamp_us = timestamp;
    if (delta == 0 && !b->any_delta)
        return;
    if (!b->any_delta)
        memset(b->ts_delta, 0, first * sizeof *b->ts_delta);
    b->any_delta = true;
    for (uint32_t i = 0; i < count; i++)
        b->ts_delta[first + i] = (uint32_t)delta;
    if (delta <= UINT32_MAX && !b->any_high)
        return;
    if (!b->any_high)
        memset(b->ts_high, 0, first * sizeof *b->ts_high);
    b->any_high = true;
    for (uint32_t i = 0; i < count; i++)
        b->ts_high[first + i] = (uint32_t)(delta >> 32);
}

/* Some events of a run with one key (or none) and one timestamp, their values in a row. They fit.
 */
struct piece {
    const uint8_t *values, *key;
    const uint32_t *lens;
    uint32_t count, bytes, key_len;
    int64_t timestamp;
};

static void add_piece(struct group_builder *b, const struct run *run, const struct piece *piece)
{
    struct chunk_columns *c = &b->columns;
    if (c->count == 0) {
        /* The run's earliest: later events of it that are older must not cut the chunk. */
        c->base_timestamp_us = run->timestamps ? run->timestamp : piece->timestamp;
        c->max_timestamp_us = piece->timestamp;
    }
    add_values(b, piece->values, piece->bytes);
    memcpy(b->val_len + c->count, piece->lens, piece->count * sizeof *b->val_len);
    add_keys(b, c->count, piece->count, piece->key, piece->key_len);
    add_deltas(b, c->count, piece->count, piece->timestamp);
    c->count += piece->count;
    b->clocked |= run->timestamp == 0;
    add_tokens(c, run);
}

static void note_producer(struct group_builder *b, const struct run *run)
{
    shard_logged(b->log->shard, run->stream, run->producer_id, run->producer_epoch,
                 run->producer_seq);
    struct chunk_columns *c = &b->columns;
    assert(c->producer_count < CHUNK_PRODUCERS_MAX);
    struct chunk_producer *record = &b->producers[c->producer_count++];
    memset(record, 0, sizeof *record);
    memcpy(record->id, run->producer_id, PRODUCER_ID_BYTES);
    record->epoch = run->producer_epoch;
    record->seq = run->producer_seq;
    record->first_event = c->count;
    record->event_count = run->count;
}

static void add_sealed(struct group_builder *b, struct stream *stream, const struct run *run,
                       int64_t clock)
{
    columns_flush(b, stream);
    struct chunk_columns *c = &b->columns;
    assert(c->count == 0 && run->batch != NULL);
    c->count = run->count;
    c->base_timestamp_us = run->timestamp ? run->timestamp : clock;
    c->max_timestamp_us = run->timestamp ? run->max_timestamp : clock;
    add_tokens(c, run);
    if (run->has_producer) {
        c->count = 0;
        note_producer(b, run);
        c->count = run->count;
    }
    size_t cap = chunk_bound_batch(run->batch, c);
    size_t stored = chunk_seal_batch(run->batch, c, b->out + b->written, cap);
    assert(stored > 0);
    account_chunk(b, stream, stored);
    columns_start(b, stream);
}

/* Starts a chunk where the next events do not fit, or are better off on their own. */
static void cut_chunk(struct group_builder *b, struct stream *stream, const struct run *run,
                      const struct piece *next)
{
    const struct chunk_columns *c = &b->columns;
    bool apart = b->lent && c->vals_bytes >= CHUNK_VALUES_ENOUGH &&
                 next->values != c->vals + c->vals_bytes;
    if (apart || !columns_fit(b, run, next->lens[0], next->key_len, next->timestamp))
        columns_flush(b, stream);
}

/* One event, or lines: values in a row, of one key and one timestamp. */
static void add_row(struct group_builder *b, struct stream *stream, const struct run *run,
                    int64_t clock)
{
    struct piece piece = {.values = run->values,
                          .key = run->keys,
                          .lens = run->value_lens ? run->value_lens : &run->value_len,
                          .key_len = run->keys ? run->key_len : KEY_NULL,
                          .timestamp = run->timestamp ? run->timestamp : clock};
    uint32_t key_bytes = run->keys ? run->key_len : 0;
    for (uint32_t left = run->count; left > 0; left -= piece.count) {
        piece.count = left;
        cut_chunk(b, stream, run, &piece);
        if (left == run->count && run->has_producer)
            note_producer(b, run); /* in the chunk of the run's first event */
        const struct chunk_columns *c = &b->columns;
        uint32_t n = 1;
        piece.bytes = piece.lens[0];
        while (n < left && c->count + n < CHUNK_EVENTS_MAX &&
               c->vals_bytes + piece.bytes + piece.lens[n] <= CHUNK_VALUES_TARGET &&
               c->keys_bytes + (uint64_t)key_bytes * (n + 1) <= CHUNK_KEYS_TARGET)
            piece.bytes += piece.lens[n++];
        piece.count = n;
        add_piece(b, run, &piece);
        piece.values += piece.bytes;
        piece.lens += n;
    }
}

static void add_spans(struct group_builder *b, struct stream *stream, const struct run *run,
                      int64_t clock)
{
    for (uint32_t i = 0; i < run->count; i++) {
        const struct span *value = &run->value_spans[i];
        struct piece piece = {.values = run->values + value->at,
                              .key = run->keys,
                              .lens = &value->len,
                              .count = 1,
                              .bytes = value->len,
                              .key_len = run->keys ? run->key_len : KEY_NULL,
                              .timestamp = run->timestamps  ? run->timestamps[i]
                                           : run->timestamp ? run->timestamp
                                                            : clock};
        if (run->key_spans != NULL) {
            piece.key_len = run->key_spans[i].len;
            piece.key = run->keys + run->key_spans[i].at;
        }
        cut_chunk(b, stream, run, &piece);
        if (i == 0 && run->has_producer)
            note_producer(b, run);
        add_piece(b, run, &piece);
    }
}

static void encode_stream(struct group_builder *b, struct stream *stream, int64_t wall_us)
{
    int64_t clock = wall_us > stream->last_timestamp ? wall_us : stream->last_timestamp;
    stream->last_timestamp = clock;
    columns_start(b, stream);
    for (struct run *run = stream->first_run; run != NULL; run = run->next_stream) {
        run->base_offset = stream->next_offset + b->columns.count;
        if (run->sealed)
            add_sealed(b, stream, run, clock);
        else if (run->value_spans != NULL)
            add_spans(b, stream, run, clock);
        else
            add_row(b, stream, run, clock);
    }
    columns_flush(b, stream);
    assert(b->columns.count == 0);
    stream->first_run = stream->last_run = NULL;
}

static void compact_run(struct log *log, const struct run *run)
{
    for (uint32_t i = 0; i < run->count; i++)
        shard_compact(log->shard, run->stream->topic, run->keys, run->keys ? run->key_len : 0,
                      run->values, run->value_len);
}

size_t builder_encode(struct group_builder *b, struct log *log, struct run *runs, uint8_t *out,
                      uint64_t body_pos, int64_t wall_us, uint32_t *chunks)
{
    assert(runs != NULL);
    b->log = log;
    b->out = out;
    b->pos = body_pos;
    b->written = 0;
    b->chunks = 0;
    for (struct run *run = runs; run != NULL; run = run->next) {
        struct stream *stream = run->stream;
        run->next_stream = NULL;
        if (run->count == 0)
            continue;
        if (stream->last_run != NULL)
            stream->last_run->next_stream = run;
        else
            stream->first_run = run;
        stream->last_run = run;
        if (stream->topic->compacted)
            compact_run(log, run);
    }
    /* A stream is encoded when its first run is met, with all its runs of the group. */
    for (struct run *run = runs; run != NULL; run = run->next)
        if (run->count > 0 && run->stream->first_run == run)
            encode_stream(b, run->stream, wall_us);
    *chunks = b->chunks;
    return b->written;
}
