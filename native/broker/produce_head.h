/* produce_head: what a produce request's head says. */
#ifndef BARCO_PRODUCE_HEAD_H
#define BARCO_PRODUCE_HEAD_H

#include "core/client.h"

/* Reads a produce request's head. 0, or the problem. */
uint16_t produce_head(struct conn *conn, const struct http1_request *head, struct http1_slice topic,
                      struct slot *slot, struct produce *out);
/* Whether events are taken here at all just now for a topic with this name, which clients may use:
 * sets out->topic. 0, or the problem. */
uint16_t produce_topic(struct conn *conn, struct http1_slice topic, struct produce *out);

#endif
