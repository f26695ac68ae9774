/* conn: one connection: bytes in, bytes out, the protocol that makes sense of them, and the
 * transport they come and go by (transport.h).
 *
 * What is spoken on a connection is a table of functions, and what it has to remember is the rest
 * of a structure that begins with this one: HTTP, hand-off and replication (broker/) know each
 * other as little as this file knows them. */
#ifndef BARCO_CONN_H
#define BARCO_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SEND_PROGRESS_BYTES (64u << 10) /* of answers; a trickle is none */
#define INPUT_KEPT_BYTES (8u << 10)     /* of a connection without input: more is given back */
#define CONN_NAME_BYTES_MAX 32u         /* of a client, by its certificate; a longer one is none */

struct loop;
struct conn;
struct output;
struct source;
struct transport;

/* What a connection of a client has under way. */
enum engaged {
    ENGAGED_NEVER,  /* has asked for nothing yet */
    ENGAGED_NOT,    /* has all answers, and may ask again */
    ENGAGED_LEAVES, /* is not heard any more: what was said is read, then it ends */
    ENGAGED,        /* asks, or waits for answers */
};

struct protocol {
    size_t bytes;  /* of the structure that begins with a struct conn */
    bool clients;  /* its connections are those of clients: counted, shed and drained, and their
                    * long answers wait. The structure begins with a struct guest (broker/), and
                    * the next four are there. */
    enum engaged (*engaged)(const struct conn *conn);
    /* Bytes that it keeps besides kept input and what is to be sent. */
    size_t (*holds)(const struct conn *conn);
    /* Gives back what it does not use of them. */
    void (*slim)(struct conn *conn);
    /* What is said to whom there is no place for, who has said nothing yet; its length. */
    size_t (*turned_away)(const struct loop *loop, char *out, size_t capacity);
    void (*opened)(struct conn *conn);
    /* What came; what is not complete is kept by conn_keep(). */
    void (*input)(struct conn *conn, const uint8_t *bytes, size_t len);
    /* Where the next input may be written before it is one, `len` bytes of memory that nobody reads
     * until then: it is not copied from there. NULL, or a NULL of it: there is no such place. */
    uint8_t *(*room)(const struct conn *conn, size_t len);
    /* Goes on with kept input after back-pressure ended. */
    void (*resume)(struct conn *conn);
    /* Whether input waits for a turn of ours. NULL: only while the connection is blocked. */
    bool (*paused)(const struct conn *conn);
    /* It had its turn, and what can be sent was. NULL: nothing to do. */
    void (*tended)(struct conn *conn);
    /* The other end sends nothing more. NULL: then it is closed. */
    void (*half_closed)(struct conn *conn);
    void (*closed)(struct conn *conn); /* once, and always before it is freed */
    void (*freed)(struct conn *conn);
    void (*deadline)(struct conn *conn, int64_t now_ms); /* about twice a second */
};

struct conn {
    struct loop *loop;
    const struct protocol *protocol;
    const struct transport *transport;
    void *wire; /* the transport's */
    size_t wire_bytes; /* of pieces that it keeps; counted in *kept too */
    struct conn *next, **prev; /* all connections */
    struct conn *next_dirty, *next_closing, *next_late;
    int fd;
    uint32_t index, generation;
    bool receiving, stopped, sending, put_off, dirty, closed, peer_eof, blocked;
    bool paused; /* the upper layer has enough for now */
    bool wary;   /* only little is read of it at a time */
    uint8_t operations; /* the engine's, still under way */
    uint32_t engine_flags;
    struct conn *next_short, **prev_short; /* of the engine: who waits for a buffer */
    uint8_t *in;
    size_t in_len, in_capacity;
    uint64_t *kept;   /* capacities of many connections together; set by the protocol */
    uint64_t *unsent; /* out_bytes of many together, or NULL */
    struct output *out_first, *out_last;
    size_t out_bytes;
    int64_t since_ms; /* start of what the deadlines count from */
    int64_t send_ms, blocked_ms;
    uint32_t send_progress; /* bytes sent since send_ms */
};

/* NULL without memory. */
struct conn *conn_new(struct loop *loop, int fd, const struct protocol *protocol,
                      const struct transport *transport);
void conn_free(struct conn *conn);
/* Adds to what is kept. False: there is no memory. */
bool conn_keep(struct conn *conn, const uint8_t *bytes, size_t len);
/* The first bytes of what was kept are used. */
void conn_used(struct conn *conn, size_t used);
/* Gives back the room for input that is kept, and what is in it. */
void conn_drop_input(struct conn *conn);
void conn_input(struct conn *conn, const uint8_t *bytes, size_t len);
void conn_resume(struct conn *conn);
void conn_close(struct conn *conn);
/* Nothing will be said after what was sent. */
void conn_shutdown(struct conn *conn);
/* It is tended before the loop waits again. */
void conn_mark_dirty(struct conn *conn);
/* Never used twice, as long as it is remembered. */
uint64_t conn_id(const struct conn *conn);

static inline bool conn_paused(const struct conn *conn)
{
    return conn->protocol->paused != NULL ? conn->protocol->paused(conn) : conn->blocked;
}

#endif
