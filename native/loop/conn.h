/* conn: one client or sibling connection: bytes in, requests, ordered answers, bytes out. */
#ifndef BARCO_CONN_H
#define BARCO_CONN_H

#include "http/http1.h"
#include "log/run.h"

#define SLOTS_MAX 128u             /* pipelined requests without an answer; then reading stops */
#define OUTPUT_PAUSE_BYTES (256u << 10) /* unsent answers after which reading stops */
#define REFUSED_PER_TURN 16 /* requests of one connection; then others have their turn */
#define INPUT_KEPT_BYTES (8u << 10) /* of a connection without input: more is given back */
#define CONTROL_BODY_MAX (1u << 20) /* PUT and PATCH: whole sets of positions */
#define CONTROL_ASK_BODY_MAX (16u << 10) /* everything else: these may wait long with their body */
#define CONTROL_PIPELINED_MAX 8u /* of one connection; then reading stops */
#define CONTROL_REQUEST_BYTES (16u << 10) /* what one under way costs in the upper layer, at most */
#define CONTROL_MEMORY_MAX (32u << 20)   /* such bodies, of all connections; over it 503 */
#define DISCARD_BODY_MAX (256u << 10) /* a refused body this small is read over, else we close */
#define HEAD_DEADLINE_MS 10000
#define IDLE_DEADLINE_MS 300000
#define FRAME_GRACE_MS 10000 /* a frame of another broker that has begun; after that it goes on: */
#define FRAME_BYTES_PER_MS 64
#define BODY_GRACE_MS 5000
#define BODY_BYTES_PER_S 1024
#define SEND_DEADLINE_MS 30000 /* for SEND_PROGRESS_BYTES of answers, or what is left of them */
#define SEND_PROGRESS_BYTES (64u << 10)
#define LINGER_MS 2000
#define MEMORY_WAIT_MS 5000
#define TIMESTAMP_MAX (1LL << 62) /* microseconds; room for the deltas of a batch */

struct lent;
struct asked;

enum conn_kind { CONN_HTTP, CONN_PEER, CONN_REPLICA };
enum conn_state { STATE_HEAD, STATE_BODY, STATE_CHUNKED, STATE_DISCARD, STATE_LINGER };
enum slot_kind { SLOT_OPEN, SLOT_PRODUCED, SLOT_DUPLICATE, SLOT_PROBLEM, SLOT_PYTHON };

/* A piece of output: own bytes, or foreign ones that are released after sending. */
struct output {
    struct output *next;
    const uint8_t *bytes;
    uint32_t len, sent, capacity;
    void (*release)(void *owner);
    void *owner;
    struct lent *lent; /* then bytes is NULL, and own is for its message */
    uint8_t own[];
};

struct part {
    uint32_t place, count; /* place: a slice of the ring, see route.c */
    uint64_t epoch, offset;
};

/* The place of one answer in the order of its connection's requests. */
struct slot {
    uint8_t kind;
    bool head_only, minimal, close, http10_keep_alive, want_continue, control;
    uint16_t status;
    uint16_t problem;
    uint32_t waiting;  /* parts without an answer */
    uint32_t part_count;
    struct topic *topic;
    struct part part;   /* the only one, mostly */
    struct part *parts; /* more than one */
    uint32_t held;      /* bytes of the body that the upper layer has */
    uint64_t expected;  /* sequence, for a gap; shard, for 421; line number */
    struct asked *asked; /* control: it waits to be given up, see control.c */
    struct output *first, *last; /* SLOT_PYTHON, rendered */
};

enum content { CONTENT_EVENT, CONTENT_LINES, CONTENT_BATCH, CONTENT_ROWS };

/* A produce call as far as its head says. */
struct produce {
    struct topic *topic;
    uint8_t content;
    bool has_key, has_producer, one_shot, minimal, no_forward;
    int64_t place; /* asked for, -1: by key */
    int64_t timestamp;
    uint32_t key_len, producer_epoch;
    uint64_t producer_seq;
    int64_t producer_token, key_token;
    uint8_t producer_id[PRODUCER_ID_BYTES];
    const uint8_t *key;
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
    int64_t started_ms;
};

struct conn {
    struct reactor *reactor;
    struct conn *next, **prev; /* all connections */
    struct conn *next_dirty, *next_closing, *next_late;
    struct conn *next_yielded, **prev_yielded; /* prev NULL: it has not */
    int fd;
    uint32_t index, generation;
    uint8_t kind, state;
    bool receiving, stopped, sending, put_off, dirty, closed, peer_eof, blocked, outgoing;
    bool has_address;
    uint8_t address; /* the client's, hashed; when it is first needed */
    bool refuser; /* its requests were refused one after the other, and none was good since */
    bool paused; /* the upper layer has enough for now */
    bool from_afar; /* CONN_PEER: adopted, of another broker; peer says whose */
    uint8_t operations; /* the engine's, still under way */
    uint32_t peer;      /* outgoing, from_afar: which process is at the other end */
    struct frames *frames; /* CONN_REPLICA */
    uint8_t *in;
    size_t in_len, in_capacity, head_seen;
    struct request request;
    uint64_t discard;
    struct slot *slots;
    uint32_t control_open; /* slots that are or were the upper layer's */
    uint32_t slot_capacity, slot_first, slot_end; /* numbers of the oldest and the next slot */
    struct output *out_first, *out_last;
    size_t out_bytes;
    int64_t since_ms;   /* start of the state the deadlines count from */
    int64_t send_ms, blocked_ms;
    uint32_t send_progress; /* bytes sent since send_ms */
    int32_t refused;        /* requests, since it last yielded */
    uint32_t engine_flags;
    uint8_t host_len;
    char host[64]; /* the last one that was found to be ours */
    uint32_t held; /* bytes; only while some are shed */
    struct conn *next_held;
};

/* No request is begun while the answers of earlier ones wait for their turn or for the client; one
 * whose body is coming in is finished, so that a pause never makes its sender look slow. */
static inline bool conn_paused(const struct conn *conn)
{
    if (conn->kind != CONN_HTTP || conn->state != STATE_HEAD)
        return conn->blocked;
    return conn->blocked || conn->prev_yielded != NULL ||
           conn->slot_end - conn->slot_first >= SLOTS_MAX ||
           conn->control_open >= CONTROL_PIPELINED_MAX || conn->out_bytes > OUTPUT_PAUSE_BYTES;
}

/* Of who has not asked for anything good yet only little is read at a time: it is copied, kept and
 * paid for before it is known to be worth anything. */
static inline bool conn_is_wary(const struct conn *conn)
{
    return conn->kind == CONN_HTTP && (conn->slot_end == 0 || conn->refuser);
}

struct conn *conn_new(struct reactor *reactor, int fd, uint8_t kind);
void conn_free(struct conn *conn);
/* Parses what came; keeps what is not complete. */
void conn_input(struct conn *conn, const uint8_t *bytes, size_t len);
/* Goes on with kept input after back-pressure ended. */
void conn_resume(struct conn *conn);
struct slot *conn_slot(struct conn *conn, uint32_t number);
/* The slot's answer is complete: sends it once all earlier ones are. */
void conn_answer(struct conn *conn, struct slot *slot);
void conn_problem(struct conn *conn, struct slot *slot, uint16_t problem);
void conn_write(struct conn *conn, const void *bytes, size_t len);
void conn_write_foreign(struct output **first, struct output **last, const void *bytes, size_t len,
                        void (*release)(void *), void *owner);
/* Adds stored chunks that lie in the arena to what is to be sent. */
void conn_write_lent(struct output **first, struct output **last, struct lent *lent,
                     void (*release)(void *), void *owner);
struct output *output_new(size_t capacity);
void outputs_free(struct output *output);
/* Bytes of the upper layer's answers that wait to be sent, of all connections. */
uint64_t outputs_foreign_bytes(void);
/* Memory of those that wait to be sent from memory of our own. */
uint64_t outputs_own_bytes(void);
/* Tells Python of every request of the connection that it is still working on: upcall "aborted". */
void conn_abandoned(struct conn *conn);
void conn_close(struct conn *conn);
/* Called about once a second. */
void conn_deadlines(struct conn *conn, int64_t now_ms);

/* shed.c */
/* Gives back what the connection has room for and does not use. */
void conn_slim(struct conn *conn);
void conn_yield(struct conn *conn);
void conn_unyield(struct conn *conn);

/* control.c */
/* The request of a slot goes to the upper layer when its turn comes. 0: the head and the body are
 * taken; or the problem. */
uint16_t control_ask(struct conn *conn, uint32_t number, uint8_t *head, uint32_t head_len,
                     struct body *body);
/* Nobody waits for its answer any more. */
void control_forget(struct conn *conn, struct slot *slot);

/* host.c */
/* 0, or the problem: the request is for another host, or a page of another origin sent it. */
uint16_t request_origin(struct conn *conn, const struct http1_request *head);

/* answer.c */
void answer_render(struct conn *conn, struct slot *slot);
/* The problem as a whole response, after which the connection ends. The length. */
size_t answer_refusal(const struct reactor *reactor, uint16_t problem, char *out, size_t capacity);

/* produce.c */
/* Reads a produce request's head. 0, or the problem. */
uint16_t produce_head(struct conn *conn, const struct http1_request *head, struct http1_slice topic,
                      struct slot *slot, struct produce *out);
/* The body is complete: bytes[0, len), inside body when that is given. 0, or the problem; then
 * nothing was stored. */
uint16_t produce_body(struct reactor *reactor, const struct produce *produce, struct waiter waiter,
                      struct slot *slot, const uint8_t *bytes, size_t len, struct body *body,
                      uint64_t *detail);
void produce_stable(struct reactor *reactor, struct run *run);
/* The run's events were given up: perhaps stored (grouped), or certainly not. */
void produce_lost(struct reactor *reactor, struct run *run, bool grouped);
/* One slice's share of a call, here or at its owner. 0, or the problem. */
uint16_t produce_to(struct reactor *reactor, const struct produce *produce, uint32_t place,
                    struct waiter waiter, const uint8_t *bytes, size_t len, struct body *body,
                    uint64_t *detail);
/* A share that was handed over, at the process that leads the slice. 0, or the problem. */
uint16_t produce_slice(struct reactor *reactor, const struct produce *produce, uint32_t place,
                       struct waiter waiter, const uint8_t *bytes, size_t len, struct body *body,
                       uint64_t *detail);
/* One of a slot's parts has an answer. */
void slot_part_done(struct reactor *reactor, const struct waiter *waiter, uint16_t problem,
                    bool duplicate, const struct part *part, uint64_t detail);

/* Where a call without keys of its own goes. 0, or the problem. */
uint16_t choose_place(struct reactor *reactor, const struct produce *produce, uint32_t *place);
/* Checks the producer's sequence, then queues the run. 0, or the problem: then the run is gone. */
uint16_t queue_run(struct reactor *reactor, const struct produce *produce, struct run *run,
                   uint64_t *detail);
/* The body, or a copy of bytes as a new one (then *bytes leads into it). NULL without memory. */
struct body *own_body(struct reactor *reactor, const uint8_t **bytes, size_t len,
                      struct body *body);

/* batch_produce.c */
uint16_t batch_produce(struct reactor *reactor, const struct produce *produce, struct waiter waiter,
                       struct slot *slot, const uint8_t *bytes, size_t len, struct body *body,
                       uint64_t *detail);
uint16_t batch_run(struct reactor *reactor, const struct produce *produce, uint32_t place,
                   struct waiter waiter, const uint8_t *bytes, size_t len, struct body *body,
                   uint64_t *detail);

/* What is known of a batch once it has been checked. */
struct batch_outline {
    uint32_t count, bytes; /* bytes: keys and values */
    int64_t token_min, token_max, max_timestamp;
};
/* Whether the batch can be stored in this slice as it is, as one chunk. 0, or the problem. */
uint16_t batch_check(struct reactor *reactor, uint32_t slice, const uint8_t *bytes, size_t len,
                     struct batch_outline *out);

/* commit.c */
struct commit_batch {
    const uint8_t *bytes;
    size_t len;
    struct batch_outline outline;
};
/* Events of one stream that become stable together with one internal event, the mark, or not at
 * all: all are one group. */
struct commit {
    struct topic *topic, *mark_topic;
    uint32_t slice, batch_count;
    const struct commit_batch *batches;
    const uint8_t *key, *value; /* of the mark */
    uint32_t key_len, value_len;
    uint64_t tag; /* of the upcall when it is stable */
};
/* 0, or the problem: then nothing was queued. PROBLEM_BAD_BATCH: a batch fails its checksums. */
uint16_t commit_append(struct reactor *reactor, const struct commit *commit);

/* handoff.c */
void handoff_input(struct conn *conn);
/* Sends a produce call to the process that leads the slice. 0, or the problem. */
uint16_t handoff_send(struct reactor *reactor, uint32_t peer, const struct produce *produce,
                      uint32_t place, struct waiter waiter, const uint8_t *bytes, size_t len);
void handoff_answer(struct reactor *reactor, const struct waiter *waiter, uint16_t problem,
                    bool duplicate, const struct part *part, uint64_t detail);
void handoff_lost(struct reactor *reactor, struct conn *conn);
/* The shard has another leader now: what the old one was sent is waited for only briefly. */
void handoff_rerouted(struct reactor *reactor, uint32_t shard, uint32_t peer);
/* Answers calls that were handed out too long ago: nobody waits for ever. */
void handoff_deadlines(struct reactor *reactor);

enum problem {
    PROBLEM_NONE,
    PROBLEM_BAD_REQUEST,
    PROBLEM_BAD_QUERY,
    PROBLEM_UNKNOWN_NAME,
    PROBLEM_BAD_TOPIC,
    PROBLEM_RESERVED_TOPIC,
    PROBLEM_BAD_KEY,
    PROBLEM_BAD_TIMESTAMP,
    PROBLEM_BAD_PRODUCER,
    PROBLEM_BAD_SLICE,
    PROBLEM_NO_EVENTS,
    PROBLEM_BAD_BATCH,
    PROBLEM_BAD_CHUNKED,
    PROBLEM_UNKNOWN_TOPIC,
    PROBLEM_METHOD,
    PROBLEM_LENGTH_REQUIRED,
    PROBLEM_EVENT_TOO_LARGE,
    PROBLEM_BODY_TOO_LARGE,
    PROBLEM_HEAD_TOO_LARGE,
    PROBLEM_URI_TOO_LONG,
    PROBLEM_EXPECTATION,
    PROBLEM_ENCODING,
    PROBLEM_MISDIRECTED,
    PROBLEM_STALE_EPOCH,
    PROBLEM_GAP,
    PROBLEM_TIMEOUT,
    PROBLEM_BUSY,
    PROBLEM_NOT_READY,
    PROBLEM_NO_LEADER,
    PROBLEM_TOO_MANY_TOPICS,
    PROBLEM_UNKNOWN_OUTCOME,
    PROBLEM_VERSION,
    PROBLEM_NOT_IMPLEMENTED,
    PROBLEM_SPLIT_PRODUCER,
    PROBLEM_DISK_FULL,
    PROBLEM_FAR_TIMESTAMP,
    PROBLEM_CROWDED,
    PROBLEM_FULL,
    PROBLEM_FOREIGN_HOST,
    PROBLEM_FOREIGN_ORIGIN,
    PROBLEM_COUNT
};

#endif
