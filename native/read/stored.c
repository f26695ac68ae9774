#include "read/stored.h"

#include <stdlib.h>
#include <string.h>

#include "format/chunk.h"
#include "read/disk.h"
#include "format/format.h"

static uint64_t first_byte(const struct stored_entry *e)
{
    return (uint64_t)e->position * STORED_UNIT;
}

static uint64_t pages_before(uint64_t at)
{
    return at & ~(uint64_t)(GROUP_ALIGN - 1);
}

static uint64_t pages_after(uint64_t at)
{
    return pages_before(at + GROUP_ALIGN - 1);
}

/* Whether an entry is read together with the one before it. */
static bool is_near(const struct stored_entry *e)
{
    uint64_t end = first_byte(e - 1) + (e - 1)->stored_bytes;
    return first_byte(e) >= end && first_byte(e) - end <= STORED_GAP_MAX;
}

/* The span of the entry at `at` and of those near behind it; how many there are. `memory`: bytes
 * that the spans before it take. */
static size_t next_span(const struct stored_entry *entries, size_t count, size_t bytes_max,
                        size_t memory, uint64_t *start, uint64_t *end)
{
    size_t taken = 0;
    for (; taken < count && (taken == 0 || is_near(&entries[taken])); taken++) {
        const struct stored_entry *e = &entries[taken];
        uint64_t after = pages_after(first_byte(e) + e->stored_bytes);
        uint64_t from = taken == 0 ? pages_before(first_byte(e)) : *start;
        if (memory + taken > 0 && memory + (after - from) > bytes_max)
            break;
        *start = from;
        *end = after;
    }
    return taken;
}

struct stored_group stored_next(const struct stored_entry *entries, size_t count, size_t bytes_max)
{
    struct stored_group group = {0};
    while (group.count < count) {
        uint64_t start, end;
        size_t taken = next_span(entries + group.count, count - group.count, bytes_max,
                                 group.bytes, &start, &end);
        if (taken == 0)
            break;
        group.count += taken;
        group.bytes += end - start;
        if (group.count < count && is_near(&entries[group.count]))
            break; /* It belongs to this span, and would not fit. */
    }
    return group;
}

static bool is_wanted(const struct chunk_view *v, const struct stored_entry *e,
                      const struct stored_want *want)
{
    return v->stored_bytes == e->stored_bytes && v->base_offset == e->base_offset &&
           v->count == e->count && v->slice == want->slice && v->topic_len == want->topic_len &&
           memcmp(v->topic, want->topic, want->topic_len) == 0;
}

/* Checks the chunk that was read to `at`, and moves it, or what is wanted of it, behind those
 * before it: never to a higher address. */
static bool take(const struct stored_want *want, const struct stored_entry *e, const uint8_t *at,
                 size_t have, uint8_t *memory, struct stored_result *result)
{
    struct chunk_view v;
    if (have < e->stored_bytes || chunk_open(at, e->stored_bytes, &v) < 0 ||
        !is_wanted(&v, e, want) || chunk_verify(&v) < 0)
        return false;
    size_t bytes = want->whole ? v.stored_bytes : chunk_part_bytes(&v, want->parts);
    if (want->whole)
        memmove(memory + result->bytes, at, bytes);
    else
        chunk_part_write(&v, want->parts, memory + result->bytes);
    result->chunks++;
    result->bytes += bytes;
    result->raw_bytes += v.raw_bytes;
    result->end = e->base_offset + e->count;
    return true;
}

/* Lays out the spans of a group; how many they are, one for each entry at most. */
static size_t lay_out(const struct stored_part *part, struct disk_span *spans)
{
    size_t done = 0, count = 0, bytes = 0;
    while (done < part->count) {
        uint64_t start = 0, end = 0;
        done += next_span(part->entries + done, part->count - done, SIZE_MAX, bytes, &start, &end);
        spans[count++] = (struct disk_span){start, part->memory + bytes, end - start, 0};
        bytes += end - start;
    }
    return count;
}

/* Takes what the spans have brought, up to the first chunk that is not right; the next part's. */
static const struct disk_span *take_all(const struct stored_want *want, struct stored_part *part,
                                        const struct disk_span *span)
{
    for (size_t i = 0; i < part->count; i++) {
        const struct stored_entry *e = &part->entries[i];
        span += i > 0 && !is_near(e);
        size_t got = span->result > 0 ? (size_t)span->result : 0;
        size_t within = first_byte(e) - span->offset;
        if (!take(want, e, span->memory + within, got > within ? got - within : 0, part->memory,
                  &part->result))
            return NULL;
    }
    return span + 1;
}

int stored_read(int fd, struct stored_part *parts, size_t count, const struct stored_want *want)
{
    size_t entries = 0, span_count = 0;
    for (size_t i = 0; i < count; i++) {
        parts[i].result = (struct stored_result){0};
        entries += parts[i].count;
    }
    struct disk_span *spans = malloc((entries + 1) * sizeof *spans);
    if (spans == NULL)
        return -1;
    for (size_t i = 0; i < count; i++)
        span_count += lay_out(&parts[i], spans + span_count);
    disk_read(fd, spans, span_count);
    const struct disk_span *span = spans;
    for (size_t i = 0; i < count && span != NULL; i++)
        span = take_all(want, &parts[i], span);
    free(spans);
    return 0;
}
