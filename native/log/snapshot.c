/* The shard's state as bytes (state.h), and its rebuilding from a log: snapshot, then the groups
 * after it. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "format/chunk.h"
#include "format/group.h"
#include "log/shard.h"
#include "log/state.h"

struct writer {
    uint8_t *bytes;
    size_t len, capacity;
    bool failed;
};

static void put(struct writer *w, const void *data, size_t len)
{
    assert(w->len <= w->capacity);
    if (w->len + len > w->capacity) {
        size_t capacity = (w->capacity + len) * 2;
        uint8_t *bytes = realloc(w->bytes, capacity);
        if (bytes == NULL) {
            w->failed = true;
            return;
        }
        w->bytes = bytes;
        w->capacity = capacity;
    }
    if (len)
        memcpy(w->bytes + w->len, data, len);
    w->len += len;
}

static uint32_t put_streams(struct writer *w, const struct shard *shard)
{
    uint32_t count = 0;
    for (uint32_t t = 0; t < shard->topic_count; t++) {
        for (uint32_t s = 0; s < shard->slice_count; s++) {
            const struct stream *stream = shard->topics[t]->streams[s];
            if (stream == NULL)
                continue;
            const struct stream_row row = {
                .topic = t,
                .slice = stream->slice,
                .start_offset = stream->start_offset,
                .next_offset = stream->next_offset,
                .last_timestamp = stream->last_timestamp,
                .max_timestamp = stream->max_timestamp,
            };
            put(w, &row, sizeof row);
            count++;
        }
    }
    return count;
}

static uint32_t put_producers(struct writer *w, const struct shard *shard, int64_t now_us)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i <= shard->producer_mask; i++) {
        const struct producer *producer = &shard->producers[i];
        if (!producer->used || !producer->logged || producer->last_us + PRODUCER_IDLE_US < now_us)
            continue;
        struct producer_row row = {
            .topic = producer->topic,
            .slice = producer->slice,
            .epoch = producer->logged_epoch,
            .seq = producer->logged_seq,
            .offset = producer->last_offset,
            .last_us = producer->last_us,
        };
        memcpy(row.id, producer->id, sizeof row.id);
        put(w, &row, sizeof row);
        count++;
    }
    return count;
}

static uint32_t put_values(struct writer *w, const struct shard *shard)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i <= shard->compacted_mask; i++) {
        const struct compacted *kept = &shard->compacted[i];
        if (kept->bytes == NULL || kept->value_len == 0)
            continue;
        const struct value_row row = {
            .topic = kept->topic,
            .slice = kept->slice,
            .key_len = kept->key_len,
            .value_len = kept->value_len,
            .offset = kept->offset,
        };
        put(w, &row, sizeof row);
        put(w, kept->bytes, (size_t)kept->key_len + kept->value_len);
        count++;
    }
    return count;
}

uint8_t *shard_snapshot(const struct shard *shard, const uint8_t *prefix, uint32_t prefix_len,
                        int64_t now_us, size_t *len)
{
    struct writer w = {0};
    struct state_header head = {
        .magic = STATE_MAGIC,
        .version = STATE_VERSION,
        .topics = shard->topic_count,
        .prefix_bytes = prefix_len,
        .clock_s = (uint32_t)((now_us + 999999) / 1000000),
        .slice_first = shard->slice_first,
        .slice_count = shard->slice_count,
    };
    put(&w, &head, sizeof head);
    put(&w, prefix, prefix_len);
    for (uint32_t t = 0; t < shard->topic_count; t++) {
        uint8_t flags[2] = {shard->topics[t]->name_len, shard->topics[t]->declared};
        put(&w, flags, 2);
        put(&w, shard->topics[t]->name, shard->topics[t]->name_len);
    }
    head.streams = put_streams(&w, shard);
    head.producers = put_producers(&w, shard, now_us);
    head.values = put_values(&w, shard);
    if (w.failed) {
        free(w.bytes);
        return NULL;
    }
    assert(w.len >= sizeof head + prefix_len);
    memcpy(w.bytes, &head, sizeof head);
    *len = w.len;
    return w.bytes;
}

/* ---- reading ---- */

struct reader {
    const uint8_t *at, *end;
    bool failed;
};

static const uint8_t *take(struct reader *r, size_t len)
{
    assert(r->at <= r->end);
    if (r->failed || (size_t)(r->end - r->at) < len) {
        r->failed = true;
        return NULL;
    }
    const uint8_t *bytes = r->at;
    r->at += len;
    return bytes;
}

static void take_into(struct reader *r, void *row, size_t len)
{
    const uint8_t *bytes = take(r, len);
    memset(row, 0, len);
    if (bytes)
        memcpy(row, bytes, len);
}

static void take_topic(struct reader *r, struct shard *shard)
{
    const uint8_t *flags = take(r, 2);
    const uint8_t *name = flags ? take(r, flags[0]) : NULL;
    struct topic *topic = name ? shard_topic_make(shard, (const char *)name, flags[0]) : NULL;
    if (topic == NULL)
        r->failed = true;
    else
        topic->declared = flags[1];
}

static void take_stream(struct reader *r, struct shard *shard)
{
    struct stream_row row;
    take_into(r, &row, sizeof row);
    if (r->failed || row.topic >= shard->topic_count || !shard_has(shard, row.slice)) {
        r->failed = true;
        return;
    }
    struct stream *stream = shard_stream(shard, shard->topics[row.topic], row.slice);
    if (stream == NULL) {
        r->failed = true;
        return;
    }
    stream->start_offset = row.start_offset;
    stream->next_offset = stream->stable_offset = row.next_offset;
    stream->last_timestamp = row.last_timestamp;
    stream->max_timestamp = row.max_timestamp;
}

static void take_producer(struct reader *r, struct shard *shard)
{
    struct producer_row row;
    take_into(r, &row, sizeof row);
    if (r->failed || row.topic >= shard->topic_count || row.last_us < -STATE_TIME_MAX ||
        row.last_us > STATE_TIME_MAX) {
        r->failed = true;
        return;
    }
    const struct stream *stream = shard_stream_get(shard, shard->topics[row.topic], row.slice);
    struct producer known = {
        .last_offset = row.offset,
        .last_us = row.last_us,
        .logged_epoch = row.epoch,
        .logged_seq = row.seq,
    };
    memcpy(known.id, row.id, sizeof known.id);
    if (stream == NULL || !shard_remember(shard, stream, &known))
        r->failed = true;
}

static void take_value(struct reader *r, struct shard *shard)
{
    struct value_row row;
    take_into(r, &row, sizeof row);
    const uint8_t *key = take(r, row.key_len);
    const uint8_t *value = take(r, row.value_len);
    if (r->failed || row.topic >= shard->topic_count) {
        r->failed = true;
        return;
    }
    const struct topic *topic = shard->topics[row.topic];
    const bool own = shard_has(shard, row.slice);
    const uint32_t before = shard->compacted_count;
    if (topic->compacted && (own || topic->shared))
        shard_compact(shard, topic,
                      &(struct keyed){row.slice, row.offset, key, value, row.key_len,
                                      row.value_len});
    assert(shard->compacted_count >= before);
    if (shard->compacted_count != before + 1) /* no memory, or it was there already */
        r->failed = true;
}

static int restore_into(struct shard *shard, const uint8_t *bytes, size_t len)
{
    struct reader r = {bytes, bytes + len, false};
    struct state_header head;
    take_into(&r, &head, sizeof head);
    if (r.failed || head.magic != STATE_MAGIC || head.version != STATE_VERSION ||
        head.slice_first != shard->slice_first || head.slice_count != shard->slice_count)
        return -1;
    take(&r, head.prefix_bytes);
    for (uint32_t i = 0; i < head.topics && !r.failed; i++)
        take_topic(&r, shard);
    for (uint32_t i = 0; i < head.streams && !r.failed; i++)
        take_stream(&r, shard);
    for (uint32_t i = 0; i < head.producers && !r.failed; i++)
        take_producer(&r, shard);
    for (uint32_t i = 0; i < head.values && !r.failed; i++)
        take_value(&r, shard);
    return r.failed || r.at != r.end ? -1 : 0;
}

static void keep_entries(struct shard *shard, struct stream *old, struct stream *new)
{
    uint32_t count = old->entry_count;
    while (count > 0 && old->entries[count - 1].base_offset + old->entries[count - 1].count >
                            new->next_offset)
        count--; /* never became history */
    if (count == 0)
        return;
    assert(new->entries == NULL && count <= old->entry_capacity);
    new->entries = old->entries;
    new->entry_count = count;
    new->entry_capacity = old->entry_capacity;
    shard->entries_total += count;
    old->entries = NULL;
}

/* Requests under way hold their topic: its contents change, its address does not. Returns what is
 * to be freed in its place. */
static struct topic *keep_address(struct shard *fresh, struct topic *old)
{
    struct topic *new = shard_topic(fresh, old->name, old->name_len);
    if (new == NULL) /* not in the snapshot: it stays as a name */
        new = shard_topic_make(fresh, old->name, old->name_len);
    if (new == NULL)
        return NULL; /* no memory, or too many of them: better lost than freed too early */
    assert(new != old); /* one of the fresh shard's own */
    for (uint32_t s = 0; s < fresh->slice_count; s++) {
        if (new->streams[s] == NULL)
            continue;
        new->streams[s]->topic = old;
        if (old->streams[s] != NULL)
            keep_entries(fresh, old->streams[s], new->streams[s]);
    }
    struct topic gone = *old;
    *old = *new;
    *new = gone;
    fresh->topics[old->index] = old;
    return new;
}

/* The fresh one's state becomes the shard's; what it had goes into the fresh one. */
static void replace(struct shard *shard, struct shard *fresh)
{
    assert(fresh->slice_first == shard->slice_first && fresh->slice_count == shard->slice_count);
    for (uint32_t t = 0; t < shard->topic_count; t++)
        shard->topics[t] = keep_address(fresh, shard->topics[t]);
    fresh->state_bytes_max = shard->state_bytes_max;
    fresh->slices_all = shard->slices_all;
    fresh->news.count = fresh->delayed_count > 0 ? DELAYED_NEWS_MAX + 1 : 0; /* numbered anew */
    const struct shard gone = *shard;
    *shard = *fresh;
    *fresh = gone;
}

/* Into an empty one: what was there before numbers its topics otherwise and knows more. */
int shard_restore(struct shard *shard, const uint8_t *bytes, size_t len)
{
    struct shard *fresh = shard_new(shard->slice_first, shard->slice_count);
    if (fresh == NULL)
        return -1;
    const int status = bytes != NULL ? restore_into(fresh, bytes, len) : 0;
    if (status == 0)
        replace(shard, fresh);
    shard_free(fresh);
    return status;
}

int shard_adopt(struct shard *shard, const uint8_t *bytes, size_t len)
{
    uint32_t first = shard->slice_first, count = shard->slice_count;
    if (bytes != NULL && !state_slices(bytes, len, &first, &count))
        return -1;
    if (first == shard->slice_first && count == shard->slice_count)
        return shard_restore(shard, bytes, len);
    if (shard->slices_all != 0 && (first >= shard->slices_all || count > shard->slices_all - first))
        return -1;
    struct shard *fresh = shard_new(first, count);
    int status = -1;
    if (fresh != NULL && restore_into(fresh, bytes, len) == 0 &&
        shard_set_slices(shard, first, count)) {
        replace(shard, fresh);
        status = 0;
    }
    shard_free(fresh);
    return status;
}

int64_t shard_snapshot_time(const uint8_t *bytes, size_t len)
{
    struct state_header head;
    if (len < sizeof head)
        return 0;
    memcpy(&head, bytes, sizeof head);
    return head.magic == STATE_MAGIC ? head.clock_s * 1000000LL : 0;
}

/* ---- replay ---- */

static int apply_producers(struct shard *shard, struct stream *stream,
                           const struct chunk_view *chunk, int64_t now_us, uint64_t gseq)
{
    for (uint8_t i = 0; i < chunk->section_count; i++) {
        if (chunk->sections[i].id != SECTION_PRODUCERS)
            continue;
        for (uint32_t at = 0; at + sizeof(struct chunk_producer) <= chunk->sections[i].stored_len;
             at += sizeof(struct chunk_producer)) {
            struct chunk_producer record;
            memcpy(&record, chunk->sections[i].p + at, sizeof record);
            struct producer *row = NULL;
            uint64_t expected;
            /* The leader let it in, so it is taken as it is: a gap here is a producer that expired.
             */
            enum dedup verdict = shard_dedup(shard, stream, record.id, record.epoch,
                                             record.seq, true, now_us, &row, &expected);
            if (verdict == DEDUP_FULL || row == NULL)
                continue;
            row->epoch = record.epoch;
            row->last_seq = record.seq;
            shard_logged(shard, stream, record.id, record.epoch, record.seq);
            row->last_offset = chunk->base_offset + record.first_event;
            row->last_gseq = gseq;
            row->last_us = now_us;
        }
    }
    return 0;
}

static int apply_compacted(struct shard *shard, struct stream *stream,
                           const struct chunk_view *chunk)
{
    size_t scratch_bytes = chunk_scratch_bytes(chunk);
    uint8_t *scratch = malloc(scratch_bytes + 8);
    struct batch_columns columns;
    if (scratch == NULL || chunk_unpack_columns(chunk, scratch, scratch_bytes, &columns) != 0) {
        free(scratch);
        return -1;
    }
    const uint8_t *key = columns.keys, *value = columns.vals;
    for (uint32_t i = 0; i < columns.count; i++) {
        if (columns.val_len[i] == KEY_NULL) { /* nobody honest writes it: it is no length */
            free(scratch);
            return -1;
        }
        bool keyed = columns.key_len != NULL && columns.key_len[i] != KEY_NULL;
        size_t key_len = keyed ? columns.key_len[i] : 0;
        shard_compact(shard, stream->topic,
                      &(struct keyed){chunk->slice, chunk->base_offset + i, key, value, key_len,
                                      columns.val_len[i]});
        if (keyed)
            key += key_len;
        value += columns.val_len[i];
    }
    free(scratch);
    return 0;
}

static struct stream *chunk_stream(struct shard *shard, const struct chunk_view *chunk)
{
    if (!shard_has(shard, chunk->slice))
        return NULL;
    struct topic *topic = shard_topic_make(shard, chunk->topic, chunk->topic_len);
    return topic ? shard_stream(shard, topic, chunk->slice) : NULL;
}

static int apply_chunk(struct shard *shard, struct stream *stream, const struct chunk_view *chunk,
                       const struct group_header *group, uint64_t gseq)
{
    const int64_t wall_us = (int64_t)group->wall_us;
    stream->next_offset = chunk->base_offset + chunk->count;
    if (chunk->max_timestamp_us > stream->max_timestamp)
        stream->max_timestamp = chunk->max_timestamp_us;
    /* Only the broker's own clock must not go back; a producer's own timestamp may be anything. */
    if (wall_us > stream->last_timestamp)
        stream->last_timestamp = wall_us;
    apply_producers(shard, stream, chunk, group_time(group), gseq);
    return stream->topic->compacted ? apply_compacted(shard, stream, chunk) : 0;
}

int shard_apply(struct shard *shard, const uint8_t *group, size_t len, uint64_t gseq)
{
    struct group_header header;
    if (group_header_read(group, len, &header) != 0 || header.body_bytes + 128u > len)
        return -1;
    const uint8_t *at = group + 128, *end = at + header.body_bytes;
    for (uint32_t i = 0; i < header.chunk_count; i++) {
        struct chunk_view chunk;
        struct stream *stream;
        if (chunk_open(at, (size_t)(end - at), &chunk) != 0 || chunk_verify(&chunk) != 0 ||
            (stream = chunk_stream(shard, &chunk)) == NULL ||
            apply_chunk(shard, stream, &chunk, &header, gseq) != 0)
            return -1;
        stream->stable_offset = stream->next_offset;
        at += chunk.stored_bytes;
    }
    return 0;
}

/* Every chunk opens, is of this shard, and goes on where its stream ends. */
static int check_chunks(struct shard *shard, const struct group_header *header, const uint8_t *at,
                        struct reach *reaches)
{
    const uint8_t *end = at + header->body_bytes;
    for (uint32_t i = 0; i < header->chunk_count; i++) {
        struct chunk_view chunk;
        if (chunk_open(at, (size_t)(end - at), &chunk) != 0 || chunk.epoch != header->epoch)
            return -1;
        reaches[i].stream = chunk_stream(shard, &chunk);
        if (reaches[i].stream == NULL)
            return -1;
        /* A stream's chunks of one group stand together: those that come again would be taken for
         * the first ones, at the same offsets. */
        bool first = i == 0 || reaches[i - 1].stream != reaches[i].stream;
        if (first && reaches[i].stream->checked == shard->checks)
            return -1;
        reaches[i].stream->checked = shard->checks;
        uint64_t next = first ? reaches[i].stream->next_offset : reaches[i - 1].end;
        if (chunk.base_offset != next)
            return -1;
        reaches[i].end = chunk.base_offset + chunk.count;
        at += chunk.stored_bytes;
    }
    return at == end ? 0 : -1;
}

int shard_take(struct shard *shard, const uint8_t *group, size_t len, uint64_t pos,
               struct reach **reaches, uint32_t *count)
{
    struct group_header header;
    *reaches = NULL;
    *count = 0;
    if (group_header_read(group, len, &header) != 0 ||
        group_body_verify(&header, group, len) != 0)
        return -1;
    if (header.chunk_count > header.body_bytes / CHUNK_HEADER_BYTES)
        return -1;
    shard->checks++;
    struct reach *found = malloc((header.chunk_count + 1) * sizeof *found);
    const uint8_t *at = group + GROUP_HEADER_BYTES;
    if (found == NULL || check_chunks(shard, &header, at, found) != 0) {
        free(found);
        return -1;
    }
    for (uint32_t i = 0; i < header.chunk_count; i++) {
        struct chunk_view chunk;
        struct stream *stream = found[i].stream;
        chunk_open(at, header.body_bytes, &chunk);
        /* The group's checksum covers the sections; only what is unpacked is looked at closer. */
        if (apply_chunk(shard, stream, &chunk, &header, header.gseq) != 0) {
            free(found);
            return -1; /* compacted values that do not unpack: the replica must not go on */
        }
        struct index_entry entry = {
            .base_offset = chunk.base_offset,
            .log_pos = pos + (uint64_t)(at - group),
            .max_timestamp = stream->max_timestamp,
            .stored_bytes = chunk.stored_bytes,
            .count = chunk.count,
            .appended_s = (uint32_t)(group_time(&header) / 1000000),
        };
        stream_index(shard, stream, &entry);
        at += chunk.stored_bytes;
    }
    assert(at == group + GROUP_HEADER_BYTES + header.body_bytes); /* check_chunks has seen to it */
    *reaches = found;
    *count = header.chunk_count;
    return 0;
}

void shard_show_all(struct shard *shard)
{
    for (uint32_t t = 0; t < shard->topic_count; t++)
        for (uint32_t s = 0; s < shard->slice_count; s++)
            if (shard->topics[t]->streams[s] != NULL)
                shard->topics[t]->streams[s]->stable_offset =
                    shard->topics[t]->streams[s]->next_offset;
}
