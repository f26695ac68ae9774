/* loki: what is pushed to Grafana Loki, as protobuf (unpacked) or as JSON. */
#ifndef BARCO_LOKI_H
#define BARCO_LOKI_H

#include "format/shipped.h"

/* A PushRequest. Each entry's line is an event, its stream's labels, {name="value", ...}, the key
 * and a header; its structured metadata, as JSON, is another. */
enum shipped_flaw loki_read(struct shipped *shipped, const uint8_t *bytes, size_t len);
enum shipped_flaw loki_read_json(struct shipped *shipped, const uint8_t *bytes, size_t len);

#endif
