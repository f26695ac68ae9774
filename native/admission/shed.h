/* shed: what connections hold, and who has to go or to wait when that is too much. */
#ifndef BARCO_SHED_H
#define BARCO_SHED_H

#include "core/guest.h"

/* Requests of others come first; little is read of it at a time from now on. */
void guest_yield(struct guest *guest);
void guest_unyield(struct guest *guest);

/* Once a turn: closes connections while all of them hold more than they may. */
void shed_held(struct reactor *reactor);
/* Closes connections that read nothing, until so many bytes of answers are free; how many are. */
uint64_t shed_answers(struct reactor *reactor, uint64_t bytes);
/* In how many microseconds those that have yielded have a turn; INT32_MAX: there are none. */
int64_t refuse_in_us(const struct reactor *reactor);
/* Some of those that have yielded go on. */
void resume_yielded(struct reactor *reactor);
/* Once a turn: connections that waited for memory go on, where some came free. */
void unblock(struct reactor *reactor);

#endif
