/* run: the events of one produce call that go to one stream, from arrival until the answer. */
#ifndef BARCO_RUN_H
#define BARCO_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/batch.h"
#include "log/shard.h"

/* Bytes shared by the runs that point into them: a request's body, or the bodies of many small
 * requests one behind the other, so that the events of one stream mostly lie in a row. */
struct body {
    uint32_t refs;
    uint64_t *account; /* where its capacity is counted */
    size_t len, capacity;
    uint8_t *data;
};

struct body *body_new(uint64_t *account, size_t capacity);
/* Grows to hold at least want bytes. False without memory; the body is as it was. */
bool body_reserve(struct body *body, size_t want);
void body_release(struct body *body);

/* 1970 to the microsecond, in calls and runs, where 0 says that no time was given. A batch says it
 * by a base before it, and chunks have no need: an event that is stored has a time. */
#define TIME_ZERO INT64_MIN

enum waiter_kind { WAITER_NONE, WAITER_SLOT, WAITER_PEER, WAITER_APPEND };

/* Who is told when the run is stable. */
struct waiter {
    enum waiter_kind kind; /* switches over it have no default: a new one is an error there */
    bool unhurried;  /* nobody is kept waiting: its group may gather for a while */
    uint32_t slot;   /* WAITER_SLOT: the answer's place on its connection */
    uint64_t conn;   /* WAITER_SLOT, WAITER_PEER: connection id */
    uint64_t tag;    /* WAITER_PEER, WAITER_APPEND: the asker's own mark */
};

/* What every run needs comes first: a group's runs are walked several times, and what they say is
 * mostly not in the nearest cache any more. */
struct run {
    struct run *next;        /* in the queue, then in the group */
    struct run *next_stream; /* of the same stream in the same group */
    struct stream *stream;
    uint32_t count;    /* events; 0: a duplicate that waits for its original, or refused */
    uint32_t bytes;    /* keys, values and headers */
    uint64_t base_offset; /* set when the group is built */
    uint64_t memory;      /* bytes counted for this run itself */
    bool sealed;       /* a client's batch, stored as it came */
    bool glued;        /* goes into the same group as the next run of the queue */
    bool has_producer;
    uint8_t problem;   /* why it is refused; told when a group built after that is committed */
    uint32_t value_len;
    /* One event, values[0, value_len); or the lens one behind the other; or columns instead. */
    const uint8_t *values;
    struct waiter waiter;
    struct body *body; /* NULL: everything lies behind the run */
    const uint8_t *keys; /* NULL: no key */
    int64_t token_min, token_max;
    int64_t timestamp, max_timestamp; /* of the producer; 0: the broker's clock; or TIME_ZERO. See
                                       * columns */
    const uint32_t *value_lens;
    const uint32_t *begins; /* of columns, their values not in a row: where each is in values */
    const struct batch_columns *columns; /* or NULL; of a cut batch: times from timestamp */
    uint32_t key_len;
    uint32_t producer_epoch;
    uint64_t producer_seq; /* refused: the one that would have been taken */
    int64_t queued_us; /* by the owner's clock */
    uint8_t producer_id[PRODUCER_ID_BYTES];
    const struct batch_view *batch;   /* sealed only */
    _Alignas(8) uint8_t tail[];
};

/* A run with room for extra bytes behind it, zeroed but for the room. NULL without memory. Freed by
 * the thread that made it. */
struct run *run_new(struct stream *stream, size_t extra);
void run_free(struct run *run);

#endif
