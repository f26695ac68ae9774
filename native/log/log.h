/* log: the append side of one generation, without I/O of its own.
 *
 * Runs wait in a queue; whenever fewer than APPENDS_IN_FLIGHT appends are on their way, the waiting
 * runs are sealed into the next group and submitted (natural group commit: no timer). A group is
 * stable when its write and all earlier ones are.
 *
 * Groups are built in the arena, a ring of memory mapped twice in a row, so that it is the tail of
 * the log byte for byte: tail reads copy from it and never touch the disk. A log position counts
 * the bytes of all groups of the generation; position p lies at arena[p % arena_bytes], and in the
 * segment that covers it at p - segment.base_pos.
 */
#ifndef BARCO_LOG_H
#define BARCO_LOG_H

#include "log/log_state.h"

struct log *log_new(const struct log_options *options, struct shard *shard);
void log_free(struct log *log);
void log_add_segment(struct log *log, uint32_t index, int fd, uint64_t capacity);
/* Writes GEN_START as soon as a segment is there; before this nothing is appended. */
void log_open_generation(struct log *log, const uint8_t *parents, uint32_t len);
void log_enqueue(struct log *log, struct run *run);
/* The largest run_bound() that a group can ever hold; a larger run would wait for ever. */
size_t log_run_bound_max(const struct log *log);
/* Builds and submits what may be submitted now. wall_us: the wall clock. */
void log_pump(struct log *log, int64_t wall_us);
/* A write ended with result bytes or -errno. */
void log_written(struct log *log, struct append *append, int64_t result);
/* An empty group that tells recovery how far the log was stable; flags: enum group_flag. */
void log_heartbeat(struct log *log, int64_t wall_us, uint16_t flags);
/* The lowest position whose bytes are still in memory. */
uint64_t log_memory_low(const struct log *log);
/* The segment that covers a position, or NULL when it was dropped. */
const struct segment *log_segment_at(const struct log *log, uint64_t pos);
const struct segment *log_segment(const struct log *log, uint32_t index);
/* Forgets a closed segment: its index entries and, the caller closes it, its descriptor. */
void log_drop_segment(struct log *log, uint32_t index);

/* generation.c */
/* Forgets the open generation's segments, whose descriptors are the caller's, and starts at group
 * 1 of another one. Nothing may be under way (log_settled). gated: it has followers. */
void log_begin(struct log *log, uint64_t epoch, uint64_t session, bool gated);
/* The leader: gseq is the highest group that a follower has stable. A follower: the highest that
 * its leader called committed. Groups that are stable here as well are shown and answered. */
void log_replicated(struct log *log, uint64_t gseq);
uint64_t log_committed(const struct log *log);
/* No further group is built or taken; what is under way goes on, and those that wait do. */
void log_drain(struct log *log);
/* Drains, and acknowledges nothing any more: those that wait are lost. */
void log_fence(struct log *log);
/* True when the current segment may not hold another full group and there is no next one. */
bool log_short_of_room(const struct log *log);
/* There is no further segment for now: what is queued and finds no room in this one is lost. */
void log_refuse_queued(struct log *log, int64_t wall_us);
/* True when nothing is queued, being written, or held. */
static inline bool log_idle(const struct log *log)
{
    return log->queue == NULL && log->append_count == 0 && log->held_count == 0;
}
/* True when no group taken or built has still to become stable. */
static inline bool log_settled(const struct log *log)
{
    return log->append_count == 0 && log->unsubmitted == 0;
}

/* Parts of log.c for replica.c. */
struct held *log_held_new(struct log *log, uint64_t gseq);
struct append *log_append_slot(struct log *log);
bool log_arena_has_room(struct log *log, size_t bound);
void log_note_group(struct segment *segment, const struct group_header *header);
void log_ask_for_segment(struct log *log);
/* Writes what was taken as far as that is allowed now. */
void log_submit_taken(struct log *log);

#endif
