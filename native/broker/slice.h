/* slice: a call, or a share of one, at the process that leads its slice. */
#ifndef BARCO_SLICE_H
#define BARCO_SLICE_H

#include "core/core.h"
#include "core/produce.h"

/* Whether this process can take in for a slice that it leads: 0, or the problem. */
uint16_t slice_takes(const struct reactor *reactor, const struct produce *produce,
                     const struct waiter *waiter);
/* A share that was handed over, at the process that leads the slice. 0, or the problem. */
uint16_t produce_slice(struct reactor *reactor, const struct produce *produce, uint32_t number,
                       struct waiter waiter, const uint8_t *bytes, size_t len, struct body *body,
                       uint64_t *detail);

#endif
