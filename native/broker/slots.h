/* slots: answers in the order of their requests. */
#ifndef BARCO_SLOTS_H
#define BARCO_SLOTS_H

#include <assert.h>

#include "core/client.h"

/* Whether an upcall says how a produce of it ends, and the answer is the upper layer's. */
static inline bool slot_is_told(const struct slot *slot)
{
    assert(!slot->control || slot->withheld == NULL);
    return slot->control || slot->withheld != NULL;
}

/* The next request's. NULL without memory. */
struct slot *slot_open(struct conn *conn);
void slot_clear(struct conn *conn, struct slot *slot);
/* Of the request with this id, see request_id(), and whose it is; NULL: it was answered, or its
 * client is gone. */
struct slot *slot_of_request(struct reactor *reactor, uint64_t id, struct conn **conn,
                             uint32_t *number);
/* What is withheld of it, if anything is: no longer the slot's. */
struct withheld *slot_let_go(struct conn *conn, struct slot *slot);
/* Nothing of it is being produced any more. */
void slot_parts_clear(struct slot *slot);
/* Sends every answer whose turn has come. */
void flush_slots(struct conn *conn);
/* Nothing more is looked at; it ends when the client has read its answer. */
void client_linger(struct conn *conn);
/* The slot's answer is complete: sends it once all earlier ones are. */
void conn_answer(struct conn *conn, struct slot *slot);
void conn_problem(struct conn *conn, struct slot *slot, uint16_t problem);

#endif
