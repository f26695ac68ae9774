/* core: what all of a worker's parts share: its loop, its log, what Python must decide, memory.
 *
 * What a part keeps for itself stands here, so that one structure has it all; what is done with it
 * is in that part's own files, each of which calls only those below it (docs/architecture.md). */
#ifndef BARCO_CORE_H
#define BARCO_CORE_H

#include "core/problem.h"
#include "core/stages.h"
#include "format/headers.h"
#include "log/log.h"
#include "loop/loop.h"

#define WORKERS_MAX 128
#define SLICES_MAX 256u /* of one range */
#define CONNECTIONS_MAX 10000
#define RING_SIZE_MAX 12288u
#define PEERS_MAX (1u << 24)
#define RING_SLICES_MAX 65536u /* slices of the whole ring */
#define ROUTE_NONE (-1)
#define ENDPOINT_BYTES_MAX 263u /* a host name has up to 253 */
#define STAGING_LANES 8
#define KEY_SCRATCH_BYTES (32u << 10) /* a whole head */
#define HEADERS_SCRATCH_BYTES (HEADERS_STORED_MAX + (32u << 10))

#define FRAME_GRACE_MS 10000 /* a frame of another broker that has begun; after that it goes on: */
#define FRAME_BYTES_PER_MS 64

struct access;
struct asked;
struct feeds;
struct guest;
struct host;
struct refusals;
struct shown;
struct spans;

#define TURNED_AWAY_MAX 8u

struct turned_away {
    int fd; /* -1: nobody */
    int64_t since_ms;
};

#define ADDRESS_CLASSES 256u /* of clients, by the hash of their address */

/* What admit.c knows of descriptors and connections. */
struct admission {
    uint32_t files_max; /* that the process may have open */
    uint32_t newest;    /* the number of the descriptor that was accepted last */
    uint32_t connections; /* of clients that are not being closed */
    uint32_t held[ADDRESS_CLASSES]; /* how many of these are whose */
    uint32_t promised;  /* of those ousted in that turn, whose room nobody has got yet */
    uint64_t promised_turn;
    int64_t nobody_ms; /* until then nobody is looked for who could go, */
    uint32_t nobody_for; /* one whose weight is this or more */
    int64_t retry_ms;  /* when to accept again; 0: nothing failed */
    int reserve;       /* a descriptor for who can not have one otherwise; -1: it is lost */
    struct turned_away away[TURNED_AWAY_MAX];
    uint32_t next_away;
    uint64_t ousted, refused; /* since start */
};

struct part {
    uint32_t number, count; /* number: a slice's in the ring, see route.c */
    uint64_t epoch, offset;
};

enum upcall_kind {
    UPCALL_REQUEST, UPCALL_ABORTED, UPCALL_APPENDED, UPCALL_SEGMENT_WANTED, UPCALL_SEGMENT_SEALED,
    UPCALL_STABLE, UPCALL_IO_ERROR, UPCALL_PEER_CLOSED, UPCALL_BUILT, UPCALL_LANDED,
    UPCALL_FRAME, UPCALL_REPLICA_CLOSED, UPCALL_SETTLED, UPCALL_HEARER, UPCALL_PRODUCED,
    UPCALL_CHECK
};

/* What is told of a listener, see feed.h. */
enum hearer_news { HEARER_GONE, HEARER_SENT, HEARER_BEHIND };

/* What run() returns to Python, a few per group at most. */
struct upcall {
    uint8_t kind;
    uint64_t id;             /* request id, tag, segment, gseq, worker or errno */
    uint8_t *head;           /* UPCALL_REQUEST, UPCALL_FRAME with its group, UPCALL_HEARER's id,
                              * UPCALL_CHECK's names, UPCALL_PRODUCED's answer: owned */
    uint32_t head_len;       /* without the group */
    struct body *body;       /* UPCALL_REQUEST, UPCALL_CHECK: owned, may be NULL */
    struct part part;        /* UPCALL_APPENDED */
    uint16_t status;         /* the same, as HTTP has it; UPCALL_HEARER: its news;
                              * UPCALL_PRODUCED: the problem, or 0; UPCALL_CHECK: see checked.h
                              */
    uint64_t pos;            /* UPCALL_BUILT: where the group lies; UPCALL_LANDED: its epoch */
    uint32_t bytes, prev_crc, header_crc;
    uint8_t name_len;        /* UPCALL_REQUEST: of whom the client's certificate names; 0: nobody */
    char name[CONN_NAME_BYTES_MAX];
};

/* When a call came, and its place among all that waited or were handed out. */
struct turn_of {
    uint64_t order;
    int64_t since_ms;
};

/* Calls that wait for who will take their slice, see park.h. */
struct parked;

struct parked_lane { /* of one slice */
    struct parked *first, *last;
    struct parked_lane *next; /* of those that have or had some; see listed */
    bool listed;
    bool again; /* the next call that goes out says FLAG_AGAIN */
    int64_t shut_ms;  /* since when nobody takes its calls; 0: somebody does */
    int64_t retry_ms; /* its leader has sent some back: not to be asked before */
};

struct park {
    uint32_t most_ms; /* how long a call waits at the most; 0: none does */
    struct parked_lane *lanes; /* by slice; made when the first has to wait */
    struct parked_lane *listed;
    uint64_t bytes;
    uint32_t count;
    bool stirred;    /* somebody may take some now */
    int64_t look_ms; /* when to look without that */
    int64_t hold_until_ms; /* until then nothing is taken for the slices that are led here */
    uint64_t order; /* of the last call that waited or was handed out */
    uint64_t waited, given_back, expired; /* since start */
};

/* A produce call handed to another process, until its answer comes. */
struct call {
    bool used;
    bool abroad; /* with who leads its slice no more: it is answered, comes back, or is given up */
    uint32_t peer, number;
    struct turn_of turn;
    uint32_t generation, next_free;
    int64_t since_ms;
    struct waiter waiter;
};

struct reactor_options {
    struct log_options log;
    uint64_t request_bytes_max, event_bytes_max, memory_max; /* bodies and queued events */
    uint32_t worker, workers; /* the shard's number in its token range, and how many it has */
    uint32_t slices, slice_first, slice_last; /* of the token range; see reactor_set_slices() */
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
#define ASKING_LANES ADDRESS_CLASSES
#define ASKING_MAX 1024u     /* that wait to be given up; then 503 */
#define ASKING_SHARE_MAX 16u /* given up in one stay of the loop, at most */
#define AWAY_US_MAX 500      /* when the upper layer takes longer it is given less */
#define ASKING_CROWD 4u      /* more than these, and they wait for appends under way, */
#define HELD_US_MAX 2000     /* so long at most since the last ones were given up */

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
    int64_t gave_us;             /* and when it was given some of these */
};

/* What was done since Python last asked. */
struct intake_news {
    bool any;
    uint64_t epoch, taken, stable, committed; /* 0: nothing new of it */
    uint32_t taken_crc, stable_crc;
};

struct intake {
    bool armed;
    uint64_t conn_id; /* the leader's connection */
    int answer_fd;    /* the connection to the leader: idle, and no byte of a frame half sent */
    struct seal *answer_seal; /* NULL: what is sent there is plain */
    uint64_t committed; /* as far as is known */
    struct intake_news news;
    uint64_t groups, sent_bytes; /* counters */
};

struct reactor {
    struct loop loop; /* the first: conn_reactor() */
    struct reactor_options options;
    struct shard *shard;
    struct log *log;
    struct asking asking;
    struct admission admission;
    struct access *access; /* who may produce what; NULL: nobody is asked */
    struct shown *shown; /* of all connections that showed something, see access.c */
    struct refusals *refusals; /* told in the log; NULL as long as access is */
    char life[13];      /* no other process has it, also none of an earlier life */
    uint64_t ids_made; /* of requests, which begin with it */
    struct feeds *feeds; /* what listeners hear; NULL: nobody has listened yet */
    struct host *hosts; /* names and origins besides addresses and localhost; NULL: any */
    struct guest *yielded, **yielded_end; /* whose requests are refused, see shed.c */
    int64_t refused_us;                  /* when they had a turn */
    uint64_t input_bytes; /* kept input of all connections */
    struct conn **peers; /* outgoing hand-off connections by peer */
    uint64_t peer_out_bytes; /* unsent on all of them */
    uint64_t peer_back_bytes; /* the same, on those that others opened */
    struct intake intake;
    uint32_t *abroad; /* by slice: calls that are */
    int32_t *routes;  /* by slice: the process that leads it, perhaps this one; or ROUTE_NONE */
    char **endpoints; /* by peer: its shard endpoint, for 421; NULL: not told yet */
    struct call *calls;
    uint32_t call_capacity, call_free;
    struct park park;
    struct upcall *upcalls;
    uint32_t upcall_count, upcall_capacity;
    uint8_t key_scratch[KEY_SCRATCH_BYTES];
    uint8_t headers_scratch[HEADERS_SCRATCH_BYTES]; /* an event's, and a value that is decoded */
    struct body *staging[STAGING_LANES]; /* by slice; each takes the next small events behind len */
    uint64_t staging_bytes;
    uint8_t *scratch; /* lengths of lines, unpacked batches */
    size_t scratch_capacity;
    uint64_t body_bytes, control_bytes, control_open;
    uint64_t withheld, withheld_bytes; /* requests that somebody looks at first; what that takes */
    uint64_t partial_bytes; /* room for frames of hand-off connections that are not whole yet */
    bool notify, draining, routed, io_failed, blocked_any;
    bool no_room; /* the disk has none for another segment */
    bool opening; /* a generation without followers has begun: its first group is told */
    bool by_certificate; /* that of a client says who it is */
    uint8_t log_format; /* the newest of logs that every broker of the ring reads */
    int64_t delay_us_max; /* how far ahead an event may be due; 0: none may be delayed */
    bool tells_settled; /* Python waits until no append is under way */
    int64_t swept_ms;
    int64_t give_up_ms; /* when to look for calls to give up before the next sweep; 0: then */
    int64_t append_us; /* how long appends take, a moving average */
    /* gather.c: a round is the time in which groups are on their way to the followers. */
    int64_t round_started_us, round_ended_us, round_us; /* the last one a moving average */
    bool round_open;
    struct stages stages;
    struct spans *spans; /* NULL: nobody asks for them */
    char token_text[24]; /* of the range, for answers */
    uint32_t token_text_len;
    char date[40];
    int64_t date_s, quiet_since_ms;
    uint64_t last_events, last_landed;
    /* counters, all since start */
    uint64_t requests, produce_requests, control_requests, problems, over_quota;
    uint64_t handed_out, handed_in, bytes_in, duplicates, aborted;
    uint8_t format_wanted; /* the newest that something was refused for */
    uint64_t shed; /* connections, closed for what they held */
};

/* Whoever has a connection has the reactor: its loop is the first thing in it. */
static inline struct reactor *conn_reactor(const struct conn *conn)
{
    return (struct reactor *)conn->loop;
}

struct upcall *reactor_upcall(struct reactor *reactor, uint8_t kind, uint64_t id);
/* Whether the disk is full, so that what comes would wait for room. */
bool reactor_disk_full(const struct reactor *reactor);
/* True when bytes more may be taken into memory. */
bool reactor_memory(const struct reactor *reactor, size_t bytes);
uint8_t *reactor_scratch(struct reactor *reactor, size_t bytes);
/* Whether events with headers or without a value may be stored; if not, it notes who asked. */
bool reactor_takes_headers(struct reactor *reactor);
/* Likewise times of 1970 and before. */
bool reactor_takes_early(struct reactor *reactor);
/* Of such a time for a topic: 0, or the problem. Who would be refused anyway asks for nothing. */
uint16_t reactor_early_problem(struct reactor *reactor, const struct topic *topic);
/* Whether another process began a frame, of which so much is here, and does not go on with it. */
bool frame_too_slow(const struct conn *conn, size_t got, int64_t now_ms);

static inline uint64_t request_id(uint64_t conn, uint32_t slot)
{
    return conn << 24 | (slot & 0xffffff);
}

#endif
