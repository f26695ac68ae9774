/* park: produce calls whose slice nobody takes just now wait for who will, instead of a 503.
 *
 * A slice is without a leader for a moment whenever its range changes hands. What comes for it
 * meanwhile is written nowhere, and waits in the order in which it came: bounded in number, bytes
 * and time, and a slice that has been without a leader for longer is refused at once. Then each
 * call goes its usual way: to the log here, or to the process that leads now. A call of another
 * process that will not be taken here after all goes back to it (OP_RETURN), to wait there. */
#ifndef BARCO_PARK_H
#define BARCO_PARK_H

#include "core/core.h"
#include "core/produce.h"

/* Whether a call for the slice has to wait: nobody takes it now, or others are before it. guest: it
 * is another process's. */
bool park_due(struct reactor *reactor, uint32_t number, bool guest);
/* Lets it wait, or the problem: there is no room. returns: who waits takes it back. */
uint16_t park_add(struct reactor *reactor, const struct produce *produce, uint32_t number,
                  struct waiter waiter, struct turn_of turn, bool returns, const uint8_t *bytes,
                  size_t len, struct body *body);
/* The usual way of a call that has not to wait. 0, or the problem. */
uint16_t park_pass(struct reactor *reactor, const struct produce *produce, uint32_t number,
                   struct waiter waiter, struct turn_of turn, const uint8_t *bytes, size_t len,
                   struct body *body, uint64_t *detail);
/* Whether a call of another process for the slice is not for this one, as far as is known. */
bool park_strange(const struct reactor *reactor, uint32_t number);
/* A leader has sent calls for the slice back: it is asked again a moment later. */
void park_later(struct reactor *reactor, uint32_t number);
/* The next call that goes out for the slice says FLAG_AGAIN; whether that is news. */
bool park_again(struct reactor *reactor, uint32_t number);
/* Something has changed, and perhaps somebody takes calls that wait. */
void park_stir(struct reactor *reactor);
/* So have these slices' routes: whoever sent calls back may not be whom they go to. */
void park_rerouted(struct reactor *reactor, uint32_t first, uint32_t count);
/* For so long nothing is taken for the slices that are led here; 0: as usual. */
void park_hold(struct reactor *reactor, uint32_t ms);
/* Once a turn: those whose time has come go on. */
void park_tend(struct reactor *reactor);
/* In how many milliseconds there may be something to do; INT32_MAX: nothing waits. */
int64_t park_in_ms(const struct reactor *reactor);
/* Its client has closed its side, and may have given up: nothing waits on its behalf. */
void park_refuse(struct reactor *reactor, uint64_t conn);
/* A connection is gone: nothing of it is written any more. */
void park_forget(struct reactor *reactor, uint64_t conn);
/* The process ends: all that wait are told, and none waits any more. */
void park_end(struct reactor *reactor);
void park_free(struct reactor *reactor);

#endif
