#define _GNU_SOURCE
#include "broker/reactor.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "format/format.h"
#include "base/urgent.h"

static int64_t monotonic_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

/* The only reader of the clocks in the core: once a turn. */
void reactor_clock(struct reactor *reactor)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    reactor->wall_us = now.tv_sec * 1000000LL + now.tv_nsec / 1000;
    const int64_t before_us = reactor->monotonic_us;
    reactor->monotonic_us = monotonic_us();
    if (before_us != 0)
        log_tick(reactor->log, reactor->monotonic_us - before_us, reactor->wall_us);
    reactor->now_ms = reactor->monotonic_us / 1000;
    if (now.tv_sec != reactor->date_s) {
        struct tm utc;
        gmtime_r(&now.tv_sec, &utc);
        strftime(reactor->date, sizeof reactor->date, "%a, %d %b %Y %H:%M:%S GMT", &utc);
        reactor->date_s = now.tv_sec;
    }
}

/* ---- effects of the log ---- */

/* Whether somebody waits for the append who is not of this process. */
static void note_waiting(struct reactor *reactor, const struct append *append)
{
    const struct run *run = append->runs;
    while (run != NULL && (run->waiter.kind == WAITER_NONE || run->waiter.kind == WAITER_APPEND))
        run = run->next;
    if (run != NULL || (append->runs == NULL && reactor->log->following))
        urgent_note(reactor->monotonic_us);
}

static void submit_append(void *owner, struct append *append)
{
    struct reactor *reactor = owner;
    const uint8_t *bytes = log_memory(reactor->log, append->pos + append->done);
    append->submitted_us = reactor->monotonic_us;
    note_waiting(reactor, append);
    reactor->net->write(reactor->net, append, bytes, append->bytes - append->done,
                        append->file_offset + append->done);
}

static void run_stable(void *owner, struct run *run) { produce_stable(owner, run); }

static void run_lost(void *owner, struct run *run, bool grouped)
{
    produce_lost(owner, run, grouped);
}

static void group_built(void *owner, const struct append *append, uint32_t prev_crc)
{
    struct reactor *reactor = owner;
    if (!reactor->log->gated)
        return;
    struct upcall *up = reactor_upcall(reactor, UPCALL_BUILT, append->gseq);
    up->pos = append->pos;
    up->bytes = append->bytes;
    up->prev_crc = prev_crc;
    up->header_crc = reactor->log->prev_crc;
    gather_built(reactor);
}

static void want_segment(void *owner) { reactor_upcall(owner, UPCALL_SEGMENT_WANTED, 0); }

static void segment_closed(void *owner, uint32_t index)
{
    reactor_upcall(owner, UPCALL_SEGMENT_SEALED, index);
}

static bool flush_sends(void *owner)
{
    struct reactor *reactor = owner;
    return reactor->net->submit(reactor->net);
}

/* ---- life ---- */

static bool start_engine(struct reactor *reactor, const char **error)
{
    const char *reason = NULL;
    if (reactor->options.engine != 2) {
        reactor->net = net_uring_new(reactor, &reason);
        reactor->engine_reason = reason;
    } else {
        reactor->engine_reason = "epoll was asked for";
    }
    if (reactor->net == NULL && reactor->options.engine == 1) {
        *error = reason;
        return false;
    }
    if (reactor->net == NULL)
        reactor->net = net_epoll_new(reactor, error);
    return reactor->net != NULL;
}

struct reactor *reactor_new(const struct reactor_options *options, const char **error)
{
    struct reactor *reactor = calloc(1, sizeof *reactor);
    *error = "out of memory";
    if (reactor == NULL)
        return NULL;
    reactor->options = *options;
    admit_init(reactor);
    reactor->call_free = UINT32_MAX;
    reactor->asking.share = ASKING_SHARE_MAX;
    reactor->yielded_end = &reactor->yielded;
    reactor->urgent_end = &reactor->urgent;
    if (!route_init(reactor)) {
        reactor_free(reactor);
        return NULL;
    }
    options = &reactor->options;
    reactor->options.log.range_token =
        place_token(reactor, place_of_slice(reactor, options->slice_first));
    reactor->shard = shard_new(options->slice_first,
                               options->slice_last - options->slice_first + 1);
    reactor->log = reactor->shard ? log_new(&options->log, reactor->shard) : NULL;
    reactor_clock(reactor);
    if (reactor->log == NULL || !start_engine(reactor, error)) {
        reactor_free(reactor);
        return NULL;
    }
    reactor->log->owner = reactor;
    reactor->log->submit = submit_append;
    reactor->log->stable = run_stable;
    reactor->log->lost = run_lost;
    reactor->log->built = group_built;
    reactor->log->want_segment = want_segment;
    reactor->log->segment_closed = segment_closed;
    reactor->log->flush = flush_sends;
    return reactor;
}

void reactor_free(struct reactor *reactor)
{
    if (reactor == NULL)
        return;
    if (reactor->net != NULL)
        reactor->net->free(reactor->net);
    admit_free(reactor);
    while (reactor->conns != NULL) {
        struct conn *conn = reactor->conns;
        reactor->conns = conn->next;
        close(conn->fd);
        conn_free(conn);
    }
    for (uint32_t i = 0; i < reactor->upcall_count; i++) {
        free(reactor->upcalls[i].head);
        if (reactor->upcalls[i].body != NULL)
            body_release(reactor->upcalls[i].body);
    }
    for (uint32_t i = 0; i < STAGING_LANES; i++)
        if (reactor->staging[i] != NULL)
            body_release(reactor->staging[i]);
    hosts_free(reactor);
    log_free(reactor->log);
    shard_free(reactor->shard);
    free(reactor->table);
    free(reactor->table_free);
    free(reactor->calls);
    free(reactor->routes);
    free(reactor->peers);
    free(reactor->upcalls);
    free(reactor->scratch);
    free(reactor);
}

int reactor_listen(struct reactor *reactor, int fd, uint8_t kind)
{
    if (reactor->listener_count == LISTENERS_MAX)
        return -1;
    struct listener *listener = &reactor->listeners[reactor->listener_count++];
    *listener = (struct listener){.fd = fd, .kind = kind};
    reactor->net->listen(reactor->net, listener);
    return 0;
}

struct upcall *reactor_upcall(struct reactor *reactor, uint8_t kind, uint64_t id)
{
    if (reactor->upcall_count == reactor->upcall_capacity) {
        uint32_t capacity = reactor->upcall_capacity ? reactor->upcall_capacity * 2 : 64;
        reactor->upcalls = realloc(reactor->upcalls, capacity * sizeof *reactor->upcalls);
        assert(reactor->upcalls != NULL);
        reactor->upcall_capacity = capacity;
    }
    struct upcall *up = &reactor->upcalls[reactor->upcall_count++];
    *up = (struct upcall){.kind = kind, .id = id};
    return up;
}

/* ---- small questions ---- */

bool reactor_memory(const struct reactor *reactor, size_t bytes)
{
    const struct log *log = reactor->log;
    return reactor->body_bytes + log->queued_bytes + log->held_bytes + bytes <=
           reactor->options.memory_max;
}

uint8_t *reactor_scratch(struct reactor *reactor, size_t bytes)
{
    if (bytes > reactor->scratch_capacity) {
        free(reactor->scratch);
        reactor->scratch = malloc(bytes);
        reactor->scratch_capacity = reactor->scratch ? bytes : 0;
    }
    return reactor->scratch;
}

/* ---- connections ---- */

uint64_t conn_id(const struct conn *conn)
{
    return (uint64_t)(conn->generation & 0xfffff) << 20 | conn->index;
}

struct conn *reactor_conn(struct reactor *reactor, uint64_t id)
{
    uint32_t index = id & 0xfffff;
    if (index >= reactor->table_used)
        return NULL;
    struct conn *conn = reactor->table[index];
    return conn != NULL && conn_id(conn) == id ? conn : NULL;
}

static bool table_add(struct reactor *reactor, struct conn *conn)
{
    if (reactor->table_free_count > 0) {
        conn->index = reactor->table_free[--reactor->table_free_count];
    } else {
        if (reactor->table_used == reactor->table_capacity) {
            uint32_t capacity = reactor->table_capacity ? reactor->table_capacity * 2 : 256;
            struct conn **table = realloc(reactor->table, capacity * sizeof *table);
            uint32_t *unused = realloc(reactor->table_free, capacity * sizeof *unused);
            if (table != NULL)
                reactor->table = table;
            if (unused != NULL)
                reactor->table_free = unused;
            if (table == NULL || unused == NULL)
                return false;
            reactor->table_capacity = capacity;
        }
        conn->index = reactor->table_used++;
    }
    conn->generation = ++reactor->next_generation;
    reactor->table[conn->index] = conn;
    conn->next = reactor->conns;
    conn->prev = &reactor->conns;
    if (reactor->conns != NULL)
        reactor->conns->prev = &conn->next;
    reactor->conns = conn;
    reactor->conn_count++;
    return true;
}

struct conn *reactor_adopt(struct reactor *reactor, int fd, uint8_t kind)
{
    struct conn *conn = conn_new(reactor, fd, kind);
    if (conn == NULL || !table_add(reactor, conn)) {
        free(conn);
        close(fd);
        return NULL;
    }
    reactor->connections_total++;
    reactor->admission.places += kind == CONN_HTTP;
    reactor->net->adopt(reactor->net, conn);
    conn->receiving = true;
    reactor->net->recv_start(reactor->net, conn);
    return conn;
}

int reactor_attach_peer(struct reactor *reactor, uint32_t peer, int fd)
{
    if (peer >= reactor->options.peers || peer == reactor->options.peer)
        return -1;
    if (reactor->peers[peer] != NULL)
        conn_close(reactor->peers[peer]);
    struct conn *conn = reactor_adopt(reactor, fd, CONN_PEER);
    if (conn == NULL)
        return -1;
    conn->outgoing = true;
    conn->peer = peer;
    reactor->peers[peer] = conn;
    return 0;
}

int reactor_adopt_peer(struct reactor *reactor, int fd, uint32_t peer)
{
    for (struct conn *conn = reactor->conns; conn != NULL; conn = conn->next)
        if (conn->kind == CONN_PEER && conn->from_afar && conn->peer == peer && !conn->closed)
            conn_close(conn);
    struct conn *conn = reactor_adopt(reactor, fd, CONN_PEER);
    if (conn == NULL)
        return -1;
    conn->from_afar = true;
    conn->peer = peer;
    return 0;
}

struct conn *reactor_adopt_replica(struct reactor *reactor, int fd, uint32_t group_bytes_max)
{
    struct frames *frames = frames_new(group_bytes_max);
    if (frames == NULL) {
        close(fd);
        return NULL;
    }
    struct conn *conn = reactor_adopt(reactor, fd, CONN_REPLICA);
    if (conn != NULL)
        conn->frames = frames;
    else
        frames_free(frames);
    return conn;
}

void reactor_mark_dirty(struct reactor *reactor, struct conn *conn)
{
    if (conn->dirty)
        return;
    conn->dirty = true;
    conn->next_dirty = reactor->dirty;
    reactor->dirty = conn;
}

void reactor_mark_urgent(struct reactor *reactor, struct conn *conn)
{
    if (conn->dirty)
        return;
    conn->dirty = true;
    conn->next_dirty = NULL;
    *reactor->urgent_end = conn;
    reactor->urgent_end = &conn->next_dirty;
}

static struct conn *take_dirty(struct reactor *reactor)
{
    struct conn *conn = reactor->urgent;
    if (conn == NULL) {
        conn = reactor->dirty;
        if (conn != NULL)
            reactor->dirty = conn->next_dirty;
        return conn;
    }
    reactor->urgent = conn->next_dirty;
    if (reactor->urgent == NULL)
        reactor->urgent_end = &reactor->urgent;
    return conn;
}

static void forget_dirty(struct reactor *reactor, struct conn *conn)
{
    struct conn **at = &reactor->dirty;
    while (*at != NULL && *at != conn)
        at = &(*at)->next_dirty;
    if (*at == NULL)
        for (at = &reactor->urgent; *at != conn;)
            at = &(*at)->next_dirty;
    *at = conn->next_dirty;
    if (reactor->urgent_end == &conn->next_dirty)
        reactor->urgent_end = at;
}

/* Reading stops while input waits for our own turn, and goes on after it. */
static void update_receiving(struct reactor *reactor, struct conn *conn)
{
    bool want = !conn->closed && !conn->peer_eof && !conn->paused &&
                (conn->in_len == 0 || !conn->stopped);
    if (want && !conn->receiving) {
        conn->receiving = true;
        reactor->net->recv_start(reactor->net, conn);
    } else if (!want && conn->receiving && !conn->peer_eof && !conn->closed) {
        reactor->net->recv_stop(reactor->net, conn);
    }
}

static void finish_lingering(struct conn *conn)
{
    if (conn->state != STATE_LINGER || conn->sending || conn->out_first != NULL ||
        conn->slot_first != conn->slot_end)
        return;
    if (conn->peer_eof)
        conn_close(conn);
    else
        shutdown(conn->fd, SHUT_WR); /* the client reads the answer, then closes */
}

static void tend(struct reactor *reactor, struct conn *conn)
{
    if (conn->closed)
        return;
    if (conn->in_len > 0 && !conn_paused(conn) && conn->stopped) {
        conn->stopped = false;
        conn_resume(conn);
    }
    conn->stopped = conn_paused(conn);
    update_receiving(reactor, conn);
    if (!conn->closed)
        send_ready(reactor, conn);
    finish_lingering(conn);
    if (conn->peer_eof && !conn->closed && conn->slot_first == conn->slot_end &&
        conn->out_first == NULL)
        conn_close(conn);
}

static void tend_dirty(struct reactor *reactor)
{
    /* Resuming input may dirty connections again: they have their turn in the same go, bounded by
     * the input that is already in memory. */
    for (struct conn *conn; (conn = take_dirty(reactor)) != NULL;) {
        conn->dirty = false;
        tend(reactor, conn);
    }
}

/* ---- callbacks of the engine ---- */

void reactor_received(struct reactor *reactor, struct conn *conn, const uint8_t *bytes, size_t len)
{
    if (conn->closed)
        return;
    conn_input(conn, bytes, len);
    reactor_mark_dirty(reactor, conn);
}

void reactor_receive_ended(struct reactor *reactor, struct conn *conn, int error)
{
    if (conn->closed)
        return;
    if (error != 0) {
        conn_close(conn);
        return;
    }
    conn->peer_eof = true;
    conn->receiving = false;
    /* A half-closed client still reads the answers to what it sent whole. */
    if (conn->kind != CONN_HTTP ||
        (conn->slot_first == conn->slot_end && conn->out_first == NULL) ||
        conn->state == STATE_BODY || conn->state == STATE_CHUNKED)
        conn_close(conn);
    else {
        /* It may as well have gone for good: whoever waits for events on its behalf must know. */
        conn_abandoned(conn);
        reactor_mark_dirty(reactor, conn);
    }
}

void reactor_sent(struct reactor *reactor, struct conn *conn, int64_t result)
{
    conn->sending = false;
    if (conn->closed)
        return;
    if (result < 0) {
        conn_close(conn);
        return;
    }
    struct output *first = conn->out_first;
    first->sent += (uint32_t)result;
    conn->out_bytes -= (size_t)result;
    if (conn->outgoing)
        reactor->peer_out_bytes -= (uint64_t)result;
    reactor->bytes_out += (uint64_t)result;
    conn->send_progress += (uint32_t)result;
    if (conn->send_progress >= SEND_PROGRESS_BYTES) { /* a trickle is no progress */
        conn->send_progress = 0;
        conn->send_ms = reactor->now_ms;
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
    reactor_mark_dirty(reactor, conn);
}

void reactor_written(struct reactor *reactor, struct append *append, int64_t result)
{
    int64_t took_us = reactor->monotonic_us - append->submitted_us;
    reactor->append_us += (took_us - reactor->append_us) / 8;
    log_written(reactor->log, append, result);
    if (reactor->log->failed && !reactor->io_failed) {
        reactor->io_failed = true;
        reactor_upcall(reactor, UPCALL_IO_ERROR, (uint64_t)(result < 0 ? -result : 5));
    }
}

void reactor_selector_ready(struct reactor *reactor) { reactor->selector_ready = true; }

static void conn_gone(struct reactor *reactor, struct conn *conn)
{
    *conn->prev = conn->next;
    if (conn->next != NULL)
        conn->next->prev = conn->prev;
    reactor->table[conn->index] = NULL;
    reactor->table_free[reactor->table_free_count++] = conn->index;
    reactor->conn_count--;
    if (conn->dirty)
        forget_dirty(reactor, conn);
    send_forget(reactor, conn);
    conn_unyield(conn);
    close(conn->fd);
    conn_free(conn);
}

/* ---- the loop ---- */

/* Closed connections go when the engine has none of their operations left, and never in the middle
 * of a turn: whoever closes one may still hold it. */
static void reap_closed(struct reactor *reactor)
{
    struct conn **at = &reactor->closing;
    while (*at != NULL) {
        struct conn *conn = *at;
        if (conn->operations > 0) {
            at = &conn->next_closing;
            continue;
        }
        *at = conn->next_closing;
        conn_gone(reactor, conn);
    }
}

static void sweep(struct reactor *reactor)
{
    for (struct conn *conn = reactor->conns, *next; conn != NULL; conn = next) {
        next = conn->next;
        conn_deadlines(conn, reactor->now_ms);
        if (conn->state == STATE_LINGER)
            reactor_mark_dirty(reactor, conn);
    }
    handoff_deadlines(reactor);
    admit_sweep(reactor);
    if (reactor->now_ms - reactor->quiet_since_ms > 1000)
        log_heartbeat(reactor->log, reactor->wall_us, GROUP_HEARTBEAT);
}

static void tell_stable(struct reactor *reactor)
{
    if ((reactor->log->gated || reactor->opening) &&
        reactor->log->stable_gseq != reactor->last_landed) {
        reactor->last_landed = reactor->log->stable_gseq;
        reactor->opening = false;
        if (reactor->last_landed > 0 && !intake_landed(reactor)) {
            struct upcall *up = reactor_upcall(reactor, UPCALL_LANDED, reactor->last_landed);
            up->pos = reactor->log->options.epoch;
            up->header_crc = reactor->log->stable_crc;
        }
    }
    uint64_t events = reactor->log->events;
    if (events == reactor->last_events)
        return;
    reactor->last_events = events;
    reactor->quiet_since_ms = reactor->now_ms;
    if (reactor->notify)
        reactor_upcall(reactor, UPCALL_STABLE, reactor->log->stable_gseq);
}

static void pump(struct reactor *reactor)
{
    gather_ended(reactor);
    if (gather_left_us(reactor) == 0)
        log_pump(reactor->log, reactor->wall_us);
}

static void turn(struct reactor *reactor, int64_t timeout_ns)
{
    const int64_t gather_ns = gather_left_us(reactor) * 1000;
    if (gather_ns > 0 && gather_ns < timeout_ns)
        timeout_ns = gather_ns;
    /* What came is looked at, then more of it is sent or refused. */
    const int64_t refuse_ns = refuse_in_us(reactor) * 1000;
    if (refuse_ns < timeout_ns)
        timeout_ns = refuse_ns;
    if (reactor->late_first != NULL)
        timeout_ns = 0;
    reactor->net->wait(reactor->net, timeout_ns);
    reactor->turns++;
    pump(reactor);
    tell_stable(reactor);
    unblock(reactor);
    tend_dirty(reactor);
    if (refuse_in_us(reactor) == 0) {
        reactor->net->submit(reactor->net); /* what others wait for does not wait for that */
        resume_yielded(reactor);
        tend_dirty(reactor);
    }
    shed_held(reactor);
    if (reactor->log->queue != NULL)
        pump(reactor);
    if (reactor->give_up_ms != 0 && reactor->now_ms >= reactor->give_up_ms) {
        reactor->give_up_ms = 0;
        handoff_deadlines(reactor);
        tend_dirty(reactor);
    }
    if (reactor->now_ms - reactor->swept_ms >= SWEEP_MS) {
        reactor->swept_ms = reactor->now_ms;
        sweep(reactor);
        tend_dirty(reactor);
    }
    if (reactor->late_first != NULL) {
        send_late(reactor);
        tend_dirty(reactor); /* an engine may be done with it at once */
    }
    reap_closed(reactor);
    if (reactor->admission.retry_ms != 0 && reactor->now_ms >= reactor->admission.retry_ms)
        admit_again(reactor);
}

/* The longest wait after which there may be something to do that nobody tells of. */
static int64_t patience_ns(const struct reactor *reactor)
{
    const int64_t retry_ms = reactor->admission.retry_ms;
    int64_t ms = reactor->give_up_ms - reactor->now_ms;
    if (reactor->give_up_ms == 0 || ms > SWEEP_MS)
        ms = SWEEP_MS;
    if (retry_ms != 0 && ms > retry_ms - reactor->now_ms)
        ms = retry_ms - reactor->now_ms;
    return (ms < 0 ? 0 : ms) * 1000000LL;
}

void reactor_run(struct reactor *reactor, int64_t timeout_ns)
{
    reactor_clock(reactor);
    if (reactor->asking.left_us > 0)
        control_pace(reactor, reactor->monotonic_us - reactor->asking.left_us);
    /* What Python asked for since the last stay: answers, appends, segments. */
    pump(reactor);
    tend_dirty(reactor);
    int64_t end_ms = timeout_ns < 0 ? INT64_MAX : reactor->now_ms + (timeout_ns + 999999) / 1000000;
    bool busy = reactor->upcall_count > 0 || reactor->asking.count > 0;
    int64_t left = busy || reactor->selector_ready ? 0 : timeout_ns;
    for (;;) {
        int64_t wait_ns = patience_ns(reactor);
        turn(reactor, left < 0 || left > wait_ns ? wait_ns : left);
        control_give_up(reactor);
        if (reactor->upcall_count > 0 || reactor->selector_ready || timeout_ns == 0 ||
            reactor->now_ms >= end_ms) {
            reactor->net->submit(reactor->net); /* Python may take its time */
            reactor->asking.left_us = monotonic_us();
            return;
        }
        left = timeout_ns < 0 ? -1 : (end_ms - reactor->now_ms) * 1000000LL;
    }
}

void reactor_fence(struct reactor *reactor)
{
    log_fence(reactor->log);
}

void reactor_drain(struct reactor *reactor)
{
    reactor->draining = true;
    for (struct conn *conn = reactor->conns; conn != NULL; conn = conn->next)
        if (conn->kind == CONN_HTTP && conn->state == STATE_HEAD && conn->in_len == 0 &&
            conn->slot_first == conn->slot_end && conn->out_first == NULL)
            conn_close(conn);
}

bool reactor_idle(const struct reactor *reactor)
{
    for (const struct conn *conn = reactor->conns; conn != NULL; conn = conn->next)
        if (conn->kind == CONN_HTTP && conn->out_first != NULL && !conn->closed)
            return false;
    return log_idle(reactor->log);
}
