/* From runs to chunks: gathers each stream's events of one group into columns and seals them. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "format/chunk.h"
#include "log/group_build.h"

/* Events of one chunk at most; with the value target it bounds the scratch columns. */
#define CHUNK_EVENTS_MAX 32768u
/* Values that lie in a row are compressed from there. Others that follow are copied behind them,
 * unless there are already so many that a chunk of their own is the better bargain. */
#define CHUNK_VALUES_ENOUGH (CHUNK_VALUES_TARGET / 8 * 3)
#define CHUNK_KEYS_TARGET (128u << 10)
#define CHUNK_PRODUCERS_MAX 1024u

#define CHUNK_HEADERS_TARGET (128u << 10)

_Static_assert(COLUMN_BYTES_COUNT == 3, "keys, values, headers are gathered, each in its own way");

/* Room for a column of words. It is filled in as far as somebody has brought something: before, and
 * between them, events have none. */
struct words {
    uint32_t *at;
    uint32_t filled;
};

struct group_builder {
    struct chunk_sealer *sealer;
    struct chunk_columns columns;
    struct words words[COLUMN_COUNT]; /* by place in the table */
    uint8_t *keys, *vals, *hdrs;
    size_t keys_capacity, vals_capacity, hdrs_capacity; /* of hdrs 0 until an event has any */
    struct chunk_producer *producers;
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
    bool good = true;
    for (uint32_t i = 0; i < COLUMN_COUNT; i++)
        if (columns_table[i].kind != COLUMN_BYTES)
            good &= (b->words[i].at = malloc(CHUNK_EVENTS_MAX * sizeof(uint32_t))) != NULL;
    b->producers = malloc(CHUNK_PRODUCERS_MAX * sizeof *b->producers);
    b->keys_capacity = b->vals_capacity = 256u << 10;
    b->keys = malloc(b->keys_capacity);
    b->vals = malloc(b->vals_capacity);
    if (!good || !b->sealer || !b->producers || !b->keys || !b->vals) {
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
    for (uint32_t i = 0; i < COLUMN_COUNT; i++)
        free(b->words[i].at);
    free(b->producers);
    free(b->keys);
    free(b->vals);
    free(b->hdrs);
    free(b);
}

size_t run_bound(const struct run *run)
{
    /* Columns of words (one less where an event does not bring its own time), LZ4's worst case
     * (1/255), and the frame of each chunk: header, topic, directory and padding, once for the run
     * and once for each full chunk; a run may also cut the chunk that an earlier run began. That
     * run's events may have headers, and then these say that they have none. */
    const size_t words = COLUMN_COUNT - COLUMN_BYTES_COUNT - (run->timestamp == 0);
    size_t raw = run->bytes + (size_t)run->count * words * sizeof(uint32_t);
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
        .keys = b->keys,
        .vals = b->vals,
        .hdrs = b->hdrs,
        .producers = b->producers,
    };
    for (uint32_t i = 0; i < COLUMN_COUNT; i++)
        b->words[i].filled = 0;
    b->clocked = b->lent = false;
}

/* Fills in what an event has that brought nothing: no key, no headers, or 0. */
static void fill_up(struct group_builder *b, uint32_t place, uint32_t count)
{
    struct words *words = &b->words[place];
    assert(words->filled <= count && count <= CHUNK_EVENTS_MAX);
    if (words->filled < count)
        memset(words->at + words->filled, columns_table[place].kind == COLUMN_LENS ? 0xff : 0,
               (count - words->filled) * sizeof *words->at); /* 0xff: KEY_NULL */
    words->filled = count;
}

/* Where the words of the next count events go. */
static uint32_t *words_next(struct group_builder *b, enum section_id id, uint32_t count)
{
    const uint32_t first = b->columns.count;
    fill_up(b, id - 1, first);
    b->words[id - 1].filled = first + count;
    return b->words[id - 1].at + first;
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
    if (c->hdrs_bytes == 0) /* its run has some, but none of these events */
        b->words[SECTION_HDR_LEN - 1].filled = 0;
    for (uint32_t i = 0; i < COLUMN_COUNT; i++)
        if (b->words[i].filled > 0) {
            fill_up(b, i, c->count);
            column_set(&c->columns, &columns_table[i], b->words[i].at);
        }
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
    if (run->timestamp == 0 && b->words[SECTION_TS_HIGH - 1].filled > 0)
        return false;
    return timestamp >= base && (timestamp - base <= UINT32_MAX ||
                                 (run->timestamp != 0 && !b->clocked));
}

/* Some events of a run, their values in a row, with one key (or none) and one time; or as columns,
 * from first on. They fit. */
struct piece {
    const uint8_t *values, *key, *headers;
    const uint32_t *lens;
    uint32_t count, bytes, key_len, headers_len;
    int64_t timestamp;
    uint32_t first, key_bytes, headers_bytes;
};

/* Whether the piece's first event goes into the chunk that is being made. */
static bool columns_fit(const struct group_builder *b, const struct run *run,
                        const struct piece *next)
{
    const struct chunk_columns *c = &b->columns;
    return c->count == 0 ||
           (c->vals_bytes + bytes_of(next->lens[0]) <= CHUNK_VALUES_TARGET &&
            c->count < CHUNK_EVENTS_MAX &&
            c->keys_bytes + bytes_of(next->key_len) <= CHUNK_KEYS_TARGET &&
            c->hdrs_bytes + bytes_of(next->headers_len) <= CHUNK_HEADERS_TARGET &&
            time_fits(b, run, next->timestamp) && c->producer_count < CHUNK_PRODUCERS_MAX);
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

/* Appends a piece's values, each from where it lies. */
static void gather_values(struct group_builder *b, const struct run *run, const struct piece *piece)
{
    struct chunk_columns *c = &b->columns;
    grow(&b->vals, &b->vals_capacity, (size_t)c->vals_bytes + piece->bytes);
    if (c->count > 0 && b->lent)
        memcpy(b->vals, c->vals, c->vals_bytes);
    b->lent = false;
    c->vals = b->vals;
    uint8_t *out = b->vals + c->vals_bytes;
    for (uint32_t i = 0; i < piece->count; i++) {
        const uint32_t len = bytes_of(piece->lens[i]);
        memcpy(out, run->values + run->begins[piece->first + i], len);
        out += len;
    }
    assert(out == b->vals + c->vals_bytes + piece->bytes);
    c->vals_bytes += piece->bytes;
}

/* The key of the next count events, all the same. */
static void add_keys(struct group_builder *b, uint32_t count, const uint8_t *key, uint32_t key_len)
{
    struct chunk_columns *c = &b->columns;
    if (key_len == KEY_NULL)
        return;
    size_t bytes = (size_t)key_len * count;
    grow(&b->keys, &b->keys_capacity, c->keys_bytes + bytes);
    c->keys = b->keys;
    uint32_t *lens = words_next(b, SECTION_KEY_LEN, count);
    for (uint32_t i = 0; i < count; i++)
        lens[i] = key_len;
    for (uint32_t i = 0; bytes > 0 && i < count; i++)
        memcpy(b->keys + c->keys_bytes + (size_t)i * key_len, key, key_len);
    c->keys_bytes += (uint32_t)bytes;
}

/* The time of the next count events. */
static void add_deltas(struct group_builder *b, uint32_t count, int64_t timestamp)
{
    struct chunk_columns *c = &b->columns;
    uint64_t delta = (uint64_t)(timestamp - c->base_timestamp_us);
    if (timestamp > c->max_timestamp_us)
        c->max_timestamp_us = timestamp;
    if (delta == 0)
        return;
    uint32_t *low = words_next(b, SECTION_TS_DELTA, count);
    for (uint32_t i = 0; i < count; i++)
        low[i] = (uint32_t)delta;
    if (delta <= UINT32_MAX)
        return;
    uint32_t *high = words_next(b, SECTION_TS_HIGH, count);
    for (uint32_t i = 0; i < count; i++)
        high[i] = (uint32_t)(delta >> 32);
}

static void add_piece(struct group_builder *b, const struct run *run, const struct piece *piece)
{
    struct chunk_columns *c = &b->columns;
    if (c->count == 0)
        c->base_timestamp_us = c->max_timestamp_us = piece->timestamp;
    add_values(b, piece->values, piece->bytes);
    memcpy(words_next(b, SECTION_VAL_LEN, piece->count), piece->lens,
           piece->count * sizeof *piece->lens);
    add_keys(b, piece->count, piece->key, piece->key_len);
    add_deltas(b, piece->count, piece->timestamp);
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

/* What a run says, or the broker's clock. */
static int64_t time_or(int64_t said, int64_t clock)
{
    return said == TIME_ZERO ? 0 : said != 0 ? said : clock;
}

static void add_sealed(struct group_builder *b, struct stream *stream, const struct run *run,
                       int64_t clock)
{
    columns_flush(b, stream);
    struct chunk_columns *c = &b->columns;
    assert(c->count == 0 && run->batch != NULL);
    c->count = run->count;
    c->base_timestamp_us = time_or(run->timestamp, clock);
    c->max_timestamp_us = run->timestamp ? time_or(run->max_timestamp, 0) : clock;
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
    if (apart || !columns_fit(b, run, next))
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
                          .headers_len = KEY_NULL,
                          .timestamp = time_or(run->timestamp, clock)};
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

/* ---- a batch that was cut ---- */

static int64_t time_of(const struct run *run, uint32_t event, int64_t clock)
{
    return time_or(run->timestamp, clock) + (int64_t)column_delta(run->columns, event);
}

static uint32_t key_len_of(const struct batch_columns *from, uint32_t event)
{
    return from->key_len != NULL ? from->key_len[event] : KEY_NULL;
}

static uint32_t headers_len_of(const struct batch_columns *from, uint32_t event)
{
    return from->hdr_len != NULL ? from->hdr_len[event] : KEY_NULL;
}

/* The piece that begins with this event; of that one alone. */
static void piece_start(struct piece *piece, const struct run *run, uint32_t first, int64_t clock)
{
    piece->first = first;
    piece->lens = run->columns->val_len + first;
    piece->key_len = key_len_of(run->columns, first);
    piece->timestamp = time_of(run, first, clock);
    piece->count = 1;
    piece->bytes = bytes_of(piece->lens[0]);
    piece->key_bytes = bytes_of(piece->key_len);
    piece->headers_len = headers_len_of(run->columns, first);
    piece->headers_bytes = bytes_of(piece->headers_len);
}

/* As many of the run's next events as fit with it. */
static void piece_extend(const struct group_builder *b, struct piece *piece, const struct run *run,
                         int64_t clock)
{
    const struct chunk_columns *c = &b->columns;
    for (uint32_t i = piece->first + 1; i < run->count; i++) {
        const uint32_t key_bytes = bytes_of(key_len_of(run->columns, i));
        const uint32_t value_bytes = bytes_of(run->columns->val_len[i]);
        const uint32_t headers_bytes = bytes_of(headers_len_of(run->columns, i));
        if (c->vals_bytes + piece->bytes + value_bytes > CHUNK_VALUES_TARGET ||
            c->keys_bytes + piece->key_bytes + key_bytes > CHUNK_KEYS_TARGET ||
            c->hdrs_bytes + piece->headers_bytes + headers_bytes > CHUNK_HEADERS_TARGET ||
            c->count + piece->count >= CHUNK_EVENTS_MAX ||
            !time_fits(b, run, time_of(run, i, clock)))
            return;
        piece->count++;
        piece->bytes += value_bytes;
        piece->key_bytes += key_bytes;
        piece->headers_bytes += headers_bytes;
    }
}

static void add_times(struct group_builder *b, const struct run *run, const struct piece *piece,
                      int64_t clock)
{
    struct chunk_columns *c = &b->columns;
    if (run->columns->ts_delta == NULL && run->columns->ts_high == NULL) { /* all the run's */
        add_deltas(b, piece->count, piece->timestamp);
        return;
    }
    uint64_t all = 0;
    for (uint32_t i = 0; i < piece->count; i++) {
        const int64_t time = time_of(run, piece->first + i, clock);
        c->max_timestamp_us = time > c->max_timestamp_us ? time : c->max_timestamp_us;
        all |= (uint64_t)(time - c->base_timestamp_us);
    }
    if (all == 0)
        return;
    uint32_t *low = words_next(b, SECTION_TS_DELTA, piece->count), *high = NULL;
    if (all > UINT32_MAX)
        high = words_next(b, SECTION_TS_HIGH, piece->count);
    for (uint32_t i = 0; i < piece->count; i++) {
        const int64_t time = time_of(run, piece->first + i, clock);
        const uint64_t delta = (uint64_t)(time - c->base_timestamp_us);
        low[i] = (uint32_t)delta;
        if (high != NULL)
            high[i] = (uint32_t)(delta >> 32);
    }
}

/* Whatever the table has, but the times, which chunks count from elsewhere. */
static void add_words(struct group_builder *b, const struct run *run, const struct piece *piece)
{
    for (const struct column *each = columns_table; each < columns_table + COLUMN_COUNT; each++) {
        if (each->kind == COLUMN_BYTES || each->bit == COLUMN_TIMESTAMP)
            continue;
        const uint32_t *from = column_pointer(run->columns, each);
        if (from != NULL)
            memcpy(words_next(b, each->id, piece->count), from + piece->first,
                   piece->count * sizeof *from);
    }
}

/* A piece's bytes, behind those that are there. What is behind them in the run. */
static const uint8_t *add_bytes(uint8_t **all, size_t *capacity, uint32_t *filled,
                                const uint8_t *bytes, uint32_t len)
{
    if (len == 0)
        return bytes;
    grow(all, capacity, (size_t)*filled + len);
    memcpy(*all + *filled, bytes, len);
    *filled += len;
    return bytes + len;
}

static void add_columns(struct group_builder *b, struct stream *stream, const struct run *run,
                        int64_t clock)
{
    struct chunk_columns *c = &b->columns;
    struct piece piece = {.values = run->columns->vals,
                          .key = run->columns->keys,
                          .headers = run->columns->hdrs};
    for (uint32_t first = 0; first < run->count; first += piece.count) {
        piece_start(&piece, run, first, clock);
        cut_chunk(b, stream, run, &piece);
        if (first == 0 && run->has_producer)
            note_producer(b, run);
        if (c->count == 0) /* the run's base: later events that are older must not cut the chunk */
            c->base_timestamp_us = c->max_timestamp_us = time_or(run->timestamp, clock);
        piece_extend(b, &piece, run, clock);
        add_times(b, run, &piece, clock);
        add_words(b, run, &piece);
        if (run->begins != NULL) {
            gather_values(b, run, &piece);
        } else {
            add_values(b, piece.values, piece.bytes);
            piece.values += piece.bytes;
        }
        piece.key = add_bytes(&b->keys, &b->keys_capacity, &c->keys_bytes, piece.key,
                              piece.key_bytes);
        piece.headers = add_bytes(&b->hdrs, &b->hdrs_capacity, &c->hdrs_bytes, piece.headers,
                                  piece.headers_bytes);
        c->keys = b->keys;
        c->hdrs = b->hdrs;
        c->count += piece.count;
        b->clocked |= run->timestamp == 0;
        add_tokens(c, run);
    }
    assert(run->begins != NULL ||
           piece.values == run->columns->vals + run->columns->vals_bytes);
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
        else if (run->columns != NULL)
            add_columns(b, stream, run, clock);
        else
            add_row(b, stream, run, clock);
    }
    columns_flush(b, stream);
    assert(b->columns.count == 0);
    stream->first_run = stream->last_run = NULL;
}

static void compact_run(struct log *log, const struct run *run)
{
    assert(run->columns == NULL);
    for (uint32_t i = 0; i < run->count; i++)
        shard_compact(log->shard, run->stream->topic,
                      &(struct keyed){
                          .slice = run->stream->slice,
                          .offset = run->base_offset + i,
                          .key = run->keys,
                          .key_len = run->keys ? run->key_len : 0,
                          .value = run->values,
                          .value_len = run->value_len,
                      });
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
    }
    /* A stream is encoded when its first run is met, with all its runs of the group. */
    for (struct run *run = runs; run != NULL; run = run->next)
        if (run->count > 0 && run->stream->first_run == run)
            encode_stream(b, run->stream, wall_us);
    for (struct run *run = runs; run != NULL; run = run->next) /* their offsets are known now */
        if (run->count > 0 && run->stream->topic->compacted)
            compact_run(log, run);
    *chunks = b->chunks;
    return b->written;
}
