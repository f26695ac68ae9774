/* made: events that the upper layer has made of a request's body, produced on behalf of whoever
 * sent it. How that ends is told by an upcall, and the answer is the upper layer's. */
#ifndef BARCO_MADE_H
#define BARCO_MADE_H

#include "core/core.h"

/* A batch for a topic, of the request with this id, of which nothing else is being produced.
 * Whether its user may is known already; known_only: it makes no topic. at: the slice of events
 * without a key, -1 for any. 0, and UPCALL_PRODUCED follows, or the problem. */
uint16_t made_produce(struct reactor *reactor, uint64_t id, const char *topic, size_t topic_len,
                      bool known_only, int64_t at, const uint8_t *bytes, size_t len);

#endif
