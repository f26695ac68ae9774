/* gather: when a leader with followers builds its next group.
 *
 * Whatever is in it, a group costs the three processes that write it some 1.5 ms of CPU, and its
 * calls are answered after a round trip, not after a write of 70 us. As fast as a disk takes them,
 * the groups of a busy log hold a few events each. So while a small one is on its way, the next one
 * gathers; and when its calls were answered, those who made them have a moment to come back, so
 * that all go together again instead of in two halves by turns. What nobody waits for (a poll
 * commits so) goes with the first call that somebody waits for, or a little later. */
#include "core/gather.h"

#include <assert.h>

#define GATHER_BYTES (512u << 10) /* a group of that size is worth what it costs */
#define GATHER_RUNS_MIN 4u        /* of two groups: with fewer a log is quiet, and nobody waits */
#define GATHER_RETURN_US_MAX 5000
#define GATHER_UNHURRIED_US 20000 /* for runs that nobody waits for */
#define GATHER_ROUND_US_MAX 1000000 /* followers slower than this are not waited for */

static bool on_their_way(const struct log *log) { return log->append_count + log->held_count > 0; }

void gather_built(struct reactor *reactor)
{
    assert(reactor->log->gated); /* without followers no round ends */
    if (!reactor->round_open)
        reactor->round_started_us = reactor->loop.monotonic_us;
    reactor->round_open = true;
}

void gather_ended(struct reactor *reactor)
{
    if (!reactor->round_open || on_their_way(reactor->log))
        return;
    reactor->round_open = false;
    reactor->round_ended_us = reactor->loop.monotonic_us;
    const int64_t took_us = reactor->round_ended_us - reactor->round_started_us;
    assert(took_us >= 0);
    reactor->round_us += (took_us - reactor->round_us) / 8;
    assert(reactor->round_us >= 0);
}

int64_t gather_left_us(const struct reactor *reactor)
{
    const struct log *log = reactor->log;
    const uint32_t waiting = log->queued_runs, last = log->last_group_runs;
    if (!log->gated || waiting == 0 || log->queued_bytes >= GATHER_BYTES)
        return 0;
    const bool unhurried = log->queued_unhurried == waiting;
    if (!unhurried && waiting + last < GATHER_RUNS_MIN)
        return 0;
    assert(reactor->round_us >= 0 && reactor->round_started_us <= reactor->loop.monotonic_us);
    int64_t until_us = reactor->round_started_us + GATHER_ROUND_US_MAX;
    if (unhurried) {
        until_us = log->queue->queued_us + GATHER_UNHURRIED_US;
    } else if (!on_their_way(log)) {
        if (waiting >= last - last / 8)
            return 0;
        const int64_t round_us = reactor->round_us;
        until_us = reactor->round_ended_us +
                   (round_us < GATHER_RETURN_US_MAX ? round_us : GATHER_RETURN_US_MAX);
    }
    return until_us > reactor->loop.monotonic_us ? until_us - reactor->loop.monotonic_us : 0;
}
