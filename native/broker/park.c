#include "broker/park.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "broker/calls.h"
#include "core/client.h"
#include "core/route.h"
#include "broker/runs.h"
#include "broker/slice.h"
#include "broker/waiter.h"

#define PARKED_MAX 16384u
#define PARKED_SHARE 4u /* of the memory for bodies and queued events */
#define GUEST_MS 1000u  /* another process's: its client may have gone */
#define RETRY_MS 25     /* until a leader that has sent calls back is asked again */

struct parked {
    struct parked *next;
    struct turn_of turn;
    int64_t until_ms;
    uint32_t number;
    bool returns;
    struct waiter waiter;
    struct produce produce;
    struct body *body;
    size_t len;   /* of the events in it */
    size_t bytes; /* of the rest */
    uint8_t key[];
};

/* ---- whether somebody takes it ---- */

static bool is_held(const struct reactor *reactor)
{
    return reactor->loop.now_ms < reactor->park.hold_until_ms;
}

/* guest: a call of another process, which only this one can take. */
static bool is_shut(const struct reactor *reactor, uint32_t number, bool guest)
{
    const int32_t leader = reactor->routes[number];
    assert(number < ring_slices(reactor));
    /* What comes back from who led it before is not to be overtaken. */
    if (!guest && reactor->abroad[number] > 0)
        return true;
    if (guest || leader == (int32_t)reactor->options.peer)
        return !leads_now(reactor) || is_held(reactor);
    return leader == ROUTE_NONE || reactor->peers[leader] == NULL || reactor->peers[leader]->closed;
}

static struct parked_lane *lane_of(struct reactor *reactor, uint32_t number)
{
    struct park *park = &reactor->park;
    if (park->lanes == NULL)
        park->lanes = calloc(ring_slices(reactor), sizeof *park->lanes);
    return park->lanes != NULL ? &park->lanes[number] : NULL;
}

bool park_due(struct reactor *reactor, uint32_t number, bool guest)
{
    const struct park *park = &reactor->park;
    if (park->most_ms == 0 || reactor->draining || reactor->io_failed)
        return false;
    const bool shut = is_shut(reactor, number, guest);
    if (!shut && park->lanes == NULL)
        return false;
    struct parked_lane *lane = lane_of(reactor, number);
    if (lane == NULL)
        return false;
    assert(lane->listed || lane->first == NULL);
    if (!shut) {
        lane->shut_ms = 0;
        return lane->first != NULL;
    }
    if (lane->shut_ms == 0)
        lane->shut_ms = reactor->loop.now_ms;
    return reactor->loop.now_ms - lane->shut_ms < park->most_ms;
}

bool park_strange(const struct reactor *reactor, uint32_t number)
{
    const int32_t leader = reactor->routes[number];
    const bool elsewhere = leader != ROUTE_NONE && leader != (int32_t)reactor->options.peer;
    return !slice_is_ours(reactor, number) || (elsewhere && !leads_now(reactor));
}

/* ---- what waits ---- */

static void note_client(struct reactor *reactor, const struct waiter *waiter, bool comes)
{
    struct conn *conn = NULL;
    if (waiter->kind == WAITER_SLOT)
        conn = loop_conn(&reactor->loop, waiter->conn);
    if (conn == NULL)
        return;
    assert(comes || client_of(conn)->parked > 0); /* each is counted once */
    client_of(conn)->parked = client_of(conn)->parked + comes - !comes;
}

/* Those that came before it stay before it, also where it comes back. */
static void line_up(struct parked_lane *lane, struct parked *parked)
{
    struct parked **at = &lane->first;
    assert(parked->turn.order > 0);
    if (lane->last != NULL && lane->last->turn.order < parked->turn.order)
        at = &lane->last->next;
    while (*at != NULL && (*at)->turn.order < parked->turn.order)
        at = &(*at)->next;
    parked->next = *at;
    *at = parked;
    if (parked->next == NULL)
        lane->last = parked;
}

static struct parked *make(struct reactor *reactor, const struct produce *produce,
                           const uint8_t *bytes, size_t len, struct body *body)
{
    const size_t key_len = produce->has_key ? produce->key_len : 0;
    struct parked *parked = calloc(1, sizeof *parked + key_len);
    if (parked == NULL)
        return NULL;
    assert(!produce->headed && !produce->key_field); /* of these cuts are made first */
    parked->produce = *produce;
    if (key_len > 0)
        memcpy(parked->key, produce->key, key_len);
    parked->produce.key = parked->key;
    parked->body = own_body(reactor, &bytes, len, body);
    if (parked->body == NULL) {
        free(parked);
        return NULL;
    }
    parked->len = len;
    parked->bytes = sizeof *parked + key_len;
    reactor->body_bytes += parked->bytes;
    return parked;
}

/* Whoever has closed its side may have given up long ago: what came late is not written later. */
static bool is_there(struct reactor *reactor, const struct waiter *waiter)
{
    const struct conn *conn = loop_conn(&reactor->loop, waiter->conn);
    return conn != NULL && !conn->closed && !conn->peer_eof;
}

static void drop(struct reactor *reactor, struct parked *parked)
{
    assert(reactor->body_bytes >= parked->bytes && parked->body->refs > 0);
    reactor->body_bytes -= parked->bytes;
    body_release(parked->body);
    free(parked);
}

uint16_t park_add(struct reactor *reactor, const struct produce *produce, uint32_t number,
                  struct waiter waiter, struct turn_of turn, bool returns, const uint8_t *bytes,
                  size_t len, struct body *body)
{
    struct park *park = &reactor->park;
    const size_t need = sizeof(struct parked) + produce->key_len + len;
    assert(waiter.kind == WAITER_SLOT || waiter.kind == WAITER_PEER); /* others ask again */
    if (len == 0)
        return PROBLEM_NO_EVENTS;
    struct parked_lane *lane = lane_of(reactor, number);
    if (lane == NULL || !is_there(reactor, &waiter) || park->count >= PARKED_MAX ||
        park->bytes + need > reactor->options.memory_max / PARKED_SHARE ||
        !reactor_memory(reactor, need))
        return PROBLEM_NOT_READY;
    struct parked *parked = make(reactor, produce, bytes, len, body);
    if (parked == NULL)
        return PROBLEM_NOT_READY;
    const bool guest = waiter.kind == WAITER_PEER && GUEST_MS < park->most_ms;
    parked->number = number;
    parked->waiter = waiter;
    parked->turn = turn;
    parked->returns = returns;
    parked->until_ms = turn.since_ms + (guest ? GUEST_MS : park->most_ms);
    line_up(lane, parked);
    if (!lane->listed) {
        lane->listed = true;
        lane->next = park->listed;
        park->listed = lane;
    }
    park->count++;
    park->bytes += parked->bytes + len;
    park->waited++;
    if (park->count == 1 || parked->until_ms < park->look_ms)
        park->look_ms = parked->until_ms;
    note_client(reactor, &waiter, true);
    return PROBLEM_NONE;
}

/* Takes it out of its lane; at: what leads to it there, before: the one before it. */
static struct parked *take(struct reactor *reactor, struct parked_lane *lane, struct parked **at,
                           struct parked *before)
{
    struct park *park = &reactor->park;
    struct parked *parked = *at;
    *at = parked->next;
    if (parked->next == NULL)
        lane->last = before;
    parked->next = NULL;
    assert(park->count > 0 && park->bytes >= parked->bytes + parked->len);
    park->count--;
    park->bytes -= parked->bytes + parked->len;
    note_client(reactor, &parked->waiter, false);
    return parked;
}

/* ---- how it ends ---- */

static void tell(struct reactor *reactor, const struct waiter *waiter, uint16_t problem,
                 uint64_t detail)
{
    if (waiter->kind == WAITER_SLOT)
        slot_part_done(reactor, waiter, problem, false, NULL, detail);
    else
        handoff_answer(reactor, waiter, problem, false, NULL, detail);
}

/* It is written nowhere, and does not wait here any more. Only what this process will not lead goes
 * back, and then all of it does: what another process sends meanwhile would come before it. */
static void give_back(struct reactor *reactor, struct parked *parked, uint16_t problem)
{
    if (parked->waiter.kind == WAITER_PEER && parked->returns && problem == PROBLEM_NONE)
        handoff_return(reactor, &parked->waiter, &parked->produce, parked->number,
                       parked->body->data, parked->len);
    else
        tell(reactor, &parked->waiter, problem != PROBLEM_NONE ? problem : PROBLEM_NOT_READY, 0);
    drop(reactor, parked);
}

uint16_t park_pass(struct reactor *reactor, const struct produce *produce, uint32_t number,
                   struct waiter waiter, struct turn_of turn, const uint8_t *bytes, size_t len,
                   struct body *body, uint64_t *detail)
{
    const int32_t leader = reactor->routes[number];
    assert(number < ring_slices(reactor));
    if (waiter.kind == WAITER_PEER || leader == (int32_t)reactor->options.peer)
        return produce_slice(reactor, produce, number, waiter, bytes, len, body, detail);
    if (leader == ROUTE_NONE)
        return PROBLEM_NO_LEADER;
    if (produce->no_forward) {
        *detail = number;
        return PROBLEM_MISDIRECTED;
    }
    return handoff_send(reactor, (uint32_t)leader, produce, number, waiter, turn, bytes, len);
}

static void go_on(struct reactor *reactor, struct parked *parked)
{
    uint64_t detail = 0;
    assert(parked->next == NULL); /* it stands in no lane */
    const uint16_t problem = park_pass(
        reactor, &parked->produce, parked->number, parked->waiter, parked->turn,
        parked->body->data, parked->len, parked->body, &detail);
    if (problem != PROBLEM_NONE)
        tell(reactor, &parked->waiter, problem, detail);
    drop(reactor, parked);
}

/* ---- turns ---- */

/* Which of a lane are to go, in their order, and stand in it no more. */
typedef bool (*chosen)(const struct reactor *reactor, const struct parked *parked, uint64_t of);

static struct parked *take_all(struct reactor *reactor, struct parked_lane *lane, chosen goes,
                               uint64_t of)
{
    struct parked *taken = NULL, **end = &taken, *before = NULL;
    for (struct parked **at = &lane->first; *at != NULL;) {
        if (!goes(reactor, *at, of)) {
            before = *at;
            at = &(*at)->next;
            continue;
        }
        *end = take(reactor, lane, at, before);
        end = &(*end)->next;
    }
    assert((lane->first == NULL) == (lane->last == NULL));
    return taken;
}

static bool is_strange(const struct reactor *reactor, const struct parked *parked, uint64_t of)
{
    return parked->waiter.kind == WAITER_PEER && park_strange(reactor, parked->number);
}

static bool is_late(const struct reactor *reactor, const struct parked *parked, uint64_t of)
{
    return reactor->loop.now_ms >= parked->until_ms;
}

static bool is_of(const struct reactor *reactor, const struct parked *parked, uint64_t of)
{
    return parked->waiter.conn == of;
}

static bool is_any(const struct reactor *reactor, const struct parked *parked, uint64_t of)
{
    return true;
}

static void give_all_back(struct reactor *reactor, struct parked *taken, uint16_t problem)
{
    while (taken != NULL) {
        struct parked *next = taken->next;
        give_back(reactor, taken, problem);
        taken = next;
    }
}

static void tend_lane(struct reactor *reactor, struct parked_lane *lane)
{
    struct park *park = &reactor->park;
    give_all_back(reactor, take_all(reactor, lane, is_strange, 0), PROBLEM_NONE);
    const uint32_t before = park->count;
    assert(lane->listed && (lane->first == NULL) == (lane->last == NULL));
    struct parked *late = take_all(reactor, lane, is_late, 0);
    park->expired += before - park->count;
    give_all_back(reactor, late, PROBLEM_NOT_READY);
    if (reactor->loop.now_ms < lane->retry_ms)
        return;
    lane->retry_ms = 0;
    while (lane->first != NULL && !is_shut(reactor, lane->first->number,
                                           lane->first->waiter.kind == WAITER_PEER)) {
        lane->shut_ms = 0;
        go_on(reactor, take(reactor, lane, &lane->first, NULL));
    }
}

/* When there is something to do in a lane that nobody tells of. */
static int64_t lane_look_ms(const struct reactor *reactor, const struct parked_lane *lane)
{
    int64_t at_ms = lane->first->until_ms;
    assert(at_ms > reactor->loop.now_ms); /* who is late has gone */
    if (lane->retry_ms != 0 && lane->retry_ms < at_ms)
        at_ms = lane->retry_ms;
    return at_ms;
}

/* Where nothing waits any more, and nobody comes: how long it was shut is over. */
static void note_open(struct reactor *reactor)
{
    struct parked_lane *lanes = reactor->park.lanes;
    assert(reactor->park.stirred);
    for (uint32_t i = 0; lanes != NULL && i < ring_slices(reactor); i++)
        if (lanes[i].shut_ms != 0 && !is_shut(reactor, i, false))
            lanes[i].shut_ms = 0;
}

void park_tend(struct reactor *reactor)
{
    struct park *park = &reactor->park;
    if (park->hold_until_ms != 0 && !is_held(reactor)) {
        park->hold_until_ms = 0;
        park->stirred = true;
    }
    if (park->stirred)
        note_open(reactor);
    if (park->count == 0)
        park->stirred = false;
    if (park->count == 0 || (!park->stirred && reactor->loop.now_ms < park->look_ms))
        return;
    assert(park->listed != NULL); /* somebody waits somewhere */
    park->stirred = false;
    park->look_ms = INT64_MAX;
    for (struct parked_lane **at = &park->listed; *at != NULL;) {
        struct parked_lane *lane = *at;
        tend_lane(reactor, lane);
        if (lane->first == NULL) {
            lane->listed = false;
            *at = lane->next;
            continue;
        }
        const int64_t look_ms = lane_look_ms(reactor, lane);
        park->look_ms = look_ms < park->look_ms ? look_ms : park->look_ms;
        at = &lane->next;
    }
}

int64_t park_in_ms(const struct reactor *reactor)
{
    const struct park *park = &reactor->park;
    if (park->count == 0)
        return INT32_MAX;
    const bool held = park->hold_until_ms != 0 && park->hold_until_ms < park->look_ms;
    const int64_t at_ms = held ? park->hold_until_ms : park->look_ms;
    const int64_t left_ms = at_ms - reactor->loop.now_ms;
    assert(park->listed != NULL);
    return park->stirred || left_ms < 0 ? 0 : left_ms < INT32_MAX ? left_ms : INT32_MAX;
}

void park_later(struct reactor *reactor, uint32_t number)
{
    struct parked_lane *lane = lane_of(reactor, number);
    if (lane == NULL)
        return;
    lane->retry_ms = reactor->loop.now_ms + RETRY_MS;
    if (lane->retry_ms < reactor->park.look_ms)
        reactor->park.look_ms = lane->retry_ms;
}

void park_stir(struct reactor *reactor) { reactor->park.stirred = true; }

void park_rerouted(struct reactor *reactor, uint32_t first, uint32_t count)
{
    assert(count > 0 && first + count <= ring_slices(reactor));
    for (uint32_t i = 0; reactor->park.lanes != NULL && i < count; i++)
        reactor->park.lanes[first + i].retry_ms = 0, reactor->park.lanes[first + i].again = true;
    park_stir(reactor);
}

bool park_again(struct reactor *reactor, uint32_t number)
{
    struct parked_lane *lane = lane_of(reactor, number);
    if (lane == NULL || lane->again)
        return false;
    return lane->again = true;
}

void park_hold(struct reactor *reactor, uint32_t ms)
{
    if (reactor->park.most_ms == 0)
        return;
    reactor->park.hold_until_ms = ms > 0 ? reactor->loop.now_ms + ms : 0;
    reactor->park.stirred |= ms == 0;
}

void park_refuse(struct reactor *reactor, uint64_t conn)
{
    for (struct parked_lane *lane = reactor->park.listed; lane != NULL; lane = lane->next)
        give_all_back(reactor, take_all(reactor, lane, is_of, conn), PROBLEM_NOT_READY);
}

void park_forget(struct reactor *reactor, uint64_t conn)
{
    for (struct parked_lane *lane = reactor->park.listed; lane != NULL; lane = lane->next)
        for (struct parked *each = take_all(reactor, lane, is_of, conn), *next; each != NULL;
             each = next) {
            next = each->next;
            drop(reactor, each);
        }
}

void park_end(struct reactor *reactor)
{
    for (struct parked_lane *lane = reactor->park.listed; lane != NULL; lane = lane->next)
        give_all_back(reactor, take_all(reactor, lane, is_any, 0), PROBLEM_NONE);
    assert(reactor->park.count == 0);
}

void park_free(struct reactor *reactor)
{
    for (struct parked_lane *lane = reactor->park.listed; lane != NULL; lane = lane->next)
        for (struct parked *each = lane->first, *next; each != NULL; each = next) {
            next = each->next;
            drop(reactor, each);
        }
    free(reactor->park.lanes);
}
