/* dispatch: a call whose body is complete goes to whoever leads its slices. */
#ifndef BARCO_DISPATCH_H
#define BARCO_DISPATCH_H

#include "core/client.h"

/* The body is complete: bytes[0, len), inside body when that is given. 0, or the problem; then
 * nothing was stored. */
uint16_t produce_body(struct reactor *reactor, const struct produce *produce, struct waiter waiter,
                      struct slot *slot, const uint8_t *bytes, size_t len, struct body *body,
                      uint64_t *detail);

#endif
