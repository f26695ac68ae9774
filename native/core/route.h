/* route: token -> slice of the ring -> the process that leads it, as Python has told. */
#ifndef BARCO_ROUTE_H
#define BARCO_ROUTE_H

#include "core/core.h"

/* route.c */
bool route_init(struct reactor *reactor);
int64_t range_token(const struct reactor *reactor, uint32_t range);
int64_t slice_token(const struct reactor *reactor, uint32_t number);
uint32_t slice_of_token(const struct reactor *reactor, int64_t token);
/* The number of a slice of this process's token range. */
uint32_t slice_in_ring(const struct reactor *reactor, uint32_t slice);
uint32_t slice_for_keyless(const struct reactor *reactor);
uint32_t ring_slices(const struct reactor *reactor);
/* Whether the generation here, if one is led, builds groups of what is queued for it. */
bool leads_now(const struct reactor *reactor);
/* Whether this process holds the slice. */
bool slice_is_ours(const struct reactor *reactor, uint32_t number);

#endif
