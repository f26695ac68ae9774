/* Requests that the upper layer handles: a bounded queue of their own, fair to each client address.
 *
 * A few of them are given up in a turn of the loop, and fewer the longer the upper layer takes; and
 * while many wait, an append that is under way ends first. So whoever produces waits for about a
 * millisecond of it, however many ask. Who has nothing else under way comes before those with
 * several requests on one connection. */
#include "admission/control.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "admission/access.h"

struct asked {
    struct asked *next, *prev;
    struct lane *lane;
    struct conn *conn;
    uint32_t number; /* of the slot */
    uint8_t *head;
    uint32_t head_len;
    struct body *body;
};

/* Takes it out of its lane, which its turn will find empty, perhaps. */
static void asked_free(struct reactor *reactor, struct asked *asked)
{
    struct lane *lane = asked->lane;
    assert(lane->count > 0 && reactor->asking.count > 0);
    *(asked->prev != NULL ? &asked->prev->next : &lane->oldest) = asked->next;
    *(asked->next != NULL ? &asked->next->prev : &lane->newest) = asked->prev;
    lane->count--;
    reactor->asking.count--;
    free(asked->head);
    if (asked->body != NULL)
        body_release(asked->body);
    free(asked);
}

static void line_up(struct asking *asking, struct lane *lane, bool alone)
{
    assert(!lane->lined_up && lane->count > 0); /* it has one turn in a round */
    lane->next = NULL;
    *(asking->last[alone] != NULL ? &asking->last[alone]->next : &asking->first[alone]) = lane;
    asking->last[alone] = lane;
    lane->lined_up = true;
}

uint16_t control_ask(struct conn *conn, uint32_t number, uint8_t *head, uint32_t head_len,
                     struct body *body)
{
    struct client *client = client_of(conn);
    struct reactor *reactor = conn_reactor(conn);
    struct asking *asking = &reactor->asking;
    const bool alone = client->control_open == 0;
    struct lane *lane = &asking->lanes[alone][client->guest.address];
    const uint64_t open_max = reactor->options.memory_max / CONTROL_REQUEST_BYTES;
    /* The queue is full, or half of it is of this address's; or most that waits is. */
    if (asking->count >= ASKING_MAX || lane->count >= ASKING_MAX / 2 ||
        asking->open[client->guest.address] >= open_max - open_max / 4)
        return PROBLEM_CROWDED;
    struct asked *asked = malloc(sizeof *asked);
    if (asked == NULL)
        return PROBLEM_BUSY;
    *asked = (struct asked){.prev = lane->newest, .lane = lane, .conn = conn, .number = number,
                            .head = head, .head_len = head_len, .body = body};
    *(lane->newest != NULL ? &lane->newest->next : &lane->oldest) = asked;
    lane->newest = asked;
    lane->count++;
    asking->count++;
    if (!lane->lined_up)
        line_up(asking, lane, alone);
    struct slot *slot = conn_slot(conn, number);
    assert(slot != NULL && slot->asked == NULL);
    slot->asked = asked;
    return PROBLEM_NONE;
}

void control_forget(struct conn *conn, struct slot *slot)
{
    if (slot->asked != NULL)
        asked_free(conn_reactor(conn), slot->asked);
    slot->asked = NULL;
}

static struct asked *next_asked(struct asking *asking, bool alone)
{
    while (asking->first[alone] != NULL) {
        struct lane *lane = asking->first[alone];
        assert(lane->lined_up);
        asking->first[alone] = lane->next;
        if (lane->next == NULL)
            asking->last[alone] = NULL;
        lane->lined_up = false;
        if (lane->count == 0)
            continue;
        if (lane->count > 1)
            line_up(asking, lane, alone); /* behind the others, for its next one */
        return lane->oldest;
    }
    return NULL;
}

void control_pace(struct reactor *reactor, int64_t away_us)
{
    struct asking *asking = &reactor->asking;
    if (away_us > AWAY_US_MAX)
        asking->share = asking->share > 2 ? asking->share / 2 : 1;
    else if (away_us < AWAY_US_MAX / 2 && asking->share < ASKING_SHARE_MAX)
        asking->share++;
    assert(asking->share > 0 && asking->share <= ASKING_SHARE_MAX); /* nobody waits for ever */
}

int64_t control_held_us(const struct reactor *reactor)
{
    const struct asking *asking = &reactor->asking;
    if (asking->count <= ASKING_CROWD || log_idle(reactor->log))
        return 0;
    const int64_t left_us = asking->gave_us + HELD_US_MAX - reactor->loop.monotonic_us;
    return left_us > 0 ? left_us : 0;
}

/* Who it is, where the upper layer is not told by a token. */
static void add_name(struct upcall *up, const struct conn *conn)
{
    struct http1_slice name;
    if (!access_certificate(conn, &name))
        return;
    assert(name.len <= sizeof up->name);
    memcpy(up->name, name.p, name.len);
    up->name_len = (uint8_t)name.len;
}

void control_give_up(struct reactor *reactor)
{
    struct asking *asking = &reactor->asking;
    if (asking->count > 0)
        asking->gave_us = reactor->loop.monotonic_us;
    for (uint32_t given = 0; given < asking->share && asking->count > 0; given++) {
        /* One of four goes to those with several under way, so that they are not forgotten. */
        bool alone = ++asking->turn % 4 != 0;
        struct asked *asked = next_asked(asking, alone);
        if (asked == NULL)
            asked = next_asked(asking, !alone);
        assert(asked != NULL); /* a lane in which somebody waits is lined up */
        struct upcall *up = reactor_upcall(reactor, UPCALL_REQUEST,
                                           request_id(conn_id(asked->conn), asked->number));
        up->head = asked->head;
        up->head_len = asked->head_len;
        up->body = asked->body;
        add_name(up, asked->conn);
        asked->head = NULL;
        asked->body = NULL;
        control_forget(asked->conn, conn_slot(asked->conn, asked->number));
    }
}

static void tell_unknown(struct conn *conn, uint32_t slot)
{
    struct upcall *up = reactor_upcall(conn_reactor(conn), UPCALL_PRODUCED,
                                       request_id(conn_id(conn), slot));
    up->status = PROBLEM_UNKNOWN_OUTCOME;
}

void conn_abandoned(struct conn *conn)
{
    struct client *client = client_of(conn);
    for (uint32_t n = client->slot_first; n != client->slot_end; n++) {
        struct slot *slot = slot_at(client, n);
        assert(slot->asked == NULL || slot->control);
        if (slot->asked != NULL && conn->closed) {
            control_forget(conn, slot);
        } else if (slot->withheld != NULL && conn->closed) {
            if (slot->waiting > 0)
                tell_unknown(conn, n);
            else if (slot->kind == SLOT_OPEN) /* its room is given back: nobody need look on */
                reactor_upcall(conn_reactor(conn), UPCALL_ABORTED, request_id(conn_id(conn), n));
        } else if (slot->control && slot->asked == NULL && slot->kind == SLOT_OPEN) {
            reactor_upcall(conn_reactor(conn), UPCALL_ABORTED, request_id(conn_id(conn), n));
            conn_reactor(conn)->aborted++;
            if (slot->waiting > 0 && conn->closed) /* nobody tells of it any more */
                tell_unknown(conn, n);
        }
    }
}
