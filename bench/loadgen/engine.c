#include "loadgen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define RECEIVE_BYTES (256 * 1024)
#define CARRY_BYTES_MAX (16 * 1024)
#define COPY_BYTES_MAX 4096 /* Bodies up to this size are copied behind their heads. */
#define DISCARD_BYTES_MIN (64 * 1024)
#define RECONNECTS_MAX 1000
#define SILENCE_NS 20000000000ull /* No answer for so long: the server hangs. */

uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static int fail(struct loadgen *g, const char *what)
{
    if (!g->first_error[0])
        snprintf(g->first_error, sizeof g->first_error, "%s", what);
    return -1;
}

static int fail_errno(struct loadgen *g, const char *what)
{
    char text[160];
    snprintf(text, sizeof text, "%s: %s", what, strerror(errno));
    return fail(g, text);
}

/* ---- sending ---- */

static void add_piece(struct conn *c, const char *p, size_t len)
{
    struct iovec *last = c->piece_count ? &c->pieces[c->piece_count - 1] : NULL;
    if (last && (const char *)last->iov_base + last->iov_len == p)
        last->iov_len += len;
    else
        c->pieces[c->piece_count++] = (struct iovec){(void *)(uintptr_t)p, len};
}

static void prepare(struct loadgen *g, struct conn *c, uint32_t depth)
{
    const struct options *o = &g->options;
    const struct request_template *t = &g->templates[c->index % o->path_count];
    char *out = c->out;
    c->piece_at = c->piece_count = c->batch_done = 0;
    for (uint32_t i = 0; i < depth; i++) {
        uint64_t number = g->next_request++;
        struct body body = {0};
        if (!o->no_body) {
            body = g->pool.bodies[g->next_body];
            if (++g->next_body == g->pool.count)
                g->next_body = 0;
        }
        struct request_values values = {
            .topic = o->topics ? number % o->topics : 0,
            .key = o->key_base + (o->keys ? number % o->keys : number),
            .length = body.len,
            .cursor = c->cursor,
            .cursor_len = c->cursor_len,
        };
        size_t head = request_render(t, &values, out);
        add_piece(c, out, head);
        out += head;
        if (body.len && body.len <= COPY_BYTES_MAX) {
            memcpy(out, body.p, body.len);
            add_piece(c, out, body.len);
            out += body.len;
        } else if (body.len) {
            add_piece(c, body.p, body.len);
        }
        if (o->resp) {
            memcpy(out, "\r\n", 2);
            add_piece(c, out, 2);
            out += 2;
        }
        c->events[i] = body.events;
        c->bytes[i] = body.len;
    }
    c->outstanding = depth;
    g->busy++;
}

/* Writes what is left of the batch: 1 all written, 0 the socket is full, -1 lost. */
static int flush(struct conn *c)
{
    while (c->piece_at < c->piece_count) {
        struct iovec *v = &c->pieces[c->piece_at];
        uint32_t n = c->piece_count - c->piece_at;
        ssize_t sent = n == 1 ? send(c->fd, v->iov_base, v->iov_len, MSG_NOSIGNAL)
                              : writev(c->fd, v, (int)n);
        if (sent < 0) {
            if (errno == EINTR)
                continue;
            c->sending = errno == EAGAIN;
            return c->sending ? 0 : -1;
        }
        while (sent > 0 && (size_t)sent >= v->iov_len) {
            sent -= (ssize_t)v->iov_len;
            v++;
            c->piece_at++;
        }
        if (sent > 0) {
            v->iov_base = (char *)v->iov_base + sent;
            v->iov_len -= (size_t)sent;
        }
    }
    c->sending = false;
    return 1;
}

static uint32_t depth_now(const struct loadgen *g)
{
    uint64_t total = g->options.requests;
    if (g->stopping || (total && g->next_request >= total))
        return 0;
    uint64_t left = total ? total - g->next_request : UINT64_MAX;
    return left < g->options.depth ? (uint32_t)left : g->options.depth;
}

static int next_batch(struct loadgen *g, struct conn *c)
{
    uint32_t depth = c->ended ? 0 : depth_now(g);
    if (depth == 0) {
        if (!c->ended) {
            c->ended = true;
            g->live--;
        }
        return 0;
    }
    prepare(g, c, depth);
    c->sent_ns = now_ns();
    return flush(c) < 0 ? -1 : 0;
}

/* ---- connections ---- */

static int open_connection(struct loadgen *g, struct conn *c)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(g->options.port)};
    if (inet_pton(AF_INET, g->options.host, &address.sin_addr) != 1)
        return fail(g, "--host wants an IPv4 address");
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address) < 0)
        return fail_errno(g, "cannot connect");
    int one = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (fcntl(c->fd, F_SETFL, O_NONBLOCK) < 0)
        return fail_errno(g, "cannot make a connection non-blocking");
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                .data.ptr = c};
    if (epoll_ctl(g->epoll, EPOLL_CTL_ADD, c->fd, &event) < 0)
        return fail_errno(g, "cannot watch a connection");
    c->carry_len = 0;
    c->in_body = c->sending = c->closes = false;
    return 0;
}

static int make_connection(struct loadgen *g, uint32_t index)
{
    const struct options *o = &g->options;
    struct conn *c = &g->conns[index];
    c->index = index;
    c->carry = malloc(CARRY_BYTES_MAX);
    c->out = malloc((size_t)o->depth * (REQUEST_HEAD_BYTES_MAX + COPY_BYTES_MAX + 2));
    c->pieces = calloc((size_t)o->depth * 3, sizeof *c->pieces);
    if (!c->carry || !c->out || !c->pieces)
        return fail(g, "out of memory");
    c->cursor_len = (uint32_t)strlen(o->cursor_start);
    memcpy(c->cursor, o->cursor_start, c->cursor_len);
    return open_connection(g, c);
}

/* The connection is gone: whatever it still owed is an error; a new one takes its place. */
static int replace_connection(struct loadgen *g, struct conn *c, const char *why)
{
    if (c->outstanding) {
        g->counters.errors += c->outstanding;
        c->outstanding = 0;
        g->busy--;
        (void)fail(g, why);
    }
    close(c->fd);
    c->fd = -1;
    if (++g->reconnects > RECONNECTS_MAX)
        return fail(g, "the server closes one connection after another");
    return open_connection(g, c) < 0 ? -1 : next_batch(g, c);
}

/* ---- receiving ---- */

static void note_error(struct loadgen *g, const char *p, const char *end)
{
    g->counters.errors++;
    if (g->first_error[0])
        return;
    int shown = end - p > 480 ? 480 : (int)(end - p);
    snprintf(g->first_error, sizeof g->first_error, "%.*s", shown, p);
}

static void follow_cursor(struct loadgen *g, struct conn *c, const struct answer *a)
{
    const struct options *o = &g->options;
    bool end = a->status == 204 || a->body_len == 0 || !a->cursor ||
               a->cursor_len >= CURSOR_BYTES_MAX;
    if (!end) {
        memcpy(c->cursor, a->cursor, a->cursor_len);
        c->cursor_len = a->cursor_len;
        return;
    }
    g->counters.ends++;
    c->cursor_len = (uint32_t)strlen(o->cursor_start);
    memcpy(c->cursor, o->cursor_start, c->cursor_len);
    if (o->cursor_stop && !c->ended) {
        c->ended = true;
        g->live--;
    }
}

static void count_answer(struct loadgen *g, struct conn *c, const struct answer *a,
                         const char *head, const char *end, uint64_t now)
{
    uint32_t i = c->batch_done++;
    if (a->status > 0 && a->status < 600)
        g->counters.statuses[a->status]++;
    if (a->status >= 200 && a->status < 300) {
        g->counters.requests++;
        g->counters.events += c->events[i];
        g->counters.bytes_sent += c->bytes[i];
        histogram_add(&g->latency, now - c->sent_ns, 1);
    } else {
        note_error(g, head, end);
    }
    if (g->options.cursor_header)
        follow_cursor(g, c, a);
    c->closes |= a->closes;
}

static void answer_done(struct loadgen *g, struct conn *c)
{
    c->in_body = false;
    if (--c->outstanding == 0)
        g->busy--;
}

/* Takes answers out of [p, end); the bytes of an incomplete head go to carry. 0, or -1. */
static int consume(struct loadgen *g, struct conn *c, const char *p, const char *end, uint64_t now)
{
    const char *wanted = g->options.cursor_header;
    while (p < end) {
        if (c->in_body) {
            uint64_t n = (uint64_t)(end - p) < c->body_left ? (uint64_t)(end - p) : c->body_left;
            p += n;
            c->body_left -= n;
            g->counters.bytes_received += n;
            if (c->body_left == 0)
                answer_done(g, c);
            continue;
        }
        if (c->outstanding == 0)
            return fail(g, "the server sent more answers than it had requests");
        struct answer a;
        size_t left = (size_t)(end - p);
        long head = g->options.resp ? resp_answer(p, left, &a) : http_answer(p, left, wanted, &a);
        if (head < 0)
            return fail(g, "an answer that cannot be read");
        if (head == 0) {
            if (left > CARRY_BYTES_MAX)
                return fail(g, "an answer's head of more than 16 KiB");
            memmove(c->carry, p, left);
            c->carry_len = (uint32_t)left;
            return 0;
        }
        p += head;
        if (a.status < 200)
            continue;
        count_answer(g, c, &a, p - head, end, now);
        c->body_left = a.body_len;
        c->in_body = true;
        if (a.body_len == 0)
            answer_done(g, c);
    }
    return 0;
}

/* Bytes nobody looks at are dropped in the kernel, so that reading is not what the client does. */
static ssize_t receive(struct loadgen *g, struct conn *c, size_t *asked)
{
    if (g->options.discard && c->in_body && c->body_left >= DISCARD_BYTES_MIN) {
        *asked = c->body_left > (1u << 30) ? 1u << 30 : c->body_left;
        ssize_t n = recv(c->fd, NULL, *asked, MSG_TRUNC | MSG_DONTWAIT);
        if (n > 0) {
            c->body_left -= (uint64_t)n;
            g->counters.bytes_received += (uint64_t)n;
            if (c->body_left == 0)
                answer_done(g, c);
        }
        return n;
    }
    *asked = RECEIVE_BYTES - c->carry_len;
    if (c->carry_len)
        memcpy(g->buffer, c->carry, c->carry_len);
    ssize_t n = recv(c->fd, g->buffer + c->carry_len, *asked, MSG_DONTWAIT);
    if (n > 0) {
        const char *end = g->buffer + c->carry_len + n;
        c->carry_len = 0;
        if (consume(g, c, g->buffer, end, now_ns()) < 0) {
            errno = EPROTO;
            return -1;
        }
    }
    return n;
}

/* Edge-triggered: reads until a read comes back short, or all that was due has come. */
static int readable(struct loadgen *g, struct conn *c, bool closed)
{
    while (c->outstanding || closed) {
        size_t asked;
        ssize_t n = receive(g, c, &asked);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0 && errno == EPROTO)
            return -1;
        if (n <= 0)
            return replace_connection(g, c, "the server closed a connection");
        if ((size_t)n < asked && !closed)
            break;
    }
    return 0;
}

/* ---- the loop ---- */

static int handle(struct loadgen *g, const struct epoll_event *event)
{
    struct conn *c = event->data.ptr;
    uint32_t events = event->events;
    bool closed = events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR);
    if (c->sending && (events & EPOLLOUT) && flush(c) < 0)
        return replace_connection(g, c, "a write failed");
    if ((closed || (events & EPOLLIN)) && readable(g, c, closed) < 0)
        return -1;
    if (c->outstanding || c->sending || c->ended)
        return 0;
    if (c->closes)
        return replace_connection(g, c, "");
    return next_batch(g, c) < 0 ? replace_connection(g, c, "a write failed") : 0;
}

static void start_measuring(struct loadgen *g)
{
    memset(&g->counters, 0, sizeof g->counters);
    memset(&g->latency, 0, sizeof g->latency);
    take_sample(&g->options, &g->start);
    g->measuring = true;
}

static int loop(struct loadgen *g)
{
    const struct options *o = &g->options;
    struct epoll_event events[256];
    uint64_t begin = now_ns(), heard = begin;
    uint64_t measure_at = begin + (uint64_t)(o->warmup * 1e9);
    uint64_t stop_at = o->requests ? UINT64_MAX : measure_at + (uint64_t)(o->seconds * 1e9);
    for (;;) {
        int n = epoll_wait(g->epoll, events, 256, o->spin ? 0 : 50);
        if (n < 0 && errno != EINTR)
            return fail_errno(g, "epoll_wait");
        for (int i = 0; i < n; i++)
            if (handle(g, &events[i]) < 0)
                return -1;
        uint64_t now = now_ns();
        heard = n > 0 ? now : heard;
        if (now - heard > SILENCE_NS)
            return fail(g, "no answer for 20 seconds");
        if (!g->measuring && now >= measure_at)
            start_measuring(g);
        if (!g->stopping && (now >= stop_at || g->live == 0)) {
            take_sample(o, &g->stop);
            g->stopping = true;
            stop_at = now;
        }
        if (g->stopping && (g->busy == 0 || now - stop_at > 5000000000ull))
            return 0;
    }
}

static int connect_all(struct loadgen *g)
{
    const struct options *o = &g->options;
    g->epoll = epoll_create1(EPOLL_CLOEXEC);
    g->buffer = malloc(RECEIVE_BYTES + CARRY_BYTES_MAX);
    g->conns = calloc(o->connections, sizeof *g->conns);
    if (g->epoll < 0 || !g->buffer || !g->conns)
        return fail(g, "out of memory");
    for (uint32_t i = 0; i < o->connections; i++)
        if (make_connection(g, i) < 0)
            return -1;
    return 0;
}

int loadgen_run(struct loadgen *g)
{
    if (connect_all(g) < 0)
        return -1;
    g->live = g->options.connections;
    if (g->options.warmup <= 0)
        start_measuring(g);
    for (uint32_t i = 0; i < g->options.connections; i++)
        if (next_batch(g, &g->conns[i]) < 0)
            return fail_errno(g, "the first write failed");
    return loop(g);
}
