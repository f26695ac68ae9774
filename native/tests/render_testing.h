/* How long a rendered chunk can be at most: what tests and fuzzing make room for. */
#ifndef BARCO_RENDER_TESTING_H
#define BARCO_RENDER_TESTING_H

#include "read/render.h"

static inline size_t render_bound(const struct chunk_view *view)
{
    /* An event's frame: names, numbers and quotes (under 256), and the escaped topic. A byte of
     * key or value takes at most 6, base64's frame is part of the 256. */
    size_t frame = 256 + 6 * (size_t)view->topic_len;
    return view->count * frame + 6 * (size_t)view->raw_bytes;
}

#endif
