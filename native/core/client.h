/* client: one connection that speaks HTTP: its requests, and their answers in order. */
#ifndef BARCO_CLIENT_H
#define BARCO_CLIENT_H

#include "core/guest.h"
#include "core/produce.h"
#include "http/http1.h"
#include "log/run.h"
#include "loop/output.h"

#define SLOTS_MAX 128u             /* pipelined requests without an answer; then reading stops */
#define OUTPUT_PAUSE_BYTES (256u << 10) /* unsent answers after which reading stops */
#define CONTROL_PIPELINED_MAX 8u /* of one connection; then reading stops */

enum conn_state { STATE_HEAD, STATE_BODY, STATE_CHUNKED, STATE_DISCARD, STATE_LINGER };
enum slot_kind { SLOT_OPEN, SLOT_PRODUCED, SLOT_DUPLICATE, SLOT_PROBLEM, SLOT_PYTHON, SLOT_STREAM };

struct span;

/* The turn of one answer in the order of its connection's requests. */
struct slot {
    uint8_t kind;
    bool head_only, minimal, close, http10_keep_alive, want_continue, control;
    bool delayed; /* its event waits until it is due: the answer names it */
    bool checked; /* what was withheld is produced, or what is left of it */
    bool noted;   /* for the log: it was refused */
    uint16_t status;
    uint16_t problem;
    char *id;          /* of its request: what its client calls it, or what it was called when an
                        * answer or a line of the log wanted one; NULL: nothing yet */
    uint32_t waiting;  /* parts without an answer */
    uint32_t part_count;
    struct topic *topic;
    struct part part;   /* the only one, mostly */
    struct part *parts; /* more than one */
    uint32_t held;      /* bytes of the body that the upper layer has */
    int64_t begun_us;   /* its request's head was there */
    uint64_t expected;  /* sequence, for a gap; of a slice, for 421; line number */
    struct span *span;   /* NULL: it is not traced */
    struct asked *asked; /* control: it waits to be given up, see control.c */
    struct output *first, *last; /* SLOT_PYTHON, rendered; SLOT_STREAM: its headers */
    struct withheld *withheld; /* somebody looks at its body first, see checked.h; or NULL */
    uint32_t withheld_bytes;
};

struct request {
    bool control;
    uint32_t slot;
    uint64_t body_want, body_max; /* content length (0 with chunked) and limit */
    struct produce produce;
    uint8_t *owned_key;
    uint8_t *head; /* control: the head's bytes */
    uint32_t head_len;
    struct body *body;
    struct http1_chunked chunked;
};

struct hearer;
struct shown;

struct client {
    struct guest guest;
    uint8_t state;
    bool asks; /* its last request was one for the upper layer */
    size_t head_seen;
    struct request request;
    uint64_t discard;
    struct slot *slots;
    uint32_t control_open; /* slots that are or were the upper layer's */
    uint32_t parked; /* parts of its requests that wait for a leader, see park.h */
    uint32_t slot_capacity, slot_first, slot_end; /* numbers of the oldest and the next slot */
    struct shown *shown; /* who has it, see access.c; NULL: nobody was asked */
    struct hearer *hearer; /* it listens, and asks for nothing more; see feed.h */
    uint8_t host_len;
    char host[64]; /* the last one that was found to be ours */
};

extern const struct protocol client_protocol;

static inline struct client *client_of(const struct conn *conn) { return (struct client *)conn; }

/* Nothing that it asked for waits for an answer. */
static inline bool has_no_slots(const struct conn *conn)
{
    return client_of(conn)->slot_first == client_of(conn)->slot_end;
}

static inline struct slot *slot_at(const struct client *client, uint32_t number)
{
    return &client->slots[number & (client->slot_capacity - 1)];
}

/* NULL: it was answered. */
static inline struct slot *conn_slot(const struct conn *conn, uint32_t number)
{
    const struct client *client = client_of(conn);
    const uint32_t open = client->slot_end - client->slot_first;
    return number - client->slot_first < open ? slot_at(client, number) : NULL;
}

/* Within its body that is coming in, and not beyond: what follows a body outlives it. */
static inline uint8_t *client_room(const struct conn *conn, size_t len)
{
    const struct client *client = client_of(conn);
    const struct body *body = client->request.body;
    if (client->state != STATE_BODY || conn->in_len > 0 || body == NULL ||
        len > body->capacity - body->len || len > client->request.body_want - body->len)
        return NULL;
    return body->data + body->len;
}

/* No request is begun while the answers of earlier ones wait for their turn or for the client; one
 * whose body is coming in is finished, so that a pause never makes its sender look slow. */
static inline bool client_paused(const struct conn *conn)
{
    const struct client *client = client_of(conn);
    if (client->state != STATE_HEAD)
        return conn->blocked;
    return conn->blocked || client->hearer != NULL || client->guest.prev_yielded != NULL ||
           client->slot_end - client->slot_first >= SLOTS_MAX ||
           client->control_open >= CONTROL_PIPELINED_MAX || conn->out_bytes > OUTPUT_PAUSE_BYTES;
}

/* Of who has not asked for anything good yet, or asks the upper layer, only little is read at a
 * time: it is copied, kept and paid for before it is known to be worth anything. A body that was
 * announced comes in as fast as it can. */
static inline void note_wary(struct client *client)
{
    const bool proven = client->slot_end != 0 && !client->asks;
    client->guest.conn.wary = client->guest.refuser || (client->state == STATE_HEAD && !proven);
}

#endif
