/* calls: what was handed to other processes. */
#ifndef BARCO_CALLS_H
#define BARCO_CALLS_H

#include "broker/core.h"
#include "broker/produce.h"

struct answer_frame;

/* Sends a produce call to the process that leads the slice. 0, or the problem. */
uint16_t handoff_send(struct reactor *reactor, uint32_t peer, const struct produce *produce,
                      uint32_t number, struct waiter waiter, const uint8_t *bytes, size_t len);
/* An answer came. False: whoever sent it is not our program. */
bool handoff_answered(struct conn *conn, const struct answer_frame *frame);
void handoff_lost(struct reactor *reactor, struct conn *conn);
/* Some slices have another leader now: what the old one was sent is waited for only briefly. */
void handoff_rerouted(struct reactor *reactor);
/* Answers calls that were handed out too long ago: nobody waits for ever. */
void handoff_deadlines(struct reactor *reactor);

#endif
