#include "format/json_draft.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

/* What is written as it is, and quotes with their backslash: as much as can be done 16 bytes at a
 * time; where there are fewer, or no room for all of them, the rest is for who comes behind. */
static void put_quickly(struct json_draft *draft, struct message *text)
{
    uint8_t *out = draft->out + draft->len;
    const uint8_t *const last = draft->out + draft->cap;
    const uint8_t *p = text->p;
    while (text->end - p >= JSON_STEP && last - out >= JSON_STEP + 2) {
        memcpy(out, p, JSON_STEP); /* what is behind its plain bytes is written over */
        const unsigned plain = json_plain_step(p);
        p += plain;
        out += plain;
        if (plain == JSON_STEP)
            continue;
        if (*p != '"' && *p != '\\')
            break;
        *out++ = '\\';
        *out++ = *p++;
    }
    text->p = p;
    draft->len = (size_t)(out - draft->out);
    assert(draft->len <= draft->cap && p <= text->end);
}

void json_put_string(struct json_draft *draft, struct message text)
{
    const bool is_text = text.p == NULL || utf8_valid(text.p, message_len(&text));
    JSON_TEXT(draft, "\"");
    while (text.p < text.end && !draft->is_full) {
        put_quickly(draft, &text);
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
