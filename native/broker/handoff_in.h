/* handoff_in: the protocol between the processes of a cluster. */
#ifndef BARCO_HANDOFF_IN_H
#define BARCO_HANDOFF_IN_H

#include "core/core.h"

struct seal;

extern const struct protocol peer_protocol;

/* Takes a connection on which calls go to another process; the one before is closed. -1: there is
 * no such process, or no memory. seal: whose session it goes on with; NULL: in plain. */
int reactor_attach_peer(struct reactor *reactor, uint32_t peer, int fd, struct seal *seal);
/* Takes a connection that this process of another broker has opened to hand events off; it has one,
 * and what it opened before is closed. */
int reactor_adopt_peer(struct reactor *reactor, int fd, uint32_t peer, struct seal *seal);

#endif
