/* The io_uring engine: multishot accept and receive, one submission a turn. */
#define _GNU_SOURCE
#include <errno.h>
#include <liburing.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#include "loop/loop.h"

#define SUBMISSION_ENTRIES 1024
#define COMPLETION_ENTRIES 8192
#define RECV_BUFFERS 64         /* 4 MiB, a power of two */
#define RECV_LITTLE_BUFFERS 128 /* the same */
#define RESTARTED_SHARE 8 /* of the buffers, for those in line: what is copied within one turn */
#define COMPLETION_BATCH 256

/* What a completion needs is packed into user_data: a pointer and, in its low bits, the kind. */
enum { OP_ACCEPT = 1, OP_RECV, OP_SEND, OP_WRITE, OP_POLL, OP_IGNORED, OP_WRITABLE, OP_MASK = 7 };

#define RECV_STOPPING 1u
#define RECV_LITTLE 2u
#define RECV_FULL 4u /* the last one filled its buffer: there is more */
#define SHORT_MS 1000 /* after buffers ran out */
#define LINE_NS 100000 /* the longest wait while somebody waits for a buffer */
#define LET_GO_US 500 /* without sleep while a write is under way */
#define LET_GO_NS 20000 /* a sleep that is over before it has begun lets nobody go */
#define SLACK_NS 1000 /* by which the kernel may let this thread sleep longer than it asked */

/* Buffers that receives take when there is something to receive. Who finds none or has more to say
 * waits in line, and only a few of these begin again in a turn: what is copied in a turn stays
 * small, however many send, and few tries are in vain. */
struct pool {
    struct io_uring_buf_ring *ring;
    uint8_t *buffers;
    unsigned count, bytes; /* of each */
    int group;
    struct conn *line, **line_end; /* an operation of each of them */
};

struct net_uring {
    struct net net;
    struct loop *loop;
    struct io_uring uring;
    struct pool large, little; /* little: nobody whom nothing good is known of takes the others */
    int epoll_fd;
    bool polling;
    int64_t short_ms; /* when there was no buffer for somebody */
    unsigned writes;  /* under way */
    int64_t let_go_us; /* when one began, or the core was last let go after that */
};

static struct io_uring_sqe *next_sqe(struct net_uring *u)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->uring);
    while (sqe == NULL) { /* the queue is full: make room */
        io_uring_submit(&u->uring);
        sqe = io_uring_get_sqe(&u->uring);
    }
    return sqe;
}

/* After prep_*, which since liburing 2.2 leaves user_data as it was in the reused entry. */
static void mark(struct io_uring_sqe *sqe, const void *pointer, unsigned op)
{
    sqe->user_data = (uint64_t)(uintptr_t)pointer | op;
}

static uint8_t *buffer_at(const struct pool *pool, unsigned id)
{
    return pool->buffers + (size_t)id * pool->bytes;
}

static void give_back(struct pool *pool, unsigned id)
{
    io_uring_buf_ring_add(pool->ring, buffer_at(pool, id), pool->bytes, (unsigned short)id,
                          io_uring_buf_ring_mask(pool->count), 0);
    io_uring_buf_ring_advance(pool->ring, 1);
}

static void uring_listen(struct net *net, struct listener *listener)
{
    struct net_uring *u = (struct net_uring *)net;
    struct io_uring_sqe *sqe = next_sqe(u);
    if (u->loop->accept_singly)
        io_uring_prep_accept(sqe, listener->fd, NULL, NULL, SOCK_CLOEXEC);
    else
        io_uring_prep_multishot_accept(sqe, listener->fd, NULL, NULL, SOCK_CLOEXEC);
    mark(sqe, listener, OP_ACCEPT);
    listener->armed = true;
    listener->ending = false;
}

static void uring_watch(struct net *net, int epoll_fd)
{
    ((struct net_uring *)net)->epoll_fd = epoll_fd;
}

static void uring_adopt(struct net *net, struct conn *conn)
{
    int on = 1;
    setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &on,
               sizeof on); /* not for Unix sockets: fails */
}

static struct pool *pool_of(struct net_uring *u, const struct conn *conn)
{
    return conn->engine_flags & RECV_LITTLE ? &u->little : &u->large;
}

static void stand_in_line(struct pool *pool, struct conn *conn)
{
    conn->next_short = NULL;
    conn->prev_short = pool->line_end;
    *pool->line_end = conn;
    pool->line_end = &conn->next_short;
    conn->operations++;
}

/* False: it does not stand there. */
static bool leave_line(struct pool *pool, struct conn *conn)
{
    if (conn->prev_short == NULL)
        return false;
    *conn->prev_short = conn->next_short;
    if (conn->next_short != NULL)
        conn->next_short->prev_short = conn->prev_short;
    else
        pool->line_end = conn->prev_short;
    conn->prev_short = NULL;
    conn->operations--;
    return true;
}

static void begin_receive(struct net_uring *u, struct conn *conn)
{
    struct io_uring_sqe *sqe = next_sqe(u);
    const bool little = conn->engine_flags & RECV_LITTLE;
    /* While there are more senders than buffers each gets one at a time, none a dozen at once. */
    if (little)
        io_uring_prep_recv(sqe, conn->fd, NULL, RECV_LITTLE_BYTES, 0);
    else if (u->loop->now_ms - u->short_ms < SHORT_MS)
        io_uring_prep_recv(sqe, conn->fd, NULL, RECV_BUFFER_BYTES, 0);
    else
        io_uring_prep_recv_multishot(sqe, conn->fd, NULL, 0, 0);
    sqe->flags |= IOSQE_BUFFER_SELECT;
    sqe->buf_group = (uint16_t)pool_of(u, conn)->group;
    mark(sqe, conn, OP_RECV);
    conn->operations++;
}

/* Who had more to say than a buffer takes goes on after those who wait for one. (Of those whose
 * bytes come later the kernel itself takes twenty at a time.) */
static void uring_recv_start(struct net *net, struct conn *conn)
{
    struct net_uring *u = (struct net_uring *)net;
    const bool has_more = conn->engine_flags & RECV_FULL;
    conn->engine_flags = conn->wary ? RECV_LITTLE : 0;
    if (has_more)
        stand_in_line(pool_of(u, conn), conn);
    else
        begin_receive(u, conn);
}

static void restart_some(struct net_uring *u, struct pool *pool)
{
    for (unsigned n = 0; n < pool->count / RESTARTED_SHARE && pool->line != NULL; n++) {
        struct conn *conn = pool->line;
        leave_line(pool, conn);
        begin_receive(u, conn);
    }
}

static void uring_recv_stop(struct net *net, struct conn *conn)
{
    struct net_uring *u = (struct net_uring *)net;
    if (leave_line(pool_of(u, conn), conn)) {
        conn->receiving = false;
        return;
    }
    if (conn->engine_flags & RECV_STOPPING)
        return;
    conn->engine_flags |= RECV_STOPPING;
    struct io_uring_sqe *sqe = next_sqe(u);
    io_uring_prep_cancel64(sqe, (uint64_t)(uintptr_t)conn | OP_RECV, 0);
    mark(sqe, NULL, OP_IGNORED);
}

static void uring_send(struct net *net, struct conn *conn, const void *bytes, size_t len)
{
    struct net_uring *u = (struct net_uring *)net;
    struct io_uring_sqe *sqe = next_sqe(u);
    io_uring_prep_send(sqe, conn->fd, bytes, len, MSG_NOSIGNAL);
    mark(sqe, conn, OP_SEND);
    conn->operations++;
}

static void uring_send_now(struct net *net, struct conn *conn, const struct msghdr *message)
{
    struct net_uring *u = (struct net_uring *)net;
    struct io_uring_sqe *sqe = next_sqe(u);
    /* DONTWAIT: no request that waits for room in the socket holds on to the bytes meanwhile. */
    io_uring_prep_sendmsg(sqe, conn->fd, message, MSG_NOSIGNAL | MSG_DONTWAIT);
    mark(sqe, conn, OP_SEND);
    conn->operations++;
}

/* A shut socket completes its own operations: nothing has to be cancelled. */
static void uring_close(struct net *net, struct conn *conn)
{
    leave_line(pool_of((struct net_uring *)net, conn), conn);
    shutdown(conn->fd, SHUT_RDWR);
}

static void uring_write(struct net *net, struct write *write, const void *bytes, size_t len,
                        uint64_t offset)
{
    struct net_uring *u = (struct net_uring *)net;
    struct io_uring_sqe *sqe = next_sqe(u);
    io_uring_prep_write(sqe, write->fd, bytes, (unsigned)len, offset);
    sqe->rw_flags = RWF_DSYNC;
    mark(sqe, write, OP_WRITE);
    if (u->writes++ == 0)
        u->let_go_us = u->loop->monotonic_us;
}

static bool uring_submit(struct net *net)
{
    struct net_uring *u = (struct net_uring *)net;
    if (io_uring_sq_ready(&u->uring) > 0)
        io_uring_submit(&u->uring); /* what the kernel does not take now goes with the next wait */
    return io_uring_sq_ready(&u->uring) == 0;
}

/* Many accepts at once take whatever is in the backlog before anybody can look at it. */
static void end_accepting(struct net_uring *u, struct listener *listener)
{
    struct io_uring_sqe *sqe = next_sqe(u);
    listener->ending = true;
    io_uring_prep_cancel64(sqe, (uint64_t)(uintptr_t)listener | OP_ACCEPT, 0);
    mark(sqe, NULL, OP_IGNORED);
}

static void on_accept(struct net_uring *u, struct listener *listener,
                      const struct io_uring_cqe *cqe)
{
    if (cqe->res >= 0)
        u->loop->owner->accepted(u->loop, listener, cqe->res);
    if (cqe->flags & IORING_CQE_F_MORE) {
        if (!listener->ending && u->loop->accept_singly)
            end_accepting(u, listener);
        return;
    }
    listener->armed = false;
    if (cqe->res >= 0 || cqe->res == -EAGAIN || cqe->res == -ECONNABORTED ||
        cqe->res == -ECANCELED)
        uring_listen(&u->net, listener);
    else
        u->loop->owner->accept_failed(u->loop, listener, -cqe->res);
}

static void on_recv(struct net_uring *u, struct conn *conn, const struct io_uring_cqe *cqe)
{
    bool more = cqe->flags & IORING_CQE_F_MORE;
    struct pool *pool = pool_of(u, conn);
    if (!more)
        conn->operations--;
    if (cqe->flags & IORING_CQE_F_BUFFER) {
        unsigned id = cqe->flags >> IORING_CQE_BUFFER_SHIFT;
        if (cqe->res == (int)pool->bytes)
            conn->engine_flags |= RECV_FULL;
        else
            conn->engine_flags &= ~RECV_FULL;
        if (cqe->res > 0)
            transport_received(conn, buffer_at(pool, id), (size_t)cqe->res);
        give_back(pool, id);
    }
    if (more || conn->closed)
        return;
    if (cqe->res == -ENOBUFS && !(conn->engine_flags & RECV_STOPPING)) {
        if (pool == &u->large)
            u->short_ms = u->loop->now_ms;
        stand_in_line(pool, conn);
        return;
    }
    conn->receiving = false;
    if (cqe->res > 0 || cqe->res == -ECANCELED || cqe->res == -ENOBUFS || cqe->res == -EINTR ||
        cqe->res == -EAGAIN)
        conn_mark_dirty(conn); /* starts again unless reading is stopped */
    else
        transport_receive_ended(conn, -cqe->res);
}

static void on_sent(struct net_uring *u, struct conn *conn, int result)
{
    if (result == -EAGAIN && !conn->closed) {
        struct io_uring_sqe *sqe = next_sqe(u);
        io_uring_prep_poll_add(sqe, conn->fd, POLLOUT);
        mark(sqe, conn, OP_WRITABLE);
        return;
    }
    conn->operations--;
    transport_sent(conn, result);
}

static void dispatch(struct net_uring *u, const struct io_uring_cqe *cqe)
{
    void *pointer = (void *)(uintptr_t)(cqe->user_data & ~(uint64_t)OP_MASK);
    switch (cqe->user_data & OP_MASK) {
    case OP_ACCEPT: on_accept(u, pointer, cqe); break;
    case OP_RECV: on_recv(u, pointer, cqe); break;
    case OP_SEND: on_sent(u, pointer, cqe->res); break;
    case OP_WRITABLE: on_sent(u, pointer, 0); break;
    case OP_WRITE:
        u->writes--;
        ((struct write *)pointer)->done(pointer, cqe->res);
        break;
    case OP_POLL:
        u->polling = false;
        u->loop->selector_ready = true;
        break;
    default: break;
    }
}

static void reap(struct net_uring *u)
{
    struct io_uring_cqe *batch[COMPLETION_BATCH];
    loop_clock(u->loop);
    unsigned count;
    while ((count = io_uring_peek_batch_cqe(&u->uring, batch, COMPLETION_BATCH)) > 0) {
        for (unsigned i = 0; i < count; i++)
            dispatch(u, batch[i]);
        io_uring_cq_advance(&u->uring, count);
        if (count < COMPLETION_BATCH)
            break;
    }
}

/* Where the disk knows no FUA a write ends in a thread of the kernel's on this core. The scheduler
 * lets it go before us when it wakes up, but for each write it wakes three times, and may have had
 * more than its share by then: it waits until we sleep, or for a tick of up to 4 ms. Who is busy
 * does not sleep by itself. */
static void let_go(struct net_uring *u)
{
    if (u->writes == 0 || u->loop->monotonic_us - u->let_go_us < LET_GO_US)
        return;
    const struct timespec brief = {0, LET_GO_NS};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &brief, NULL);
    loop_clock(u->loop);
    u->let_go_us = u->loop->monotonic_us;
}

static void uring_wait(struct net *net, int64_t timeout_ns)
{
    struct net_uring *u = (struct net_uring *)net;
    struct io_uring_cqe *cqe = NULL;
    bool slept = false;
    restart_some(u, &u->little);
    restart_some(u, &u->large);
    if ((u->little.line != NULL || u->large.line != NULL) && timeout_ns > LINE_NS)
        timeout_ns = LINE_NS;
    if (u->epoll_fd >= 0 && !u->polling) {
        struct io_uring_sqe *sqe = next_sqe(u);
        io_uring_prep_poll_add(sqe, u->epoll_fd, POLLIN);
        mark(sqe, NULL, OP_POLL);
        u->polling = true;
    }
    if (timeout_ns == 0) { /* Python has something to do: what is there, without going to sleep */
        io_uring_submit_and_get_events(&u->uring);
        let_go(u);
        reap(u);
        return;
    }
    if (u->loop->gather > 1 && timeout_ns > u->loop->gather_ns) {
        struct __kernel_timespec brief = {0, u->loop->gather_ns};
        slept = io_uring_cq_ready(&u->uring) < u->loop->gather;
        io_uring_submit_and_wait_timeout(&u->uring, &cqe, u->loop->gather, &brief, NULL);
    }
    if (io_uring_cq_ready(&u->uring) == 0) {
        struct __kernel_timespec limit = {timeout_ns / 1000000000, timeout_ns % 1000000000};
        slept = true;
        io_uring_submit_and_wait_timeout(&u->uring, &cqe, 1, &limit, NULL);
    }
    if (!slept)
        let_go(u);
    reap(u);
    if (slept)
        u->let_go_us = u->loop->monotonic_us;
}

static void pool_free(struct pool *pool)
{
    if (pool->ring != NULL)
        munmap(pool->ring, pool->count * sizeof(struct io_uring_buf));
    free(pool->buffers);
}

static void uring_free(struct net *net)
{
    struct net_uring *u = (struct net_uring *)net;
    io_uring_queue_exit(&u->uring);
    pool_free(&u->large);
    pool_free(&u->little);
    free(u);
}

static bool pool_register(struct net_uring *u, struct pool *pool, int group, unsigned count,
                          unsigned bytes)
{
    size_t ring_bytes = count * sizeof(struct io_uring_buf);
    *pool = (struct pool){.count = count, .bytes = bytes, .group = group};
    pool->line_end = &pool->line;
    void *ring = mmap(NULL, ring_bytes, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
    pool->buffers = aligned_alloc(4096, (size_t)count * bytes);
    if (ring != MAP_FAILED)
        pool->ring = ring;
    if (ring == MAP_FAILED || pool->buffers == NULL)
        return false;
    struct io_uring_buf_reg registration = {.ring_addr = (uint64_t)(uintptr_t)ring,
                                            .ring_entries = count,
                                            .bgid = (uint16_t)group};
    if (io_uring_register_buf_ring(&u->uring, &registration, 0) != 0)
        return false;
    io_uring_buf_ring_init(pool->ring);
    for (unsigned i = 0; i < count; i++)
        give_back(pool, i);
    return true;
}

/* The ring does from now on what is done here and nothing else: who had this process write into it
 * could not have the kernel open a file, run or send what it has no descriptor for. */
static bool restrict_and_enable(struct net_uring *u)
{
    static const uint8_t operations[] = {IORING_OP_ACCEPT,   IORING_OP_RECV,  IORING_OP_SEND,
                                         IORING_OP_SENDMSG,  IORING_OP_WRITE, IORING_OP_POLL_ADD,
                                         IORING_OP_ASYNC_CANCEL};
    enum { COUNT = sizeof operations };
    struct io_uring_restriction allowed[COUNT + 1];
    memset(allowed, 0, sizeof allowed);
    for (unsigned i = 0; i < COUNT; i++) {
        allowed[i].opcode = IORING_RESTRICTION_SQE_OP;
        allowed[i].sqe_op = operations[i];
    }
    allowed[COUNT].opcode = IORING_RESTRICTION_SQE_FLAGS_ALLOWED;
    allowed[COUNT].sqe_flags = IOSQE_BUFFER_SELECT;
    return io_uring_register_restrictions(&u->uring, allowed, COUNT + 1) == 0 &&
           io_uring_enable_rings(&u->uring) == 0;
}

struct net *net_uring_new(struct loop *loop, const char **reason)
{
    struct net_uring *u = calloc(1, sizeof *u);
    if (u == NULL)
        return NULL;
    struct io_uring_params params = {
        .flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE |
                 IORING_SETUP_CLAMP | IORING_SETUP_R_DISABLED,
        .cq_entries = COMPLETION_ENTRIES,
    };
    int status = io_uring_queue_init_params(SUBMISSION_ENTRIES, &u->uring, &params);
    if (status < 0) {
        *reason = status == -EPERM    ? "io_uring is forbidden here (seccomp or io_uring_disabled)"
                  : status == -ENOSYS ? "this kernel has no io_uring"
                  : status == -EINVAL ? "this kernel's io_uring is older than 6.1"
                  : status == -ENOMEM ? "io_uring: the locked-memory limit is too low"
                                      : "io_uring could not be set up";
        free(u);
        return NULL;
    }
    prctl(PR_SET_TIMERSLACK, SLACK_NS);
    u->net = (struct net){"io_uring", uring_free, uring_listen, uring_watch, uring_adopt,
                          uring_recv_start, uring_recv_stop, uring_send, uring_send_now,
                          uring_close, uring_write, uring_submit, uring_wait};
    u->loop = loop;
    u->epoll_fd = -1;
    if (!pool_register(u, &u->large, 1, RECV_BUFFERS, RECV_BUFFER_BYTES) ||
        !pool_register(u, &u->little, 2, RECV_LITTLE_BUFFERS, RECV_LITTLE_BYTES)) {
        *reason = "this kernel's io_uring takes no buffer rings";
        uring_free(&u->net);
        return NULL;
    }
    if (!restrict_and_enable(u)) {
        *reason = "this kernel's io_uring takes no restrictions";
        uring_free(&u->net);
        return NULL;
    }
    return &u->net;
}
