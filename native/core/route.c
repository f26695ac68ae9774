/* Routing: token -> slice of the ring -> the process that leads it.
 *
 * The number of a slice in the whole ring is range index * slices + slice. Who leads it stands in a
 * table that Python fills (reactor_set_route); it follows from no count. */
#include "core/route.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RING_UNIT (UINT64_MAX / RING_SIZE_MAX)

bool route_init(struct reactor *reactor)
{
    struct reactor_options *o = &reactor->options;
    if (o->ring_size == 0)
        o->ring_size = 1;
    if (o->peers == 0)
        o->peers = o->workers, o->peer = o->worker;
    assert(o->ring_size <= RING_SIZE_MAX && (o->slices & (o->slices - 1)) == 0);
    assert(o->workers > 0 && o->slice_last < o->slices);
    /* A ring of one: slices divide the whole circle. */
    o->range_width = o->ring_size == 1 ? 0 : RING_UNIT * (RING_SIZE_MAX / o->ring_size);
    o->slice_shift = (uint32_t)__builtin_ctz(o->slices);
    if (o->ring_size > 1)
        o->slice_width = o->range_width >> o->slice_shift;
    else
        o->slice_width = o->slices == 1 ? UINT64_MAX : (uint64_t)1 << (64 - o->slice_shift);
    assert(o->slice_first <= o->slice_last && o->slice_width > 0);
    const uint32_t numbers = ring_slices(reactor);
    reactor->routes = calloc(numbers, sizeof *reactor->routes);
    reactor->abroad = calloc(numbers, sizeof *reactor->abroad);
    reactor->endpoints = calloc(o->peers, sizeof *reactor->endpoints);
    reactor->peers = calloc(o->peers, sizeof *reactor->peers);
    if (reactor->routes == NULL || reactor->abroad == NULL || reactor->endpoints == NULL ||
        reactor->peers == NULL)
        return false;
    /* One broker has no elections: who owns what is known from the start. */
    for (uint32_t number = 0; number < numbers; number++)
        reactor->routes[number] =
            o->ring_size == 1 ? (int32_t)(number * o->workers / o->slices) : ROUTE_NONE;
    reactor->routed = o->ring_size == 1;
    reactor->token_text_len = (uint32_t)snprintf(
        reactor->token_text, sizeof reactor->token_text, "%lld",
        (long long)range_token(reactor, o->range_index));
    assert(reactor->token_text_len < sizeof reactor->token_text);
    return true;
}

uint32_t ring_slices(const struct reactor *reactor)
{
    return reactor->options.ring_size * reactor->options.slices;
}

int64_t range_token(const struct reactor *reactor, uint32_t range)
{
    const struct reactor_options *o = &reactor->options;
    return (int64_t)((uint64_t)o->range_start + range * o->range_width);
}

int64_t slice_token(const struct reactor *reactor, uint32_t number)
{
    const struct reactor_options *o = &reactor->options;
    uint64_t slice = number & (o->slices - 1);
    return (int64_t)((uint64_t)range_token(reactor, number >> o->slice_shift) +
                     slice * o->slice_width);
}

uint32_t slice_of_token(const struct reactor *reactor, int64_t token)
{
    const struct reactor_options *o = &reactor->options;
    uint64_t distance = (uint64_t)token - (uint64_t)o->range_start;
    if (o->ring_size == 1) /* a power of two of slices: nothing is left over */
        return o->slice_shift > 0 ? (uint32_t)(distance >> (64 - o->slice_shift)) : 0;
    uint64_t range = distance / o->range_width;
    if (range >= o->ring_size) /* the few tokens at the very top */
        range = o->ring_size - 1;
    distance -= range * o->range_width;
    assert(range < o->ring_size); /* whatever a token is */
    uint64_t slice = distance / o->slice_width;
    /* What division leaves over belongs to slice 0, as PolarStreams has it. */
    return (uint32_t)(range << o->slice_shift) + (slice < o->slices ? (uint32_t)slice : 0);
}

uint32_t slice_in_ring(const struct reactor *reactor, uint32_t slice)
{
    return (reactor->options.range_index << reactor->options.slice_shift) + slice;
}

bool slice_is_ours(const struct reactor *reactor, uint32_t number)
{
    const struct reactor_options *o = &reactor->options;
    uint32_t slice = number & (o->slices - 1);
    return number >> o->slice_shift == o->range_index && slice >= o->slice_first &&
           slice <= o->slice_last;
}

bool leads_now(const struct reactor *reactor)
{
    return reactor->log->open && !reactor->log->draining;
}

static bool reachable(const struct reactor *reactor, uint32_t number)
{
    assert(number < ring_slices(reactor));
    int32_t peer = reactor->routes[number];
    if (peer == (int32_t)reactor->options.peer)
        return leads_now(reactor) && reactor->park.hold_until_ms == 0;
    return peer != ROUTE_NONE && reactor->peers[peer] != NULL && !reactor->peers[peer]->closed;
}

/* Events without a key: this worker's own slices, without a hop, or any that can be reached, of
 * another process after some calls. All that one group gathers goes to one slice: larger chunks. */
uint32_t slice_for_keyless(const struct reactor *reactor)
{
    const struct reactor_options *o = &reactor->options;
    const uint32_t own = slice_in_ring(reactor, o->slice_first), numbers = ring_slices(reactor);
    assert(o->slice_first <= o->slice_last);
    assert(own < numbers);
    const uint32_t count = o->slice_last - o->slice_first + 1;
    if (o->ring_size == 1 || reachable(reactor, own))
        return own + (uint32_t)(reactor->log->next_gseq % count);
    for (uint32_t step = 0; step < numbers; step++) {
        uint32_t number = (uint32_t)((own + step + reactor->handed_out / 64 * count) % numbers);
        if (reachable(reactor, number))
            return number;
    }
    return own;
}
