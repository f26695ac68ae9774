/* uri: percent-decoding, query lookup, and the rule for topic names. */
#ifndef BARCO_URI_H
#define BARCO_URI_H

#include <stdbool.h>
#include <stddef.h>

#include "http/http1.h"

/* Decodes %XX (and '+' as a space where plus_is_space) from in to out, which may be the same.
 * The result may hold any byte, NUL too. Returns its length, -1 where a '%' is not followed by two
 * hexadecimal digits, -3 where it is longer than cap. */
int uri_decode(const char *in, size_t len, bool plus_is_space, char *out, size_t cap);

/* Finds the parameter called name (NUL-terminated, compared with the decoded names) in a raw query
 * without '?'. Returns 1 and its raw value, 0 where it is absent, -1 where it is there twice. */
int uri_query_get(const char *query, size_t len, const char *name, struct http1_slice *raw_value);

/* Whether a raw query has a parameter whose name is none of these, of which the last one is NULL;
 * then *unknown is its raw name. Pairs without a name are passed over. */
bool uri_query_unknown(const char *query, size_t len, const char *const *names,
                       struct http1_slice *unknown);

/* True for [a-zA-Z0-9_.-]{1,127} but "." and "..". Names starting with "__" are the caller's
 * business. */
bool topic_name_valid(const char *p, size_t len);
/* Whether it is the name of an internal topic: only this program itself writes there. */
bool topic_name_reserved(const char *p, size_t len);

/* The topic in which the events of another wait until they are due: its name behind this. Clients
 * do not name it, but what waits there is theirs. */
#define DELAYED_PREFIX "__delayed."
#define DELAYED_PREFIX_BYTES (sizeof DELAYED_PREFIX - 1)
bool topic_name_delayed(const char *p, size_t len);

#endif
