/* paths: what has to be known of a request's path before its body comes. */
#ifndef BARCO_PATHS_H
#define BARCO_PATHS_H

#include <stdbool.h>

#include "http/http1.h"

/* /v1/topic/{topic}/messages */
bool path_is_produce(const struct http1_request *head, struct http1_slice *topic);
/* PUT /v1/writes/.../staged: events that wait for a commit, as large as a produce may be. */
bool path_is_stage(const struct http1_request *head);
/* POST (Elasticsearch: or PUT) of events as shippers of logs send them, to the paths that they
 * know: such a body may be as large as a produce, and be packed. */
bool path_is_shipped(const struct http1_request *head);
/* The same paths, whatever the method is: how a token may be shown there. */
bool path_is_shippers(const struct http1_request *head);

#endif
