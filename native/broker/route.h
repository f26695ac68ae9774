/* route: token -> place (a slice of the ring) -> the process that leads it, as Python has told. */
#ifndef BARCO_ROUTE_H
#define BARCO_ROUTE_H

#include "broker/core.h"

/* route.c */
bool route_init(struct reactor *reactor);
int64_t range_token(const struct reactor *reactor, uint32_t range);
int64_t place_token(const struct reactor *reactor, uint32_t place);
uint32_t place_of_token(const struct reactor *reactor, int64_t token);
/* Of a slice of this process's token range. */
uint32_t place_of_slice(const struct reactor *reactor, uint32_t slice);
uint32_t place_for_keyless(const struct reactor *reactor);
uint32_t place_count(const struct reactor *reactor);
/* Whether this process holds the place. */
bool place_is_ours(const struct reactor *reactor, uint32_t place);

#endif
