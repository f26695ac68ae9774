/* control: requests that the upper layer handles, in a queue that is fair to each address. */
#ifndef BARCO_CONTROL_H
#define BARCO_CONTROL_H

#include "core/client.h"

#define CONTROL_REQUEST_BYTES (16u << 10) /* what one under way costs in the upper layer, at most */

/* The request of a slot goes to the upper layer when its turn comes. 0: the head and the body are
 * taken; or the problem. */
uint16_t control_ask(struct conn *conn, uint32_t number, uint8_t *head, uint32_t head_len,
                     struct body *body);
/* Nobody waits for its answer any more. */
void control_forget(struct conn *conn, struct slot *slot);
/* Tells Python of every request of the connection that it is still working on: upcall "aborted". */
void conn_abandoned(struct conn *conn);
/* Hands some of the requests that wait to the upper layer. */
void control_give_up(struct reactor *reactor);
/* For so long none are handed out, so that appends end first; 0: now. */
int64_t control_held_us(const struct reactor *reactor);
/* How long the upper layer took for the last ones. */
void control_pace(struct reactor *reactor, int64_t away_us);

#endif
