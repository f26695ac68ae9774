/* runs: events of one slice on their way into the log. */
#ifndef BARCO_RUNS_H
#define BARCO_RUNS_H

#include "core/core.h"
#include "core/produce.h"

/* Checks the producer's sequence, then queues the run. 0, or the problem: then the run is gone. */
uint16_t queue_run(struct reactor *reactor, const struct produce *produce, struct run *run,
                   uint64_t *detail);
/* The body, or a copy of bytes as a new one (then *bytes leads into it). NULL without memory. */
struct body *own_body(struct reactor *reactor, const uint8_t **bytes, size_t len,
                      struct body *body);
/* One event, or one a line. 0, or the problem. */
uint16_t event_run(struct reactor *reactor, const struct produce *produce, uint32_t number,
                   struct waiter waiter, const uint8_t *bytes, size_t len, struct body *body,
                   uint64_t *detail);
uint16_t lines_run(struct reactor *reactor, const struct produce *produce, uint32_t number,
                   struct waiter waiter, const uint8_t *bytes, size_t len, struct body *body,
                   uint64_t *detail);

#endif
