/* bulk: a body of Elasticsearch's _bulk. */
#ifndef BARCO_BULK_H
#define BARCO_BULK_H

#include "format/shipped.h"

enum bulk_op { BULK_INDEX, BULK_CREATE, BULK_UPDATE, BULK_DELETE };

/* A line that says what is to be done, and the document in the next one, which is the event as it
 * stands. What can not be done is a kind with a flaw; a line that nothing can be made of is one of
 * the whole body. */
enum shipped_flaw bulk_read(struct shipped *shipped, const uint8_t *bytes, size_t len);

#endif
