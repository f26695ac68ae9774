/* reactor: a worker's event loop: connections, the log's appends, and what Python must decide. */
#ifndef BARCO_REACTOR_H
#define BARCO_REACTOR_H

#include "conn.h"
#include "log.h"
#include "net.h"

#define LISTENERS_MAX 16
#define WORKERS_MAX 256
#define SWEEP_MS 500

struct listener {
    int fd;
    uint8_t kind;
    bool armed;
};

enum upcall_kind {
    UPCALL_REQUEST, UPCALL_ABORTED, UPCALL_APPENDED, UPCALL_SEGMENT_WANTED, UPCALL_SEGMENT_SEALED,
    UPCALL_STABLE, UPCALL_IO_ERROR, UPCALL_PEER_CLOSED
};

/* What run() returns to Python, a few per group at most. */
struct upcall {
    uint8_t kind;
    uint64_t id;             /* request id, tag, segment, gseq, worker or errno */
    uint8_t *head;           /* UPCALL_REQUEST: owned */
    uint32_t head_len;
    struct body *body;       /* UPCALL_REQUEST: owned, may be NULL */
    struct part part;        /* UPCALL_APPENDED */
};

/* A produce call handed to a sibling, until its answer comes. */
struct call {
    bool used;
    uint16_t worker;
    uint32_t generation, next_free;
    struct waiter waiter;
};

struct reactor_options {
    struct log_options log;
    uint64_t request_bytes_max, event_bytes_max, memory_max; /* bodies and queued events */
    uint32_t worker, workers, slices, slice_first, slice_last;
    uint32_t connections_max;
    uint64_t slice_width;
    int64_t range_start; /* token of slice 0 */
    bool auto_create;
    int engine; /* 0 auto, 1 io_uring, 2 epoll */
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
    struct conn *peers[WORKERS_MAX]; /* outgoing hand-off connections by worker */
    struct call *calls;
    uint32_t call_capacity, call_free;
    struct upcall *upcalls;
    uint32_t upcall_count, upcall_capacity;
    char endpoints[WORKERS_MAX][64]; /* shard endpoints, for 421 */
    uint8_t key_scratch[HTTP1_HEAD_BYTES_MAX];
    struct body *staging; /* takes the next small events; its len is what is used */
    uint64_t staging_bytes;
    uint8_t *scratch; /* lengths of lines, unpacked batches */
    size_t scratch_capacity;
    uint64_t body_bytes, control_bytes, control_open;
    bool selector_ready, notify, draining, io_failed, blocked_any, disk_full;
    int64_t now_ms, wall_us, swept_ms, monotonic_us;
    int64_t append_us; /* how long appends take, a moving average */
    char token_text[24]; /* of the range, for answers */
    uint32_t token_text_len;
    char date[40];
    int64_t date_s, quiet_since_ms;
    uint64_t last_events;
    /* counters, all since start */
    uint64_t requests, produce_requests, control_requests, problems, connections_total;
    uint64_t handed_out, handed_in, bytes_in, bytes_out, duplicates, aborted, turns;
};

struct reactor *reactor_new(const struct reactor_options *options, const char **error);
void reactor_free(struct reactor *reactor);
int reactor_listen(struct reactor *reactor, int fd, uint8_t kind);
int reactor_attach_peer(struct reactor *reactor, uint32_t worker, int fd);
/* One stay in the loop: until upcalls, a ready selector or the time-out. timeout_ns -1: for ever.
 */
void reactor_run(struct reactor *reactor, int64_t timeout_ns);
struct upcall *reactor_upcall(struct reactor *reactor, uint8_t kind, uint64_t id);
struct conn *reactor_conn(struct reactor *reactor, uint64_t conn_id);
uint64_t conn_id(const struct conn *conn);
void reactor_mark_dirty(struct reactor *reactor, struct conn *conn);
/* True when bytes more may be taken into memory. */
bool reactor_memory(const struct reactor *reactor, size_t bytes);
uint8_t *reactor_scratch(struct reactor *reactor, size_t bytes);
uint32_t slice_of_token(const struct reactor *reactor, int64_t token);
uint32_t worker_of_slice(const struct reactor *reactor, uint32_t slice);
void reactor_clock(struct reactor *reactor);
void reactor_drain(struct reactor *reactor);
/* True when no append is under way and every answer has been handed to the kernel. */
bool reactor_idle(const struct reactor *reactor);

static inline uint64_t request_id(uint64_t conn, uint32_t slot)
{
    return conn << 24 | (slot & 0xffffff);
}

#endif
