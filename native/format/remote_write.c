#include "format/remote_write.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "format/json_draft.h"
#include "format/labels.h"

#define SAMPLE_OWN_BYTES 128u /* of a sample's JSON, beside its labels */

/* One series while it is read. */
struct series {
    const uint8_t *labels; /* as JSON */
    uint32_t labels_len;
};

static enum shipped_flaw read_labels(struct shipped *shipped, struct message message,
                                     struct series *series)
{
    uint8_t bytes[SHIPPED_KEY_MAX];
    struct json_draft draft = {.out = bytes, .cap = sizeof bytes};
    struct field field;
    int more;
    JSON_TEXT(&draft, "{");
    while ((more = message_next(&message, &field)) > 0) {
        if (field.number == 4)
            return SHIPPED_OP;
        if (field.number == 1 && field.type == WIRE_BYTES && !json_put_label(&draft, field.in))
            return SHIPPED_SYNTAX;
    }
    JSON_TEXT(&draft, "}");
    if (more < 0 || draft.is_full)
        return more < 0 ? SHIPPED_SYNTAX : SHIPPED_KEY;
    series->labels_len = (uint32_t)draft.len;
    return shipped_keep(shipped, bytes, draft.len, &series->labels);
}

/* The event of a sample: its milliseconds, and the bits of its value. */
static enum shipped_flaw take_sample(struct shipped *shipped, const struct series *series,
                                     int64_t millis, uint64_t bits)
{
    const struct shipped_kind kind = {0};
    char number[32];
    enum shipped_flaw flaw;
    uint8_t *room = shipped_room(shipped, series->labels_len + SAMPLE_OWN_BYTES, &flaw);
    struct shipped_event *event = room != NULL ? shipped_next(shipped, &flaw) : NULL;
    if (event == NULL)
        return flaw;
    struct json_draft draft = {.out = room, .cap = series->labels_len + SAMPLE_OWN_BYTES};
    JSON_TEXT(&draft, "{\"labels\":");
    json_put(&draft, series->labels, series->labels_len);
    JSON_TEXT(&draft, ",\"timestamp\":");
    json_put(&draft, number, (size_t)snprintf(number, sizeof number, "%lld", (long long)millis));
    JSON_TEXT(&draft, ",\"value\":");
    json_put_double(&draft, bits);
    JSON_TEXT(&draft, "}");
    assert(!draft.is_full);
    const bool fits = millis > 0 && millis < INT64_MAX / 1000;
    event->time_us = fits ? shipped_time(shipped, millis * 1000) : 0;
    event->key = series->labels;
    event->key_len = series->labels_len;
    event->value = room;
    event->value_len = (uint32_t)draft.len;
    flaw = shipped_kind(shipped, &kind, &event->kind);
    shipped->at++;
    return flaw == SHIPPED_FINE ? shipped_done(shipped, event) : flaw;
}

static enum shipped_flaw read_sample(struct shipped *shipped, const struct series *series,
                                     struct message sample)
{
    struct field field;
    uint64_t bits = 0, millis = 0;
    int more;
    while ((more = message_next(&sample, &field)) > 0) {
        if (field.number == 1 && field.type == WIRE_FIXED64)
            bits = field.value;
        else if (field.number == 2 && field.type == WIRE_VARINT)
            millis = field.value;
    }
    return more < 0 ? SHIPPED_SYNTAX : take_sample(shipped, series, (int64_t)millis, bits);
}

enum shipped_flaw remote_write_read(struct shipped *shipped, const uint8_t *bytes, size_t len)
{
    struct message request = {bytes, bytes + len};
    struct field field, sample;
    enum shipped_flaw flaw = SHIPPED_FINE;
    int more;
    while ((more = message_next(&request, &field)) > 0) {
        struct series series;
        if (field.number != 1 || field.type != WIRE_BYTES)
            continue;
        flaw = read_labels(shipped, field.in, &series);
        while (flaw == SHIPPED_FINE && message_next(&field.in, &sample) > 0)
            if (sample.number == 2 && sample.type == WIRE_BYTES)
                flaw = read_sample(shipped, &series, sample.in);
        if (flaw != SHIPPED_FINE)
            return flaw;
    }
    return more < 0 ? SHIPPED_SYNTAX : SHIPPED_FINE;
}
