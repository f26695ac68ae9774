/* slots: answers in the order of their requests. */
#ifndef BARCO_SLOTS_H
#define BARCO_SLOTS_H

#include "core/client.h"

/* The next request's. NULL without memory. */
struct slot *slot_open(struct conn *conn);
void slot_clear(struct conn *conn, struct slot *slot);
/* Sends every answer whose turn has come. */
void flush_slots(struct conn *conn);
/* Nothing more is looked at; it ends when the client has read its answer. */
void client_linger(struct conn *conn);
/* The slot's answer is complete: sends it once all earlier ones are. */
void conn_answer(struct conn *conn, struct slot *slot);
void conn_problem(struct conn *conn, struct slot *slot, uint16_t problem);

#endif
