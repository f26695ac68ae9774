/* The log on a disk that the test plays: what is written when, what is stable when, and that a
 * shard rebuilt from those bytes is the shard that wrote them. */
#include "log/log.h"

#include <errno.h>

#include "format/chunk.h"
#include "codec_testing.h"
#include "format/group.h"
#include "log/group_build.h"

#define ARENA_BYTES (8u << 20)
#define DISKS 16
#define DISK_BYTES (24u << 20)
#define NOW 1700000000000000

struct lab {
    struct shard *shard;
    struct log *log;
    uint8_t *disk[DISKS]; /* by segment; the descriptor is the segment's number */
    struct append *submitted[8];
    uint32_t submitted_count;
    uint64_t stable[4096]; /* base offsets, in the order told */
    uint32_t stable_count, wanted, closed;
    uint32_t lost[LOST_GROUPED + 1];
};

static void on_submit(void *owner, struct append *append)
{
    struct lab *lab = owner;
    CHECK(lab->submitted_count < 8);
    lab->submitted[lab->submitted_count++] = append;
}

static void on_stable(void *owner, struct run *run)
{
    struct lab *lab = owner;
    if (lab->stable_count < 4096)
        lab->stable[lab->stable_count] = run->base_offset;
    lab->stable_count++;
}

static void on_lost(void *owner, struct run *run, enum lost_how how)
{
    ((struct lab *)owner)->lost[how]++;
}

static void on_want(void *owner) { ((struct lab *)owner)->wanted++; }
static void on_closed(void *owner, uint32_t index) { ((struct lab *)owner)->closed++; }

static void lab_open(struct lab *lab, uint64_t capacity, uint32_t segments)
{
    struct log_options options = {.arena_bytes = ARENA_BYTES, .epoch = 7, .session = 9,
                                  .acceleration = 1};
    memset(lab, 0, sizeof *lab);
    lab->shard = shard_new(0, 8);
    lab->log = log_new(&options, lab->shard);
    CHECK(lab->shard && lab->log);
    lab->log->owner = lab;
    lab->log->submit = on_submit;
    lab->log->stable = on_stable;
    lab->log->lost = on_lost;
    lab->log->want_segment = on_want;
    lab->log->segment_closed = on_closed;
    for (uint32_t i = 0; i < segments; i++) {
        lab->disk[i] = calloc(1, DISK_BYTES);
        log_add_segment(lab->log, i, (int)i, capacity);
    }
    log_open_generation(lab->log, (const uint8_t *)"parents", 7);
    log_pump(lab->log, NOW);
}

static void lab_close(struct lab *lab)
{
    log_free(lab->log);
    shard_free(lab->shard);
    for (uint32_t i = 0; i < DISKS; i++)
        free(lab->disk[i]);
}

/* The write under way at this place ends with so many bytes on the disk, or with an error. */
static void complete(struct lab *lab, uint32_t at, int64_t result)
{
    struct append *append = lab->submitted[at];
    memmove(lab->submitted + at, lab->submitted + at + 1,
            (--lab->submitted_count - at) * sizeof *lab->submitted);
    if (result == 0)
        result = append->bytes - append->done;
    if (result > 0)
        memcpy(lab->disk[append->write.fd] + append->file_offset + append->done,
               log_memory(lab->log, append->pos + append->done), (size_t)result);
    log_written(lab->log, append, result);
}

static void settle(struct lab *lab)
{
    do {
        while (lab->submitted_count > 0)
            complete(lab, 0, 0);
        log_pump(lab->log, NOW);
    } while (lab->submitted_count > 0);
}

static struct run *event(struct lab *lab, const char *topic, uint32_t slice, size_t len)
{
    struct topic *known = shard_topic_make(lab->shard, topic, strlen(topic));
    struct run *run = run_new(shard_stream(lab->shard, known, slice), len);
    CHECK(run != NULL);
    uint64_t seed = len + slice;
    for (size_t i = 0; i < len; i++)
        run->tail[i] = (uint8_t)random_next(&seed);
    run->count = 1;
    run->values = run->tail;
    run->value_len = run->bytes = (uint32_t)len;
    return run;
}

static void put(struct lab *lab, const char *topic, uint32_t slice, size_t len)
{
    log_enqueue(lab->log, event(lab, topic, slice, len));
}

/* As the produce path does it: the verdict first, then a run or a duplicate in its place. */
static enum dedup put_numbered(struct lab *lab, uint8_t producer, uint64_t seq)
{
    struct run *run = event(lab, "numbered", 1, 100);
    struct producer *row;
    uint64_t expected;
    memset(run->producer_id, producer, PRODUCER_ID_BYTES);
    run->has_producer = true;
    run->producer_seq = seq;
    enum dedup verdict = shard_dedup(lab->shard, run->stream, run->producer_id, 0, seq, false, NOW,
                                     &row, &expected);
    if (verdict == DEDUP_NEW)
        row->last_seq = seq;
    else
        run->count = run->bytes = 0;
    if (verdict == DEDUP_NEW || verdict == DEDUP_DUPLICATE)
        log_enqueue(lab->log, run);
    else
        run_free(run);
    return verdict;
}

/* Every valid group on the disks, in order; counts them and rebuilds a shard of it. */
static struct shard *rebuild(const struct lab *lab, uint32_t *groups, uint32_t *snapshots)
{
    struct shard *shard = shard_new(0, 8);
    uint64_t gseq = 0;
    uint32_t crc = 0;
    *groups = *snapshots = 0;
    for (uint32_t i = 0; i < DISKS && lab->disk[i] != NULL; i++) {
        const uint8_t *at = lab->disk[i];
        struct group_header h;
        bool first = true;
        while (at + GROUP_ALIGN <= lab->disk[i] + DISK_BYTES &&
               group_header_read(at, (size_t)(lab->disk[i] + DISK_BYTES - at), &h) == 0) {
            CHECK(group_body_verify(&h, at, h.group_bytes) == 0);
            CHECK(h.gseq == ++gseq && h.prev_crc == crc && h.segment_index == i);
            CHECK(h.durable_upto < h.gseq);
            crc = h.header_crc;
            if (h.flags & (GROUP_GEN_START | GROUP_SNAPSHOT)) {
                CHECK(first);
                CHECK(shard_restore(shard, at + GROUP_HEADER_BYTES, h.body_bytes) == 0);
                ++*snapshots;
            } else {
                CHECK(!first && shard_apply(shard, at, h.group_bytes, h.gseq) == 0);
            }
            ++*groups;
            first = false;
            at += h.group_bytes;
        }
    }
    return shard;
}

static void check_same(const struct shard *a, struct shard *b)
{
    for (uint32_t t = 0; t < a->topic_count; t++) {
        const struct topic *topic = a->topics[t], *same;
        same = shard_topic(b, topic->name, topic->name_len);
        for (uint32_t s = 0; s < 8; s++) {
            const struct stream *one = topic->streams[s];
            if (one == NULL || one->next_offset == 0)
                continue;
            CHECK(same != NULL && same->streams[s] != NULL);
            CHECK(same->streams[s]->next_offset == one->next_offset);
            CHECK(same->streams[s]->stable_offset == one->next_offset);
            CHECK(same->streams[s]->last_timestamp == one->last_timestamp);
        }
    }
}

static void test_natural_group_commit(void)
{
    struct lab lab;
    lab_open(&lab, DISK_BYTES, 1);
    CHECK(lab.submitted_count == 1); /* GEN_START */
    put(&lab, "t", 0, 10);
    log_pump(lab.log, NOW);
    put(&lab, "t", 0, 10);
    log_pump(lab.log, NOW);
    CHECK(lab.submitted_count == APPENDS_IN_FLIGHT);
    for (int i = 0; i < 50; i++) {
        put(&lab, "t", (uint32_t)i % 8, 10);
        log_pump(lab.log, NOW);
    }
    CHECK(lab.submitted_count == APPENDS_IN_FLIGHT); /* they wait, and go together */
    complete(&lab, 0, 0);
    log_pump(lab.log, NOW);
    CHECK(lab.log->queue == NULL && lab.submitted_count == APPENDS_IN_FLIGHT);
    settle(&lab);
    CHECK(lab.stable_count == 52 && lab.log->groups == 4 && log_idle(lab.log));
    CHECK(lab.log->queued_bytes == 0 && lab.log->in_flight_bytes == 0);
    lab_close(&lab);
}

static void test_order_of_completions(void)
{
    struct lab lab;
    lab_open(&lab, DISK_BYTES, 1);
    settle(&lab);
    for (int i = 0; i < 3; i++) {
        put(&lab, "t", 0, 5000);
        log_pump(lab.log, NOW);
    }
    CHECK(lab.submitted_count == 3);
    complete(&lab, 2, 0);
    complete(&lab, 1, 4096); /* a short write: the rest is submitted again */
    CHECK(lab.stable_count == 0 && lab.submitted_count == 2);
    complete(&lab, 1, 0);
    CHECK(lab.stable_count == 0 && lab.log->stable_gseq == 1);
    complete(&lab, 0, 0);
    CHECK(lab.stable_count == 3 && lab.log->stable_gseq == 4);
    for (uint64_t i = 0; i < 3; i++)
        CHECK(lab.stable[i] == i);
    lab_close(&lab);
}

static void test_the_first_error_ends_it(void)
{
    struct lab lab;
    lab_open(&lab, DISK_BYTES, 1);
    settle(&lab);
    for (int i = 0; i < 3; i++) {
        put(&lab, "t", 0, 10);
        log_pump(lab.log, NOW);
    }
    complete(&lab, 1, -EIO);
    CHECK(lab.log->failed);
    complete(&lab, 0, 0);
    complete(&lab, 0, 0);
    put(&lab, "t", 0, 10);
    log_pump(lab.log, NOW);
    log_heartbeat(lab.log, NOW, GROUP_SEAL);
    CHECK(lab.stable_count == 0 && lab.submitted_count == 0);
    lab_close(&lab);
}

static void test_segments_and_arena_go_round(void)
{
    struct lab lab;
    uint32_t groups, snapshots;
    lab_open(&lab, 4u << 20, DISKS);
    for (int i = 0; i < 700; i++) { /* about 43 MB: five times the arena, ten segments */
        put(&lab, i % 3 ? "a" : "b", (uint32_t)i % 8, (size_t)(i * 997) % 120000);
        put_numbered(&lab, (uint8_t)(i % 5), (uint64_t)i / 5);
        log_pump(lab.log, NOW + i);
        if (i % 4 == 0 && lab.submitted_count > 1)
            complete(&lab, 1, 0);
        if (lab.submitted_count > 0)
            complete(&lab, 0, 0);
    }
    settle(&lab);
    CHECK(lab.stable_count == 1400 && lab.closed >= 9);
    struct shard *same = rebuild(&lab, &groups, &snapshots);
    CHECK(groups == lab.log->groups && snapshots == lab.closed + 1);
    check_same(lab.shard, same);
    shard_free(same);
    lab_close(&lab);
}

static void test_duplicates_wait_for_their_original(void)
{
    struct lab lab;
    lab_open(&lab, DISK_BYTES, 1);
    settle(&lab);
    CHECK(put_numbered(&lab, 1, 1) == DEDUP_GAP);
    CHECK(put_numbered(&lab, 1, 0) == DEDUP_NEW);
    log_pump(lab.log, NOW);
    CHECK(put_numbered(&lab, 1, 0) == DEDUP_DUPLICATE);
    log_pump(lab.log, NOW);
    CHECK(lab.submitted_count == 1 && lab.stable_count == 0);
    complete(&lab, 0, 0);
    CHECK(lab.stable_count == 2);
    CHECK(put_numbered(&lab, 1, 0) == DEDUP_DUPLICATE);
    log_pump(lab.log, NOW);
    CHECK(lab.submitted_count == 0 && lab.stable_count == 3); /* nothing to wait for */
    CHECK(lab.log->queued_bytes == 0 && lab.log->in_flight_bytes == 0);
    lab_close(&lab);
}

/* A snapshot opens the next segment while numbered events still wait for their group: after a
 * crash right behind it they are new. */
static void test_a_snapshot_claims_only_what_is_written(void)
{
    struct lab lab;
    uint32_t groups, snapshots;
    lab_open(&lab, 64u << 10, 2);
    settle(&lab);
    CHECK(put_numbered(&lab, 1, 0) == DEDUP_NEW);
    settle(&lab);
    put(&lab, "t", 0, 44u << 10);
    settle(&lab);
    for (int i = 0; i < 60; i++)
        CHECK(put_numbered(&lab, (uint8_t)(1 + i % 2), (uint64_t)(i / 2 + (i % 2 == 0))) ==
              DEDUP_NEW);
    put(&lab, "t", 0, 30u << 10);
    log_pump(lab.log, NOW);
    while (lab.log->current == 0 && lab.submitted_count > 0) {
        complete(&lab, 0, 0);
        log_pump(lab.log, NOW);
    }
    CHECK(lab.log->current == 1);
    complete(&lab, 0, 0); /* the snapshot; then the power fails */
    struct lab after = {.shard = rebuild(&lab, &groups, &snapshots)};
    CHECK(snapshots == 2);
    struct topic *topic = shard_topic(after.shard, "numbered", 8);
    const struct stream *stream = shard_stream_get(after.shard, topic, 1);
    uint8_t id[PRODUCER_ID_BYTES];
    struct producer *row;
    uint64_t expected;
    for (uint64_t i = 0; i < 2; i++) {
        memset(id, (int)(1 + i), sizeof id);
        CHECK(shard_dedup(after.shard, stream, id, 0, 1 - i, false, NOW, &row, &expected) ==
              DEDUP_NEW);
    }
    shard_free(after.shard);
    lab_close(&lab);
}

static void test_what_can_never_fit(void)
{
    struct lab lab;
    lab_open(&lab, 1u << 20, 1);
    CHECK(log_run_bound_max(lab.log) < 1u << 20);
    struct run run = {.count = 1, .bytes = 1u << 20};
    CHECK(run_bound(&run) > log_run_bound_max(lab.log));
    run = (struct run){.count = 1u << 20, .bytes = 1};
    CHECK(run_bound(&run) > log_run_bound_max(lab.log));
    lab_close(&lab);
}

/* However much it is, what is glued is in one group; what is around it need not be. */
static void test_what_is_glued_stays_together(void)
{
    struct lab lab;
    lab_open(&lab, DISK_BYTES, 1);
    settle(&lab);
    uint64_t groups = lab.log->groups;
    for (int i = 0; i < 8; i++) {
        put(&lab, "t", 1, 300u << 10); /* three of them are a full group */
        for (int j = 0; j < 5; j++) {
            struct run *run = event(&lab, j == 0 ? "u" : "t", 0, 400u << 10);
            run->glued = j < 4;
            log_enqueue(lab.log, run);
        }
    }
    settle(&lab);
    CHECK(log_idle(lab.log) && lab.stable_count == 48 && lab.log->queued_bytes == 0);
    CHECK(lab.log->groups - groups == 16); /* each sequence is too large for company */
    lab_close(&lab);
}

/* Whether the chunks of the last run have these times, in this order, and the log's around them. */
static void check_times(const struct lab *lab, const struct stream *stream, const int64_t *stamps,
                        uint64_t count)
{
    uint64_t seen = 0;
    for (uint32_t i = 0; i < stream->entry_count; i++) {
        struct chunk_view view;
        struct batch_columns columns;
        const struct index_entry *entry = &stream->entries[i];
        const uint8_t *at = log_memory(lab->log, entry->log_pos);
        CHECK(chunk_open(at, entry->stored_bytes, &view) == 0 && chunk_verify(&view) == 0);
        size_t need = chunk_scratch_bytes(&view);
        uint8_t *scratch = malloc(need);
        CHECK(chunk_unpack_columns(&view, scratch, need, &columns) == 0);
        for (uint32_t n = 0; n < view.count; n++, seen++) {
            int64_t time = view.base_timestamp_us + (int64_t)column_delta(&columns, n);
            bool own = seen > 0 && seen <= count;
            CHECK(time == (own ? stamps[seen - 1] : NOW));
            CHECK(time <= view.max_timestamp_us);
        }
        free(scratch);
    }
    CHECK(seen == count + 2);
}

/* Timestamps in no order, microseconds or years apart, make no chunk of each event: the bound of
 * the run holds. The events before and behind them have the log's time. */
static void test_times_in_no_order(int64_t step)
{
    enum { COUNT = 5000 };
    struct lab lab;
    lab_open(&lab, DISK_BYTES, 1);
    settle(&lab);
    put(&lab, "fall", 0, 10);
    struct run *run = event(&lab, "fall", 0, COUNT * 16 + sizeof(struct batch_columns));
    struct batch_columns *columns = (struct batch_columns *)run->tail;
    int64_t *kept = malloc(COUNT * sizeof *kept);
    uint32_t *low = (uint32_t *)(columns + 1), *high = low + COUNT, *lens = high + COUNT;
    run->timestamp = NOW - (COUNT - 1) * step;
    for (int i = 0; i < COUNT; i++) {
        kept[i] = NOW - i * 2741 % COUNT * step;
        low[i] = (uint32_t)(kept[i] - run->timestamp);
        high[i] = (uint32_t)((kept[i] - run->timestamp) >> 32);
        lens[i] = 1;
    }
    *columns = (struct batch_columns){.count = COUNT, .ts_delta = low, .ts_high = high,
                                      .val_len = lens, .vals = memset(lens + COUNT, 'x', COUNT),
                                      .vals_bytes = COUNT};
    run->count = run->bytes = COUNT;
    run->columns = columns;
    run->max_timestamp = NOW;
    const struct stream *stream = run->stream;
    size_t bound = run_bound(run);
    log_enqueue(lab.log, run);
    put(&lab, "fall", 0, 10);
    uint64_t chunks = lab.log->chunks, bytes = lab.log->group_bytes;
    settle(&lab);
    CHECK(lab.log->chunks - chunks <= 4);
    CHECK(lab.log->group_bytes - bytes <= bound + 3 * GROUP_ALIGN);
    check_times(&lab, stream, kept, COUNT);
    free(kept);
    lab_close(&lab);
}

/* What one chunk says is what the columns say of its events, from first on. */
static uint32_t check_chunk(const struct chunk_view *view, const struct batch_columns *wanted,
                            uint32_t first, const uint8_t **vals, const uint8_t **hdrs)
{
    struct batch_columns c;
    uint8_t *scratch = malloc(chunk_scratch_bytes(view) + 1);
    CHECK(chunk_unpack_columns(view, scratch, chunk_scratch_bytes(view), &c) == 0);
    bool any = false;
    for (uint32_t n = 0; n < view->count; n++) {
        const uint32_t len = c.hdr_len == NULL ? KEY_NULL : c.hdr_len[n];
        CHECK(c.val_len[n] == wanted->val_len[first + n] && len == wanted->hdr_len[first + n]);
        any |= len != KEY_NULL || c.val_len[n] == KEY_NULL;
    }
    CHECK(view->version == (any ? FORMAT_HEADERS : FORMAT_PLAIN));
    CHECK(memcmp(c.vals, *vals, c.vals_bytes) == 0);
    CHECK(c.hdrs_bytes == 0 || memcmp(c.hdrs, *hdrs, c.hdrs_bytes) == 0);
    CHECK(c.vals_bytes <= CHUNK_VALUES_TARGET && c.hdrs_bytes <= (128u << 10));
    *vals += c.vals_bytes;
    *hdrs += c.hdrs_bytes;
    free(scratch);
    return first + view->count;
}

/* Headers and missing values come back with their events, however the chunks are cut; a chunk of
 * events that have neither is as it always was. */
static void test_headers_come_back(uint32_t quiet)
{
    enum { COUNT = 4000 };
    struct lab lab;
    struct test_columns t;
    lab_open(&lab, DISK_BYTES, 1);
    settle(&lab);
    columns_make(&t, 3, COUNT, 200, 1);
    columns_head(&t, 5);
    for (uint32_t i = 0; i < quiet; i++) { /* whole chunks without any */
        t.c.hdrs_bytes -= bytes_of(t.hdr_len[i]);
        memmove(t.hdrs, t.hdrs + bytes_of(t.hdr_len[i]), t.c.hdrs_bytes);
        t.hdr_len[i] = KEY_NULL;
        t.val_len[i] = bytes_of(t.val_len[i]);
    }
    struct batch_columns columns = t.c.columns;
    columns.ts_delta = NULL;
    struct run *run = event(&lab, "headed", 2, 0);
    run->columns = &columns;
    run->count = COUNT;
    run->bytes = columns.vals_bytes + columns.keys_bytes + columns.hdrs_bytes;
    const struct stream *stream = run->stream;
    const size_t bound = run_bound(run);
    const uint64_t bytes = lab.log->group_bytes;
    log_enqueue(lab.log, run);
    put(&lab, "headed", 2, 10);
    settle(&lab);
    CHECK(lab.log->group_bytes - bytes <= bound + 4 * GROUP_ALIGN);
    const uint8_t *vals = columns.vals, *hdrs = columns.hdrs;
    uint32_t seen = 0, plain = 0;
    CHECK(stream->entry_count >= 3);
    for (uint32_t i = 0; i < stream->entry_count; i++) {
        const struct index_entry *entry = &stream->entries[i];
        struct chunk_view view;
        CHECK(chunk_open(log_memory(lab.log, entry->log_pos), entry->stored_bytes, &view) == 0);
        if (seen + view.count > COUNT)
            break; /* the one event behind is in it */
        seen = check_chunk(&view, &columns, seen, &vals, &hdrs);
        plain += view.version == FORMAT_PLAIN;
    }
    CHECK(seen > COUNT / 2 && (plain > 0) == (quiet > 0));
    columns_free(&t);
    lab_close(&lab);
}

/* One with headers and a time of its own, and many of which each is small, in one chunk that is not
 * packed: each of these says then that it has no headers, in either order. */
static void test_many_beside_one_with_headers(bool headed_first)
{
    enum { COUNT = 16000, KEY = 3 };
    static const uint8_t headers[] = {1, 1, 1, 'a', '1'};
    static uint32_t key_len[COUNT], val_len[COUNT];
    static uint8_t keys[COUNT * KEY], vals[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        key_len[i] = KEY;
        val_len[i] = 1;
    }
    const uint32_t one = 1, headers_len = sizeof headers;
    const struct batch_columns with = {.count = 1, .val_len = &one, .hdr_len = &headers_len,
                                       .vals = vals, .hdrs = headers, .vals_bytes = 1,
                                       .hdrs_bytes = sizeof headers};
    const struct batch_columns without = {.count = COUNT, .key_len = key_len, .val_len = val_len,
                                          .keys = keys, .vals = vals, .keys_bytes = sizeof keys,
                                          .vals_bytes = sizeof vals};
    struct lab lab;
    lab_open(&lab, DISK_BYTES, 1);
    shard_topic_make(lab.shard, "both", 4)->compression = COMPRESSION_NONE;
    settle(&lab);
    struct run *headed = event(&lab, "both", 2, 0), *plain = event(&lab, "both", 2, 0);
    headed->columns = &with;
    headed->bytes = 1 + sizeof headers;
    headed->timestamp = headed->max_timestamp = NOW - 1000000;
    plain->columns = &without;
    plain->count = COUNT;
    plain->bytes = sizeof keys + sizeof vals;
    const struct stream *stream = headed->stream;
    const size_t bound = run_bound(headed) + run_bound(plain);
    const uint64_t bytes = lab.log->group_bytes;
    log_enqueue(lab.log, headed_first ? headed : plain);
    log_enqueue(lab.log, headed_first ? plain : headed);
    settle(&lab);
    CHECK(stream->stable_offset == COUNT + 1);
    if (headed_first) /* four columns of words for each */
        CHECK(lab.log->group_bytes - bytes > COUNT * (KEY + 1 + 4 * sizeof(uint32_t)));
    CHECK(lab.log->group_bytes - bytes <= bound + GROUP_ALIGN);
    lab_close(&lab);
}

/* Lines behind the run: sizes that differ, and bytes that say which event they are of. LZ4 shrinks
 * them. */
static struct run *lines(struct lab *lab, uint32_t count, uint32_t mean, uint64_t *seed)
{
    struct topic *known = shard_topic_make(lab->shard, "lines", 5);
    struct run *run = run_new(shard_stream(lab->shard, known, 3), count * (8 + mean * 2) + 8);
    CHECK(run != NULL);
    uint32_t *lens = (uint32_t *)run->tail;
    uint8_t *values = run->tail + pad8(count * sizeof *lens);
    run->values = values;
    run->value_lens = lens;
    run->count = count;
    for (uint32_t i = 0; i < count; i++) {
        lens[i] = 1 + (uint32_t)(random_next(seed) % (mean * 2 - 1));
        for (uint32_t k = 0; k < lens[i]; k += 8)
            memset(values + run->bytes + k, (uint8_t)(random_next(seed) >> 60),
                   lens[i] - k < 8 ? lens[i] - k : 8);
        run->bytes += lens[i];
    }
    return run;
}

/* What the chunks of the stream hold, one event after the other. */
static size_t unpack_stream(const struct lab *lab, const struct stream *stream, uint8_t *values,
                            uint32_t *lens, uint32_t *records)
{
    size_t bytes = 0, count = 0;
    *records = 0;
    for (uint32_t i = 0; i < stream->entry_count; i++) {
        const struct index_entry *entry = &stream->entries[i];
        struct chunk_view view;
        struct batch_columns c;
        CHECK(chunk_open(log_memory(lab->log, entry->log_pos), entry->stored_bytes, &view) == 0);
        CHECK(chunk_verify(&view) == 0 && view.base_offset == count);
        size_t scratch_bytes = chunk_scratch_bytes(&view);
        uint8_t *scratch = malloc(scratch_bytes);
        CHECK(chunk_unpack_columns(&view, scratch, scratch_bytes, &c) == 0);
        CHECK(c.vals_bytes <= CHUNK_VALUES_TARGET);
        memcpy(values + bytes, c.vals, c.vals_bytes);
        memcpy(lens + count, c.val_len, c.count * sizeof *lens);
        bytes += c.vals_bytes;
        count += c.count;
        free(scratch);
        const struct chunk_section *s;
        s = chunk_section_get(view.sections, view.section_count, SECTION_PRODUCERS);
        *records += s ? s->raw_len / PRODUCER_BYTES : 0;
    }
    return bytes;
}

/* Runs of all sizes in one group: apart, joined, cut, with a producer, and each readable, however
 * the log and the topic want them packed. */
static void test_values_come_back_as_they_were(uint8_t of_log, uint8_t of_topic, bool compressed)
{
    enum { RUNS = 40, ROOM = 16 << 20 };
    struct lab lab;
    uint64_t seed = 5;
    uint32_t sent = 0, records;
    size_t sent_bytes = 0;
    uint8_t *values = malloc(ROOM), *found = malloc(ROOM);
    uint32_t *lens = malloc(ROOM), *found_lens = malloc(ROOM);
    lab_open(&lab, DISK_BYTES, 1);
    lab.log->options.compression = of_log;
    shard_topic_make(lab.shard, "lines", 5)->compression = of_topic;
    settle(&lab);
    for (uint32_t i = 0; i < RUNS; i++) {
        static const uint32_t counts[8] = {1, 3000, 2, 40, 400, 1, 10000, 250};
        struct run *run = lines(&lab, counts[i % 8], 1 + i % 3 * 60, &seed);
        run->has_producer = i % 2 == 0;
        run->producer_seq = i;
        run->timestamp = run->max_timestamp = i % 5 == 0 ? NOW - 7 : 0;
        memcpy(values + sent_bytes, run->values, run->bytes);
        memcpy(lens + sent, run->value_lens, run->count * sizeof *lens);
        sent_bytes += run->bytes;
        sent += run->count;
        log_enqueue(lab.log, run);
    }
    settle(&lab);
    CHECK((lab.log->group_bytes < sent_bytes) == compressed);
    const struct stream *stream = shard_topic(lab.shard, "lines", 5)->streams[3];
    CHECK(stream->stable_offset == sent);
    CHECK(unpack_stream(&lab, stream, found, found_lens, &records) == sent_bytes);
    CHECK(memcmp(values, found, sent_bytes) == 0);
    CHECK(memcmp(lens, found_lens, sent * sizeof *lens) == 0);
    CHECK(records == RUNS / 2);
    free(values);
    free(found);
    free(lens);
    free(found_lens);
    lab_close(&lab);
}

/* What finds no room in the last segment is refused, what is under way is not, and a number that
 * was refused is taken again. */
static void test_no_room_for_another_segment(void)
{
    struct lab lab;
    const size_t len = 3u << 20;
    lab_open(&lab, 8u << 20, 1);
    settle(&lab);
    CHECK(!log_short_of_room(lab.log));
    log_refuse_queued(lab.log, NOW); /* nothing waits */
    put(&lab, "t", 0, len);
    log_refuse_queued(lab.log, NOW); /* there is room, and it takes it */
    CHECK(lab.submitted_count == 1 && lab.log->queue == NULL);
    put(&lab, "t", 0, len);
    put(&lab, "t", 0, len);
    CHECK(put_numbered(&lab, 1, 0) == DEDUP_NEW && put_numbered(&lab, 1, 0) == DEDUP_DUPLICATE);
    log_refuse_queued(lab.log, NOW);
    CHECK(lab.log->queue != NULL && lab.submitted_count == 2); /* who waits comes after those */
    settle(&lab);
    CHECK(log_short_of_room(lab.log) && lab.stable_count == 2 && lab.log->queued_bytes > len);
    log_refuse_queued(lab.log, NOW);
    CHECK(lab.log->queue == NULL && lab.log->queued_bytes == 0 && lab.stable_count == 2);
    CHECK(lab.lost[LOST_NO_ROOM] == 2 && lab.lost[LOST_GROUPED] == 1);
    CHECK(lab.lost[LOST_QUEUED] == 0);
    lab.disk[1] = calloc(1, DISK_BYTES);
    log_add_segment(lab.log, 1, 1, 8u << 20);
    CHECK(!log_short_of_room(lab.log) && put_numbered(&lab, 1, 0) == DEDUP_NEW);
    settle(&lab);
    CHECK(lab.stable_count == 3);
    lab_close(&lab);
}

int main(void)
{
    test_natural_group_commit();
    test_order_of_completions();
    test_the_first_error_ends_it();
    test_segments_and_arena_go_round();
    test_duplicates_wait_for_their_original();
    test_a_snapshot_claims_only_what_is_written();
    test_what_can_never_fit();
    test_times_in_no_order(1);
    test_times_in_no_order(3LL * 365 * 86400 * 1000000 / 5000); /* three years */
    test_headers_come_back(0);
    test_headers_come_back(2500);
    test_many_beside_one_with_headers(true);
    test_many_beside_one_with_headers(false);
    test_values_come_back_as_they_were(COMPRESSION_DEFAULT, COMPRESSION_DEFAULT, true);
    test_values_come_back_as_they_were(COMPRESSION_NONE, COMPRESSION_DEFAULT, false);
    test_values_come_back_as_they_were(COMPRESSION_NONE, COMPRESSION_LZ4, true);
    test_values_come_back_as_they_were(COMPRESSION_LZ4, COMPRESSION_NONE, false);
    test_what_is_glued_stays_together();
    test_no_room_for_another_segment();
    return 0;
}
