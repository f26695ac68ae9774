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

#include "format/group.h"
#include "log/run.h"
#include "log/shard.h"
#include "loop/net.h"

#define APPENDS_IN_FLIGHT 3
/* Groups that are stable here, or taken from a leader, and not committed yet. */
#define HELD_MAX 256u
/* Of a write of several groups (log_kept). */
#define KEPT_WRITE_BYTES (1u << 20)
/* A leader builds no further group while so many wait for a follower: less than its followers have
 * room for, who learn with each group how far it was committed. */
#define HELD_BUILD_MAX 64u
/* The log's own clock gains at most one second in so many on the monotonic one. PRODUCER_IDLE_US
 * is a third more than what promise D5 says. */
#define CLOCK_HASTE 4
/* Raw bytes after which a group takes no further run: about 1 ms of LZ4, so that the loop stays
 * responsive; one larger request still goes into one group. */
#define GROUP_RAW_SOFT (1u << 20)

struct segment {
    uint32_t index;
    int fd;
    uint64_t capacity, used;
    uint64_t base_pos;
    bool started, closed, told; /* closed: no more groups; told: the upper layer knows */
    /* What its sidecar says of the whole segment. */
    uint64_t first_gseq, last_gseq, min_time_us, max_time_us; /* by the log's own clock */
    uint32_t first_prev_crc, last_header_crc;
};

struct append {
    struct write write;
    uint64_t gseq, pos, file_offset;
    uint32_t bytes, done, header_crc; /* of the last group in it */
    bool busy, landed;
    struct run *runs, *last_run;
    uint64_t raw_bytes;
    int64_t submitted_us; /* by the owner's clock */
};

/* A group whose events are not shown yet. The leader's has the calls that wait for it; a
 * follower's has its reaches, and its place where it has yet to be written. */
struct held {
    uint64_t gseq, raw_bytes;
    struct run *runs, *last_run;
    struct reach *reaches;
    uint32_t reach_count, bytes, header_crc;
    uint64_t pos, file_offset, durable_upto;
    int fd;
};

struct group_builder;
struct lent;

struct log_options {
    size_t arena_bytes; /* a power of two, at least 8 MiB */
    uint8_t cluster_uuid[16];
    int64_t range_token;
    uint64_t epoch, session;
    int acceleration; /* LZ4's */
    uint8_t compression; /* of topics that have none of their own: enum compression, 0 for LZ4 */
};

struct log {
    struct log_options options;
    struct shard *shard;
    uint8_t *arena;
    struct lent *lent;  /* what answers are sent from the arena */
    uint64_t head;      /* where the next group will be built */
    uint64_t dirty_end; /* no byte of the arena at or after this position was ever written */
    uint64_t stable_pos;
    uint64_t next_gseq, stable_gseq;
    uint64_t kept; /* a follower's groups up to this one are safe elsewhere: see log_kept */
    uint64_t replicated;  /* what the other members have said: see log_replicated */
    uint64_t memory_from; /* no byte before this position is in memory */
    uint32_t prev_crc, stable_crc; /* header crcs of the last group, and of the last stable one */
    bool open, failed, heartbeat_due;
    bool gated;     /* what is stable here is not enough: see log_replicated */
    bool following; /* groups come from a leader */
    bool draining;  /* no further group, whoever would build it */
    struct held held[HELD_MAX];
    uint32_t held_first, held_count, unsubmitted; /* the last ones are still to be written */
    uint64_t held_bytes;
    struct segment *segments;
    uint32_t segment_count, segment_capacity;
    int current; /* index in segments of the one appended to, -1: none yet */
    bool segment_asked;
    struct append appends[APPENDS_IN_FLIGHT];
    uint32_t append_first, append_count;
    struct run *queue, **queue_end;
    uint64_t queued_bytes, in_flight_bytes;
    uint32_t queued_runs;
    int64_t clock_us; /* the log's own clock, see clock.c; 0: not known yet */
    struct group_builder *builder;
    uint8_t *parents;
    uint32_t parents_len;
    uint32_t last_group_runs; /* requests in the newest group: how busy the log is */
    uint64_t groups, group_bytes, chunks, events, value_bytes;
    /* Effects, all set by the reactor. */
    void *owner;
    void (*submit)(void *owner, struct append *append);
    void (*stable)(void *owner, struct run *run); /* run's events are stable; log frees it after */
    /* run's events will not be answered: written maybe (grouped), or certainly not. */
    void (*lost)(void *owner, struct run *run, bool grouped);
    /* A group was sealed (NULL: nobody cares); its bytes are in memory at append->pos. */
    void (*built)(void *owner, const struct append *append, uint32_t prev_crc);
    void (*want_segment)(void *owner);
    void (*segment_closed)(void *owner, uint32_t index);
    /* Lets the kernel read all that it was told to send. False: not now. */
    bool (*flush)(void *owner);
};

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
/* True when the current segment may not hold another full group and there is no next one. */
bool log_short_of_room(const struct log *log);
/* The lowest position whose bytes are still in memory. */
uint64_t log_memory_low(const struct log *log);
const uint8_t *log_memory(const struct log *log, uint64_t pos);
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

/* clock.c */
/* So much time has gone by since the last call, says the monotonic clock. */
void log_tick(struct log *log, int64_t elapsed_us, int64_t wall_us);
/* Whether a producer's timestamp is of the last 10 years or the next day. By both clocks: a wrong
 * one only makes the window wider. */
bool log_time_plausible(const struct log *log, int64_t wall_us, int64_t time_us);
/* A log that nobody has written to begins with the wall clock. */
void log_clock_begin(struct log *log, int64_t wall_us);
/* Recovery: so late it was when this was written. */
void log_clock_heard(struct log *log, int64_t time_us);

/* replica.c */
enum foreign {
    FOREIGN_TAKEN,
    FOREIGN_WAIT,    /* no room now: again after something landed or a segment was added */
    FOREIGN_GAP,     /* not the group after the tail */
    FOREIGN_STRANGE, /* of another cluster, range, generation or session */
    FOREIGN_DAMAGED, /* a checksum is wrong, or what it says cannot be */
    FOREIGN_CLOSED   /* this replica does not follow, or was fenced */
};
/* Groups come from a leader from now on. */
void log_follow(struct log *log);
/* Takes one whole group as its leader sent it. */
enum foreign log_take(struct log *log, const uint8_t *group, size_t len);
/* Where its bytes may be put before it is taken, which then copies nothing. For as long as nothing
 * else is taken or built. NULL: there is no room. */
uint8_t *log_place(struct log *log, size_t len);
/* Writes what was taken as far as that is allowed now. */
void log_submit_taken(struct log *log);
/* A start of this process would put all groups up to gseq in their places, whatever of them is
 * there: they may be written together, though their headers say what was stable before them. */
void log_kept(struct log *log, uint64_t gseq);
/* Recovery of a generation that was not sealed: its last segment, then that segment's groups. Each
 * is applied and indexed; a SNAPSHOT or GEN_START replaces the state. 0, or -1 malformed. */
void log_load_segment(struct log *log, uint32_t index, int fd, uint64_t capacity);
int log_load_group(struct log *log, const uint8_t *group, size_t len);

/* Parts of log.c for replica.c. */
struct held *log_held_new(struct log *log, uint64_t gseq);
struct append *log_append_slot(struct log *log);
bool log_arena_has_room(struct log *log, size_t bound);
void log_note_group(struct segment *segment, const struct group_header *header);
void log_ask_for_segment(struct log *log);

/* group_build.c */
struct group_builder *builder_new(int acceleration);
void builder_free(struct group_builder *builder);
/* Upper bound of what the run adds to a group. */
size_t run_bound(const struct run *run);
/* Encodes the runs' chunks to out, assigns offsets and index entries. Returns body bytes and adds
 * to *chunks. body_pos: log position of out. */
size_t builder_encode(struct group_builder *builder, struct log *log, struct run *runs,
                      uint8_t *out, uint64_t body_pos, int64_t wall_us, uint32_t *chunks);

#endif
