/* bearer: the token that a request shows, in whichever way it may. */
#ifndef BARCO_BEARER_H
#define BARCO_BEARER_H

#include "http/http1.h"

#define BEARER_BYTES_MAX 135u /* an Authorization header's value; a longer one is nobody's */

/* "Bearer TOKEN", of the only field Authorization: as it is there or, of what a shipper of logs
 * says on its own paths, written to room: Splunk TOKEN, Basic and ApiKey with the base64 of
 * NAME:TOKEN. False: there is none, or more than one, or none of a token. */
bool bearer_of(const struct http1_request *head, char room[BEARER_BYTES_MAX],
               struct http1_slice *out);

#endif
