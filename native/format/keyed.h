/* keyed: lines of JSON that bring a key each, read into places within their body.
 *
 * Either a line is {"key": ..., "value": ..., "timestamp": ..., "headers": ...}, or it is an event
 * as it stands, and one of its members is its key. What a value holds is not looked at: only where
 * it ends. In place of "timestamp" a line may say when it is due, "deliverAt" or "deliverAfter": if
 * one does all of them do. */
#ifndef BARCO_KEYED_H
#define BARCO_KEYED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KEYED_LINES_MAX (1u << 18) /* of one body, as of a batch */
#define KEYED_KEY_MAX (32u << 10)
#define KEYED_NO_TIME INT64_MIN

/* One event. Places count from the start of the body. */
struct keyed_line {
    int64_t timestamp; /* microseconds since 1970, or when it is due; or KEYED_NO_TIME */
    uint32_t key_at, key_len; /* KEY_NULL: it has none */
    uint32_t key_escaped; /* 0, or of how many bytes keyed_key() makes it */
    uint32_t value_at, value_len; /* KEY_NULL: it has none */
    uint32_t headers_at, headers_len; /* as format/headers.h has them; 0: none */
    uint32_t number; /* of its slice: for whoever uses it */
};

struct keyed_rules {
    const uint8_t *field; /* the member that is the key of lines that are stored as they stand; */
    uint32_t field_len;   /* 0: lines of key, value, timestamp and headers, or of when due */
    uint8_t *key_room;    /* KEYED_KEY_MAX bytes, for a while */
    uint8_t *headers_room; /* HEADERS_STORED_MAX bytes, likewise */
    uint64_t event_bytes_max;
    int64_t now_us; /* what is due after a while is counted from here */
    int64_t due_least_us, due_most_us; /* when one may be due */
};

enum keyed_flaw {
    KEYED_FINE,
    KEYED_TOO_MANY,  /* lines */
    KEYED_TOO_LARGE, /* a line's value */
    KEYED_SYNTAX,
    KEYED_MEMBER, /* one that is not known, or there twice */
    KEYED_VALUE,  /* there is none */
    KEYED_KEY,    /* none, of another kind, or not UTF-8 */
    KEYED_LONG_KEY,
    KEYED_BASE64,
    KEYED_TIME,
    KEYED_HEADERS, /* no object of strings, too many, or names that are none */
    KEYED_MIXED, /* only some have a timestamp */
    KEYED_DUE,   /* no time or span, too long ago, or beside another time */
    KEYED_FAR_DUE,
    KEYED_MIXED_DUE, /* only some say when they are due */
    KEYED_FLAWS
};

/* The most lines that so many bytes can have, blank ones apart: so much room keyed_read() needs. */
uint32_t keyed_lines_most(size_t len);
/* Reads a body of less than 4 GiB, and changes it: what is escaped in it is written out where it
 * is. Blank lines are passed over. Sets *count, *delayed: they say when they are due, and with a
 * flaw *line, from 1. */
enum keyed_flaw keyed_read(uint8_t *bytes, size_t len, const struct keyed_rules *rules,
                           struct keyed_line *out, uint32_t room, uint32_t *count, bool *delayed,
                           uint64_t *line);
/* The key of a line that has one: where it is or, if its line is to stay as it is and the key is
 * escaped there, written out to room, of KEYED_KEY_MAX bytes. */
const uint8_t *keyed_key(const uint8_t *bytes, const struct keyed_line *line, uint8_t *room);

#endif
