/* traceparent: the field by which a request says which trace it is a part of (W3C Trace Context).
 */
#ifndef BARCO_TRACEPARENT_H
#define BARCO_TRACEPARENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/http1.h"

#define TRACESTATE_BYTES_MAX 512u /* so much of its companion everybody has to pass on */

/* VERSION-TRACE-PARENT-FLAGS, in lower case, and of a version that we do not know perhaps more. */
bool traceparent_valid(const char *text, size_t len);
/* Of a valid one the ids. False: it says that the trace is not recorded. */
bool traceparent_read(const char *text, uint8_t trace[16], uint8_t parent[8]);
/* Of a valid one the id of the trace, as it says it. */
struct http1_slice traceparent_trace(const char *text);

#endif
