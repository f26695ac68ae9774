/* waiter: whoever waits for events to be stable is told: a client, another process, Python. */
#ifndef BARCO_WAITER_H
#define BARCO_WAITER_H

#include "core/client.h"

/* One of a slot's parts has an answer. */
void slot_part_done(struct reactor *reactor, const struct waiter *waiter, uint16_t problem,
                    bool duplicate, const struct part *part, uint64_t detail);
void produce_stable(struct reactor *reactor, struct run *run);
/* The run's events were given up: perhaps stored (grouped), or certainly not. */
void produce_lost(struct reactor *reactor, struct run *run, enum lost_how how);
void handoff_answer(struct reactor *reactor, const struct waiter *waiter, uint16_t problem,
                    bool duplicate, const struct part *part, uint64_t detail);

#endif
