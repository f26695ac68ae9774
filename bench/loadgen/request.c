#include "request.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    enum part_kind kind;
} places[] = {
    {"{topic}", PART_TOPIC},
    {"{key}", PART_KEY},
    {"{length}", PART_LENGTH},
    {"{cursor}", PART_CURSOR},
};

static int add(struct request_template *t, enum part_kind kind, const char *text, size_t len)
{
    if (t->count == REQUEST_PARTS_MAX)
        return -1;
    if (kind != PART_TEXT || len)
        t->parts[t->count++] = (struct part){kind, text, (uint32_t)len};
    return 0;
}

int request_compile(struct request_template *t, const char *text)
{
    *t = (struct request_template){0};
    t->source = strdup(text);
    if (!t->source || strlen(text) > REQUEST_HEAD_BYTES_MAX / 2)
        return -1;
    const char *start = t->source, *p = start;
    while (*p) {
        size_t i, n = sizeof places / sizeof places[0];
        for (i = 0; i < n; i++)
            if (!strncmp(p, places[i].name, strlen(places[i].name)))
                break;
        if (i == n) {
            p++;
            continue;
        }
        if (add(t, PART_TEXT, start, (size_t)(p - start)) || add(t, places[i].kind, NULL, 0))
            return -1;
        p += strlen(places[i].name);
        start = p;
    }
    return add(t, PART_TEXT, start, (size_t)(p - start));
}

static char *digits(char *out, uint64_t value, int width)
{
    for (int i = width - 1; i >= 0; i--, value /= 10)
        out[i] = (char)('0' + value % 10);
    return out + width;
}

static int width_of(uint64_t value)
{
    int width = 1;
    while (value >= 10) {
        value /= 10;
        width++;
    }
    return width;
}

size_t request_render(const struct request_template *t, const struct request_values *v, char *out)
{
    char *p = out;
    for (int i = 0; i < t->count; i++) {
        const struct part *part = &t->parts[i];
        switch (part->kind) {
        case PART_TEXT:
            memcpy(p, part->text, part->len);
            p += part->len;
            break;
        case PART_TOPIC:
            p = digits(p, v->topic, TOPIC_DIGITS);
            break;
        case PART_KEY:
            p = digits(p, v->key, KEY_DIGITS);
            break;
        case PART_LENGTH:
            p = digits(p, v->length, width_of(v->length));
            break;
        case PART_CURSOR:
            memcpy(p, v->cursor, v->cursor_len);
            p += v->cursor_len;
            break;
        }
    }
    return (size_t)(p - out);
}
