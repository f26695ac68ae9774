/* A request's headers, for tests and fuzzing: the broker looks at all of them as they come. */
#ifndef BARCO_HTTP1_TESTING_H
#define BARCO_HTTP1_TESTING_H

#include <string.h>
#include <strings.h>

#include "http/http1.h"

/* The first value of a header, or NULL. */
static inline const struct http1_slice *header_get(const struct http1_request *r, const char *name)
{
    for (uint16_t i = 0; i < r->header_count; i++)
        if (r->headers[i].name.len == strlen(name) &&
            strncasecmp(r->headers[i].name.p, name, strlen(name)) == 0)
            return &r->headers[i].value;
    return NULL;
}

#endif
