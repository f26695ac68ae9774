/* The end of a generation, and the beginning of the next one in the same memory. */
#include <assert.h>
#include <stdlib.h>

#include "log/log.h"

static void lose_runs(struct log *log, struct run *run, enum lost_how how)
{
    while (run != NULL) {
        struct run *next = run->next;
        /* A duplicate's original may be stored. */
        log->lost(log->owner, run, run->count == 0 ? LOST_GROUPED : how);
        run_free(run);
        run = next;
    }
}

static void lose_queue(struct log *log, enum lost_how how)
{
    struct run *queue = log->queue;
    log->queue = NULL;
    log->queue_end = &log->queue;
    log->queued_bytes = log->queued_runs = log->queued_unhurried = 0;
    lose_runs(log, queue, how);
    shard_forget_queued(log->shard);
}

void log_drain(struct log *log) { log->draining = true; }

void log_fence(struct log *log)
{
    log_drain(log);
    if (log->open) {
        /* In the order in which they came: an answer never overtakes an older call's. */
        for (; log->held_count > 0; log->held_count--) {
            struct held *held = &log->held[log->held_first];
            lose_runs(log, held->runs, LOST_GROUPED);
            *held = (struct held){0};
            log->held_first = (log->held_first + 1) % HELD_MAX;
        }
        for (uint32_t i = 0; i < log->append_count; i++) {
            struct append *append = &log->appends[(log->append_first + i) % APPENDS_IN_FLIGHT];
            lose_runs(log, append->runs, LOST_GROUPED);
            append->runs = append->last_run = NULL;
        }
        log->held_bytes = 0;
        lose_queue(log, LOST_QUEUED);
    }
    log->open = log->following = false;
}

bool log_short_of_room(const struct log *log)
{
    if (log->current + 1 < (int)log->segment_count)
        return false;
    if (log->current < 0)
        return true;
    const struct segment *segment = &log->segments[log->current];
    return segment->capacity - segment->used < 2 * (uint64_t)GROUP_RAW_SOFT + log->queued_bytes;
}

void log_refuse_queued(struct log *log, int64_t wall_us)
{
    log_pump(log, wall_us);
    const bool stuck = log->open && !log->draining && log->append_count == 0 &&
                       log->held_count < HELD_BUILD_MAX &&
                       log->current + 1 >= (int)log->segment_count;
    if (stuck && log->queue != NULL)
        lose_queue(log, LOST_NO_ROOM);
}

void log_begin(struct log *log, uint64_t epoch, uint64_t session, bool gated)
{
    assert(log_settled(log) && log->queue == NULL);
    for (; log->held_count > 0; log->held_count--) {
        struct held *held = &log->held[log->held_first];
        assert(held->runs == NULL);
        free(held->reaches);
        *held = (struct held){0};
        log->held_first = (log->held_first + 1) % HELD_MAX;
    }
    log->options.epoch = epoch;
    log->options.session = session;
    log->gated = gated;
    log->open = log->following = log->draining = log->heartbeat_due = log->segment_asked = false;
    log->segment_count = 0;
    log->current = -1;
    log->next_gseq = 1;
    log->stable_gseq = log->replicated = log->kept = log->prev_crc = log->stable_crc = 0;
    log->stable_pos = log->head;
    free(log->parents);
    log->parents = NULL;
    log->parents_len = 0;
}
