/* otlp_json: messages of OpenTelemetry's logs as the JSON that its protocol has for them. */
#ifndef BARCO_OTLP_JSON_H
#define BARCO_OTLP_JSON_H

#include "format/json_draft.h"

/* A LogRecord; *nanos: the time of what it tells or, without one, of when it was seen; 0: none. */
void otlp_write_record(struct json_draft *draft, struct message record, uint64_t *nanos);
/* A Resource, or an InstrumentationScope: what is not in it is not written. */
void otlp_write_resource(struct json_draft *draft, struct message resource);
void otlp_write_scope(struct json_draft *draft, struct message scope);

#endif
