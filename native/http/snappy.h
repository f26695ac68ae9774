/* snappy: bodies in Snappy's block format, unpacked at once into room that the caller gives. */
#ifndef BARCO_SNAPPY_H
#define BARCO_SNAPPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How long the body says that it is when it is unpacked: to be looked at before room is made for so
 * much. -1: it is malformed. */
int64_t snappy_len(const uint8_t *in, size_t len);
/* Unpacks all of it into exactly so much room. False: it is malformed, or is not so long. */
bool snappy_unpack(const uint8_t *in, size_t len, uint8_t *out, size_t out_len);

#endif
