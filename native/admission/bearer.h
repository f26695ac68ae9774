/* bearer: the token that a request shows, in whichever way it may. */
#ifndef BARCO_BEARER_H
#define BARCO_BEARER_H

#include "http/http1.h"

#define TOKEN_BYTES_MAX 128u /* a longer one is nobody's, unhashed */
#define NAMED_BYTES_MAX 288u /* base64 of a name, a colon and the longest token */
#define SHOWN_BYTES_MAX (7u + NAMED_BYTES_MAX) /* an Authorization header's value */
#define NAMED_ROOM_BYTES (NAMED_BYTES_MAX / 4 * 3)

/* What an Authorization header says. */
struct bearer {
    struct http1_slice token;
    struct http1_slice name; /* whose it has to be; p NULL: that is not said */
};

/* The value of the only field Authorization: "Bearer TOKEN", "Basic" with the base64 of NAME:TOKEN,
 * or, on paths of shippers of logs alone, "Splunk TOKEN", and "ApiKey" with the base64 of ID:TOKEN.
 * The same bytes say the same on each path where they are taken. False: there is none, or more than
 * one, or of another kind, or one that is too long. */
bool bearer_of(const struct http1_request *head, struct http1_slice *value);
/* Whether there is such a field at all, whatever it says. */
bool bearer_is_there(const struct http1_request *head);
/* What such a value says, whose base64 is unpacked to room. False: no token. */
bool bearer_read(const struct http1_slice *value, char room[NAMED_ROOM_BYTES], struct bearer *out);
/* Whether it is "Bearer TOKEN", so that its sender asks for no name and password. */
bool bearer_is_bare(const struct http1_slice *value);

#endif
