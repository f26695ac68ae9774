/* pick: some events of a chunk as a batch, in an order of the caller's. */
#ifndef BARCO_PICK_H
#define BARCO_PICK_H

#include "format/batch.h"

/* The events at these places of a chunk that chunk_verify() has passed, one behind the other, each
 * with its time, as a batch (malloc'd, in *out). sealer: as batch_seal(). 0: a place is not in the
 * chunk, it is malformed, or there is no memory. */
size_t chunk_pick(struct chunk_sealer *sealer, const struct chunk_view *view,
                  const uint32_t *places, uint32_t count, uint8_t **out);

#endif
