/* gather: when a leader with followers builds its next group. */
#ifndef BARCO_GATHER_H
#define BARCO_GATHER_H

#include "core/core.h"

/* A group was built; those on their way may all be committed. */
void gather_built(struct reactor *reactor);
void gather_ended(struct reactor *reactor);
/* How much longer the queue had better gather, in microseconds; 0: build now. */
int64_t gather_left_us(const struct reactor *reactor);

#endif
