/* replica: the follower's half of the log. A group is taken whole, as its leader built it: checked,
 * copied behind the arena's tail, applied and indexed, and written to the same place of a segment
 * of the same number, so that the files of all replicas are the same, byte for byte. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "log/replica.h"
#include "log/clock.h"

void log_follow(struct log *log)
{
    assert(log->gated && !log->open);
    log->following = true;
    log_ask_for_segment(log);
}

static enum foreign check_header(const struct log *log, const struct group_header *h)
{
    const struct log_options *own = &log->options;
    if (memcmp(h->cluster_uuid, own->cluster_uuid, 16) != 0 || h->token != own->range_token ||
        h->epoch != own->epoch || h->session != own->session)
        return FOREIGN_STRANGE;
    if (h->gseq != log->next_gseq || h->prev_crc != log->prev_crc)
        return FOREIGN_GAP;
    if (h->durable_upto >= h->gseq || h->committed > h->durable_upto)
        return FOREIGN_DAMAGED;
    if (!(h->flags & GROUP_GEN_START) != (h->gseq > 1)) /* the state begins once */
        return FOREIGN_DAMAGED;
    const bool opens = h->flags & (GROUP_GEN_START | GROUP_SNAPSHOT);
    const struct segment *current = log->current >= 0 ? &log->segments[log->current] : NULL;
    const uint32_t expected = current ? current->index + opens : 0;
    if (h->segment_index != expected || (current == NULL && !opens) ||
        (opens && h->chunk_count > 0))
        return FOREIGN_DAMAGED;
    return FOREIGN_TAKEN;
}

/* The segment where the group comes to stand, or NULL: it is not there yet. */
static struct segment *place_of(struct log *log, const struct group_header *h)
{
    if (log->current >= 0 && log->segments[log->current].index == h->segment_index)
        return &log->segments[log->current];
    if (log->current + 1 >= (int)log->segment_count) {
        /* Its leader's was smaller: however much room there is here, the next one is needed. */
        if (!log->segment_asked) {
            log->segment_asked = true;
            log->want_segment(log->owner);
        }
        return NULL;
    }
    return &log->segments[log->current + 1];
}

static void enter_segment(struct log *log, struct segment *segment)
{
    if (segment->started)
        return;
    segment->started = true;
    segment->base_pos = log->head;
    if (log->current >= 0)
        log->segments[log->current].closed = true;
    log->current++;
    assert(&log->segments[log->current] == segment);
}

/* Brings the state up to the group. GEN_START is the state; a later SNAPSHOT says what is known. */
static int apply(struct log *log, const struct group_header *h, const uint8_t *group,
                 struct reach **reaches, uint32_t *count)
{
    *reaches = NULL;
    *count = 0;
    if (h->flags & GROUP_GEN_START)
        return shard_restore(log->shard, group + GROUP_HEADER_BYTES, h->body_bytes);
    if (h->chunk_count == 0)
        return 0;
    return shard_take(log->shard, group, h->group_bytes, log->head, reaches, count);
}

static void count_in(struct log *log, const struct group_header *h)
{
    log->next_gseq = h->gseq + 1;
    log->prev_crc = h->header_crc;
    log->head += h->group_bytes;
    if (log->head > log->dirty_end)
        log->dirty_end = log->head;
    log->groups++;
    log->group_bytes += h->group_bytes;
    log->chunks += h->chunk_count;
}

/* Adds what a group reaches to what the one before it does; one place for each stream. */
static bool join_reaches(struct held *into, const struct held *before)
{
    struct reach *all = realloc(before->reaches, ((size_t)before->reach_count + into->reach_count) *
                                                     sizeof *all + 1);
    if (all == NULL)
        return false;
    uint32_t count = before->reach_count;
    for (uint32_t i = 0; i < into->reach_count; i++) {
        uint32_t at = 0;
        while (at < count && all[at].stream != into->reaches[i].stream)
            at++;
        all[at] = into->reaches[i];
        count += at == count;
    }
    assert(count >= before->reach_count && count <= before->reach_count + into->reach_count);
    free(into->reaches);
    into->reaches = all;
    into->reach_count = count;
    return true;
}

/* Whoever knew how much of a generation is committed may be gone, and more of it is to be fetched
 * than is held: the two oldest groups are shown together then, when the later one is committed. */
static bool make_room(struct log *log)
{
    if (log->held_count < HELD_MAX)
        return true;
    assert(log->held_count == HELD_MAX && log->unsubmitted <= log->held_count);
    if (log->unsubmitted > HELD_MAX - 2)
        return false;
    struct held *oldest = &log->held[log->held_first];
    if (!join_reaches(&log->held[(log->held_first + 1) % HELD_MAX], oldest))
        return false;
    *oldest = (struct held){0};
    log->held_first = (log->held_first + 1) % HELD_MAX;
    log->held_count--;
    return true;
}

enum foreign log_take(struct log *log, const uint8_t *group, size_t len)
{
    struct group_header h;
    struct reach *reaches;
    uint32_t count;
    if (!log->following || log->failed || log->draining)
        return FOREIGN_CLOSED;
    if (group_header_read(group, len, &h) != 0 || h.group_bytes != len || group_time(&h) < 0)
        return FOREIGN_DAMAGED;
    enum foreign verdict = check_header(log, &h);
    if (verdict != FOREIGN_TAKEN)
        return verdict;
    struct segment *segment = place_of(log, &h);
    if (segment == NULL || !make_room(log) || !log_arena_has_room(log, len))
        return len > log->options.arena_bytes ? FOREIGN_DAMAGED : FOREIGN_WAIT;
    if (group_body_verify(&h, group, len) != 0 || apply(log, &h, group, &reaches, &count) != 0)
        return FOREIGN_DAMAGED;
    enter_segment(log, segment);
    assert(segment->index == h.segment_index); /* files of the same number, byte for byte */
    uint8_t *end = log->arena + (log->head & (log->options.arena_bytes - 1));
    if (group != end) /* log_place */
        memcpy(end, group, len);
    struct held *held = log_held_new(log, h.gseq);
    held->reaches = reaches;
    held->reach_count = count;
    held->bytes = h.group_bytes;
    held->header_crc = h.header_crc;
    held->pos = log->head;
    held->fd = segment->fd;
    held->file_offset = segment->used;
    held->durable_upto = h.durable_upto;
    log->unsubmitted++;
    assert(log->unsubmitted <= log->held_count);
    log_note_group(segment, &h);
    count_in(log, &h);
    log->clock_us = group_time(&h); /* the leader's, whatever was reckoned here meanwhile */
    log_submit_taken(log);
    log_ask_for_segment(log);
    return FOREIGN_TAKEN;
}

uint8_t *log_place(struct log *log, size_t len)
{
    if (!log->following || log->failed || log->draining || !log_arena_has_room(log, len))
        return NULL;
    if (log->head + len > log->dirty_end)
        log->dirty_end = log->head + len;
    return log->arena + (log->head & (log->options.arena_bytes - 1));
}

void log_kept(struct log *log, uint64_t gseq)
{
    log->kept = gseq;
    log_submit_taken(log);
}

/* ---- recovery ---- */

/* The state is about to be another: what waits to be shown leads into the old one. */
static void forget_reaches(struct log *log)
{
    for (uint32_t i = 0; i < log->held_count; i++) {
        struct held *held = &log->held[(log->held_first + i) % HELD_MAX];
        free(held->reaches);
        held->reaches = NULL;
        held->reach_count = 0;
    }
}

int log_restore(struct log *log, const uint8_t *bytes, size_t len)
{
    if (log->open)
        log_fence(log); /* what waits leads into the state that goes */
    forget_reaches(log);
    assert(log->queue == NULL && !log->open);
    return shard_adopt(log->shard, bytes, len);
}

void log_load_segment(struct log *log, uint32_t index, int fd, uint64_t capacity)
{
    assert(log->gated && !log->open && !log->following);
    log_add_segment(log, index, fd, capacity);
    struct segment *segment = &log->segments[log->segment_count - 1];
    enter_segment(log, segment);
}

int log_load_group(struct log *log, const uint8_t *group, size_t len)
{
    struct group_header h;
    struct reach *reaches = NULL;
    uint32_t count = 0;
    assert(log->gated && !log->open && !log->following);
    if (log->current < 0 || !make_room(log) ||
        group_header_read(group, len, &h) != 0 || h.group_bytes > len)
        return -1;
    struct segment *segment = &log->segments[log->current];
    int status = 0;
    if (h.flags & (GROUP_GEN_START | GROUP_SNAPSHOT)) {
        status = group_body_verify(&h, group, len) != 0
                     ? -1
                     : log_restore(log, group + GROUP_HEADER_BYTES, h.body_bytes);
    } else if (h.chunk_count > 0)
        status = shard_take(log->shard, group, len, log->head, &reaches, &count);
    if (status != 0)
        return -1;
    log_note_group(segment, &h);
    count_in(log, &h);
    log_clock_heard(log, group_time(&h));
    /* It is stable, and was not kept: nothing before this is in memory. */
    log->stable_gseq = h.gseq;
    log->stable_crc = h.header_crc;
    log->memory_from = log->stable_pos = log->head;
    struct held *held = log_held_new(log, h.gseq);
    held->reaches = reaches;
    held->reach_count = count;
    log_replicated(log, h.committed); /* shown only as far as the log itself says */
    return 0;
}
