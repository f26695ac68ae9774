/* remote_write: samples as Prometheus sends them, in its protocol's first version, unpacked. */
#ifndef BARCO_REMOTE_WRITE_H
#define BARCO_REMOTE_WRITE_H

#include "format/shipped.h"

/* A WriteRequest. Each sample is an event, {"labels": {...}, "timestamp": milliseconds, "value": a
 * number}, and its series' labels, as JSON, the key. Exemplars and metadata are passed over; a
 * native histogram is SHIPPED_OP. */
enum shipped_flaw remote_write_read(struct shipped *shipped, const uint8_t *bytes, size_t len);

#endif
