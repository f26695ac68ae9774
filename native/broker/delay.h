/* delay: an event that is to be seen later. It is stored at once, under the time when it is due, in
 * the topic where those of its topic wait (DELAYED_PREFIX); who leads the slice appends it to the
 * topic itself when it is due (docs/delays.md). */
#ifndef BARCO_DELAY_H
#define BARCO_DELAY_H

#include "core/client.h"

/* Barco-Deliver-At and Barco-Deliver-After, as they came. */
struct delay {
    struct http1_slice at, after;
    bool again; /* one of them came twice */
};

static inline bool delay_asked(const struct delay *delay)
{
    return delay->at.p != NULL || delay->after.p != NULL;
}

/* One field of a head, if it is one of the two. */
void delay_note(struct delay *delay, const struct http1_slice *name,
                const struct http1_slice *value);
/* What the head asks for, once all of it is read: 0, or the problem. Then the time of the call is
 * when it is due. */
uint16_t delay_apply(struct reactor *reactor, const struct delay *delay,
                     const struct http1_slice *topic, struct produce *produce);
/* The call becomes one for the topic where the events of its own wait: 0, or the problem. */
uint16_t delay_topic(struct reactor *reactor, struct produce *produce);

/* A batch whose events are due at their own times, of which these are the first and the last: 0, or
 * the problem. */
uint16_t delay_batch(const struct reactor *reactor, int64_t first_us, int64_t last_us);
/* Between which an event may be due. */
void delay_bounds(const struct reactor *reactor, int64_t *least_us, int64_t *most_us);
/* Lines that say when they are due, which is within the bounds: the call becomes one for the topic
 * where they wait. 0, or the problem. */
uint16_t delay_lines(struct reactor *reactor, struct produce *produce);

#endif
