/* cloudevent: CloudEvents in structured mode, JSON, taken apart as binary mode has them: attributes
 * become headers ce-NAME, datacontenttype content-type, and the data are the value. (CloudEvents
 * 1.0.2, its JSON format.) */
#ifndef BARCO_CLOUDEVENT_H
#define BARCO_CLOUDEVENT_H

#include "base/json_walk.h"
#include "format/headers.h"

#define CLOUDEVENT_NO_DATA UINT64_MAX

enum cloudevent_flaw {
    CLOUDEVENT_FINE,
    CLOUDEVENT_SYNTAX,    /* no JSON, or none of objects */
    CLOUDEVENT_LACKS,     /* an attribute that each event has: id, source, specversion, type */
    CLOUDEVENT_ATTRIBUTE, /* a name that is none, a value that is none, or one of them twice */
    CLOUDEVENT_VERSION,   /* another than 1.0 */
    CLOUDEVENT_TIME,
    CLOUDEVENT_DATA,    /* two, no base64, or no text where the type is not JSON */
    CLOUDEVENT_HEADERS, /* too many or too long */
    CLOUDEVENT_FLAWS
};

struct cloudevent {
    uint64_t data_at, data_len; /* from the start of the body; CLOUDEVENT_NO_DATA: it has none */
    bool json;                  /* the data are */
};

/* A body while it is read. Of a batch, a JSON array, each event in turn; else the one. */
struct cloudevents {
    uint8_t *bytes;
    struct json_rest rest;
    uint64_t count; /* how many there are */
};

/* False: this is no JSON, or not of the kind that was announced. */
bool cloudevents_open(uint8_t *bytes, size_t len, bool batch, struct cloudevents *out);
/* The next of `count` events. Changes the text: what is escaped in it is written out where it is.
 * Attributes are added to the draft. */
enum cloudevent_flaw cloudevents_next(struct cloudevents *events, struct headers_draft *draft,
                                      struct cloudevent *event);

#endif
