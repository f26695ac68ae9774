#include "loop/loop.h"

#include <assert.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "loop/output.h"
#include "loop/send.h"

int64_t monotonic_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

/* The clocks of a turn. Who has to know how long something took within one reads its own. */
void loop_clock(struct loop *loop)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    loop->wall_us = now.tv_sec * 1000000LL + now.tv_nsec / 1000;
    const int64_t before_us = loop->monotonic_us;
    loop->monotonic_us = monotonic_us();
    loop->now_ms = loop->monotonic_us / 1000;
    loop->owner->ticked(loop, before_us != 0 ? loop->monotonic_us - before_us : -1);
}

/* ---- life ---- */

bool loop_init(struct loop *loop, const struct loop_owner *owner, int engine, const char **error)
{
    const char *reason = NULL;
    loop->owner = owner;
    loop_clock(loop);
    if (engine != 2) {
        loop->net = net_uring_new(loop, &reason);
        loop->engine_reason = reason;
    } else {
        loop->engine_reason = "epoll was asked for";
    }
    if (loop->net == NULL && engine == 1) {
        *error = reason;
        return false;
    }
    if (loop->net == NULL)
        loop->net = net_epoll_new(loop, error);
    return loop->net != NULL;
}

/* Each is closed before any is freed: who is closed gives things back, and may have a word for
 * others. */
void loop_free(struct loop *loop)
{
    for (struct conn *conn = loop->conns; conn != NULL; conn = conn->next)
        conn_close(conn);
    if (loop->net != NULL)
        loop->net->free(loop->net);
    while (loop->conns != NULL) {
        struct conn *conn = loop->conns;
        loop->conns = conn->next;
        close(conn->fd);
        conn_free(conn);
    }
    free(loop->table);
    free(loop->table_free);
}

int loop_listen(struct loop *loop, int fd, const struct protocol *protocol,
                const struct transport *transport)
{
    if (loop->listener_count == LISTENERS_MAX)
        return -1;
    struct listener *listener = &loop->listeners[loop->listener_count++];
    *listener = (struct listener){.fd = fd, .protocol = protocol, .transport = transport};
    loop->net->listen(loop->net, listener);
    return 0;
}

/* ---- connections ---- */

struct conn *loop_conn(struct loop *loop, uint64_t id)
{
    uint32_t index = id & 0xfffff;
    if (index >= loop->table_used)
        return NULL;
    struct conn *conn = loop->table[index];
    return conn != NULL && conn_id(conn) == id ? conn : NULL;
}

/* Room for one more in the table. */
static bool table_room(struct loop *loop)
{
    if (loop->table_free_count > 0 || loop->table_used < loop->table_capacity)
        return true;
    uint32_t capacity = loop->table_capacity ? loop->table_capacity * 2 : 256;
    struct conn **table = realloc(loop->table, capacity * sizeof *table);
    uint32_t *unused = realloc(loop->table_free, capacity * sizeof *unused);
    if (table != NULL)
        loop->table = table;
    if (unused != NULL)
        loop->table_free = unused;
    if (table == NULL || unused == NULL)
        return false;
    loop->table_capacity = capacity;
    return true;
}

static void table_add(struct loop *loop, struct conn *conn)
{
    if (loop->table_free_count > 0)
        conn->index = loop->table_free[--loop->table_free_count];
    else
        conn->index = loop->table_used++;
    conn->generation = ++loop->next_generation;
    loop->table[conn->index] = conn;
    conn->next = loop->conns;
    conn->prev = &loop->conns;
    if (loop->conns != NULL)
        loop->conns->prev = &conn->next;
    loop->conns = conn;
    loop->conn_count++;
}

struct conn *loop_adopt(struct loop *loop, int fd, const struct protocol *protocol,
                        const struct transport *transport)
{
    struct conn *conn = table_room(loop) ? conn_new(loop, fd, protocol, transport) : NULL;
    if (conn == NULL) {
        close(fd);
        return NULL;
    }
    table_add(loop, conn);
    loop->connections_total++;
    loop->net->adopt(loop->net, conn);
    conn->receiving = true;
    loop->net->recv_start(loop->net, conn);
    if (transport->started != NULL)
        transport->started(conn);
    return conn;
}

static struct conn *take_dirty(struct loop *loop)
{
    struct conn *conn = loop->dirty;
    if (conn != NULL)
        loop->dirty = conn->next_dirty;
    return conn;
}

static void forget_dirty(struct loop *loop, struct conn *conn)
{
    struct conn *before = NULL, *at = loop->dirty;
    for (; at != conn; at = at->next_dirty)
        before = at;
    if (before != NULL)
        before->next_dirty = conn->next_dirty;
    else
        loop->dirty = conn->next_dirty;
    if (loop->dirty_last == conn)
        loop->dirty_last = before;
}

/* Reading stops while input waits for our own turn, and goes on after it. */
static void update_receiving(struct loop *loop, struct conn *conn)
{
    bool want = !conn->closed && !conn->peer_eof && !conn->paused &&
                (conn->in_len == 0 || !conn->stopped);
    if (want && !conn->receiving) {
        conn->receiving = true;
        loop->net->recv_start(loop->net, conn);
    } else if (!want && conn->receiving && !conn->peer_eof && !conn->closed) {
        loop->net->recv_stop(loop->net, conn);
    }
}

static void tend(struct loop *loop, struct conn *conn)
{
    if (conn->closed)
        return;
    if (conn->in_len > 0 && conn->stopped && !conn_paused(conn)) {
        conn->stopped = false;
        conn_resume(conn);
    }
    conn->stopped = conn_paused(conn);
    update_receiving(loop, conn);
    if (!conn->closed)
        send_ready(conn);
    if (!conn->closed && conn->protocol->tended != NULL)
        conn->protocol->tended(conn);
}

void loop_tend(struct loop *loop)
{
    /* Resuming input may dirty connections again: they have their turn in the same go, bounded by
     * the input that is already in memory. */
    for (struct conn *conn; (conn = take_dirty(loop)) != NULL;) {
        conn->dirty = false;
        tend(loop, conn);
    }
}

static void conn_gone(struct loop *loop, struct conn *conn)
{
    *conn->prev = conn->next;
    if (conn->next != NULL)
        conn->next->prev = conn->prev;
    loop->table[conn->index] = NULL;
    loop->table_free[loop->table_free_count++] = conn->index;
    loop->conn_count--;
    if (conn->dirty)
        forget_dirty(loop, conn);
    send_forget(conn);
    close(conn->fd);
    conn_free(conn);
}

void loop_reap(struct loop *loop)
{
    struct conn **at = &loop->closing;
    while (*at != NULL) {
        struct conn *conn = *at;
        if (conn->operations > 0) {
            at = &conn->next_closing;
            continue;
        }
        *at = conn->next_closing;
        conn_gone(loop, conn);
    }
}

void loop_deadlines(struct loop *loop)
{
    for (struct conn *conn = loop->conns, *next; conn != NULL; conn = next) {
        next = conn->next;
        if (!conn->closed)
            conn->protocol->deadline(conn, loop->now_ms);
    }
}

void loop_wait(struct loop *loop, int64_t timeout_ns)
{
    loop->net->wait(loop->net, timeout_ns);
    loop->turns++;
}

/* ---- callbacks of the transports ---- */

void loop_received(struct conn *conn, const uint8_t *bytes, size_t len)
{
    if (conn->closed)
        return;
    conn_input(conn, bytes, len);
    conn_mark_dirty(conn);
}

void loop_receive_ended(struct conn *conn, int error)
{
    if (conn->closed)
        return;
    if (error != 0 || conn->protocol->half_closed == NULL) {
        conn_close(conn);
        return;
    }
    conn->peer_eof = true;
    conn->receiving = false;
    conn->protocol->half_closed(conn);
}

void loop_sent(struct conn *conn, int64_t result)
{
    struct loop *loop = conn->loop;
    conn->sending = false;
    if (conn->closed)
        return;
    if (result < 0) {
        conn_close(conn);
        return;
    }
    struct output *first = conn->out_first;
    if (first == NULL) { /* the transport's own */
        assert(result == 0);
        conn_mark_dirty(conn);
        return;
    }
    first->sent += (uint32_t)result;
    conn->out_bytes -= (size_t)result;
    if (conn->unsent != NULL)
        *conn->unsent -= (uint64_t)result;
    loop->bytes_out += (uint64_t)result;
    conn->send_progress += (uint32_t)result;
    if (conn->send_progress >= SEND_PROGRESS_BYTES) {
        conn->send_progress = 0;
        conn->send_ms = loop->now_ms;
    }
    if (first->sent == first->len) {
        conn->out_first = first->next;
        if (conn->out_first == NULL) {
            conn->out_last = NULL;
            conn->send_ms = 0;
            conn->send_progress = 0;
        }
        first->next = NULL;
        outputs_free(first);
    }
    conn_mark_dirty(conn);
}
