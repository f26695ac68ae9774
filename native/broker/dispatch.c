/* Where a call goes: to the slice of its key, here or at another process, or in parts to several.
 */
#include "broker/dispatch.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "broker/batch_runs.h"
#include "broker/calls.h"
#include "broker/delay.h"
#include "broker/headed.h"
#include "broker/keyed_runs.h"
#include "broker/park.h"
#include "core/route.h"
#include "broker/runs.h"
#include "broker/slice.h"
#include "broker/waiter.h"
#include "log/clock.h"

/* The slice of a call without keys of its own: asked for, by key, by producer, or turn by turn. */
static uint16_t choose_slice(struct reactor *reactor, const struct produce *produce,
                             uint32_t *number)
{
    if (produce->has_key) {
        *number = slice_of_token(reactor, produce->key_token);
        return produce->number >= 0 && produce->number != *number ? PROBLEM_BAD_SLICE : 0;
    }
    if (produce->number >= 0)
        *number = (uint32_t)produce->number;
    else if (produce->has_producer)
        *number = slice_of_token(reactor, produce->producer_token);
    else
        *number = slice_for_keyless(reactor);
    return PROBLEM_NONE;
}

/* One slice's share of a call, here or at its owner. 0, or the problem. */
static uint16_t produce_to(struct reactor *reactor, const struct produce *produce, uint32_t number,
                           struct waiter waiter, const uint8_t *bytes, size_t len,
                           struct body *body, uint64_t *detail)
{
    assert(number < ring_slices(reactor));
    const int32_t leader = reactor->routes[number];
    const bool elsewhere = leader != ROUTE_NONE && leader != (int32_t)reactor->options.peer;
    const struct turn_of turn = turn_new(reactor);
    if (!(produce->no_forward && elsewhere) && park_due(reactor, number, false))
        return park_add(reactor, produce, number, waiter, turn, false, bytes, len, body);
    return park_pass(reactor, produce, number, waiter, turn, bytes, len, body, detail);
}

/* ---- batches ---- */

/* What is stored with others of its slice. body: where it is, if it is no one else's. */
static uint16_t send_rows(struct reactor *reactor, const struct produce *produce,
                          const struct batch_facts *facts, uint32_t number, struct waiter waiter,
                          const uint8_t *bytes, size_t len, struct body *body, uint64_t *detail)
{
    assert(produce->content == CONTENT_BATCH && !produce->has_key); /* keys are inside */
    struct produce part = *produce;
    part.content = CONTENT_CUT;
    if (facts->view.base_timestamp_us != 0) { /* the one that is the furthest off: see queue_run */
        const int64_t earliest = facts->view.base_timestamp_us;
        bool near = log_time_plausible(reactor->log, reactor->loop.wall_us, earliest);
        part.timestamp = near ? facts->max_timestamp : earliest;
    }
    part.has_key = false;
    part.verified = true; /* it has been examined, or cut from what was */
    return produce_to(reactor, &part, number, waiter, bytes, len, body, detail);
}

static uint16_t send_cut(struct reactor *reactor, const struct produce *produce,
                         const struct batch_facts *facts, uint32_t number, struct waiter waiter,
                         struct body *cut, uint64_t *detail)
{
    if (cut == NULL)
        return PROBLEM_BUSY;
    assert(cut->len > 0 && cut->len <= cut->capacity);
    const uint16_t problem = send_rows(reactor, produce, facts, number, waiter, cut->data,
                                       cut->len, cut, detail);
    body_release(cut);
    return problem;
}

/* The distinct slices of a batch, in the order of the ring, in an array of its own. */
static uint32_t *list_numbers(const struct reactor *reactor, const struct batch_facts *facts,
                             uint32_t keyless_slice, uint32_t *count)
{
    uint32_t all = ring_slices(reactor);
    assert(keyless_slice < all && facts->columns.count > 0);
    uint8_t *present = calloc(1, all);
    uint32_t most = facts->columns.count < all ? facts->columns.count : all;
    uint32_t *numbers = malloc(most * sizeof *numbers);
    *count = 0;
    if (present != NULL && numbers != NULL) {
        for (uint32_t i = 0; i < facts->columns.count; i++)
            present[facts->numbers[i] == NO_NUMBER ? keyless_slice : facts->numbers[i]] = 1;
        for (uint32_t number = 0; number < all; number++)
            if (present[number])
                numbers[(*count)++] = number;
        assert(*count <= most);
    }
    free(present);
    return numbers;
}

/* Whether the client asked for no hand-off and some of it would need one; *number: where. */
static bool misdirected(const struct reactor *reactor, const struct produce *produce,
                        const uint32_t *numbers, uint32_t count, uint64_t *number)
{
    for (uint32_t i = 0; i < count && produce->no_forward; i++) {
        *number = numbers[i];
        if (reactor->routes[numbers[i]] != (int32_t)reactor->options.peer)
            return true;
    }
    return false;
}

/* Cuts a batch by slice; every part is answered for itself, the call when all are. */
static uint16_t produce_parts(struct reactor *reactor, const struct produce *produce,
                              struct waiter waiter, struct slot *slot,
                              const struct batch_facts *facts, uint32_t keyless_slice,
                              uint64_t *detail)
{
    uint32_t parts;
    assert(slot->parts == NULL && facts->keyed);
    uint32_t *numbers = list_numbers(reactor, facts, keyless_slice, &parts);
    struct body **cuts = calloc(parts + 1, sizeof *cuts);
    uint16_t problem = PROBLEM_NONE;
    if (numbers == NULL || parts == 0 || cuts == NULL)
        problem = PROBLEM_BUSY;
    else if (misdirected(reactor, produce, numbers, parts, detail))
        problem = PROBLEM_MISDIRECTED; /* before anything of it is stored */
    else if ((slot->parts = calloc(parts, sizeof *slot->parts)) == NULL)
        problem = PROBLEM_BUSY;
    if (problem == PROBLEM_NONE) {
        slot->part_count = slot->waiting = parts;
        /* All are cut before the first is sent: sending uses the same scratch memory. */
        for (uint32_t i = 0; i < parts; i++)
            cuts[i] = batch_cut(reactor, facts, numbers[i], keyless_slice);
        for (uint32_t i = 0; i < parts; i++) {
            uint64_t why = 0;
            uint16_t refused = send_cut(reactor, produce, facts, numbers[i], waiter, cuts[i],
                                        &why);
            if (refused != PROBLEM_NONE)
                slot_part_done(reactor, &waiter, refused, false, NULL, why);
        }
    }
    free(cuts);
    free(numbers);
    return problem;
}

static uint16_t batch_produce(struct reactor *reactor, const struct produce *produce,
                              struct waiter waiter, struct slot *slot, const uint8_t *bytes,
                              size_t len, struct body *body, uint64_t *detail)
{
    struct batch_facts facts;
    uint32_t keyless_slice;
    uint16_t problem = batch_examine(reactor, bytes, len, &facts);
    if (problem == PROBLEM_NONE)
        problem = batch_early(reactor, produce, facts.view.base_timestamp_us, detail);
    if (problem == PROBLEM_NONE && produce->delayed) /* without times it has 0 for all */
        problem = delay_batch(reactor, facts.view.base_timestamp_us, facts.max_timestamp);
    if (problem == PROBLEM_NONE)
        problem = choose_slice(reactor, produce, &keyless_slice);
    if (problem != PROBLEM_NONE)
        return problem;
    assert(keyless_slice < ring_slices(reactor));
    bool mixed = false; /* keyed and keyless events in one batch */
    if (facts.keyed)
        for (uint32_t i = 0; i < facts.columns.count; i++)
            mixed |= facts.numbers[i] == NO_NUMBER && keyless_slice != facts.number;
    if (facts.keyed && (!facts.one_slice || mixed)) {
        if (produce->has_producer)
            return PROBLEM_SPLIT_PRODUCER;
        return produce_parts(reactor, produce, waiter, slot, &facts, keyless_slice, detail);
    }
    uint32_t number = facts.keyed ? facts.number : keyless_slice;
    if (produce->number >= 0 && produce->number != number)
        return PROBLEM_BAD_SLICE;
    if (produce->loose && batch_is_raw(&facts.view)) /* then a cut of all of it is the same */
        return send_rows(reactor, produce, &facts, number, waiter, bytes, len, body, detail);
    if (produce->loose || batch_is_large(&facts)) {
        struct body *cut = batch_cut(reactor, &facts, -1, number);
        return send_cut(reactor, produce, &facts, number, waiter, cut, detail);
    }
    bool leading = reactor->log->open && !reactor_disk_full(reactor) && !reactor->io_failed &&
                   ((reactor->options.auto_create && !produce->known_only) ||
                    produce->topic->declared);
    int32_t leader = reactor->routes[number];
    if (leading && leader == (int32_t)reactor->options.peer && !park_due(reactor, number, false))
        return batch_sealed_run(reactor, produce, number, waiter, &facts, bytes, len, body, detail);
    return produce_to(reactor, produce, number, waiter, bytes, len, body, detail);
}

/* ---- lines with keys ---- */

/* What can be known of all shares before the first of them is stored: 0, or the problem. */
static uint16_t shares_problem(struct reactor *reactor, const struct produce *produce,
                               const struct waiter *waiter, const struct keyed_body *keyed,
                               uint64_t *detail)
{
    if (produce->has_producer && keyed->share_count > 1)
        return PROBLEM_SPLIT_PRODUCER;
    for (uint32_t i = 0; i < keyed->share_count; i++) {
        const uint32_t number = keyed->shares[i].number;
        const int32_t leader = reactor->routes[number];
        if (produce->number >= 0 && produce->number != number)
            return PROBLEM_BAD_SLICE;
        const bool elsewhere = leader != ROUTE_NONE && leader != (int32_t)reactor->options.peer;
        if (!(produce->no_forward && elsewhere) && park_due(reactor, number, false))
            continue; /* it waits for who says more of it */
        if (leader == ROUTE_NONE)
            return PROBLEM_NO_LEADER;
        if (!elsewhere) {
            const uint16_t problem = slice_takes(reactor, produce, waiter);
            if (problem != PROBLEM_NONE)
                return problem;
        } else if (produce->no_forward) {
            *detail = number;
            return PROBLEM_MISDIRECTED;
        }
    }
    return PROBLEM_NONE;
}

static uint16_t send_share(struct reactor *reactor, const struct produce *produce,
                           const struct keyed_body *keyed, const struct keyed_share *share,
                           struct waiter waiter, uint64_t *detail)
{
    assert(produce->content == CONTENT_KEYED && !produce->has_key);
    struct produce part = *produce;
    part.content = CONTENT_CUT;
    part.key_field = false;
    if (keyed->timestamp != 0)
        part.timestamp = keyed->timestamp; /* see queue_run */
    if (reactor->routes[share->number] == (int32_t)reactor->options.peer &&
        !park_due(reactor, share->number, false))
        return keyed_run(reactor, &part, keyed, share, waiter, detail);
    struct body *cut = keyed_cut(reactor, keyed, share);
    if (cut == NULL)
        return PROBLEM_BUSY;
    const uint16_t problem = produce_to(reactor, &part, share->number, waiter, cut->data, cut->len,
                                        cut, detail);
    body_release(cut);
    return problem;
}

/* Each slice's share is stored whole or not at all, and answered for itself. */
static uint16_t keyed_produce(struct reactor *reactor, const struct produce *produce,
                              struct waiter waiter, struct slot *slot, const uint8_t *bytes,
                              size_t len, struct body *given, uint64_t *detail)
{
    struct keyed_body keyed;
    uint32_t keyless_slice;
    if (len == 0)
        return PROBLEM_NO_EVENTS;
    uint16_t problem = choose_slice(reactor, produce, &keyless_slice);
    if (problem != PROBLEM_NONE)
        return problem;
    /* Read where it is, and changed: in the request's own body, that nobody else reads. */
    struct body *body = own_body(reactor, &bytes, len, given);
    if (body == NULL)
        return PROBLEM_BUSY;
    assert(slot->parts == NULL && bytes == body->data);
    problem = keyed_examine(reactor, produce, keyless_slice, body->data, len, &keyed, detail);
    keyed.owner = body;
    struct produce to = *produce;
    if (problem == PROBLEM_NONE && keyed.delayed) {
        slot->delayed = true;
        problem = delay_lines(reactor, &to);
    }
    if (problem == PROBLEM_NONE)
        problem = shares_problem(reactor, &to, &waiter, &keyed, detail);
    if (problem == PROBLEM_NONE && keyed.share_count == 1) {
        problem = send_share(reactor, &to, &keyed, keyed.shares, waiter, detail);
    } else if (problem == PROBLEM_NONE &&
               (slot->parts = calloc(keyed.share_count, sizeof *slot->parts)) == NULL) {
        problem = PROBLEM_BUSY;
    } else if (problem == PROBLEM_NONE) {
        slot->part_count = slot->waiting = keyed.share_count;
        for (uint32_t i = 0; i < keyed.share_count; i++) {
            uint64_t why = 0;
            const uint16_t refused = send_share(reactor, &to, &keyed, &keyed.shares[i], waiter,
                                                &why);
            if (refused != PROBLEM_NONE)
                slot_part_done(reactor, &waiter, refused, false, NULL, why);
        }
    }
    body_release(body);
    return problem;
}

/* One event with headers or without a value: from here on it is a cut, which says so itself. */
static uint16_t headed_produce(struct reactor *reactor, const struct produce *produce,
                               struct waiter waiter, const uint8_t *bytes, size_t len,
                               uint64_t *detail)
{
    uint32_t number;
    struct body *cut;
    uint16_t problem = choose_slice(reactor, produce, &number);
    if (problem == PROBLEM_NONE)
        problem = headed_cut(reactor, produce, bytes, len, &cut);
    if (problem != PROBLEM_NONE)
        return problem;
    struct produce part = *produce;
    part.content = CONTENT_CUT;
    part.has_key = part.headed = part.no_value = false;
    part.headers = NULL;
    part.headers_len = 0;
    problem = produce_to(reactor, &part, number, waiter, cut->data, cut->len, cut, detail);
    body_release(cut);
    return problem;
}

uint16_t produce_body(struct reactor *reactor, const struct produce *produce, struct waiter waiter,
                      struct slot *slot, const uint8_t *bytes, size_t len, struct body *body,
                      uint64_t *detail)
{
    uint32_t number;
    assert(slot->kind == SLOT_OPEN && slot->waiting == 0);
    slot->waiting = slot->part_count = 1;
    if (produce->content == CONTENT_BATCH && !produce->has_key)
        return batch_produce(reactor, produce, waiter, slot, bytes, len, body, detail);
    if (produce->headed)
        return headed_produce(reactor, produce, waiter, bytes, len, detail);
    if (produce->content == CONTENT_KEYED)
        return keyed_produce(reactor, produce, waiter, slot, bytes, len, body, detail);
    uint16_t problem = choose_slice(reactor, produce, &number);
    if (problem != PROBLEM_NONE)
        return problem;
    return produce_to(reactor, produce, number, waiter, bytes, len, body, detail);
}
