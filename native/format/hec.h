/* hec: bodies of Splunk's HTTP event collector: objects one behind the other, or plain lines. */
#ifndef BARCO_HEC_H
#define BARCO_HEC_H

#include "format/shipped.h"

/* Objects with an event and what is said of it: host, source, sourcetype and fields become headers,
 * time the time, index the kind's name. An event that is a string is its characters; any other is
 * the JSON as it stands. Nothing of the body is good if one object is not. */
enum shipped_flaw hec_read(struct shipped *shipped, const uint8_t *bytes, size_t len);

/* Each line that is not blank is an event, with these headers (len 0: none), of one kind. */
enum shipped_flaw lines_read(struct shipped *shipped, const uint8_t *bytes, size_t len,
                             const uint8_t *headers, uint32_t headers_len);

#endif
