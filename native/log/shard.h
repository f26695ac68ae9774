/* shard: what one worker knows of its slices. Pure state: no I/O, no clock.
 *
 * Topics are labels: every (topic, slice) of the shard is a stream, and all streams share one log.
 * Everything here can be rebuilt from the log: a snapshot group (shard_snapshot) opens each
 * segment, and shard_apply replays the groups after it.
 */
#ifndef BARCO_SHARD_H
#define BARCO_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/format.h"

#define PRODUCER_ID_BYTES 16
/* Rows of the deduplication table; a full table of live producers refuses new ones (503). */
#define PRODUCERS_MAX 65536
/* In a state that is read: two ranges may have become one. */
#define PRODUCERS_RESTORED_MAX (2 * PRODUCERS_MAX)
/* Promise D5, 15 minutes: a producer is remembered for at least this long after its last event, by
 * the log's own clock, which may be a quarter faster than time goes (clock.c). */
#define PRODUCER_IDLE_US (20LL * 60 * 1000000)
/* Promise D5: a repeated sequence this far back is a duplicate; farther is outside the window. */
#define PRODUCER_WINDOW 1024
#define TOPICS_MAX 100000
/* Its values are for all slices of a shard: when a range is split, each child gets all of them. */
#define SHARED_TOPIC "__topics"

/* Where one chunk of a stream lies in the log of the open generation. */
struct index_entry {
    uint64_t base_offset;
    uint64_t log_pos;       /* of the chunk's first byte; log.h says what a log position is */
    int64_t max_timestamp; /* highest of this and all earlier entries, so that it can be searched */
    uint32_t stored_bytes, count;
    uint32_t appended_s; /* when, by the log's own clock, in seconds since 1970 */
};

struct run;

/* Up to where a group's events of a stream go. */
struct reach {
    struct stream *stream;
    uint64_t end;
};

struct stream {
    struct topic *topic;
    uint32_t slice;
    uint64_t start_offset;   /* below it the topic was deleted */
    uint64_t next_offset;    /* the next event gets it */
    uint64_t stable_offset;  /* events below it are on stable storage and may be read */
    int64_t last_timestamp;  /* last one given by the broker: it never goes back */
    int64_t max_timestamp;
    struct index_entry *entries;
    uint32_t entry_count, entry_capacity;
    struct run *first_run, *last_run;
    uint64_t checked; /* shard.checks, when a group last had something for it */
};

/* Of what the broker packs; a client's batch stays as it came. */
enum compression { COMPRESSION_DEFAULT, COMPRESSION_LZ4, COMPRESSION_NONE };

struct topic {
    uint32_t index, hash;
    uint8_t name_len;
    uint8_t compression; /* enum; COMPRESSION_DEFAULT: as the broker's options say */
    bool internal;   /* "__": written by the broker only */
    bool delayed;    /* events of another topic wait in it: DELAYED_PREFIX; not internal */
    bool compacted;  /* the last value of each key of a slice is kept, in snapshots too */
    bool shared;     /* SHARED_TOPIC */
    bool declared;   /* exists although nothing was produced yet */
    bool any_time;   /* takes timestamps of producers however far from now */
    bool checked;    /* values are looked at by the upper layer before they are stored */
    char name[TOPIC_NAME_BYTES_MAX + 1];
    struct stream **streams; /* by slice - slice_first; NULL until first used */
};

struct producer {
    uint8_t id[PRODUCER_ID_BYTES];
    uint32_t topic, slice, epoch;
    bool used, logged;
    uint64_t last_seq, last_offset, last_gseq;
    int64_t last_us; /* by the log's own clock */
    /* What groups hold of it, if any (logged): a snapshot must not claim what still waits for a
     * group, or a crash would make the retry of a lost event a duplicate. */
    uint32_t logged_epoch;
    uint64_t logged_seq;
};

struct compacted {
    uint32_t topic, slice, key_len, value_len, hash;
    uint64_t offset; /* of the event in its stream */
    uint8_t *bytes;  /* key, then value; NULL: free row */
};

/* One event of a compacted topic. */
struct keyed {
    uint32_t slice;
    uint64_t offset;
    const uint8_t *key, *value;
    size_t key_len, value_len;
};

/* Streams by name: topics and slices come and go while nobody asks. */
#define DELAYED_NEWS_MAX 64u
struct delayed_news {
    uint32_t count; /* DELAYED_NEWS_MAX + 1: of more, and so perhaps of any */
    struct {
        uint32_t topic, slice;
    } of[DELAYED_NEWS_MAX];
};

struct shard {
    uint32_t slice_first, slice_count;
    uint32_t slices_all; /* of its token range: no state says more of them; 0: not known */
    struct topic **topics;
    uint32_t topic_count, topic_capacity;
    uint32_t *topic_table, topic_mask; /* open addressing: topic index + 1 */
    struct producer *producers;
    uint32_t producer_count, producer_mask;
    struct compacted *compacted;
    uint32_t compacted_count, compacted_mask;
    uint64_t entries_total;
    /* What a snapshot holds, but for producers, and from which size on nothing new is taken into
     * it; 0: no bound. A snapshot has to fit into a group. */
    uint64_t state_bytes, state_bytes_max;
    uint64_t checks; /* groups of others, since start: shard_take() */
    uint32_t *delayed, delayed_count; /* the numbers of topics that are delayed */
    struct delayed_news news; /* which of their streams have become longer since somebody asked */
    int64_t full_us; /* when the producers' table was last found full of live ones */
};

struct shard *shard_new(uint32_t slice_first, uint32_t slice_count);
/* A stream of a topic that is delayed has become longer. */
void shard_delayed_news(struct shard *shard, const struct stream *stream);
void shard_free(struct shard *shard);
/* It has these slices from now on: of what it loses nothing is known any more, of what is new
 * nothing yet. Topics and the streams that stay are where they were. False without memory: nothing
 * was changed. */
bool shard_set_slices(struct shard *shard, uint32_t slice_first, uint32_t slice_count);
/* Whether it has this slice. */
static inline bool shard_has(const struct shard *shard, uint32_t slice)
{
    return slice >= shard->slice_first && slice - shard->slice_first < shard->slice_count;
}

struct topic *shard_topic(struct shard *shard, const char *name, size_t len);
/* Bytes of a snapshot, about. */
uint64_t shard_state_bytes(const struct shard *shard);
/* True when clients may add nothing to the state: topics, producers, group offsets. What is in the
 * log already is applied all the same. */
bool shard_full(const struct shard *shard);
/* What a client named: the topic itself, or the one whose events wait in it; NULL: unknown here. */
const struct topic *shard_topic_meant(struct shard *shard, const struct topic *topic);
/* A client's topic: found, or made unless the shard is full. */
struct topic *shard_topic_asked(struct shard *shard, const char *name, size_t len);
/* False when this would be one more producer, and the shard is full. */
bool shard_takes_producer(struct shard *shard, const struct stream *stream, const uint8_t *id);
/* Whether a sequence of a producer was taken before, however long ago. */
bool shard_has_sequence(struct shard *shard, const struct stream *stream, const uint8_t *id,
                        uint32_t epoch, uint64_t seq);
/* What was taken last of a producer, if it is still known. */
bool shard_producer(struct shard *shard, const struct topic *topic, uint32_t slice,
                    const uint8_t *id, uint32_t *epoch, uint64_t *seq);

/* Finds or makes the topic; NULL when TOPICS_MAX is reached or the name is not valid. */
struct topic *shard_topic_make(struct shard *shard, const char *name, size_t len);
/* The stream of a topic for one of the shard's own slices, made on first use. */
struct stream *shard_stream(struct shard *shard, struct topic *topic, uint32_t slice);
/* The stream of a topic for a slice, or NULL where nothing was ever stored. */
struct stream *shard_stream_get(const struct shard *shard, const struct topic *topic,
                                uint32_t slice);

enum dedup {
    DEDUP_NEW,
    DEDUP_DUPLICATE,
    DEDUP_STALE_EPOCH,
    DEDUP_GAP,
    DEDUP_FULL,
    DEDUP_FAR, /* not looked up: its timestamp is not taken */
};
/* Looks (id, epoch, seq) up for a stream. *row: the producer's row (made for DEDUP_NEW, its
 * last_seq not yet advanced). *expected: the sequence that would be accepted, for DEDUP_GAP. */
enum dedup shard_dedup(struct shard *shard, const struct stream *stream, const uint8_t *id,
                       uint32_t epoch, uint64_t seq, bool one_shot, int64_t now_us,
                       struct producer **row, uint64_t *expected);

/* The event (id, epoch, seq) of the stream is in a group now. */
void shard_logged(struct shard *shard, const struct stream *stream, const uint8_t *id,
                  uint32_t epoch, uint64_t seq);
/* What still waited for a group never gets into one: producers are as the groups left them. */
void shard_forget_queued(struct shard *shard);

/* A state's row of a producer of the stream. False: it has one already, or there is no room. */
bool shard_remember(struct shard *shard, const struct stream *stream, const struct producer *row);

void shard_compact(struct shard *shard, const struct topic *topic, const struct keyed *event);

void stream_index(struct shard *shard, struct stream *stream, const struct index_entry *entry);
/* Index of the entry that holds the offset, or of the first one after it; entry_count if none. */
uint32_t stream_find(const struct stream *stream, uint64_t offset);

/* The state as bytes (malloc'd): body of a GEN_START or SNAPSHOT group. prefix: opaque lineage. */
uint8_t *shard_snapshot(const struct shard *shard, const uint8_t *prefix, uint32_t prefix_len,
                        int64_t now_us, size_t *len);
/* What the log's own clock said when these bytes were made; 0: they do not say. */
int64_t shard_snapshot_time(const uint8_t *bytes, size_t len);
/* Replaces the state; topics stay where they are in memory, and so do the index entries of events
 * that the new state has as well. bytes NULL: nothing is known any more. 0, or -1 when the bytes
 * are not a snapshot: then nothing was changed. */
int shard_restore(struct shard *shard, const uint8_t *bytes, size_t len);
/* Replaces the state as shard_restore() does; the shard then has the slices that the state says, if
 * there is one, whichever it had before. */
int shard_adopt(struct shard *shard, const uint8_t *bytes, size_t len);
/* Replays one verified data group (header included). 0, or -1 when a chunk is malformed. */
int shard_apply(struct shard *shard, const uint8_t *group, size_t len, uint64_t gseq);
/* Applies a group with an index entry for each chunk. pos: log position of its first byte. Its
 * events are not shown: *reaches (malloc'd, *count of them) tells up to where each stream goes.
 * Nothing was changed when it fails. */
int shard_take(struct shard *shard, const uint8_t *group, size_t len, uint64_t pos,
               struct reach **reaches, uint32_t *count);
/* Every event that is known may be read. */
void shard_show_all(struct shard *shard);

#endif
