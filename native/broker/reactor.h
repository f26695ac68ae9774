/* reactor: a worker's event loop: connections, the log's appends, and what Python must decide. */
#ifndef BARCO_REACTOR_H
#define BARCO_REACTOR_H

#include "loop/conn.h"
#include "broker/intake.h"
#include "log/log.h"
#include "loop/net.h"

#define LISTENERS_MAX 16
#define WORKERS_MAX 256
#define PEERS_MAX (1u << 20)
#define PLACES_MAX 65536u /* slices of the whole ring */
#define ROUTE_NONE (-1)
#define SWEEP_MS 500
#define STAGING_LANES 8

struct listener {
    int fd;
    uint8_t kind;
    bool armed, ending; /* ending: the engine has been told to stop accepting many at once */
};

#define TURNED_AWAY_MAX 8u

struct turned_away {
    int fd; /* -1: nobody */
    int64_t since_ms;
};

/* What admit.c knows of descriptors and places. */
struct admission {
    uint32_t files_max; /* that the process may have open */
    uint32_t newest;    /* the number of the descriptor that was accepted last */
    uint32_t places;    /* connections with HTTP that are not being closed */
    uint32_t promised;  /* of those ousted in that turn, whose place nobody has got yet */
    uint64_t promised_turn;
    int64_t nobody_ms; /* until then nobody is looked for who could go */
    int64_t retry_ms;  /* when to accept again; 0: nothing failed */
    int reserve;       /* a descriptor for who can not have one otherwise; -1: it is lost */
    struct turned_away away[TURNED_AWAY_MAX];
    uint32_t next_away;
    uint64_t ousted, refused; /* since start */
};

enum upcall_kind {
    UPCALL_REQUEST, UPCALL_ABORTED, UPCALL_APPENDED, UPCALL_SEGMENT_WANTED, UPCALL_SEGMENT_SEALED,
    UPCALL_STABLE, UPCALL_IO_ERROR, UPCALL_PEER_CLOSED, UPCALL_BUILT, UPCALL_LANDED,
    UPCALL_FRAME, UPCALL_REPLICA_CLOSED
};

/* What run() returns to Python, a few per group at most. */
struct upcall {
    uint8_t kind;
    uint64_t id;             /* request id, tag, segment, gseq, worker or errno */
    uint8_t *head;           /* UPCALL_REQUEST, and UPCALL_FRAME with its group: owned */
    uint32_t head_len;       /* without the group */
    struct body *body;       /* UPCALL_REQUEST: owned, may be NULL */
    struct part part;        /* UPCALL_APPENDED */
    uint16_t status;         /* the same, as HTTP has it */
    uint64_t pos;            /* UPCALL_BUILT: where the group lies; UPCALL_LANDED: its epoch */
    uint32_t bytes, prev_crc, header_crc;
};

/* A produce call handed to another process, until its answer comes. */
struct call {
    bool used;
    uint32_t peer, shard;
    uint32_t generation, next_free;
    int64_t since_ms;
    struct waiter waiter;
};

/* Who leads a shard. */
struct route {
    int32_t peer;      /* a process of the cluster, perhaps this one; or ROUTE_NONE */
    char endpoint[264]; /* its shard endpoint (a host name has up to 253), for 421 */
};

struct reactor_options {
    struct log_options log;
    uint64_t request_bytes_max, event_bytes_max, memory_max; /* bodies and queued events */
    uint32_t worker, workers; /* the shard's number in its token range, and how many it has */
    uint32_t slices, slice_first, slice_last; /* of the token range */
    uint32_t ring_size, range_index; /* 0 brokers: 1 */
    uint32_t peer, peers; /* this process among all of the cluster; 0 peers: as worker, workers */
    uint32_t connections_max;
    int64_t range_start; /* token of the ring's first range */
    uint64_t range_width, slice_width; /* these three by route_init() */
    uint32_t slice_shift;
    bool auto_create;
    int engine; /* 0 auto, 1 io_uring, 2 epoll */
};

/* Requests for the upper layer, by the hash of their client's address. */
#define ASKING_LANES 256u
#define ASKING_MAX 1024u     /* that wait to be given up; then 503 */
#define ASKING_SHARE_MAX 16u /* given up in one stay of the loop, at most */
#define AWAY_US_MAX 2000     /* when the upper layer takes longer it is given less */

struct lane {
    struct lane *next;
    struct asked *oldest, *newest;
    uint32_t count;
    bool lined_up;
};

struct asking {
    struct lane lanes[2][ASKING_LANES]; /* [1]: whose connection has nothing else under way */
    struct lane *first[2], *last[2];    /* the rounds of those that wait */
    uint32_t count, share, turn;
    uint32_t open[ASKING_LANES]; /* without an answer yet, given up or not */
    int64_t left_us;             /* when the upper layer's turn began */
};

struct reactor {
    struct reactor_options options;
    struct net *net;
    const char *engine_reason; /* why io_uring is not used; NULL where it is */
    struct shard *shard;
    struct log *log;
    struct listener listeners[LISTENERS_MAX];
    uint32_t listener_count;
    struct conn *conns; /* list */
    struct conn **table;
    uint32_t table_capacity, table_used, conn_count;
    uint32_t *table_free, table_free_count;
    uint32_t next_generation;
    struct conn *dirty, *closing;
    struct conn *urgent, **urgent_end; /* dirty, and to be tended first */
    struct asking asking;
    struct admission admission;
    struct host *hosts; /* names and origins besides addresses and localhost; NULL: any */
    struct conn *yielded, **yielded_end; /* whose requests are refused, see shed.c */
    int64_t refused_us;                  /* when they had a turn */
    uint64_t input_bytes; /* kept input of all connections */
    struct conn *late_first, *late_last; /* whose answers are put off, see send.c */
    struct conn **peers; /* outgoing hand-off connections by peer */
    uint64_t peer_out_bytes; /* unsent on all of them */
    struct intake intake;
    struct route *routes; /* by shard */
    struct call *calls;
    uint32_t call_capacity, call_free;
    struct upcall *upcalls;
    uint32_t upcall_count, upcall_capacity;
    uint8_t key_scratch[HTTP1_HEAD_BYTES_MAX];
    struct body *staging[STAGING_LANES]; /* by slice; each takes the next small events behind len */
    uint64_t staging_bytes;
    uint8_t *scratch; /* lengths of lines, unpacked batches */
    size_t scratch_capacity;
    uint64_t body_bytes, control_bytes, control_open;
    uint64_t partial_bytes; /* room for frames of hand-off connections that are not whole yet */
    bool selector_ready, notify, draining, routed, io_failed, blocked_any, disk_full;
    bool opening; /* a generation without followers has begun: its first group is told */
    int64_t now_ms, wall_us, swept_ms, monotonic_us;
    int64_t give_up_ms; /* when to look for calls to give up before the next sweep; 0: then */
    int64_t append_us; /* how long appends take, a moving average */
    /* gather.c: a round is the time in which groups are on their way to the followers. */
    int64_t round_started_us, round_ended_us, round_us; /* the last one a moving average */
    bool round_open;
    char token_text[24]; /* of the range, for answers */
    uint32_t token_text_len;
    char date[40];
    int64_t date_s, quiet_since_ms;
    uint64_t last_events, last_landed;
    /* counters, all since start */
    uint64_t requests, produce_requests, control_requests, problems, connections_total;
    uint64_t handed_out, handed_in, bytes_in, bytes_out, duplicates, aborted, turns;
    uint64_t shed; /* connections, closed for what they held */
};

struct reactor *reactor_new(const struct reactor_options *options, const char **error);
void reactor_free(struct reactor *reactor);
int reactor_listen(struct reactor *reactor, int fd, uint8_t kind);
int reactor_attach_peer(struct reactor *reactor, uint32_t peer, int fd);
/* Takes a connection that this process of another broker has opened to hand events off; it has one,
 * and what it opened before is closed. */
int reactor_adopt_peer(struct reactor *reactor, int fd, uint32_t peer);
/* Takes a connection. NULL without memory. */
struct conn *reactor_adopt(struct reactor *reactor, int fd, uint8_t kind);
/* Takes a connection that another replica of the shard has opened. NULL without memory. */
struct conn *reactor_adopt_replica(struct reactor *reactor, int fd, uint32_t group_bytes_max);
/* One stay in the loop: until upcalls, a ready selector or the time-out. timeout_ns -1: for ever.
 */
void reactor_run(struct reactor *reactor, int64_t timeout_ns);
struct upcall *reactor_upcall(struct reactor *reactor, uint8_t kind, uint64_t id);
struct conn *reactor_conn(struct reactor *reactor, uint64_t conn_id);
uint64_t conn_id(const struct conn *conn);
void reactor_mark_dirty(struct reactor *reactor, struct conn *conn);
/* Marks it dirty before all those that were marked otherwise, in the order of these calls. */
void reactor_mark_urgent(struct reactor *reactor, struct conn *conn);
/* True when bytes more may be taken into memory. */
bool reactor_memory(const struct reactor *reactor, size_t bytes);
uint8_t *reactor_scratch(struct reactor *reactor, size_t bytes);
void reactor_clock(struct reactor *reactor);
void reactor_drain(struct reactor *reactor);
/* Ends the generation here: no append, no acknowledgement any more. Waiting calls are answered. */
void reactor_fence(struct reactor *reactor);
/* True when no append is under way and every answer has been handed to the kernel. */
bool reactor_idle(const struct reactor *reactor);

/* send.c */
/* Sends what waits first on the connection, now or by send_late(). */
void send_ready(struct reactor *reactor, struct conn *conn);
/* Once a turn, after everything else: a portion of what was put off. */
void send_late(struct reactor *reactor);
/* Before the connection is freed. */
void send_forget(struct reactor *reactor, struct conn *conn);

/* control.c */
/* Hands some of the requests that wait to the upper layer. */
void control_give_up(struct reactor *reactor);
/* How long the upper layer took for the last ones. */
void control_pace(struct reactor *reactor, int64_t away_us);

/* host.c */
bool reactor_add_host(struct reactor *reactor, const char *text, size_t len);
void hosts_free(struct reactor *reactor);

/* admit.c */
void admit_init(struct reactor *reactor);
void admit_free(struct reactor *reactor);
/* Whether connections are accepted one at a time, because many at once could use up descriptors. */
bool admit_singly(const struct reactor *reactor);
/* Starts listeners that have stopped. */
void admit_again(struct reactor *reactor);
/* Twice a second. */
void admit_sweep(struct reactor *reactor);

/* shed.c */
/* Once a turn: closes connections while all of them hold more than they may. */
void shed_held(struct reactor *reactor);
/* Closes connections that read nothing, until so many bytes of answers are free; how many are. */
uint64_t shed_answers(struct reactor *reactor, uint64_t bytes);
/* In how many microseconds it is their turn; INT32_MAX: there are none. */
int64_t refuse_in_us(const struct reactor *reactor);
/* Some of those that have yielded go on. */
void resume_yielded(struct reactor *reactor);
/* Once a turn: connections that waited for memory go on, where some came free. */
void unblock(struct reactor *reactor);

/* gather.c */
/* A group was built; those on their way may all be committed. */
void gather_built(struct reactor *reactor);
void gather_ended(struct reactor *reactor);
/* How much longer the queue had better gather, in microseconds; 0: build now. */
int64_t gather_left_us(const struct reactor *reactor);

/* route.c */
bool route_init(struct reactor *reactor);
/* -1: there is no such shard or peer, or this process can not lead it. */
int reactor_set_route(struct reactor *reactor, uint32_t shard, int32_t peer, const char *endpoint);
int64_t range_token(const struct reactor *reactor, uint32_t range);
int64_t place_token(const struct reactor *reactor, uint32_t place);
uint32_t place_of_token(const struct reactor *reactor, int64_t token);
/* Of a slice of this process's token range. */
uint32_t place_of_slice(const struct reactor *reactor, uint32_t slice);
uint32_t place_for_keyless(const struct reactor *reactor);
uint32_t shard_of_place(const struct reactor *reactor, uint32_t place);
/* Whether this process holds the place's shard. */
bool place_is_ours(const struct reactor *reactor, uint32_t place);

static inline uint64_t request_id(uint64_t conn, uint32_t slot)
{
    return conn << 24 | (slot & 0xffffff);
}

#endif
