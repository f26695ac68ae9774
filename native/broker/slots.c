/* The order of answers: each request has a slot, and is answered when all earlier ones are. */
#include "broker/slots.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "broker/answer.h"
#include "admission/control.h"
#include "core/spans.h"

static bool slots_grow(struct conn *conn)
{
    struct client *client = client_of(conn);
    uint32_t capacity = client->slot_capacity ? client->slot_capacity * 2 : 4;
    assert((capacity & (capacity - 1)) == 0); /* numbers are masked to indexes */
    struct slot *slots = calloc(capacity, sizeof *slots);
    if (slots == NULL)
        return false;
    for (uint32_t n = client->slot_first; n != client->slot_end; n++)
        slots[n & (capacity - 1)] = client->slots[n & (client->slot_capacity - 1)];
    free(client->slots);
    client->slots = slots;
    client->slot_capacity = capacity;
    return true;
}

struct slot *slot_open(struct conn *conn)
{
    struct client *client = client_of(conn);
    if (client->slot_end - client->slot_first == client->slot_capacity && !slots_grow(conn))
        return NULL;
    struct slot *slot = &client->slots[client->slot_end++ & (client->slot_capacity - 1)];
    assert(client->slot_end - client->slot_first <= client->slot_capacity);
    memset(slot, 0, sizeof *slot);
    note_wary(client);
    return slot;
}

struct withheld *slot_let_go(struct conn *conn, struct slot *slot)
{
    struct reactor *reactor = conn_reactor(conn);
    struct withheld *withheld = slot->withheld;
    if (withheld == NULL)
        return NULL;
    assert(reactor->withheld > 0 && slot->withheld_bytes <= reactor->withheld_bytes);
    reactor->withheld--;
    reactor->withheld_bytes -= slot->withheld_bytes;
    slot->withheld = NULL;
    slot->withheld_bytes = 0;
    return withheld;
}

void slot_clear(struct conn *conn, struct slot *slot)
{
    struct client *client = client_of(conn);
    assert(slot->held <= conn_reactor(conn)->control_bytes);
    assert(slot->control <= client->control_open);
    conn_reactor(conn)->control_bytes -= slot->held;
    control_forget(conn, slot);
    conn_reactor(conn)->asking.open[client->guest.address] -= slot->control;
    conn_reactor(conn)->control_open -= slot->control;
    client->control_open -= slot->control;
    free(slot_let_go(conn, slot));
    slot->held = 0;
    slot->control = false;
    outputs_free(slot->first);
    span_drop(conn_reactor(conn), slot);
    free(slot->parts);
    free(slot->id);
    slot->first = slot->last = NULL;
    slot->parts = NULL;
    slot->id = NULL;
}

void slot_parts_clear(struct slot *slot)
{
    assert(slot_is_told(slot));
    free(slot->parts);
    slot->parts = NULL;
    slot->waiting = slot->part_count = 0;
    slot->problem = PROBLEM_NONE;
    slot->expected = 0;
}

struct slot *slot_of_request(struct reactor *reactor, uint64_t id, struct conn **conn,
                             uint32_t *number)
{
    *conn = loop_conn(&reactor->loop, id >> 24);
    if (*conn == NULL || (*conn)->closed)
        return NULL;
    /* The id holds the slot's lower 24 bits; a connection has far fewer open ones. */
    *number = (client_of(*conn)->slot_first & ~0xffffffu) | (uint32_t)(id & 0xffffff);
    struct slot *slot = conn_slot(*conn, *number);
    if (slot == NULL)
        slot = conn_slot(*conn, *number += 0x1000000u);
    return slot != NULL && slot->kind == SLOT_OPEN ? slot : NULL;
}

void client_linger(struct conn *conn)
{
    client_of(conn)->state = STATE_LINGER;
    conn->since_ms = conn->loop->now_ms;
    conn->in_len = 0;
}

/* Sends every answer whose turn has come. */
void flush_slots(struct conn *conn)
{
    struct client *client = client_of(conn);
    while (client->slot_first != client->slot_end && !conn->closed) {
        struct slot *slot = slot_at(client, client->slot_first);
        if (client->hearer != NULL && slot->kind != SLOT_STREAM)
            return; /* what it asked for behind that is not answered any more */
        if (slot->kind == SLOT_OPEN) {
            if (slot->want_continue) {
                slot->want_continue = false;
                static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
                conn_write(conn, text, sizeof text - 1);
            }
            return;
        }
        bool close = slot->close && slot->kind != SLOT_STREAM;
        assert(slot->asked == NULL); /* who waits to be given up has no answer */
        answer_render(conn, slot);
        if (slot->span != NULL)
            span_answered(conn_reactor(conn), slot,
                          slot->kind == SLOT_PROBLEM  ? answer_status(slot->problem)
                          : slot->kind == SLOT_PYTHON ? slot->status : 200);
        slot_clear(conn, slot);
        client->slot_first++;
        if (close) {
            client_linger(conn);
            return;
        }
    }
}

void conn_answer(struct conn *conn, struct slot *slot)
{
    struct client *client = client_of(conn);
    assert(slot->kind != SLOT_OPEN && client->slot_first != client->slot_end);
    if (slot == slot_at(client, client->slot_first))
        flush_slots(conn);
    /* A pipeline that was full may go on. */
    if (conn->in_len > 0 && client->state != STATE_LINGER)
        conn_mark_dirty(conn);
}

void conn_problem(struct conn *conn, struct slot *slot, uint16_t problem)
{
    assert(slot->kind == SLOT_OPEN && problem > PROBLEM_NONE && problem < PROBLEM_COUNT);
    slot->kind = SLOT_PROBLEM;
    slot->problem = problem;
    conn_reactor(conn)->problems++;
    guest_of(conn)->refused++;
    conn_answer(conn, slot);
}
