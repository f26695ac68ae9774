/* loop: connections and listeners, the kernel below them, and whose turn it is. It knows neither
 * what is said on a connection nor what is done about it: protocols do (conn.h), and its owner. */
#ifndef BARCO_LOOP_H
#define BARCO_LOOP_H

#include "loop/conn.h"
#include "loop/net.h"
#include "loop/transport.h"

#define LISTENERS_MAX 16

struct listener {
    int fd;
    const struct protocol *protocol;
    const struct transport *transport; /* of those who come */
    bool armed, ending; /* ending: the engine has been told to stop accepting many at once */
};

/* What the loop asks of whoever it is a part of. */
struct loop_owner {
    /* The clocks were read, so long after the last time; -1: for the first time. */
    void (*ticked)(struct loop *loop, int64_t elapsed_us);
    /* Somebody has come: adopts the descriptor, or closes it. */
    void (*accepted)(struct loop *loop, struct listener *listener, int fd);
    void (*accept_failed)(struct loop *loop, struct listener *listener, int error);
};

struct tls_wires;

struct loop {
    const struct loop_owner *owner;
    struct net *net;
    struct tls_wires *tls; /* tls.h; NULL: nobody is to seal anything */
    const char *engine_reason; /* why io_uring is not used; NULL where it is */
    struct listener listeners[LISTENERS_MAX];
    uint32_t listener_count;
    bool accept_singly; /* many accepts at once could use up descriptors */
    struct conn *conns; /* list */
    struct conn **table;
    uint32_t table_capacity, table_used, conn_count;
    uint32_t *table_free, table_free_count;
    uint32_t next_generation;
    struct conn *dirty, *dirty_last; /* in the order in which they became it; the last of some */
    struct conn *closing;
    struct conn *late_first, *late_last; /* whose answers are put off, see send.c */
    bool selector_ready;
    /* How many completions are worth waking up for, and how long to wait for so many; 0 or 1: each
     * is. Set by the owner before it waits. */
    unsigned gather;
    int64_t gather_ns;
    int64_t now_ms, wall_us, monotonic_us;
    uint64_t connections_total, bytes_out, turns; /* since start */
};

/* engine: 0 auto, 1 io_uring, 2 epoll. False, and *error says why. */
bool loop_init(struct loop *loop, const struct loop_owner *owner, int engine, const char **error);
/* Closes all connections, with their last words, and frees them. */
void loop_free(struct loop *loop);
int loop_listen(struct loop *loop, int fd, const struct protocol *protocol,
                const struct transport *transport);
/* Takes a connection. NULL without memory. */
struct conn *loop_adopt(struct loop *loop, int fd, const struct protocol *protocol,
                        const struct transport *transport);
struct conn *loop_conn(struct loop *loop, uint64_t conn_id);
/* Reads the clocks: once a turn. */
void loop_clock(struct loop *loop);
int64_t monotonic_us(void);
/* Submits, waits, and takes what came. */
void loop_wait(struct loop *loop, int64_t timeout_ns);
/* What came in or was asked for goes on. */
void loop_tend(struct loop *loop);
/* Closed connections go when the engine has none of their operations left, and never in the middle
 * of a turn: whoever closes one may still hold it. */
void loop_reap(struct loop *loop);
void loop_deadlines(struct loop *loop);

/* Callbacks of the transports, in bytes of the protocol. A send that was the transport's own ends
 * with 0. */
void loop_received(struct conn *conn, const uint8_t *bytes, size_t len);
void loop_receive_ended(struct conn *conn, int error);
void loop_sent(struct conn *conn, int64_t result);

#endif
