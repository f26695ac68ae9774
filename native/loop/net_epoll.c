/* The epoll engine, for kernels and containers that refuse io_uring: the same semantics, with
 * durable writes by one writer thread (pwritev2 with RWF_DSYNC). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "loop/loop.h"

#define EVENTS_BATCH 256
#define ACCEPT_BATCH 64
#define READS_PER_EVENT 4

enum { TAG_CONN, TAG_LISTENER, TAG_WRITER, TAG_SELECTOR, TAG_MASK = 7 };

struct write_job {
    struct write *write;
    const void *bytes;
    size_t len;
    uint64_t offset;
    int fd;
    int64_t result;
};

struct net_epoll {
    struct net net;
    struct loop *loop;
    int epoll_fd, event_fd;
    uint8_t buffer[RECV_BUFFER_BYTES];
    pthread_t writer;
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct write_job todo[WRITES_MAX], done[WRITES_MAX];
    unsigned todo_count, done_count;
    bool stop;
};

/* ---- writer thread ---- */

static int64_t write_durably(const struct write_job *job)
{
    struct iovec vector = {(void *)job->bytes, job->len};
    for (;;) {
        ssize_t result = pwritev2(job->fd, &vector, 1, (off_t)job->offset, RWF_DSYNC);
        if (result >= 0 || errno != EINTR)
            return result >= 0 ? result : -errno;
    }
}

static void *writer_main(void *argument)
{
    struct net_epoll *e = argument;
    pthread_mutex_lock(&e->lock);
    while (!e->stop || e->todo_count > 0) {
        if (e->todo_count == 0) {
            pthread_cond_wait(&e->work, &e->lock);
            continue;
        }
        struct write_job job = e->todo[0];
        memmove(e->todo, e->todo + 1, --e->todo_count * sizeof *e->todo);
        pthread_mutex_unlock(&e->lock);
        job.result = write_durably(&job);
        pthread_mutex_lock(&e->lock);
        e->done[e->done_count++] = job;
        uint64_t one = 1;
        if (write(e->event_fd, &one, sizeof one) < 0)
            continue; /* the counter is full: the loop is awake anyway */
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

static void epoll_write(struct net *net, struct write *write, const void *bytes, size_t len,
                        uint64_t offset)
{
    struct net_epoll *e = (struct net_epoll *)net;
    pthread_mutex_lock(&e->lock);
    e->todo[e->todo_count++] = (struct write_job){write, bytes, len, offset, write->fd, 0};
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
}

/* All is under way as soon as it is asked for. */
static bool epoll_submit(struct net *net) { return true; }

static void reap_writes(struct net_epoll *e)
{
    struct write_job done[WRITES_MAX];
    uint64_t ticks;
    if (read(e->event_fd, &ticks, sizeof ticks) < 0 && errno != EAGAIN)
        return;
    pthread_mutex_lock(&e->lock);
    unsigned count = e->done_count;
    memcpy(done, e->done, count * sizeof *done);
    e->done_count = 0;
    pthread_mutex_unlock(&e->lock);
    for (unsigned i = 0; i < count; i++)
        done[i].write->done(done[i].write, done[i].result);
}

/* ---- sockets ---- */

static void control(struct net_epoll *e, int how, int fd, void *pointer, unsigned tag,
                    uint32_t events)
{
    struct epoll_event event = {.events = events, .data.u64 = (uint64_t)(uintptr_t)pointer | tag};
    epoll_ctl(e->epoll_fd, how, fd, &event);
}

static void epoll_listen(struct net *net, struct listener *listener)
{
    listener->armed = true;
    fcntl(listener->fd, F_SETFL, fcntl(listener->fd, F_GETFL) | O_NONBLOCK);
    control((struct net_epoll *)net, EPOLL_CTL_ADD, listener->fd, listener, TAG_LISTENER, EPOLLIN);
}

static void epoll_watch(struct net *net, int epoll_fd)
{
    control((struct net_epoll *)net, EPOLL_CTL_ADD, epoll_fd, NULL, TAG_SELECTOR, EPOLLIN);
}

static void epoll_adopt(struct net *net, struct conn *conn)
{
    int on = 1;
    setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &on,
               sizeof on); /* not for Unix sockets: fails */
    conn->engine_flags = 0;
    control((struct net_epoll *)net, EPOLL_CTL_ADD, conn->fd, conn, TAG_CONN, 0);
}

static void want(struct net *net, struct conn *conn, uint32_t events)
{
    conn->engine_flags = events;
    control((struct net_epoll *)net, EPOLL_CTL_MOD, conn->fd, conn, TAG_CONN, events);
}

static void epoll_recv_start(struct net *net, struct conn *conn)
{
    want(net, conn, conn->engine_flags | EPOLLIN);
}

static void epoll_recv_stop(struct net *net, struct conn *conn)
{
    conn->receiving = false;
    want(net, conn, conn->engine_flags & ~(uint32_t)EPOLLIN);
}

static void epoll_send_now(struct net *net, struct conn *conn, const struct msghdr *message)
{
    ssize_t result = sendmsg(conn->fd, message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (result < 0 && (errno == EAGAIN || errno == EINTR)) {
        want(net, conn, conn->engine_flags | EPOLLOUT);
        return;
    }
    transport_sent(conn, result < 0 ? -errno : result);
}

static void epoll_send(struct net *net, struct conn *conn, const void *bytes, size_t len)
{
    struct iovec piece = {(void *)bytes, len};
    epoll_send_now(net, conn, &(struct msghdr){.msg_iov = &piece, .msg_iovlen = 1});
}

static void epoll_close(struct net *net, struct conn *conn)
{
    control((struct net_epoll *)net, EPOLL_CTL_DEL, conn->fd, NULL, TAG_CONN, 0);
    shutdown(conn->fd, SHUT_RDWR);
}

static void on_listener(struct net_epoll *e, struct listener *listener)
{
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            e->loop->owner->accepted(e->loop, listener, fd);
            continue;
        }
        if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)
            return;
        int error = errno;
        control(e, EPOLL_CTL_DEL, listener->fd, NULL, TAG_LISTENER, 0);
        e->loop->owner->accept_failed(e->loop, listener, error);
        return;
    }
}

static void on_readable(struct net_epoll *e, struct conn *conn)
{
    for (int i = 0; i < READS_PER_EVENT && conn->receiving && !conn->closed; i++) {
        const size_t most = conn->wary ? RECV_LITTLE_BYTES : sizeof e->buffer;
        ssize_t result = recv(conn->fd, e->buffer, most, MSG_DONTWAIT);
        if (result > 0) {
            transport_received(conn, e->buffer, (size_t)result);
            if ((size_t)result < sizeof e->buffer)
                return;
            continue;
        }
        if (result < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        want(&e->net, conn, conn->engine_flags & ~(uint32_t)EPOLLIN);
        conn->receiving = false;
        transport_receive_ended(conn, result < 0 ? errno : 0);
        return;
    }
}

static void on_conn(struct net_epoll *e, struct conn *conn, uint32_t events)
{
    if (conn->closed)
        return;
    if (events & EPOLLOUT && conn->engine_flags & EPOLLOUT) {
        want(&e->net, conn, conn->engine_flags & ~(uint32_t)EPOLLOUT);
        transport_sent(conn, 0); /* nothing went out, but now it may: send again */
    }
    if (events & EPOLLIN)
        on_readable(e, conn);
    else if (events & (EPOLLERR | EPOLLHUP))
        conn_close(conn);
}

static void epoll_engine_wait(struct net *net, int64_t timeout_ns)
{
    struct net_epoll *e = (struct net_epoll *)net;
    struct epoll_event events[EVENTS_BATCH];
    int timeout_ms = timeout_ns < 0 ? -1 : (int)((timeout_ns + 999999) / 1000000);
    int count = epoll_wait(e->epoll_fd, events, EVENTS_BATCH, timeout_ms);
    loop_clock(e->loop);
    for (int i = 0; i < count; i++) {
        void *pointer = (void *)(uintptr_t)(events[i].data.u64 & ~(uint64_t)TAG_MASK);
        switch (events[i].data.u64 & TAG_MASK) {
        case TAG_LISTENER: on_listener(e, pointer); break;
        case TAG_WRITER: reap_writes(e); break;
        case TAG_SELECTOR: e->loop->selector_ready = true; break;
        default: on_conn(e, pointer, events[i].events); break;
        }
    }
}

static void epoll_free(struct net *net)
{
    struct net_epoll *e = (struct net_epoll *)net;
    pthread_mutex_lock(&e->lock);
    e->stop = true;
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->writer, NULL);
    close(e->epoll_fd);
    close(e->event_fd);
    free(e);
}

struct net *net_epoll_new(struct loop *loop, const char **reason)
{
    struct net_epoll *e = calloc(1, sizeof *e);
    *reason = "out of memory";
    if (e == NULL)
        return NULL;
    e->net = (struct net){"epoll", epoll_free, epoll_listen, epoll_watch, epoll_adopt,
                          epoll_recv_start, epoll_recv_stop, epoll_send, epoll_send_now,
                          epoll_close, epoll_write, epoll_submit, epoll_engine_wait};
    e->loop = loop;
    e->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    e->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->work, NULL);
    if (e->epoll_fd < 0 || e->event_fd < 0 ||
        pthread_create(&e->writer, NULL, writer_main, e) != 0) {
        *reason = "epoll, eventfd or a thread could not be made: too many open files?";
        close(e->epoll_fd);
        close(e->event_fd);
        free(e);
        return NULL;
    }
    control(e, EPOLL_CTL_ADD, e->event_fd, NULL, TAG_WRITER, EPOLLIN);
    return &e->net;
}
