#include "format/json_draft.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

void json_put(struct json_draft *draft, const void *bytes, size_t len)
{
    assert(draft->len <= draft->cap);
    if (len > draft->cap - draft->len) {
        draft->is_full = true;
        return;
    }
    if (len > 0)
        memcpy(draft->out + draft->len, bytes, len);
    draft->len += len;
}

void json_put_string(struct json_draft *draft, struct message text)
{
    const bool is_text = text.p == NULL || utf8_valid(text.p, message_len(&text));
    JSON_TEXT(draft, "\"");
    while (text.p < text.end && !draft->is_full) {
        const size_t plain = json_plain_run(text.p, message_len(&text));
        json_put(draft, text.p, plain);
        text.p += plain;
        if (text.p == text.end)
            break;
        const uint8_t c = *text.p++;
        char escaped[8];
        if (c == '"' || c == '\\')
            json_put(draft, (const char[]){'\\', (char)c}, 2);
        else if (c < 0x20)
            json_put(draft, escaped, (size_t)snprintf(escaped, sizeof escaped, "\\u%04x", c));
        else if (is_text)
            json_put(draft, &c, 1);
        else
            JSON_TEXT(draft, "\\ufffd");
    }
    JSON_TEXT(draft, "\"");
}

void json_put_double(struct json_draft *draft, uint64_t bits)
{
    double value;
    char text[32];
    memcpy(&value, &bits, sizeof value);
    if (isnan(value)) {
        JSON_TEXT(draft, "\"NaN\"");
    } else if (isinf(value)) {
        json_put(draft, value > 0 ? "\"Infinity\"" : "\"-Infinity\"", value > 0 ? 10 : 11);
    } else {
        int len = snprintf(text, sizeof text, "%.15g", value);
        if (strtod(text, NULL) != value)
            len = snprintf(text, sizeof text, "%.17g", value);
        json_put(draft, text, (size_t)len);
    }
}
