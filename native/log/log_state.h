/* log_state: what a log is made of. What is done with it is in log.h and in the headers of its
 * parts (clock, group_build, lent, replica), which know no more of it than this. */
#ifndef BARCO_LOG_LOG_STATE_H
#define BARCO_LOG_LOG_STATE_H

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

/* What became of a run that is not answered for: it is in no group, and there is no room for one,
 * or it may be written. */
enum lost_how { LOST_QUEUED, LOST_NO_ROOM, LOST_GROUPED };

struct log {
    struct log_options options;
    struct shard *shard;
    uint8_t *arena;
    struct lent *lent;  /* what answers are sent from the arena */
    uint64_t head;      /* where the next group will be built */
    uint64_t dirty_end; /* no byte of the arena at or after this position was ever written */
    uint64_t stable_pos;
    uint64_t showing; /* the group whose calls were told last that it is safe */
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
    uint32_t queued_runs, queued_unhurried; /* of the runs those that may wait for others */
    int64_t clock_us; /* the log's own clock, see clock.c; 0: not known yet */
    struct group_builder *builder;
    uint8_t *parents;
    uint32_t parents_len;
    uint32_t last_group_runs; /* requests in the newest group: how busy the log is */
    uint64_t groups, group_bytes, chunks, events, value_bytes;
    uint64_t followed_events; /* of `events` those that another leader wrote */
    /* Effects, all set by the reactor. */
    void *owner;
    void (*submit)(void *owner, struct append *append);
    void (*stable)(void *owner, struct run *run); /* run's events are stable; log frees it after */
    /* run's events will not be stable for who waits; log frees it after */
    void (*lost)(void *owner, struct run *run, enum lost_how how);
    /* A group was sealed (NULL: nobody cares); its bytes are in memory at append->pos. */
    void (*built)(void *owner, const struct append *append, uint32_t prev_crc);
    void (*want_segment)(void *owner);
    void (*segment_closed)(void *owner, uint32_t index);
    /* Lets the kernel read all that it was told to send. False: not now. */
    bool (*flush)(void *owner);
};

/* The bytes of a position that is in memory, and those behind it: see log.h. */
static inline const uint8_t *log_memory(const struct log *log, uint64_t pos)
{
    return log->arena + (pos & (log->options.arena_bytes - 1));
}

#endif
