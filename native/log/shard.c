#include "log/shard.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "http/uri.h"

#define TOPIC_TABLE_FIRST 256
#define PRODUCER_TABLE_FIRST 256
#define COMPACTED_TABLE_FIRST 256
#define PRODUCERS_FULL_US 1000000

struct shard *shard_new(uint32_t slice_first, uint32_t slice_count)
{
    assert(slice_count > 0);
    struct shard *shard = calloc(1, sizeof *shard);
    if (shard == NULL)
        return NULL;
    shard->slice_first = slice_first;
    shard->slice_count = slice_count;
    shard->topic_mask = TOPIC_TABLE_FIRST - 1;
    shard->topic_table = calloc(TOPIC_TABLE_FIRST, sizeof *shard->topic_table);
    shard->producer_mask = PRODUCER_TABLE_FIRST - 1;
    shard->producers = calloc(PRODUCER_TABLE_FIRST, sizeof *shard->producers);
    shard->compacted_mask = COMPACTED_TABLE_FIRST - 1;
    shard->compacted = calloc(COMPACTED_TABLE_FIRST, sizeof *shard->compacted);
    if (!shard->topic_table || !shard->producers || !shard->compacted) {
        shard_free(shard);
        return NULL;
    }
    return shard;
}

static void topic_free(const struct shard *shard, struct topic *topic)
{
    for (uint32_t i = 0; i < shard->slice_count; i++) {
        if (topic->streams[i] != NULL) {
            free(topic->streams[i]->entries);
            free(topic->streams[i]);
        }
    }
    free(topic->streams);
    free(topic);
}

void shard_free(struct shard *shard)
{
    if (shard == NULL)
        return;
    for (uint32_t i = 0; i < shard->topic_count; i++)
        if (shard->topics[i] != NULL)
            topic_free(shard, shard->topics[i]);
    free(shard->topics);
    free(shard->topic_table);
    free(shard->delayed);
    free(shard->producers);
    if (shard->compacted != NULL)
        for (uint32_t i = 0; i <= shard->compacted_mask; i++)
            free(shard->compacted[i].bytes);
    free(shard->compacted);
    free(shard);
}

struct topic *shard_topic(struct shard *shard, const char *name, size_t len)
{
    uint32_t hash = crc32c(0, name, len);
    for (uint32_t at = hash & shard->topic_mask;; at = (at + 1) & shard->topic_mask) {
        uint32_t found = shard->topic_table[at];
        if (found == 0)
            return NULL;
        struct topic *topic = shard->topics[found - 1];
        if (topic->hash == hash && topic->name_len == len && memcmp(topic->name, name, len) == 0)
            return topic;
    }
}

static void topic_place(struct shard *shard, const struct topic *topic)
{
    assert(shard->topic_count <= shard->topic_mask); /* there is a free row, or this never ends */
    uint32_t at = topic->hash & shard->topic_mask;
    while (shard->topic_table[at] != 0)
        at = (at + 1) & shard->topic_mask;
    shard->topic_table[at] = topic->index + 1;
}

static bool topic_table_grow(struct shard *shard)
{
    uint32_t size = (shard->topic_mask + 1) * 2;
    uint32_t *table = calloc(size, sizeof *table);
    if (table == NULL)
        return false;
    free(shard->topic_table);
    shard->topic_table = table;
    shard->topic_mask = size - 1;
    for (uint32_t i = 0; i < shard->topic_count; i++)
        topic_place(shard, shard->topics[i]);
    return true;
}

static bool topics_reserve(struct shard *shard)
{
    assert(shard->topic_count <= shard->topic_capacity);
    if (shard->topic_count == shard->topic_capacity) {
        uint32_t capacity = shard->topic_capacity ? shard->topic_capacity * 2 : 64;
        struct topic **topics = realloc(shard->topics, capacity * sizeof *topics);
        if (topics == NULL)
            return false;
        shard->topics = topics;
        shard->topic_capacity = capacity;
    }
    return shard->topic_count * 2 < shard->topic_mask || topic_table_grow(shard);
}

void shard_delayed_news(struct shard *shard, const struct stream *stream)
{
    struct delayed_news *news = &shard->news;
    assert(stream->topic->delayed && news->count <= DELAYED_NEWS_MAX + 1);
    if (news->count > DELAYED_NEWS_MAX)
        return;
    for (uint32_t i = news->count; i > 0; i--) /* mostly it is the last one again */
        if (news->of[i - 1].slice == stream->slice && news->of[i - 1].topic == stream->topic->index)
            return;
    if (news->count < DELAYED_NEWS_MAX) {
        news->of[news->count].topic = stream->topic->index;
        news->of[news->count].slice = stream->slice;
    }
    news->count++;
}

/* Room for one more that is delayed. */
static bool delayed_reserve(struct shard *shard)
{
    if ((shard->delayed_count & (shard->delayed_count - 1)) != 0)
        return true; /* it grows at powers of two */
    const size_t room = shard->delayed_count ? (size_t)shard->delayed_count * 2 : 1;
    assert(room > shard->delayed_count && shard->delayed_count <= shard->topic_count);
    uint32_t *numbers = realloc(shard->delayed, room * sizeof *numbers);
    if (numbers != NULL)
        shard->delayed = numbers;
    return numbers != NULL;
}

#define TOPIC_STATE_BYTES 2u
#define STREAM_STATE_BYTES 40u
#define PRODUCER_STATE_BYTES (PRODUCER_ID_BYTES + 40u)
#define COMPACTED_STATE_BYTES 24u

uint64_t shard_state_bytes(const struct shard *shard)
{
    return shard->state_bytes + (uint64_t)shard->producer_count * PRODUCER_STATE_BYTES;
}

bool shard_full(const struct shard *shard)
{
    return shard->state_bytes_max != 0 && shard_state_bytes(shard) >= shard->state_bytes_max;
}

struct topic *shard_topic_make(struct shard *shard, const char *name, size_t len)
{
    struct topic *topic = shard_topic(shard, name, len);
    if (topic != NULL)
        return topic;
    const bool delayed = topic_name_delayed(name, len);
    if (!topic_name_valid(name, len) || shard->topic_count >= TOPICS_MAX ||
        !topics_reserve(shard) || (delayed && !delayed_reserve(shard)))
        return NULL;
    topic = calloc(1, sizeof *topic);
    struct stream **streams = calloc(shard->slice_count, sizeof *streams);
    if (topic == NULL || streams == NULL) {
        free(topic);
        free(streams);
        return NULL;
    }
    assert(len <= TOPIC_NAME_BYTES_MAX && shard->topic_count < shard->topic_capacity);
    topic->index = shard->topic_count;
    topic->hash = crc32c(0, name, len);
    topic->name_len = (uint8_t)len;
    memcpy(topic->name, name, len);
    topic->streams = streams;
    topic->delayed = topic->any_time = delayed; /* its times are those when events are due */
    topic->internal = topic_name_reserved(name, len) && !delayed;
    topic->compacted = topic->internal;
    assert(!(topic->compacted && delayed)); /* what waits is no value of a key */
    if (delayed)
        shard->delayed[shard->delayed_count++] = topic->index;
    topic->shared = strcmp(topic->name, SHARED_TOPIC) == 0;
    shard->topics[shard->topic_count++] = topic;
    shard->state_bytes += TOPIC_STATE_BYTES + len;
    topic_place(shard, topic);
    return topic;
}

const struct topic *shard_topic_meant(struct shard *shard, const struct topic *topic)
{
    assert(!topic->delayed || topic->name_len > DELAYED_PREFIX_BYTES);
    return topic->delayed ? shard_topic(shard, topic->name + DELAYED_PREFIX_BYTES,
                                        topic->name_len - DELAYED_PREFIX_BYTES)
                          : topic;
}

struct topic *shard_topic_asked(struct shard *shard, const char *name, size_t len)
{
    return shard_full(shard) ? shard_topic(shard, name, len) : shard_topic_make(shard, name, len);
}

struct stream *shard_stream_get(const struct shard *shard, const struct topic *topic,
                                uint32_t slice)
{
    if (!shard_has(shard, slice))
        return NULL;
    return topic->streams[slice - shard->slice_first];
}

struct stream *shard_stream(struct shard *shard, struct topic *topic, uint32_t slice)
{
    assert(shard_has(shard, slice));
    struct stream **place = &topic->streams[slice - shard->slice_first];
    if (*place == NULL) {
        struct stream *stream = calloc(1, sizeof *stream);
        if (stream == NULL)
            return NULL;
        stream->topic = topic;
        stream->slice = slice;
        stream->max_timestamp = INT64_MIN;
        *place = stream;
        shard->state_bytes += STREAM_STATE_BYTES;
    }
    return *place;
}

/* ---- producers ---- */

static uint32_t producer_hash(const uint8_t *id, uint32_t topic, uint32_t slice)
{
    uint32_t seed = crc32c(topic * 0x9e3779b9u + slice, id, PRODUCER_ID_BYTES);
    return seed ^ (seed >> 15);
}

static struct producer *producer_find(struct shard *shard, const uint8_t *id, uint32_t topic,
                                      uint32_t slice)
{
    uint32_t at = producer_hash(id, topic, slice) & shard->producer_mask;
    for (;; at = (at + 1) & shard->producer_mask) {
        struct producer *row = &shard->producers[at];
        if (!row->used || (row->topic == topic && row->slice == slice &&
                           memcmp(row->id, id, PRODUCER_ID_BYTES) == 0))
            return row;
    }
}

/* Makes a table of the given size without the expired rows. */
static bool producers_rebuild(struct shard *shard, uint32_t size, int64_t now_us)
{
    assert(size > 0 && (size & (size - 1)) == 0);
    struct producer *old = shard->producers;
    uint32_t old_mask = shard->producer_mask;
    struct producer *rows = calloc(size, sizeof *rows);
    if (rows == NULL)
        return false;
    shard->producers = rows;
    shard->producer_mask = size - 1;
    shard->producer_count = 0;
    for (uint32_t i = 0; i <= old_mask; i++) {
        if (!old[i].used || old[i].last_us + PRODUCER_IDLE_US < now_us)
            continue;
        *producer_find(shard, old[i].id, old[i].topic, old[i].slice) = old[i];
        shard->producer_count++;
    }
    assert(shard->producer_count <= shard->producer_mask); /* a free row ends each search */
    free(old);
    return true;
}

static bool producers_reserve(struct shard *shard, int64_t now_us)
{
    uint32_t size = shard->producer_mask + 1;
    if (shard->producer_count * 2 < size)
        return true;
    if (shard->full_us != 0 && (uint64_t)(now_us - shard->full_us) < PRODUCERS_FULL_US)
        return false; /* looking through all rows again for each refusal would be an attack */
    if (!producers_rebuild(shard, size, now_us))
        return false;
    if (shard->producer_count * 4 < size)
        return true;
    if (size < 2 * PRODUCERS_MAX)
        return producers_rebuild(shard, size * 2, now_us);
    bool full = shard->producer_count * 2 >= size;
    shard->full_us = full ? now_us : 0;
    return !full;
}

enum dedup shard_dedup(struct shard *shard, const struct stream *stream, const uint8_t *id,
                       uint32_t epoch, uint64_t seq, bool one_shot, int64_t now_us,
                       struct producer **row, uint64_t *expected)
{
    struct producer *found = producer_find(shard, id, stream->topic->index, stream->slice);
    *row = NULL;
    *expected = 0;
    if (!found->used) { /* those that are known go on, however full the table is */
        if (!producers_reserve(shard, now_us))
            return DEDUP_FULL;
        found = producer_find(shard, id, stream->topic->index, stream->slice);
    }
    *row = found;
    if (found->used && epoch < found->epoch)
        return DEDUP_STALE_EPOCH;
    if (found->used && epoch == found->epoch) {
        *expected = found->last_seq + 1;
        if (seq <= found->last_seq)
            return found->last_seq - seq < PRODUCER_WINDOW ? DEDUP_DUPLICATE : DEDUP_GAP;
        if (seq != *expected)
            return DEDUP_GAP;
    } else if (seq != 0 && !one_shot) {
        return DEDUP_GAP; /* a new producer, or a new epoch of it, starts at 0 */
    }
    if (!found->used) {
        memcpy(found->id, id, PRODUCER_ID_BYTES);
        found->topic = stream->topic->index;
        found->slice = stream->slice;
        shard->producer_count++;
        assert(shard->producer_count <= shard->producer_mask);
    }
    found->used = true;
    found->epoch = epoch;
    found->last_us = now_us;
    return DEDUP_NEW;
}

bool shard_has_sequence(struct shard *shard, const struct stream *stream, const uint8_t *id,
                        uint32_t epoch, uint64_t seq)
{
    const struct producer *row = producer_find(shard, id, stream->topic->index, stream->slice);
    return row->used && epoch == row->epoch && seq <= row->last_seq;
}

bool shard_producer(struct shard *shard, const struct topic *topic, uint32_t slice,
                    const uint8_t *id, uint32_t *epoch, uint64_t *seq)
{
    const struct producer *row = producer_find(shard, id, topic->index, slice);
    if (!row->used)
        return false;
    *epoch = row->epoch;
    *seq = row->last_seq;
    return true;
}

bool shard_takes_producer(struct shard *shard, const struct stream *stream, const uint8_t *id)
{
    return !shard_full(shard) ||
           producer_find(shard, id, stream->topic->index, stream->slice)->used;
}

void shard_logged(struct shard *shard, const struct stream *stream, const uint8_t *id,
                  uint32_t epoch, uint64_t seq)
{
    struct producer *row = producer_find(shard, id, stream->topic->index, stream->slice);
    if (!row->used)
        return; /* expired while it waited */
    row->logged = true;
    row->logged_epoch = epoch;
    row->logged_seq = seq;
}

/* Nobody is forgotten for it: what is idle by now, the log's clock says, not a row. */
bool shard_remember(struct shard *shard, const struct stream *stream, const struct producer *row)
{
    uint32_t size = shard->producer_mask + 1;
    if (shard->producer_count >= PRODUCERS_RESTORED_MAX ||
        (shard->producer_count * 2 >= size && !producers_rebuild(shard, size * 2, INT64_MIN)))
        return false;
    struct producer *found = producer_find(shard, row->id, stream->topic->index, stream->slice);
    if (found->used)
        return false;
    *found = *row;
    found->topic = stream->topic->index;
    found->slice = stream->slice;
    found->used = found->logged = true;
    found->epoch = row->logged_epoch;
    found->last_seq = row->logged_seq;
    shard->producer_count++;
    assert(shard->producer_count <= shard->producer_mask);
    return true;
}

static void producer_drop(struct shard *shard, uint32_t at)
{
    assert(shard->producers[at].used && shard->producer_count > 0);
    shard->producers[at] = (struct producer){0};
    shard->producer_count--;
    /* Those behind it may have their place before it now. */
    for (uint32_t next = (at + 1) & shard->producer_mask; shard->producers[next].used;
         next = (next + 1) & shard->producer_mask) {
        const struct producer row = shard->producers[next];
        shard->producers[next] = (struct producer){0};
        *producer_find(shard, row.id, row.topic, row.slice) = row;
    }
}

void shard_forget_queued(struct shard *shard)
{
    for (uint32_t i = 0; i <= shard->producer_mask; i++) {
        struct producer *row = &shard->producers[i];
        while (row->used && !row->logged)
            producer_drop(shard, i);
        row->epoch = row->logged_epoch;
        row->last_seq = row->logged_seq;
    }
}

/* ---- compacted values ---- */

static struct compacted *compacted_find(struct shard *shard, const struct compacted *key)
{
    for (uint32_t at = key->hash & shard->compacted_mask;; at = (at + 1) & shard->compacted_mask) {
        struct compacted *row = &shard->compacted[at];
        if (row->bytes == NULL ||
            (row->hash == key->hash && row->topic == key->topic && row->slice == key->slice &&
             row->key_len == key->key_len &&
             (key->key_len == 0 || memcmp(row->bytes, key->bytes, key->key_len) == 0)))
            return row;
    }
}

static bool compacted_grow(struct shard *shard)
{
    struct compacted *old = shard->compacted;
    uint32_t old_mask = shard->compacted_mask;
    struct compacted *rows = calloc((old_mask + 1) * 2, sizeof *rows);
    if (rows == NULL)
        return false;
    shard->compacted = rows;
    shard->compacted_mask = old_mask * 2 + 1;
    for (uint32_t i = 0; i <= old_mask; i++)
        if (old[i].bytes != NULL)
            *compacted_find(shard, &old[i]) = old[i];
    assert(shard->compacted_count <= shard->compacted_mask);
    free(old);
    return true;
}

/* An empty value is a key that was deleted: a snapshot does not have it. */
static uint64_t compacted_bytes(size_t key_len, size_t value_len)
{
    return value_len > 0 ? COMPACTED_STATE_BYTES + key_len + value_len : 0;
}

void shard_compact(struct shard *shard, const struct topic *topic, const struct keyed *event)
{
    assert(topic->compacted);
    if (shard->compacted_count * 2 > shard->compacted_mask && !compacted_grow(shard))
        return;
    uint8_t *bytes = malloc(event->key_len + event->value_len + 1);
    if (bytes == NULL)
        return;
    if (event->key_len)
        memcpy(bytes, event->key, event->key_len);
    if (event->value_len)
        memcpy(bytes + event->key_len, event->value, event->value_len);
    struct compacted fresh = {
        .topic = topic->index,
        .slice = event->slice,
        .key_len = (uint32_t)event->key_len,
        .value_len = (uint32_t)event->value_len,
        .hash = crc32c(topic->index * 0x9e3779b9u + event->slice, bytes, event->key_len),
        .offset = event->offset,
        .bytes = bytes,
    };
    struct compacted *row = compacted_find(shard, &fresh);
    const uint64_t before = row->bytes ? compacted_bytes(row->key_len, row->value_len) : 0;
    assert(before <= shard->state_bytes);
    shard->compacted_count += row->bytes == NULL;
    shard->state_bytes += compacted_bytes(event->key_len, event->value_len) - before;
    free(row->bytes);
    *row = fresh;
}

/* ---- other slices ---- */

static void streams_move(struct shard *shard, struct topic *topic, struct stream **streams,
                         uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < shard->slice_count; i++) {
        struct stream *stream = topic->streams[i];
        if (stream == NULL)
            continue;
        assert(stream->first_run == NULL); /* between two generations nothing is being built */
        if (stream->slice >= first && stream->slice - first < count) {
            streams[stream->slice - first] = stream;
            continue;
        }
        shard->state_bytes -= STREAM_STATE_BYTES;
        shard->entries_total -= stream->entry_count;
        free(stream->entries);
        free(stream);
    }
    free(topic->streams);
    topic->streams = streams;
}

static void producers_keep(struct shard *shard)
{
    for (uint32_t i = 0; i <= shard->producer_mask; i++)
        while (shard->producers[i].used && !shard_has(shard, shard->producers[i].slice))
            producer_drop(shard, i);
    assert(shard->producer_count <= shard->producer_mask); /* a free row ends each search */
}

/* Settings of topics stay, as in a cut: they are for all slices, whichever they were written in. */
static void compacted_keep(struct shard *shard, struct compacted *rows)
{
    struct compacted *old = shard->compacted;
    const uint32_t before = shard->compacted_count;
    shard->compacted = rows;
    shard->compacted_count = 0;
    for (uint32_t i = 0; i <= shard->compacted_mask; i++) {
        if (old[i].bytes == NULL)
            continue;
        if (shard_has(shard, old[i].slice) || shard->topics[old[i].topic]->shared) {
            *compacted_find(shard, &old[i]) = old[i];
            shard->compacted_count++;
            continue;
        }
        shard->state_bytes -= compacted_bytes(old[i].key_len, old[i].value_len);
        free(old[i].bytes);
    }
    assert(shard->compacted_count <= before);
    free(old);
}

bool shard_set_slices(struct shard *shard, uint32_t slice_first, uint32_t slice_count)
{
    assert(slice_count > 0 && slice_first <= UINT32_MAX - slice_count);
    if (slice_first == shard->slice_first && slice_count == shard->slice_count)
        return true;
    struct stream ***streams = calloc((size_t)shard->topic_count + 1, sizeof *streams);
    struct compacted *rows = calloc((size_t)shard->compacted_mask + 1, sizeof *rows);
    bool ok = streams != NULL && rows != NULL;
    for (uint32_t t = 0; ok && t < shard->topic_count; t++)
        ok = (streams[t] = calloc(slice_count, sizeof **streams)) != NULL;
    for (uint32_t t = 0; ok && t < shard->topic_count; t++)
        streams_move(shard, shard->topics[t], streams[t], slice_first, slice_count);
    for (uint32_t t = 0; !ok && streams != NULL && t < shard->topic_count; t++)
        free(streams[t]);
    free(streams);
    if (!ok) {
        free(rows);
        return false;
    }
    shard->slice_first = slice_first;
    shard->slice_count = slice_count;
    producers_keep(shard);
    compacted_keep(shard, rows);
    assert(shard->topic_count > 0 || shard->entries_total == 0);
    return true;
}

/* ---- index ---- */

void stream_index(struct shard *shard, struct stream *stream, const struct index_entry *entry)
{
    if (stream->entry_count == stream->entry_capacity) {
        uint32_t capacity = stream->entry_capacity ? stream->entry_capacity * 2 : 8;
        struct index_entry *entries = realloc(stream->entries, capacity * sizeof *entries);
        assert(entries != NULL);
        stream->entries = entries;
        stream->entry_capacity = capacity;
    }
    stream->entries[stream->entry_count++] = *entry;
    shard->entries_total++;
}

uint32_t stream_find(const struct stream *stream, uint64_t offset)
{
    uint32_t low = 0, high = stream->entry_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        const struct index_entry *entry = &stream->entries[middle];
        if (entry->base_offset + entry->count <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
