/* The composition of a worker's core: what the loop, the log and Python tell one another. */
#include "broker/reactor.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/urgent.h"
#include "admission/access.h"
#include "admission/refusals.h"
#include "broker/feed.h"
#include "broker/park.h"
#include "core/spans.h"
#include "format/format.h"
#include "log/clock.h"
#include "loop/send.h"
#include "loop/seal.h"
#include "loop/tls.h"

#define SWEEP_MS 500
#define GATHER_MAX 32
#define GATHER_SHARE 2
#define GATHER_LATENCY_SHARE 8
#define GATHER_NS_MIN 20000
#define GATHER_NS_MAX 200000

static_assert(APPENDS_IN_FLIGHT <= WRITES_MAX, "the engines keep a number for each");

/* ---- effects of the log ---- */

/* Whether somebody waits for the append who is not of this process. */
static void note_waiting(struct reactor *reactor, const struct append *append)
{
    const struct run *run = append->runs;
    while (run != NULL && (run->waiter.kind == WAITER_NONE || run->waiter.kind == WAITER_APPEND))
        run = run->next;
    if (run != NULL || (append->runs == NULL && reactor->log->following))
        urgent_note(reactor->loop.monotonic_us);
}

static void append_written(struct write *write, int64_t result)
{
    struct reactor *reactor = write->owner;
    /* It may have begun after the clock of this turn was read. */
    const int64_t took_us = reactor->loop.monotonic_us - ((struct append *)write)->submitted_us;
    reactor->append_us += ((took_us > 0 ? took_us : 0) - reactor->append_us) / 8;
    assert(reactor->append_us >= 0);
    histogram_note(&reactor->stages.of[STAGE_WRITE], took_us);
    reactor->stages.released_us = reactor->loop.monotonic_us;
    if (reactor->spans != NULL)
        span_group_written(reactor, ((struct append *)write)->gseq, reactor->loop.monotonic_us);
    log_written(reactor->log, (struct append *)write, result);
    if (reactor->log->failed && !reactor->io_failed) {
        reactor->io_failed = true;
        reactor_upcall(reactor, UPCALL_IO_ERROR, (uint64_t)(result < 0 ? -result : 5));
    }
}

static void submit_append(void *owner, struct append *append)
{
    struct reactor *reactor = owner;
    const uint8_t *bytes = log_memory(reactor->log, append->pos + append->done);
    assert(append->busy && append->done < append->bytes);
    append->submitted_us = monotonic_us(); /* building it took its time */
    stages_submitted(&reactor->stages, reactor->log, append, append->submitted_us);
    if (reactor->spans != NULL && append->done == 0)
        span_group_built(reactor, append->gseq, append->submitted_us);
    append->write.owner = reactor;
    append->write.done = append_written;
    note_waiting(reactor, append);
    reactor->loop.net->write(reactor->loop.net, &append->write, bytes,
                             append->bytes - append->done, append->file_offset + append->done);
}

static void run_stable(void *owner, struct run *run) { produce_stable(owner, run); }

static void run_lost(void *owner, struct run *run, enum lost_how how)
{
    produce_lost(owner, run, how);
}

static void group_built(void *owner, const struct append *append, uint32_t prev_crc)
{
    struct reactor *reactor = owner;
    if (!reactor->log->gated)
        return;
    assert(append->gseq + 1 == reactor->log->next_gseq); /* the newest */
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
    return reactor->loop.net->submit(reactor->loop.net);
}

/* ---- the loop's owner ---- */

static void ticked(struct loop *loop, int64_t elapsed_us)
{
    struct reactor *reactor = (struct reactor *)loop;
    if (elapsed_us >= 0)
        log_tick(reactor->log, elapsed_us, loop->wall_us);
    const time_t now_s = loop->wall_us / 1000000;
    if (now_s != reactor->date_s) {
        struct tm utc;
        gmtime_r(&now_s, &utc);
        strftime(reactor->date, sizeof reactor->date, "%a, %d %b %Y %H:%M:%S GMT", &utc);
        reactor->date_s = now_s;
    }
}

static const struct loop_owner as_owner = {ticked, admit_accepted, admit_accept_failed};

/* ---- life ---- */

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
    if (!ids_begin(reactor) || !route_init(reactor)) {
        reactor_free(reactor);
        return NULL;
    }
    options = &reactor->options;
    reactor->options.log.range_token =
        slice_token(reactor, slice_in_ring(reactor, options->slice_first));
    reactor->shard = shard_new(options->slice_first,
                               options->slice_last - options->slice_first + 1);
    reactor->log = reactor->shard ? log_new(&options->log, reactor->shard) : NULL;
    if (reactor->shard != NULL)
        reactor->shard->slices_all = options->slices;
    if (reactor->log == NULL || !loop_init(&reactor->loop, &as_owner, options->engine, error)) {
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
    loop_free(&reactor->loop);
    tls_free(&reactor->loop);
    seal_drop(reactor->intake.answer_seal);
    admit_free(reactor);
    feeds_free(reactor);
    for (uint32_t i = 0; i < reactor->upcall_count; i++) {
        free(reactor->upcalls[i].head);
        if (reactor->upcalls[i].body != NULL)
            body_release(reactor->upcalls[i].body);
    }
    for (uint32_t i = 0; i < STAGING_LANES; i++)
        if (reactor->staging[i] != NULL)
            body_release(reactor->staging[i]);
    access_free(reactor);
    hosts_free(reactor);
    spans_free(reactor);
    park_free(reactor);
    log_free(reactor->log);
    shard_free(reactor->shard);
    free(reactor->calls);
    free(reactor->routes);
    free(reactor->abroad);
    for (uint32_t peer = 0; reactor->endpoints != NULL && peer < reactor->options.peers; peer++)
        free(reactor->endpoints[peer]);
    free(reactor->endpoints);
    free(reactor->peers);
    free(reactor->upcalls);
    free(reactor->scratch);
    free(reactor);
}

static int set_endpoint(struct reactor *reactor, int32_t peer, const char *endpoint)
{
    assert(peer >= 0 && (uint32_t)peer < reactor->options.peers);
    char *text = strdup(endpoint);
    if (text == NULL)
        return -1;
    free(reactor->endpoints[peer]);
    reactor->endpoints[peer] = text;
    return 0;
}

int reactor_set_route(struct reactor *reactor, uint32_t first, uint32_t count, int32_t peer,
                      const char *endpoint)
{
    const struct reactor_options *o = &reactor->options;
    const uint32_t numbers = ring_slices(reactor);
    if (first >= numbers || count == 0 || count > numbers - first || peer < ROUTE_NONE ||
        peer >= (int32_t)o->peers || strlen(endpoint) > ENDPOINT_BYTES_MAX)
        return -1;
    for (uint32_t i = 0; i < count && peer == (int32_t)o->peer; i++)
        if (!slice_is_ours(reactor, first + i))
            return -1;
    if (peer != ROUTE_NONE && set_endpoint(reactor, peer, endpoint) < 0)
        return -1;
    bool changed = false;
    for (uint32_t number = first; number < first + count; number++) {
        if (reactor->routes[number] == peer)
            continue; /* what is under way there comes back to where it was, and is awaited */
        changed = true;
        reactor->routes[number] = peer;
        park_rerouted(reactor, number, 1);
    }
    reactor->routed = true;
    if (changed)
        handoff_rerouted(reactor);
    return 0;
}

void reactor_slices_read(struct reactor *reactor)
{
    struct reactor_options *o = &reactor->options;
    const uint32_t first = reactor->shard->slice_first;
    const uint32_t last = first + reactor->shard->slice_count - 1;
    if (first == o->slice_first && last == o->slice_last)
        return;
    assert(first <= last && last < o->slices);
    assert(reactor->shard->slice_count > 0);
    o->slice_first = first;
    o->slice_last = last;
    for (uint32_t number = 0; number < ring_slices(reactor); number++)
        if (reactor->routes[number] == (int32_t)o->peer && !slice_is_ours(reactor, number))
            reactor->routes[number] = ROUTE_NONE;
}

int reactor_set_slices(struct reactor *reactor, uint32_t first, uint32_t last)
{
    const struct log *log = reactor->log;
    if (first > last || last >= reactor->options.slices || log->open || log->following ||
        !log_idle(log) || !shard_set_slices(reactor->shard, first, last - first + 1))
        return -1;
    reactor_slices_read(reactor);
    park_stir(reactor);
    return 0;
}

void reactor_open(struct reactor *reactor, const uint8_t *parents, uint32_t len)
{
    log_open_generation(reactor->log, parents, len);
    park_hold(reactor, 0); /* whatever was held is over */
}

/* ---- turns ---- */

/* How many completions are worth waking up for, and how long to wait for so many. While an append
 * of many events is on its way, what arrives can only wait for the next one: to wake for each would
 * cost more than it does. The wait is a fraction of what appends take here, so that it never shows.
 * A group of a few events is a quiet log: its answer must not wait. */
static void note_gather(struct reactor *reactor)
{
    const int64_t share = reactor->append_us * 1000 / GATHER_LATENCY_SHARE;
    const uint32_t count = reactor->log->last_group_runs / GATHER_SHARE;
    reactor->loop.gather_ns = share < GATHER_NS_MIN   ? GATHER_NS_MIN
                              : share > GATHER_NS_MAX ? GATHER_NS_MAX
                                                      : share;
    reactor->loop.gather = reactor->log->append_count == 0 ? 1
                           : count < GATHER_MAX            ? count
                                                           : GATHER_MAX;
}

static void sweep(struct reactor *reactor)
{
    loop_deadlines(&reactor->loop);
    handoff_deadlines(reactor);
    admit_sweep(reactor);
    if (reactor->loop.now_ms - reactor->quiet_since_ms > 1000)
        log_heartbeat(reactor->log, reactor->loop.wall_us, GROUP_HEARTBEAT);
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
    reactor->quiet_since_ms = reactor->loop.now_ms;
    if (reactor->notify || reactor->shard->news.count > 0)
        reactor_upcall(reactor, UPCALL_STABLE, reactor->log->stable_gseq);
}

static void tell_settled(struct reactor *reactor)
{
    if (!reactor->tells_settled || !log_settled(reactor->log))
        return;
    reactor->tells_settled = false;
    reactor_upcall(reactor, UPCALL_SETTLED, 0);
}

static void pump(struct reactor *reactor)
{
    gather_ended(reactor);
    if (gather_left_us(reactor) == 0)
        log_pump(reactor->log, reactor->loop.wall_us);
}

/* What can be answered is, and how long that took is noted. */
static void tend_answers(struct reactor *reactor)
{
    loop_tend(&reactor->loop);
    if (stages_answering(&reactor->stages, reactor->log))
        stages_answered(&reactor->stages, reactor->log, monotonic_us());
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
    const int64_t hear_ns = hearers_in_us(reactor) * 1000;
    if (hear_ns < timeout_ns)
        timeout_ns = hear_ns;
    const int64_t shake_ns = tls_in_us(&reactor->loop) * 1000;
    if (shake_ns < timeout_ns)
        timeout_ns = shake_ns;
    if (reactor->loop.late_first != NULL)
        timeout_ns = 0;
    note_gather(reactor);
    loop_wait(&reactor->loop, timeout_ns);
    park_tend(reactor);
    pump(reactor);
    tell_stable(reactor);
    tell_settled(reactor);
    unblock(reactor);
    tls_tend(&reactor->loop);
    tend_answers(reactor);
    if (refuse_in_us(reactor) == 0) {
        /* What others wait for does not wait for that. */
        reactor->loop.net->submit(reactor->loop.net);
        resume_yielded(reactor);
        loop_tend(&reactor->loop);
    }
    if (hearers_serve(reactor))
        loop_tend(&reactor->loop);
    shed_held(reactor);
    if (reactor->log->queue != NULL)
        pump(reactor);
    if (reactor->give_up_ms != 0 && reactor->loop.now_ms >= reactor->give_up_ms) {
        reactor->give_up_ms = 0;
        handoff_deadlines(reactor);
        loop_tend(&reactor->loop);
    }
    if (reactor->loop.now_ms - reactor->swept_ms >= SWEEP_MS) {
        reactor->swept_ms = reactor->loop.now_ms;
        sweep(reactor);
        loop_tend(&reactor->loop);
    }
    if (reactor->loop.late_first != NULL) {
        send_late(&reactor->loop);
        loop_tend(&reactor->loop); /* an engine may be done with it at once */
    }
    loop_reap(&reactor->loop);
    if (reactor->admission.retry_ms != 0 && reactor->loop.now_ms >= reactor->admission.retry_ms)
        admit_again(reactor);
}

/* The longest wait after which there may be something to do that nobody tells of. */
static int64_t patience_ns(const struct reactor *reactor)
{
    const int64_t retry_ms = reactor->admission.retry_ms;
    int64_t ms = reactor->give_up_ms - reactor->loop.now_ms;
    if (reactor->give_up_ms == 0 || ms > SWEEP_MS)
        ms = SWEEP_MS;
    if (retry_ms != 0 && ms > retry_ms - reactor->loop.now_ms)
        ms = retry_ms - reactor->loop.now_ms;
    if (ms > park_in_ms(reactor))
        ms = park_in_ms(reactor);
    const int64_t ns = (ms < 0 ? 0 : ms) * 1000000LL;
    if (reactor->asking.count == 0)
        return ns;
    const int64_t held_ns = control_held_us(reactor) * 1000;
    return ns < held_ns ? ns : held_ns;
}

/* Python waits for the end of a drain, of which no upcall tells. */
static bool drained(const struct reactor *reactor)
{
    return reactor->draining && reactor_idle(reactor);
}

void reactor_run(struct reactor *reactor, int64_t timeout_ns)
{
    const bool was_drained = drained(reactor);
    loop_clock(&reactor->loop);
    if (reactor->asking.left_us > 0)
        control_pace(reactor, reactor->loop.monotonic_us - reactor->asking.left_us);
    /* What Python asked for since the last stay: answers, appends, segments, routes. */
    park_tend(reactor);
    pump(reactor);
    tend_answers(reactor);
    tell_settled(reactor);
    int64_t end_ms = INT64_MAX;
    if (timeout_ns >= 0)
        end_ms = reactor->loop.now_ms + (timeout_ns + 999999) / 1000000;
    bool busy = reactor->upcall_count > 0 || reactor->asking.count > 0;
    int64_t left = busy || reactor->loop.selector_ready ? 0 : timeout_ns;
    for (;;) {
        int64_t wait_ns = patience_ns(reactor);
        turn(reactor, left < 0 || left > wait_ns ? wait_ns : left);
        if (control_held_us(reactor) == 0)
            control_give_up(reactor);
        const bool told = reactor->upcall_count > 0 || reactor->loop.selector_ready;
        if (told || drained(reactor) != was_drained || timeout_ns == 0 ||
            reactor->loop.now_ms >= end_ms) {
            reactor->loop.net->submit(reactor->loop.net); /* Python may take its time */
            reactor->asking.left_us = monotonic_us();
            return;
        }
        left = timeout_ns < 0 ? -1 : (end_ms - reactor->loop.now_ms) * 1000000LL;
    }
}

void reactor_fence(struct reactor *reactor)
{
    log_fence(reactor->log);
}

void reactor_drain(struct reactor *reactor)
{
    reactor->draining = true;
    park_end(reactor);
    for (struct conn *conn = reactor->loop.conns; conn != NULL; conn = conn->next)
        if (is_guest(conn) && conn->in_len == 0 && conn->out_first == NULL &&
            conn->protocol->engaged(conn) < ENGAGED_LEAVES)
            conn_close(conn);
    hearers_end(reactor);
}

bool reactor_idle(const struct reactor *reactor)
{
    for (const struct conn *conn = reactor->loop.conns; conn != NULL; conn = conn->next)
        if (is_guest(conn) && conn->out_first != NULL && !conn->closed)
            return false;
    return log_idle(reactor->log);
}
