/* frames: hand-off: produce calls that reached the wrong process, batched to the one that leads the
 * slice: over a Unix socket in the same broker, over TCP (behind a hello that says who and which
 * version) in another.
 *
 * Frames, little-endian as all that barco runs on: CALL head, topic, key, body; ANSWER head;
 * RETURN, which is a CALL that comes back; or TRACE, of which the next CALL is a part. Many
 * frames share one send: 74-189 ns a message. What a call was handed to never hands it on. */
#ifndef BARCO_FRAMES_H
#define BARCO_FRAMES_H

#include <assert.h>

#include "http/given_id.h"
#include "log/shard.h"
#include "loop/conn.h"

#define OP_CALL 1
#define OP_ANSWER 2
#define OP_RETURN 3 /* the call itself: it was not written, and who sent it may do so again */
#define OP_TRACE 4
#define FLAG_KEY 1
#define FLAG_PRODUCER 2
#define FLAG_TRACES 2 /* an answer: who gives it takes OP_TRACE; before that nobody is sent one */
#define FLAG_ONE_SHOT 4
#define FLAG_DUPLICATE 8   /* an answer */
#define FLAG_CHECKED 8     /* a call: its values were looked at, as some topics want it */
#define FLAG_KNOWN_ONLY 16 /* a call: it makes no topic */
#define FLAG_RETURNS 32    /* a call: its sender takes it back; a version before that does not */
#define FLAG_AGAIN 64      /* a call: of what was given back before it nothing is out any more */
#define FLAG_ORDERED 128   /* a call: after one that is given back all are, until FLAG_AGAIN */

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames between machines");

struct call_frame {
    uint32_t bytes; /* of the whole frame */
    uint8_t op, flags, content, topic_len;
    uint64_t tag;
    int64_t timestamp;
    uint64_t producer_seq;
    uint8_t producer_id[PRODUCER_ID_BYTES];
    uint32_t producer_epoch, number, key_len, body_len;
};

struct answer_frame {
    uint32_t bytes;
    uint8_t op, flags;
    uint16_t problem;
    uint64_t tag, epoch, offset, detail;
    uint32_t number, count;
};

/* Seldom: only of calls that are traced. */
struct trace_frame {
    uint32_t bytes;
    uint8_t op, flags, id_len, none;
    uint8_t trace[16], parent[8]; /* the sender's span of this hand-off */
    char id[GIVEN_ID_BYTES_MAX];  /* what the client calls its request, if it does */
};

/* A connection to or from another process. */
struct peer_conn {
    struct conn conn;
    bool outgoing;  /* calls go out on it, and answers come in */
    bool from_afar; /* adopted, of another broker */
    bool ordered;   /* its calls say FLAG_ORDERED */
    bool traces;    /* an answer said FLAG_TRACES */
    uint32_t peer;  /* which process is at the other end */
    uint8_t *back;  /* a bit for each slice of which calls are given back; NULL: of none */
    struct trace_frame *trace; /* that the next call is a part of; NULL: of none */
};

static inline struct peer_conn *peer_of(const struct conn *conn)
{
    return (struct peer_conn *)conn;
}

#endif
