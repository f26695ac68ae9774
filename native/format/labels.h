/* labels: pairs of a name and a value, as Loki's and Prometheus' messages have them: fields 1 and 2
 * of a message (Loki's LabelPairAdapter, Prometheus' Label). */
#ifndef BARCO_LABELS_H
#define BARCO_LABELS_H

#include "format/json_draft.h"
#include "format/protobuf.h"

/* One more "name":"value" of an object that is begun; false: the message is malformed. */
static inline bool json_put_label(struct json_draft *draft, struct message label)
{
    struct field name, value;
    if (!message_find(label, 1, &name) || !message_find(label, 2, &value))
        return false;
    if (draft->len > 1)
        JSON_TEXT(draft, ",");
    json_put_string(draft, name.in);
    JSON_TEXT(draft, ":");
    json_put_string(draft, value.in);
    return true;
}

#endif
