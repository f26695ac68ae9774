/* lent: stored chunks of one stream that answers are sent from, where they lie in the arena.
 *
 * Lending keeps nothing from being overwritten. Before the log writes where lent bytes lie, it
 * moves them out into memory of their own, so that a slow client costs what a copy would have
 * cost, and only if it is slow. The kernel never holds on to lent bytes either: they are sent
 * without waiting (see net.h), and what has not been submitted yet is submitted before they move.
 */
#ifndef BARCO_LENT_H
#define BARCO_LENT_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "log/log_state.h"
#include "loop/source.h"

#define LENT_PIECES_MAX 256u

struct lent {
    struct source source;
    struct lent *next, **prev; /* of all; prev NULL: it is in no arena (any more) */
    struct log *log;
    uint64_t low; /* log position of its first byte */
    uint32_t count;
    struct iovec pieces[];
};

/* The chunks of entries [first, end), which are in memory: at most LENT_PIECES_MAX. NULL without
 * memory, or where they would soon have to be moved: then copying is cheaper. */
struct lent *lent_new(struct log *log, const struct index_entry *first,
                      const struct index_entry *end);
void lent_free(struct lent *lent);
/* Moves it out of the arena, if it still is there. False without memory: it is lost. */
bool lent_own(struct lent *lent);
/* All that lies before this position is moved out. False: the kernel is still to read some. */
bool lent_reclaim(struct log *log, uint64_t low);

#endif
