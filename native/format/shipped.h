/* shipped: events as shippers of logs bring them, in formats of their own, on their way to be a
 * batch: where each one's value, key and headers are, and of which kind it is.
 *
 * What is in the body as it is to be stored stays there; what has to be written anew, headers and
 * what was escaped, is in room of its own. Everything that is made is counted before it is. */
#ifndef BARCO_SHIPPED_H
#define BARCO_SHIPPED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json_walk.h"
#include "format/section.h"

#define SHIPPED_EVENTS_MAX (1u << 17) /* of one body: an answer has a line for each */
#define SHIPPED_KINDS_MAX 256u        /* of one body: topics, mostly */
#define SHIPPED_KEY_MAX (32u << 10)   /* as elsewhere than in a batch */

enum shipped_flaw {
    SHIPPED_FINE,
    SHIPPED_NO_MEMORY,
    SHIPPED_TOO_MANY,  /* events */
    SHIPPED_KINDS,     /* too many of them */
    SHIPPED_TOO_LARGE, /* all that is made of the body */
    SHIPPED_EVENT_TOO_LARGE,
    SHIPPED_SYNTAX,
    SHIPPED_NO_EVENT,    /* where one is due */
    SHIPPED_BLANK_EVENT, /* the same, and nothing is in it */
    SHIPPED_TIME,
    SHIPPED_KEY,
    SHIPPED_HEADERS, /* over the limits of an event's */
    SHIPPED_OP,      /* nothing that a log can do */
    SHIPPED_FLAWS
};

/* Events that have something in common: for whom they are, and what is wrong with them. */
struct shipped_kind {
    const uint8_t *name; /* NULL: none was said */
    uint32_t name_len, count;
    uint8_t op;   /* of the format */
    uint8_t flaw; /* fine, or none of them can be stored */
};

struct shipped_event {
    int64_t time_us; /* since 1970; 0: none was said, or none that can be */
    const uint8_t *value, *key, *headers; /* headers as format/headers.h has them */
    const uint8_t *id; /* as JSON has it, to be told; NULL: there is none */
    uint32_t value_len, key_len, headers_len, id_len; /* key_len KEY_NULL: none */
    uint32_t kind;
};

struct shipped_limits {
    uint64_t event_bytes_max, bytes_max; /* of one event's value; of all of them in a batch */
    int64_t low_us, high_us; /* a time outside of these is none */
};

struct shipped_room;

struct shipped {
    struct shipped_limits limits;
    struct shipped_event *events;
    uint32_t count, capacity;
    struct shipped_kind kinds[SHIPPED_KINDS_MAX];
    uint32_t kind_count, last_kind;
    struct shipped_room *room;
    uint64_t bytes;      /* that the events are in a batch */
    uint64_t room_bytes; /* that were written anew */
    uint64_t at;    /* which of the body's events, or lines, is flawed; from 0 */
};

void shipped_free(struct shipped *shipped);

/* One more event, to be filled in; NULL: *flaw says why. */
struct shipped_event *shipped_next(struct shipped *shipped, enum shipped_flaw *flaw);
/* It is filled in: its bytes are counted, and what is over a limit is a flaw. */
enum shipped_flaw shipped_done(struct shipped *shipped, const struct shipped_event *event);
/* The number of a kind, a new one if need be. */
enum shipped_flaw shipped_kind(struct shipped *shipped, const struct shipped_kind *kind,
                               uint32_t *number);
/* Room that stays where it is until all is freed; NULL: *flaw says why. */
uint8_t *shipped_room(struct shipped *shipped, size_t bytes, enum shipped_flaw *flaw);
/* What is left of the room that is there, for what is written before its length is known, and as
 * much of it as was written: shipped_take() takes it. */
uint8_t *shipped_rest(const struct shipped *shipped, size_t *cap);
enum shipped_flaw shipped_take(struct shipped *shipped, size_t len);
/* The same bytes in such room: *out. */
enum shipped_flaw shipped_keep(struct shipped *shipped, const uint8_t *bytes, size_t len,
                               const uint8_t **out);
/* A JSON string's characters, from between its quotes: where they are, or written out to room. */
enum shipped_flaw shipped_text(struct shipped *shipped, const struct json_rest *text,
                               const uint8_t **out, uint32_t *len);
/* The time, if it can be one. */
int64_t shipped_time(const struct shipped *shipped, int64_t time_us);

/* The columns of the events of some kinds, wanted[kind] != 0, in one piece of memory that *memory
 * gets; those without a time have now_us where others have one. False without memory. */
bool shipped_columns(const struct shipped *shipped, const uint8_t *wanted, int64_t now_us,
                     struct chunk_columns *out, uint8_t **memory);

#endif
