/* admit: who is let in. */
#ifndef BARCO_ADMIT_H
#define BARCO_ADMIT_H

#include "core/guest.h"

void admit_init(struct reactor *reactor);
void admit_free(struct reactor *reactor);
/* Callbacks of the loop. */
void admit_accepted(struct loop *loop, struct listener *listener, int fd);
void admit_accept_failed(struct loop *loop, struct listener *listener, int error);
/* Starts listeners that have stopped. */
void admit_again(struct reactor *reactor);
/* A client's connection is there, and is closed. */
void admit_came(struct guest *guest);
void admit_gone(const struct guest *guest);
/* Twice a second. */
void admit_sweep(struct reactor *reactor);

#endif
