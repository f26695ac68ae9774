/* reactor: a worker's event loop: connections, the log's appends, and what Python must decide. */
#ifndef BARCO_REACTOR_H
#define BARCO_REACTOR_H

#include "admission/admit.h"
#include "broker/answer.h"
#include "broker/calls.h"
#include "broker/commit.h"
#include "admission/control.h"
#include "broker/dispatch.h"
#include "core/frames.h"
#include "core/gather.h"
#include "broker/handoff_in.h"
#include "admission/host.h"
#include "broker/intake.h"
#include "core/client.h"
#include "broker/park.h"
#include "core/route.h"
#include "admission/shed.h"
#include "broker/slice.h"
#include "broker/slots.h"
#include "broker/waiter.h"

struct reactor *reactor_new(const struct reactor_options *options, const char **error);
void reactor_free(struct reactor *reactor);
/* -1: there is no such shard or peer, or this process can not lead it. */
int reactor_set_route(struct reactor *reactor, uint32_t first, uint32_t count, int32_t peer,
                      const char *endpoint);
/* Which slices of its token range this process has, from the next generation on. It leads none that
 * it does not have: routes that say so go. -1: there are no such slices, or no memory, or a
 * generation is open here, or something of it is still under way. */
int reactor_set_slices(struct reactor *reactor, uint32_t first, uint32_t last);
/* The generation here begins to be led: its first group is built. */
void reactor_open(struct reactor *reactor, const uint8_t *parents, uint32_t len);
/* A state that was read has other slices, perhaps: the same for who asks whose a slice is. */
void reactor_slices_read(struct reactor *reactor);
/* One stay in the loop: until upcalls, a ready selector or the time-out. timeout_ns -1: for ever.
 */
void reactor_run(struct reactor *reactor, int64_t timeout_ns);
void reactor_drain(struct reactor *reactor);
/* Ends the generation here: no append, no acknowledgement any more. Waiting calls are answered. */
void reactor_fence(struct reactor *reactor);
/* True when no append is under way and every answer has been handed to the kernel. */
bool reactor_idle(const struct reactor *reactor);

#endif
