/* feed: what many listeners hear, rendered once; and a listener, which is a connection and a place.
 *
 * A feed's text lies in bodies that are counted: the feed holds a reference to each of its newest,
 * a listener one to the body of its place, and each piece that is being sent one. Nothing is copied
 * for a listener. Those whose place is in a body that the feed has dropped send the rest of it, and
 * then are behind: the upper layer reads for them, until it lets them join again. */
#ifndef BARCO_FEED_H
#define BARCO_FEED_H

#include "core/client.h"

#define FEEDS_MAX 256u             /* of a worker */
#define FEED_BYTES (256u << 10)    /* of the newest text, that a feed keeps */
#define FEED_BODY_BYTES (32u << 10)
#define FEEDS_BYTES_MAX (80u << 20) /* of all bodies, also those that only slow listeners hold */
#define FEED_ID_BYTES_MAX 2048u    /* an id of an event, and of a place */
#define HEARERS_PER_TURN 64u       /* are served in one turn of the loop; then others have theirs */
#define HEARERS_ENDED_AT_ONCE 16u  /* closing costs the kernel much */
#define HEARER_BEAT_MS 15000       /* a comment, when nothing else was sent for so long */
/* A listener has the next text so long after the last one, for each that the feed has, and at most:
 * what came meanwhile goes with one call of the kernel. */
#define PACE_US_EACH 7
#define PACE_US_MAX 65000

struct feed_body {
    struct feed_body *next; /* NULL: the newest, or dropped */
    uint64_t *bytes_all;
    uint64_t base; /* how much text the feed had before */
    uint32_t refs;
    uint32_t id_len; /* the id of the place where its text begins stands before that */
    uint32_t len, capacity;
    uint32_t last_id, last_id_len; /* of the last event; 0: it has none yet */
    bool dropped;
    uint8_t bytes[];
};

struct hearer {
    struct hearer *next_all, **prev_all;
    struct hearer *next, **prev; /* of those that wait or are due; prev NULL: of neither */
    struct conn *conn;
    struct feed *feed;      /* NULL: it reads for itself */
    struct feed_body *body; /* its place: a reference, */
    uint32_t at;            /* and how much of it was sent or is being sent */
    bool tells;             /* the upper layer wants to know when all is sent */
    uint64_t request;       /* its name in the upper layer */
    int64_t served_us, beat_ms;
};

struct hearers {
    struct hearer *first, **end;
};

struct feed {
    struct feed_body *first, *last;
    struct hearers waiting, due; /* have all there is; have not */
    uint32_t hearers;
    bool ending; /* it is gone for all but those that are being let go */
};

struct feeds {
    struct feed *feeds[FEEDS_MAX];
    uint32_t count, next; /* next: whose turn it is to be served */
    uint32_t ending; /* feeds whose listeners are being let go */
    struct hearer *all;
    uint32_t hearers;
    uint64_t bytes; /* of bodies */
    uint64_t heard_bytes; /* since start */
};

/* -1: there are too many, or there is no memory. The place is where its text begins. */
int feed_open(struct reactor *reactor, const char *id, size_t id_len);
/* Its listeners' connections are closed, some in each turn: they come back with their ids. */
void feed_close(struct reactor *reactor, uint32_t number);
/* Adds whole events; `id` is the place before them. False: there is no room now, and some of those
 * that hold too much were ended. */
bool feed_push(struct reactor *reactor, uint32_t number, const char *id, size_t id_len,
               const uint8_t *text, size_t len);
void feeds_free(struct reactor *reactor);
/* NULL: there is none of this number, or none any more. */
struct feed *feed_at(const struct reactor *reactor, uint64_t number);

/* How much text it had, and from where on it still has it. */
static inline uint64_t feed_end(const struct feed *feed)
{
    return feed->last->base + (feed->last->len - feed->last->id_len);
}

/* The connection has had its last answer, and listens from now on. False: no memory. */
bool hearer_begin(struct conn *conn, uint64_t request);
/* Events that were read for it alone; HEARER_SENT when all are sent. */
void hearer_write(struct conn *conn, const uint8_t *bytes, size_t len);
/* It is given the feed's text from here on, which is an end of an event. False: that is not there
 * any more. */
bool hearer_join(struct conn *conn, uint32_t number, uint64_t from);
/* What was sent by itself is told as sent when it is. */
void hearer_tended(struct conn *conn);
void hearer_beat(struct conn *conn, int64_t now_ms);
void hearer_closed(struct conn *conn);
/* Closes the connections of all, at once: the worker stops, and they go on elsewhere. */
void hearers_end(struct reactor *reactor);
/* Serves those whose turn it is. True: connections were made dirty. */
bool hearers_serve(struct reactor *reactor);
/* When somebody is due. */
int64_t hearers_in_us(const struct reactor *reactor);

#endif
