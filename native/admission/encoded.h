/* encoded: bodies that came with a Content-Encoding. */
#ifndef BARCO_ENCODED_H
#define BARCO_ENCODED_H

#include "core/core.h"
#include "http/inflate.h"
#include "log/run.h"

/* Unpacks a whole body into *out, a new one of request_bytes_max at most: its memory is asked for
 * before it is taken, and as much as that is never taken for what says it is more. 0, or the
 * problem. */
uint16_t encoded_unpack(struct reactor *reactor, enum coding coding, const uint8_t *bytes,
                        size_t len, struct body **out);

/* The coding of a body that the upper layer is to get unpacked. What snappy packed it unpacks
 * itself: some say so in this field. 0, or the problem. */
uint16_t encoded_as(const struct http1_request *head, uint8_t *coding);

#endif
