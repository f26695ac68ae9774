/* Where a call goes: to the slice of its key, here or at another process, or in parts to several.
 */
#include "broker/dispatch.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "broker/batch_runs.h"
#include "broker/calls.h"
#include "broker/route.h"
#include "broker/slice.h"
#include "broker/waiter.h"
#include "log/clock.h"

/* The place of a call without keys of its own: asked for, by key, by producer, or turn by turn. */
static uint16_t choose_place(struct reactor *reactor, const struct produce *produce,
                             uint32_t *place)
{
    if (produce->has_key) {
        *place = place_of_token(reactor, produce->key_token);
        return produce->place >= 0 && produce->place != *place ? PROBLEM_BAD_SLICE : 0;
    }
    if (produce->place >= 0)
        *place = (uint32_t)produce->place;
    else if (produce->has_producer)
        *place = place_of_token(reactor, produce->producer_token);
    else
        *place = place_for_keyless(reactor);
    return PROBLEM_NONE;
}

/* One slice's share of a call, here or at its owner. 0, or the problem. */
static uint16_t produce_to(struct reactor *reactor, const struct produce *produce, uint32_t place,
                           struct waiter waiter, const uint8_t *bytes, size_t len,
                           struct body *body, uint64_t *detail)
{
    assert(place < place_count(reactor));
    int32_t leader = reactor->routes[place];
    if (leader == (int32_t)reactor->options.peer)
        return produce_slice(reactor, produce, place, waiter, bytes, len, body, detail);
    if (leader == ROUTE_NONE)
        return PROBLEM_NO_LEADER;
    if (produce->no_forward) {
        *detail = place;
        return PROBLEM_MISDIRECTED;
    }
    return handoff_send(reactor, (uint32_t)leader, produce, place, waiter, bytes, len);
}

/* ---- batches ---- */

static uint16_t send_cut(struct reactor *reactor, const struct produce *produce,
                         const struct batch_facts *facts, uint32_t place, struct waiter waiter,
                         struct body *cut, uint64_t *detail)
{
    struct produce part = *produce;
    part.content = CONTENT_CUT;
    if (facts->view.base_timestamp_us != 0) { /* the one that is the furthest off: see queue_run */
        const int64_t earliest = facts->view.base_timestamp_us;
        bool near = log_time_plausible(reactor->log, reactor->loop.wall_us, earliest);
        part.timestamp = near ? facts->max_timestamp : earliest;
    }
    part.has_key = false;
    if (cut == NULL)
        return PROBLEM_BUSY;
    uint16_t problem = produce_to(reactor, &part, place, waiter, cut->data, cut->len, cut,
                                  detail);
    body_release(cut);
    return problem;
}

/* The distinct places of a batch, in the order of the ring, in an array of its own. */
static uint32_t *list_places(const struct reactor *reactor, const struct batch_facts *facts,
                             uint32_t keyless_place, uint32_t *count)
{
    uint32_t all = place_count(reactor);
    uint8_t *present = calloc(1, all);
    uint32_t most = facts->columns.count < all ? facts->columns.count : all;
    uint32_t *places = malloc(most * sizeof *places);
    *count = 0;
    if (present != NULL && places != NULL) {
        for (uint32_t i = 0; i < facts->columns.count; i++)
            present[facts->places[i] == NO_PLACE ? keyless_place : facts->places[i]] = 1;
        for (uint32_t place = 0; place < all; place++)
            if (present[place])
                places[(*count)++] = place;
        assert(*count <= most);
    }
    free(present);
    return places;
}

/* Whether the client asked for no hand-off and some of it would need one; *place: where. */
static bool misdirected(const struct reactor *reactor, const struct produce *produce,
                        const uint32_t *places, uint32_t count, uint64_t *place)
{
    for (uint32_t i = 0; i < count && produce->no_forward; i++) {
        *place = places[i];
        if (reactor->routes[places[i]] != (int32_t)reactor->options.peer)
            return true;
    }
    return false;
}

/* Cuts a batch by slice; every part is answered for itself, the call when all are. */
static uint16_t produce_parts(struct reactor *reactor, const struct produce *produce,
                              struct waiter waiter, struct slot *slot,
                              const struct batch_facts *facts, uint32_t keyless_place,
                              uint64_t *detail)
{
    uint32_t parts;
    assert(slot->parts == NULL);
    uint32_t *places = list_places(reactor, facts, keyless_place, &parts);
    struct body **cuts = calloc(parts + 1, sizeof *cuts);
    uint16_t problem = PROBLEM_NONE;
    if (places == NULL || parts == 0 || cuts == NULL)
        problem = PROBLEM_BUSY;
    else if (misdirected(reactor, produce, places, parts, detail))
        problem = PROBLEM_MISDIRECTED; /* before anything of it is stored */
    else if ((slot->parts = calloc(parts, sizeof *slot->parts)) == NULL)
        problem = PROBLEM_BUSY;
    if (problem == PROBLEM_NONE) {
        slot->part_count = slot->waiting = parts;
        /* All are cut before the first is sent: sending uses the same scratch memory. */
        for (uint32_t i = 0; i < parts; i++)
            cuts[i] = batch_cut(reactor, facts, places[i], keyless_place);
        for (uint32_t i = 0; i < parts; i++) {
            uint64_t why = 0;
            uint16_t refused = send_cut(reactor, produce, facts, places[i], waiter, cuts[i],
                                        &why);
            if (refused != PROBLEM_NONE)
                slot_part_done(reactor, &waiter, refused, false, NULL, why);
        }
    }
    free(cuts);
    free(places);
    return problem;
}

static uint16_t batch_produce(struct reactor *reactor, const struct produce *produce,
                              struct waiter waiter, struct slot *slot, const uint8_t *bytes,
                              size_t len, struct body *body, uint64_t *detail)
{
    struct batch_facts facts;
    uint32_t keyless_place;
    uint16_t problem = batch_examine(reactor, bytes, len, &facts);
    if (problem == PROBLEM_NONE)
        problem = choose_place(reactor, produce, &keyless_place);
    if (problem != PROBLEM_NONE)
        return problem;
    bool mixed = false; /* keyed and keyless events in one batch */
    if (facts.keyed)
        for (uint32_t i = 0; i < facts.columns.count; i++)
            mixed |= facts.places[i] == NO_PLACE && keyless_place != facts.place;
    if (facts.keyed && (!facts.one_slice || mixed)) {
        if (produce->has_producer)
            return PROBLEM_SPLIT_PRODUCER;
        return produce_parts(reactor, produce, waiter, slot, &facts, keyless_place, detail);
    }
    uint32_t place = facts.keyed ? facts.place : keyless_place;
    if (produce->place >= 0 && produce->place != place)
        return PROBLEM_BAD_SLICE;
    if (batch_is_large(&facts)) {
        struct body *cut = batch_cut(reactor, &facts, -1, place);
        return send_cut(reactor, produce, &facts, place, waiter, cut, detail);
    }
    bool leading = reactor->log->open && !reactor->disk_full && !reactor->io_failed &&
                   (reactor->options.auto_create || produce->topic->declared);
    int32_t leader = reactor->routes[place];
    if (leading && leader == (int32_t)reactor->options.peer)
        return batch_sealed_run(reactor, produce, place, waiter, &facts, bytes, len, body, detail);
    return produce_to(reactor, produce, place, waiter, bytes, len, body, detail);
}

uint16_t produce_body(struct reactor *reactor, const struct produce *produce, struct waiter waiter,
                      struct slot *slot, const uint8_t *bytes, size_t len, struct body *body,
                      uint64_t *detail)
{
    uint32_t place;
    assert(slot->kind == SLOT_OPEN && slot->waiting == 0);
    slot->waiting = slot->part_count = 1;
    if (produce->content == CONTENT_BATCH && !produce->has_key)
        return batch_produce(reactor, produce, waiter, slot, bytes, len, body, detail);
    uint16_t problem = choose_place(reactor, produce, &place);
    if (problem != PROBLEM_NONE)
        return problem;
    return produce_to(reactor, produce, place, waiter, bytes, len, body, detail);
}
