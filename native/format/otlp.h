/* otlp: requests of OpenTelemetry's protocol that bring logs, as protobuf or as JSON. */
#ifndef BARCO_OTLP_H
#define BARCO_OTLP_H

#include "format/shipped.h"

/* An ExportLogsServiceRequest. Each record is an event, as JSON: what came as JSON as it stands.
 * Its resource and its scope, as JSON, are headers. A record that is too large, or whose headers
 * are, is of a kind with a flaw. */
enum shipped_flaw otlp_read(struct shipped *shipped, const uint8_t *bytes, size_t len);
enum shipped_flaw otlp_read_json(struct shipped *shipped, const uint8_t *bytes, size_t len);

#endif
