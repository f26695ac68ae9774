/* given_id: what a client calls its request, so that others find it again: in answers, in the log,
 * at whoever the request is handed on to. */
#ifndef BARCO_GIVEN_ID_H
#define BARCO_GIVEN_ID_H

#include "http/http1.h"

#define GIVEN_ID_BYTES_MAX 128u /* more is none */

/* Of these letters and digits, and . _ ~ + / = : @ - : nothing that ends a line, or a field. */
bool given_id_valid(const char *text, size_t len);
/* X-Request-Id, or else the trace of traceparent. False: it says neither, one of them twice, or
 * what is none; that refuses nobody, since whatever it came through may have added it. */
bool given_id_find(const struct http1_request *head, struct http1_slice *id);

#endif
