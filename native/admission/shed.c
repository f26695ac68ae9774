/* What connections hold, and who has to go when that is too much; and whose turn it is when many
 * send what is refused. */
#include "admission/shed.h"

#include <assert.h>

#include "core/client.h"
#include "loop/output.h"

/* Connections that go on at a time, and how often: a tenth of the loop's time at most. A loop that
 * is busy with refusals all the time is what the scheduler of the machine makes wait for others. */
#define REFUSERS_AT_ONCE 1u
#define REFUSE_EVERY_US 500
#define RESUMED_MORE 32      /* requests beyond the first share: what is kept is moved less often */
#define STALL_MS 1000
#define SHED_PER_TURN 4u /* closing costs the kernel a tenth of a millisecond each */
#define SHED_BYTES_MAX (1u << 20) /* the larger are all the same */
#define SHED_BYTES_MIN (4u << 10)
#define SHED_SIZES 9u  /* powers of two from the one to the other */
#define SHED_HONEST 2u /* of them that are spared */

/* Kept input, pieces of its transport, answers in memory of our own and what its protocol keeps. */
static size_t held_by(const struct conn *conn)
{
    size_t held = conn->in_capacity + conn->wire_bytes + conn->protocol->holds(conn);
    for (const struct output *output = conn->out_first; output != NULL; output = output->next)
        held += output->capacity;
    return held;
}

static uint64_t all_held(const struct reactor *reactor)
{
    return reactor->input_bytes + outputs_own_bytes();
}

static bool is_stalled(const struct reactor *reactor, const struct conn *conn, int64_t ms)
{
    return conn->sending && reactor->loop.now_ms - conn->send_ms >= ms;
}

/* How far over the bound: by a half, and what is closed in one turn has no bound any more. */
static bool goes_on(uint64_t held, uint64_t most, unsigned closed)
{
    return held > most - most / 4 && (closed < SHED_PER_TURN || held > most + most / 2);
}

/* Whether it does what makes memory short: reads nothing, or is refused all the time. */
static bool is_offender(const struct reactor *reactor, const struct conn *conn)
{
    return guest_of(conn)->refuser || is_stalled(reactor, conn, STALL_MS);
}

/* Notes what connections hold: in a list for each power of two. */
static void sort_held(struct reactor *reactor, struct guest *lists[2][SHED_SIZES])
{
    for (struct conn *conn = reactor->loop.conns; conn != NULL; conn = conn->next) {
        if (!is_guest(conn) || conn->closed)
            continue;
        struct guest *guest = guest_of(conn);
        conn->protocol->slim(conn);
        guest->held = (uint32_t)held_by(conn);
        unsigned size = SHED_SIZES;
        while (size > 0 && guest->held < SHED_BYTES_MIN << (size - 1))
            size--;
        if (size == 0)
            continue;
        struct guest **list = &lists[!is_offender(reactor, conn)][size - 1];
        guest->next_held = *list;
        *list = guest;
    }
}

/* Those that read nothing or ask for nothing good go first, and of those who hold most: to three
 * quarters of the bound. Others hold as much as one request and its answer in any case. */
void shed_held(struct reactor *reactor)
{
    const uint64_t most = reactor->options.memory_max / 2;
    if (all_held(reactor) <= most)
        return;
    struct guest *lists[2][SHED_SIZES] = {{NULL}};
    sort_held(reactor, lists);
    uint64_t held = all_held(reactor);
    unsigned closed = 0;
    for (unsigned pass = 0; pass < 2; pass++)
        for (unsigned size = SHED_SIZES; size-- > (pass == 0 ? 0 : SHED_HONEST);)
            for (struct guest *each = lists[pass][size]; each != NULL; each = each->next_held) {
                if (!goes_on(held, most, closed++))
                    return;
                held -= each->held;
                reactor->shed++;
                conn_close(&each->conn);
            }
}

/* Closes those that do not read answers of the upper layer, whose memory others wait for; the
 * bytes freed. */
uint64_t shed_answers(struct reactor *reactor, uint64_t bytes)
{
    uint64_t freed = 0;
    for (size_t size = SHED_BYTES_MAX; size >= SHED_BYTES_MIN; size /= 2)
        for (struct conn *conn = reactor->loop.conns; conn != NULL && freed < bytes;
             conn = conn->next)
            /* What a listener is sent has bounds of its own. */
            if (is_guest(conn) && !conn->closed && conn->out_bytes >= size &&
                client_of(conn)->hearer == NULL && is_stalled(reactor, conn, STALL_MS)) {
                freed += conn->out_bytes;
                reactor->shed++;
                conn_close(conn);
            }
    return freed;
}

/* ---- turns ---- */

/* The connection sends one refused request after the other: those of others come first. */
void guest_yield(struct guest *guest)
{
    struct reactor *reactor = conn_reactor(&guest->conn);
    guest->refused = 0;
    guest->refuser = true;
    guest->conn.wary = true;
    if (guest->prev_yielded != NULL)
        return;
    assert(*reactor->yielded_end == NULL);
    guest->next_yielded = NULL;
    guest->prev_yielded = reactor->yielded_end;
    *reactor->yielded_end = guest;
    reactor->yielded_end = &guest->next_yielded;
    assert(reactor->yielded != NULL);
}

void guest_unyield(struct guest *guest)
{
    if (guest->prev_yielded == NULL)
        return;
    assert(*guest->prev_yielded == guest);
    *guest->prev_yielded = guest->next_yielded;
    if (guest->next_yielded != NULL)
        guest->next_yielded->prev_yielded = guest->prev_yielded;
    else
        conn_reactor(&guest->conn)->yielded_end = guest->prev_yielded;
    assert(*conn_reactor(&guest->conn)->yielded_end == NULL);
    guest->prev_yielded = NULL;
}

int64_t refuse_in_us(const struct reactor *reactor)
{
    if (reactor->yielded == NULL)
        return INT32_MAX;
    const int64_t left_us = reactor->refused_us + REFUSE_EVERY_US - reactor->loop.monotonic_us;
    assert(left_us <= REFUSE_EVERY_US); /* they had their turn in the past */
    return left_us > 0 ? left_us : 0;
}

void resume_yielded(struct reactor *reactor)
{
    reactor->refused_us = reactor->loop.monotonic_us;
    for (unsigned n = 0; n < REFUSERS_AT_ONCE && reactor->yielded != NULL; n++) {
        struct guest *guest = reactor->yielded;
        assert(guest->prev_yielded == &reactor->yielded);
        guest_unyield(guest);
        if (guest->conn.closed)
            continue;
        guest->conn.stopped = true; /* so that the kept input is looked at again */
        guest->refused = -RESUMED_MORE;
        conn_mark_dirty(&guest->conn);
    }
}

void unblock(struct reactor *reactor)
{
    if (!reactor->blocked_any || !reactor_memory(reactor, 2u << 20))
        return;
    reactor->blocked_any = false;
    for (struct conn *conn = reactor->loop.conns; conn != NULL; conn = conn->next) {
        if (conn->blocked) {
            conn->blocked = false;
            conn->stopped = true; /* so that the kept input is looked at again */
            conn_mark_dirty(conn);
        }
    }
}
