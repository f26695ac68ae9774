/* Lines of JSON as server-sent events (WHATWG HTML, 9.2). */
#ifndef BARCO_EVENTS_H
#define BARCO_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EVENT_FRAME_BYTES 60u /* around a line, at most, beside the id's ends */

/* What stands before and behind the place of an event in its id: other slices' places, if any. */
struct event_id {
    const char *before, *behind;
    size_t before_len, behind_len;
    bool listed; /* the place as `epoch.offset`, else as a cursor */
};

/* Each line of the text, the first of which is the event of this offset, with the place behind it
 * as its id. The bytes written; `out` has room for EVENT_FRAME_BYTES and both ends of the id more
 * for each line. */
size_t frame_events(const char *text, size_t len, uint64_t offset, uint32_t epoch,
                    const struct event_id *id, char *out);

#endif
