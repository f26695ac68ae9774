#define _GNU_SOURCE
#include "log/log.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "log/clock.h"
#include "log/group_build.h"
#include "log/lent.h"

/* Two mappings of the same pages, one after the other: a group that crosses the arena's end is
 * still contiguous. */
static uint8_t *arena_map(size_t bytes)
{
    assert(bytes > 0 && (bytes & (bytes - 1)) == 0); /* a position is masked to its place */
    int fd = memfd_create("barco-arena", MFD_CLOEXEC);
    if (fd < 0)
        return NULL;
    uint8_t *arena = MAP_FAILED;
    if (ftruncate(fd, (off_t)bytes) == 0)
        arena = mmap(NULL, bytes * 2, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (arena != MAP_FAILED) {
        int prot = PROT_READ | PROT_WRITE;
        if (mmap(arena, bytes, prot, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED ||
            mmap(arena + bytes, bytes, prot, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
            munmap(arena, bytes * 2);
            arena = MAP_FAILED;
        }
    }
    close(fd);
    return arena == MAP_FAILED ? NULL : arena;
}

struct log *log_new(const struct log_options *options, struct shard *shard)
{
    struct log *log = calloc(1, sizeof *log);
    if (log == NULL)
        return NULL;
    log->options = *options;
    log->shard = shard;
    log->current = -1;
    log->next_gseq = 1;
    log->queue_end = &log->queue;
    log->builder = builder_new(options->acceleration);
    log->arena = arena_map(options->arena_bytes);
    if (log->builder == NULL || log->arena == NULL) {
        log_free(log);
        return NULL;
    }
    return log;
}

static void free_runs(struct run *run)
{
    while (run != NULL) {
        struct run *next = run->next;
        run_free(run);
        run = next;
    }
}

void log_free(struct log *log)
{
    if (log == NULL)
        return;
    for (int i = 0; i < APPENDS_IN_FLIGHT; i++)
        free_runs(log->appends[i].runs);
    for (uint32_t i = 0; i < HELD_MAX; i++) {
        free_runs(log->held[i].runs);
        free(log->held[i].reaches);
    }
    free_runs(log->queue);
    while (log->lent != NULL)
        lent_own(log->lent); /* Python may hold it for longer */
    if (log->arena != NULL)
        munmap(log->arena, log->options.arena_bytes * 2);
    builder_free(log->builder);
    free(log->segments);
    free(log->parents);
    free(log);
}

/* ---- segments ---- */

void log_add_segment(struct log *log, uint32_t index, int fd, uint64_t capacity)
{
    if (log->segment_count == log->segment_capacity) {
        log->segment_capacity = log->segment_capacity ? log->segment_capacity * 2 : 8;
        log->segments = realloc(log->segments, log->segment_capacity * sizeof *log->segments);
        assert(log->segments != NULL);
    }
    assert(log->segment_count == 0 || log->segments[log->segment_count - 1].index < index);
    log->segments[log->segment_count++] =
        (struct segment){.index = index, .fd = fd, .capacity = capacity};
    log->segment_asked = false;
}

const struct segment *log_segment_at(const struct log *log, uint64_t pos)
{
    for (uint32_t i = log->segment_count; i-- > 0;) {
        const struct segment *segment = &log->segments[i];
        if (segment->started && pos >= segment->base_pos && pos < segment->base_pos + segment->used)
            return segment;
    }
    return NULL;
}

const struct segment *log_segment(const struct log *log, uint32_t index)
{
    for (uint32_t i = 0; i < log->segment_count; i++)
        if (log->segments[i].index == index)
            return &log->segments[i];
    return NULL;
}

static void drop_entries(struct shard *shard, struct stream *stream, uint64_t below)
{
    uint32_t gone = 0;
    while (gone < stream->entry_count && stream->entries[gone].log_pos < below)
        gone++;
    if (gone == 0)
        return;
    assert(gone <= stream->entry_count && gone <= shard->entries_total);
    stream->entry_count -= gone;
    shard->entries_total -= gone;
    memmove(stream->entries, stream->entries + gone, stream->entry_count * sizeof *stream->entries);
    if (stream->entry_count == 0) {
        free(stream->entries);
        stream->entries = NULL;
        stream->entry_capacity = 0;
    }
}

void log_drop_segment(struct log *log, uint32_t index)
{
    for (uint32_t i = 0; i < log->segment_count; i++) {
        struct segment *segment = &log->segments[i];
        if (segment->index != index || !segment->closed)
            continue;
        assert(segment->started && log->current > (int)i); /* closed by the one after it */
        uint64_t below = segment->base_pos + segment->used;
        /* What the arena still holds is read from there; its entries go with the next segment. */
        if (below > log_memory_low(log))
            below = log_memory_low(log);
        for (uint32_t t = 0; t < log->shard->topic_count; t++)
            for (uint32_t s = 0; s < log->shard->slice_count; s++)
                if (log->shard->topics[t]->streams[s] != NULL)
                    drop_entries(log->shard, log->shard->topics[t]->streams[s], below);
        memmove(segment, segment + 1, (log->segment_count - i - 1) * sizeof *segment);
        log->segment_count--;
        if (log->current > (int)i)
            log->current--;
        return;
    }
}

/* Asks for the next segment while the current one still has room for what may come. */
void log_ask_for_segment(struct log *log)
{
    assert(log->current < (int)log->segment_count);
    if (log->segment_asked || log->current + 1 < (int)log->segment_count)
        return;
    const struct segment *current = log->current >= 0 ? &log->segments[log->current] : NULL;
    if (current != NULL && current->used < current->capacity / 4)
        return;
    log->segment_asked = true;
    log->want_segment(log->owner);
}

static void tell_closed_segments(struct log *log)
{
    for (uint32_t i = 0; i < log->segment_count; i++) {
        struct segment *segment = &log->segments[i];
        /* Not before all of it is history: what stands beyond the tail is in no index. */
        if (segment->closed && !segment->told && segment->last_gseq <= log_committed(log)) {
            segment->told = true;
            log->segment_closed(log->owner, segment->index);
        }
    }
}

/* ---- groups ---- */

static uint8_t *at_pos(const struct log *log, uint64_t pos)
{
    return log->arena + (pos & (log->options.arena_bytes - 1));
}

uint64_t log_memory_low(const struct log *log)
{
    uint64_t low = log->dirty_end > log->options.arena_bytes
                       ? log->dirty_end - log->options.arena_bytes : 0;
    assert(low <= log->head && log->memory_from <= log->head);
    return low > log->memory_from ? low : log->memory_from;
}

/* True when a group of up to bound bytes may be built without touching bytes still being written.
 * What is lent there is moved out. */
bool log_arena_has_room(struct log *log, size_t bound)
{
    uint64_t oldest = log->head;
    if (log->append_count)
        oldest = log->appends[log->append_first].pos;
    else if (log->unsubmitted)
        oldest = log->held[(log->held_first + log->held_count - log->unsubmitted) % HELD_MAX].pos;
    assert(oldest <= log->head);
    const uint64_t end = log->head + bound, arena = log->options.arena_bytes;
    return end - oldest <= arena &&
           (log->lent == NULL || end <= arena || lent_reclaim(log, end - arena));
}

struct append *log_append_slot(struct log *log)
{
    assert(log->append_count < APPENDS_IN_FLIGHT);
    uint32_t at = (log->append_first + log->append_count) % APPENDS_IN_FLIGHT;
    log->append_count++;
    struct append *append = &log->appends[at];
    assert(!append->busy && !append->landed && append->runs == NULL);
    *append = (struct append){.busy = true};
    return append;
}

void log_note_group(struct segment *segment, const struct group_header *header)
{
    const uint64_t time_us = (uint64_t)group_time(header);
    if (segment->used == 0) {
        segment->first_gseq = header->gseq;
        segment->first_prev_crc = header->prev_crc;
        segment->min_time_us = segment->max_time_us = time_us;
    }
    segment->last_gseq = header->gseq;
    segment->last_header_crc = header->header_crc;
    if (time_us < segment->min_time_us) /* of an earlier version: wall clocks go backwards */
        segment->min_time_us = time_us;
    if (time_us > segment->max_time_us)
        segment->max_time_us = time_us;
    segment->used += header->group_bytes;
}

/* Puts the header before a built body and submits the group. */
static void submit_group(struct log *log, uint16_t flags, size_t body_bytes, uint32_t chunks,
                         int64_t wall_us, struct run *runs, struct run *last, uint64_t raw)
{
    assert(log->current >= 0 && log->current < (int)log->segment_count);
    struct segment *segment = &log->segments[log->current];
    assert(segment->used == 0 || segment->last_gseq + 1 == log->next_gseq);
    uint8_t *out = at_pos(log, log->head);
    struct group_header header = {
        .flags = flags,
        .token = log->options.range_token,
        .epoch = log->options.epoch,
        .session = log->options.session,
        .gseq = log->next_gseq++,
        .prev_crc = log->prev_crc,
        .body_crc = crc32c(0, out + GROUP_HEADER_BYTES, body_bytes),
        .durable_upto = log->stable_gseq,
        .committed = log_committed(log),
        .wall_us = (uint64_t)wall_us,
        .body_bytes = (uint32_t)body_bytes,
        .chunk_count = chunks,
        .group_bytes = (uint32_t)pad_group(GROUP_HEADER_BYTES + body_bytes),
        .segment_index = segment->index,
        .blank_sectors = group_blank_sectors(out, GROUP_HEADER_BYTES + body_bytes),
        .log_us = (uint64_t)log->clock_us,
    };
    /* What a follower would refuse is never written. */
    assert(header.committed <= header.durable_upto && header.durable_upto < header.gseq);
    memcpy(header.cluster_uuid, log->options.cluster_uuid, 16);
    group_header_write(&header, out);
    log->prev_crc = header.header_crc;
    size_t used = GROUP_HEADER_BYTES + body_bytes;
    memset(out + used, 0, header.group_bytes - used);
    struct append *append = log_append_slot(log);
    append->gseq = header.gseq;
    append->pos = log->head;
    append->bytes = header.group_bytes;
    append->header_crc = header.header_crc;
    append->write.fd = segment->fd;
    append->file_offset = segment->used;
    append->runs = runs;
    append->last_run = last;
    append->raw_bytes = raw;
    assert(segment->used + header.group_bytes <= segment->capacity);
    log_note_group(segment, &header);
    log->head += header.group_bytes;
    if (log->head > log->dirty_end)
        log->dirty_end = log->head;
    log->in_flight_bytes += raw;
    log->groups++;
    log->group_bytes += header.group_bytes;
    log->chunks += chunks;
    log->heartbeat_due = !(flags & (GROUP_HEARTBEAT | GROUP_SEAL));
    if (log->built != NULL)
        log->built(log->owner, append, header.prev_crc);
    log->submit(log->owner, append);
}

/* GEN_START or SNAPSHOT: the state of the shard as the first group of a segment. */
static bool write_snapshot(struct log *log, uint16_t flags, int64_t wall_us)
{
    size_t len;
    uint8_t *bytes = shard_snapshot(log->shard, log->parents, log->parents_len,
                                    log->clock_us, &len);
    const struct segment *segment = &log->segments[log->current];
    assert(segment->started && segment->used == 0);
    size_t bound = pad_group(GROUP_HEADER_BYTES + (bytes ? len : 0));
    if (bytes == NULL || bound > segment->capacity || !log_arena_has_room(log, bound)) {
        free(bytes);
        return false;
    }
    memcpy(at_pos(log, log->head) + GROUP_HEADER_BYTES, bytes, len);
    free(bytes);
    submit_group(log, flags, len, 0, wall_us, NULL, NULL, 0);
    return true;
}

/* Moves on to the next segment, if there is one and a slot for its first group. */
static bool roll_segment(struct log *log, uint16_t flags, int64_t wall_us)
{
    if (log->current + 1 >= (int)log->segment_count || log->append_count == APPENDS_IN_FLIGHT)
        return false;
    struct segment *next = &log->segments[log->current + 1];
    assert(!next->started && !next->closed && next->used == 0);
    next->started = true;
    next->base_pos = log->head;
    log->current++;
    if (!write_snapshot(log, flags, wall_us)) {
        log->current--;
        next->started = false;
        return false;
    }
    if (log->current > 0)
        log->segments[log->current - 1].closed = true;
    log_ask_for_segment(log);
    return true;
}

void log_open_generation(struct log *log, const uint8_t *parents, uint32_t len)
{
    assert(!log->open && !log->following);
    free(log->parents);
    log->parents = malloc(len ? len : 1);
    assert(log->parents != NULL);
    memcpy(log->parents, parents, len);
    log->parents_len = len;
    log->open = true;
    shard_show_all(log->shard); /* the state is that of the parents' history */
    log_ask_for_segment(log);
}

void log_enqueue(struct log *log, struct run *run)
{
    run->next = NULL;
    *log->queue_end = run;
    log->queue_end = &run->next;
    log->queued_bytes += run->bytes + run->memory;
    log->queued_runs++;
    log->queued_unhurried += run->waiter.unhurried;
}

size_t log_run_bound_max(const struct log *log)
{
    const uint32_t at = log->current >= 0 ? (uint32_t)log->current : 0;
    uint64_t most = log->options.arena_bytes;
    /* A quarter of a segment is left to the snapshot that opens it. */
    if (at < log->segment_count && log->segments[at].capacity / 4 * 3 < most)
        most = log->segments[at].capacity / 4 * 3;
    return most - GROUP_HEADER_BYTES - GROUP_ALIGN;
}

/* What must be taken together: one run, or several that are glued to each other. */
struct sequence {
    struct run *last;
    size_t bound;
    uint64_t values, memory;
    uint32_t runs;
};

static struct sequence sequence_at(struct run *run)
{
    struct sequence s = {run, run_bound(run), run->bytes, run->bytes + run->memory, 1};
    while (s.last->glued) {
        s.last = s.last->next;
        s.bound += run_bound(s.last);
        s.values += s.last->bytes;
        s.memory += s.last->bytes + s.last->memory;
        s.runs++;
    }
    return s;
}

/* Takes runs from the queue's head: one sequence at least, then until GROUP_RAW_SOFT. Never more
 * than a segment and the arena can hold: thousands of tiny runs are mostly frame, by their bounds.
 */
static struct run *take_runs(struct log *log, struct run **last, size_t *bound, uint64_t *raw)
{
    log->last_group_runs = 0;
    struct run *first = log->queue, *end = NULL;
    uint64_t values = 0;
    const size_t most = log_run_bound_max(log) + GROUP_HEADER_BYTES + GROUP_ALIGN;
    *bound = GROUP_HEADER_BYTES + GROUP_ALIGN;
    *raw = 0;
    for (struct run *run = first; run != NULL; run = end->next) {
        const struct sequence s = sequence_at(run);
        if (end != NULL && (values + s.values > GROUP_RAW_SOFT || *bound + s.bound > most))
            break;
        values += s.values;
        *raw += s.memory;
        *bound += s.bound;
        log->last_group_runs += s.runs;
        end = s.last;
    }
    assert(end != NULL && log->last_group_runs > 0); /* one sequence always goes */
    *last = end;
    return first;
}

static void unlink_taken(struct log *log, struct run *last, uint64_t raw)
{
    for (const struct run *run = log->queue; log->queued_unhurried > 0; run = run->next) {
        log->queued_unhurried -= run->waiter.unhurried;
        if (run == last)
            break;
    }
    log->queue = last->next;
    if (log->queue == NULL)
        log->queue_end = &log->queue;
    last->next = NULL;
    assert(raw <= log->queued_bytes && log->last_group_runs <= log->queued_runs);
    log->queued_bytes -= raw;
    log->queued_runs -= log->last_group_runs;
}

/* Puts the runs behind those of a group; returns their bytes. */
static uint64_t join_runs(struct run **runs, struct run **last, struct run *more)
{
    uint64_t raw = 0;
    if (*last != NULL)
        (*last)->next = more;
    else
        *runs = more;
    for (struct run *run = more; run != NULL; run = run->next) {
        raw += run->bytes + run->memory;
        *last = run;
    }
    return raw;
}

/* Only duplicates wait: they are answered with the newest append, or at once. Who was refused needs
 * a group of its own, if only an empty one: another may lead by now, and know better. */
static bool settle_duplicates(struct log *log)
{
    for (const struct run *run = log->queue; run != NULL; run = run->next)
        if (run->count > 0 || run->problem != 0)
            return false;
    if (log->append_count > 0) {
        uint32_t newest = (log->append_first + log->append_count - 1) % APPENDS_IN_FLIGHT;
        struct append *append = &log->appends[newest];
        uint64_t raw = join_runs(&append->runs, &append->last_run, log->queue);
        append->raw_bytes += raw;
        log->in_flight_bytes += raw;
    } else if (log->held_count > 0) {
        struct held *held = &log->held[(log->held_first + log->held_count - 1) % HELD_MAX];
        uint64_t raw = join_runs(&held->runs, &held->last_run, log->queue);
        held->raw_bytes += raw;
        log->held_bytes += raw;
    } else {
        while (log->queue != NULL) {
            struct run *run = log->queue;
            log->queue = run->next;
            log->stable(log->owner, run);
            run_free(run);
        }
    }
    log->queue = NULL;
    log->queue_end = &log->queue;
    log->queued_bytes = log->queued_runs = log->queued_unhurried = 0;
    return true;
}

/* Builds one group from the queue. False when nothing could be submitted now. */
static bool build_group(struct log *log, int64_t wall_us)
{
    assert(log->queue != NULL && log->current >= 0);
    struct run *last;
    size_t bound;
    uint64_t raw;
    struct run *runs = take_runs(log, &last, &bound, &raw);
    struct segment *segment = &log->segments[log->current];
    if (segment->used + bound > segment->capacity) {
        if (!roll_segment(log, GROUP_SNAPSHOT, wall_us)) {
            log_ask_for_segment(log);
            return false;
        }
        return true; /* the snapshot took a slot; the caller comes again if there is another */
    }
    if (!log_arena_has_room(log, bound))
        return false;
    unlink_taken(log, last, raw);
    if (log->head + bound > log->dirty_end)
        log->dirty_end = log->head + bound;
    uint32_t chunks = 0;
    uint64_t body_pos = log->head + GROUP_HEADER_BYTES;
    size_t body = builder_encode(log->builder, log, runs, at_pos(log, body_pos), body_pos, wall_us,
                                 &chunks);
    assert(GROUP_HEADER_BYTES + body <= bound);
    submit_group(log, 0, body, chunks, wall_us, runs, last, raw);
    log_ask_for_segment(log);
    return true;
}

void log_pump(struct log *log, int64_t wall_us)
{
    if (!log->open || log->failed || log->draining)
        return;
    log_clock_begin(log, wall_us);
    if (log->current < 0 && !roll_segment(log, GROUP_GEN_START, wall_us))
        return;
    if (log->queue != NULL && settle_duplicates(log))
        return;
    while (log->queue != NULL && log->append_count < APPENDS_IN_FLIGHT &&
           log->held_count < HELD_BUILD_MAX)
        if (!build_group(log, wall_us))
            break;
}

void log_heartbeat(struct log *log, int64_t wall_us, uint16_t flags)
{
    if (!log->open || log->failed || log->draining || log->current < 0 || log->queue != NULL ||
        log->append_count == APPENDS_IN_FLIGHT || log->held_count >= HELD_BUILD_MAX ||
        (!log->heartbeat_due && !(flags & GROUP_SEAL)))
        return;
    const struct segment *segment = &log->segments[log->current];
    if (segment->used + GROUP_ALIGN > segment->capacity || !log_arena_has_room(log, GROUP_ALIGN))
        return;
    submit_group(log, flags, 0, 0, wall_us, NULL, NULL, 0);
}

/* ---- completions ---- */

static void show_runs(struct log *log, struct run *run)
{
    while (run != NULL) {
        struct run *next = run->next;
        if (run->count > 0) {
            assert(run->base_offset == run->stream->stable_offset);
            run->stream->stable_offset = run->base_offset + run->count;
            if (run->stream->topic->delayed)
                shard_delayed_news(log->shard, run->stream);
            log->events += run->count;
            log->value_bytes += run->bytes;
        }
        log->stable(log->owner, run);
        run_free(run);
        run = next;
    }
}

struct held *log_held_new(struct log *log, uint64_t gseq)
{
    assert(log->held_count < HELD_MAX);
    struct held *held = &log->held[(log->held_first + log->held_count++) % HELD_MAX];
    *held = (struct held){.gseq = gseq};
    return held;
}

static void settle_append(struct log *log, struct append *append)
{
    assert(append->gseq > log->stable_gseq && append->pos == log->stable_pos);
    assert(append->done == append->bytes && append->raw_bytes <= log->in_flight_bytes);
    log->stable_gseq = append->gseq;
    log->stable_crc = append->header_crc;
    log->stable_pos = append->pos + append->bytes;
    log->in_flight_bytes -= append->raw_bytes;
    if (!log->gated) {
        log->showing = append->gseq;
        show_runs(log, append->runs);
    } else if (log->open) {
        struct held *held = log_held_new(log, append->gseq);
        held->runs = append->runs;
        held->last_run = append->last_run;
        held->raw_bytes = append->raw_bytes;
        log->held_bytes += append->raw_bytes;
    }
    append->runs = append->last_run = NULL;
    append->busy = false;
}

uint64_t log_committed(const struct log *log)
{
    if (!log->gated || log->replicated > log->stable_gseq)
        return log->stable_gseq;
    return log->replicated;
}

/* Shows the events of all groups that are committed, and answers for them. */
static void release_held(struct log *log)
{
    const uint64_t committed = log_committed(log);
    while (log->held_count > 0 && log->held[log->held_first].gseq <= committed) {
        struct held *held = &log->held[log->held_first];
        struct run *runs = held->runs;
        assert(held->raw_bytes <= log->held_bytes);
        log->held_bytes -= held->raw_bytes;
        for (uint32_t i = 0; i < held->reach_count; i++) {
            struct stream *stream = held->reaches[i].stream;
            assert(held->reaches[i].end >= stream->stable_offset);
            log->events += held->reaches[i].end - stream->stable_offset;
            log->followed_events += held->reaches[i].end - stream->stable_offset;
            stream->stable_offset = held->reaches[i].end;
        }
        free(held->reaches);
        log->showing = held->gseq;
        *held = (struct held){0};
        log->held_first = (log->held_first + 1) % HELD_MAX;
        log->held_count--;
        show_runs(log, runs);
    }
    tell_closed_segments(log);
}

void log_replicated(struct log *log, uint64_t gseq)
{
    if (gseq <= log->replicated)
        return;
    log->replicated = gseq;
    release_held(log);
}

static const struct held *first_waiting(const struct log *log)
{
    assert(log->unsubmitted <= log->held_count);
    return &log->held[(log->held_first + log->held_count - log->unsubmitted) % HELD_MAX];
}

void log_submit_taken(struct log *log)
{
    assert(log->unsubmitted <= log->held_count);
    while (log->unsubmitted > 0 && log->append_count < APPENDS_IN_FLIGHT && !log->failed) {
        const struct held *held = first_waiting(log);
        assert(held->gseq > log->stable_gseq && held->bytes > 0);
        /* Recovery believes a header on what was stable before it (S5): that holds here too. */
        if (held->gseq > log->kept && held->durable_upto > log->stable_gseq)
            return;
        struct append *append = log_append_slot(log);
        append->pos = held->pos;
        append->write.fd = held->fd;
        append->file_offset = held->file_offset;
        do { /* what is kept elsewhere goes in one write */
            append->gseq = held->gseq;
            append->header_crc = held->header_crc;
            append->bytes += held->bytes;
            log->unsubmitted--;
            held = first_waiting(log);
        } while (log->unsubmitted > 0 && held->gseq <= log->kept && held->fd == append->write.fd &&
                 append->bytes + held->bytes <= KEPT_WRITE_BYTES);
        log->submit(log->owner, append);
    }
}

void log_written(struct log *log, struct append *append, int64_t result)
{
    if (result <= 0 || (result & 511) != 0) {
        log->failed = true; /* the first I/O error ends leadership (S7): nothing is answered */
        return;
    }
    assert(append->busy && !append->landed);
    append->done += (uint32_t)result;
    assert(append->done <= append->bytes);
    if (append->done < append->bytes) {
        log->submit(log->owner, append); /* a short write: the rest */
        return;
    }
    append->landed = true;
    while (log->append_count > 0 && log->appends[log->append_first].landed && !log->failed) {
        struct append *oldest = &log->appends[log->append_first];
        settle_append(log, oldest);
        oldest->landed = false;
        log->append_first = (log->append_first + 1) % APPENDS_IN_FLIGHT;
        log->append_count--;
    }
    release_held(log);
    if (log->unsubmitted > 0)
        log_submit_taken(log);
}
