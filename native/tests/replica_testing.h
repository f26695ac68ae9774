/* Leaders and followers on disks that a test plays: one member each, groups handed over by hand. */
#ifndef BARCO_REPLICA_TESTING_H
#define BARCO_REPLICA_TESTING_H

#include "codec_testing.h"
#include "log/log.h"
#include "log/replica.h"

#define ARENA_BYTES (8u << 20)
#define DISK_BYTES (4u << 20)
#define DISKS 6
#define NOW 1700000000000000
#define GROUPS_MAX 1024

struct member {
    struct shard *shard;
    struct log *log;
    uint8_t *disk[DISKS];
    struct append *submitted[8];
    uint32_t submitted_count, wanted, closed, answered, unknown, refused;
    uint8_t *sent[GROUPS_MAX]; /* by gseq: the bytes as built */
    uint32_t sent_bytes[GROUPS_MAX];
    uint64_t sent_pos[GROUPS_MAX]; /* where a link would read them from, for as long as they last */
};

static inline void on_submit(void *owner, struct append *append)
{
    struct member *m = owner;
    CHECK(m->submitted_count < 8);
    m->submitted[m->submitted_count++] = append;
}

static inline void on_stable(void *owner, struct run *run)
{
    ((struct member *)owner)->answered++;
}

static inline void on_lost(void *owner, struct run *run, enum lost_how how)
{
    struct member *m = owner;
    how == LOST_GROUPED ? m->unknown++ : m->refused++;
}

static inline void on_built(void *owner, const struct append *append, uint32_t prev_crc)
{
    struct member *m = owner;
    CHECK(append->gseq < GROUPS_MAX);
    free(m->sent[append->gseq]);
    m->sent[append->gseq] = malloc(append->bytes);
    memcpy(m->sent[append->gseq], log_memory(m->log, append->pos), append->bytes);
    m->sent_bytes[append->gseq] = append->bytes;
    m->sent_pos[append->gseq] = append->pos;
}

static inline void on_want(void *owner) { ((struct member *)owner)->wanted++; }
static inline void on_closed(void *owner, uint32_t index) { ((struct member *)owner)->closed++; }

static inline void join(struct member *m)
{
    struct log_options options = {.arena_bytes = ARENA_BYTES, .acceleration = 1};
    memset(m, 0, sizeof *m);
    m->shard = shard_new(0, 8);
    m->log = log_new(&options, m->shard);
    CHECK(m->shard && m->log);
    m->log->owner = m;
    m->log->submit = on_submit;
    m->log->stable = on_stable;
    m->log->lost = on_lost;
    m->log->built = on_built;
    m->log->want_segment = on_want;
    m->log->segment_closed = on_closed;
}

static inline void leave(struct member *m)
{
    log_free(m->log);
    shard_free(m->shard);
    for (uint32_t i = 0; i < DISKS; i++)
        free(m->disk[i]);
    for (uint32_t i = 0; i < GROUPS_MAX; i++)
        free(m->sent[i]);
}

static inline void new_disks(struct member *m, uint32_t count)
{
    for (uint32_t i = 0; i < DISKS; i++) {
        free(m->disk[i]);
        m->disk[i] = NULL;
    }
    for (uint32_t i = 0; i < count; i++) {
        m->disk[i] = calloc(1, DISK_BYTES);
        log_add_segment(m->log, i, (int)i, DISK_BYTES);
    }
}

static inline void lead(struct member *m, uint64_t epoch)
{
    log_begin(m->log, epoch, epoch * 100, true);
    new_disks(m, DISKS);
    log_open_generation(m->log, (const uint8_t *)"parents", 7);
    log_pump(m->log, NOW);
}

static inline void follow(struct member *m, uint64_t epoch)
{
    log_begin(m->log, epoch, epoch * 100, true);
    new_disks(m, DISKS);
    log_follow(m->log);
}

static inline void complete(struct member *m, uint32_t at)
{
    struct append *append = m->submitted[at];
    memmove(m->submitted + at, m->submitted + at + 1,
            (--m->submitted_count - at) * sizeof *m->submitted);
    CHECK(append->file_offset + append->bytes <= DISK_BYTES);
    memcpy(m->disk[append->write.fd] + append->file_offset, log_memory(m->log, append->pos),
           append->bytes);
    log_written(m->log, append, append->bytes);
}

static inline void settle(struct member *m)
{
    do {
        while (m->submitted_count > 0)
            complete(m, 0);
        log_pump(m->log, NOW);
    } while (m->submitted_count > 0);
}

static inline enum foreign hand(struct member *to, const struct member *from, uint64_t gseq)
{
    return log_take(to->log, from->sent[gseq], from->sent_bytes[gseq]);
}

/* All that the leader has built, stable at the follower; the leader hears of it. */
static inline void replicate(struct member *leader, struct member *follower)
{
    settle(leader);
    for (uint64_t gseq = follower->log->next_gseq; gseq < leader->log->next_gseq; gseq++) {
        CHECK(hand(follower, leader, gseq) == FOREIGN_TAKEN);
        settle(follower);
    }
    log_replicated(leader->log, follower->log->stable_gseq);
    log_replicated(follower->log, log_committed(leader->log));
    settle(leader);
}

static inline void put(struct member *m, const char *name, uint32_t slice, size_t len,
                       uint8_t producer, uint64_t seq)
{
    struct topic *topic = shard_topic_make(m->shard, name, strlen(name));
    struct run *run = run_new(shard_stream(m->shard, topic, slice), len);
    CHECK(run != NULL);
    uint64_t seed = len + slice + seq;
    for (size_t i = 0; i < len; i++)
        run->tail[i] = (uint8_t)random_next(&seed);
    run->count = 1;
    run->values = run->tail;
    run->value_len = run->bytes = (uint32_t)len;
    if (producer) {
        struct producer *row;
        uint64_t expected;
        memset(run->producer_id, producer, PRODUCER_ID_BYTES);
        run->has_producer = true;
        run->producer_seq = seq;
        enum dedup verdict = shard_dedup(m->shard, run->stream, run->producer_id, 0, seq, false,
                                         NOW, &row, &expected);
        CHECK(verdict == DEDUP_NEW || verdict == DEDUP_DUPLICATE);
        if (verdict == DEDUP_NEW)
            row->last_seq = seq;
        else
            run->count = run->bytes = 0;
    }
    log_enqueue(m->log, run);
}

static inline const struct stream *stream_of(const struct member *m, const char *name,
                                             uint32_t slice)
{
    struct topic *topic = shard_topic(m->shard, name, strlen(name));
    return topic ? topic->streams[slice] : NULL;
}

static inline struct stream *stream_of_new(struct member *m, const char *name, uint32_t slice)
{
    return shard_stream(m->shard, shard_topic_make(m->shard, name, strlen(name)), slice);
}

static inline void check_same(const struct member *a, const struct member *b)
{
    size_t a_len, b_len;
    /* Only a replay knows at which offset a producer's last event stands; nobody asks. */
    for (uint32_t i = 0; i <= a->shard->producer_mask; i++)
        a->shard->producers[i].last_offset = 0;
    for (uint32_t i = 0; i <= b->shard->producer_mask; i++)
        b->shard->producers[i].last_offset = 0;
    uint8_t *one = shard_snapshot(a->shard, NULL, 0, NOW, &a_len);
    uint8_t *other = shard_snapshot(b->shard, NULL, 0, NOW, &b_len);
    CHECK(one && other && a_len == b_len && memcmp(one, other, a_len) == 0);
    free(one);
    free(other);
    for (uint32_t i = 0; i < DISKS; i++)
        CHECK(memcmp(a->disk[i], b->disk[i], DISK_BYTES) == 0);
}

#endif
