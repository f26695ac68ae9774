/* calls: what was handed to other processes. */
#ifndef BARCO_CALLS_H
#define BARCO_CALLS_H

#include "core/core.h"
#include "core/produce.h"

struct answer_frame;
struct call_frame;

/* Of a call that comes now. */
struct turn_of turn_new(struct reactor *reactor);
/* Sends a produce call to the process that leads the slice. 0, or the problem. */
uint16_t handoff_send(struct reactor *reactor, uint32_t peer, const struct produce *produce,
                      uint32_t number, struct waiter waiter, struct turn_of turn,
                      const uint8_t *bytes, size_t len);
/* An answer came. False: whoever sent it is not our program. */
bool handoff_answered(struct conn *conn, const struct answer_frame *frame);
/* A call came back: whose it is (WAITER_NONE: it was answered meanwhile), and which slice's. False:
 * whoever sent it is not our program. */
bool handoff_returned(struct conn *conn, const struct call_frame *frame, struct waiter *waiter,
                      struct turn_of *turn, uint32_t *number);
/* One of a slice's came back from there: the others that are out there come back too, or were taken
 * before. Nothing more goes there until then. */
void handoff_await_others(struct reactor *reactor, uint32_t peer, uint32_t number);
/* Gives a call of another process, that is not written here, back to it. */
void handoff_return(struct reactor *reactor, const struct waiter *waiter,
                    const struct produce *produce, uint32_t number, const uint8_t *bytes,
                    size_t len);
void handoff_lost(struct reactor *reactor, struct conn *conn);
/* Some slices have another leader now: what the old one was sent is waited for only briefly. */
void handoff_rerouted(struct reactor *reactor);
/* Answers calls that were handed out too long ago: nobody waits for ever. */
void handoff_deadlines(struct reactor *reactor);

#endif
