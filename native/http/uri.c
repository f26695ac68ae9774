#include "http/uri.h"

#include <stdint.h>
#include <string.h>

#include "base/charclass.h"
#include "format/format.h"

/* The byte that "%XX" at p stands for, or -1 where it is malformed or cut off. */
static int percent_value(const char *p, size_t left)
{
    if (left < 3)
        return -1;
    int high = hex_digit(p[1]), low = hex_digit(p[2]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

int uri_decode(const char *in, size_t len, bool plus_is_space, char *out, size_t cap)
{
    size_t written = 0;
    if (cap > INT32_MAX)
        cap = INT32_MAX; /* The result is an int. */
    for (size_t i = 0; i < len;) {
        int byte = (uint8_t)in[i];
        size_t used = 1;
        if (byte == '%') {
            byte = percent_value(in + i, len - i);
            used = 3;
            if (byte < 0)
                return -1;
        } else if (byte == '+' && plus_is_space) {
            byte = ' ';
        }
        if (written == cap)
            return -3;
        out[written++] = (char)byte;
        i += used;
    }
    return (int)written;
}

/* Does the raw parameter name [p, end) decode to name? A malformed one equals nothing. */
static bool name_equals(const char *p, const char *end, const char *name)
{
    while (p < end) {
        int byte = (uint8_t)*p;
        size_t used = 1;
        if (byte == '%') {
            byte = percent_value(p, (size_t)(end - p));
            used = 3;
        } else if (byte == '+') {
            byte = ' ';
        }
        if (*name == '\0' || byte != (uint8_t)*name)
            return false;
        p += used;
        name++;
    }
    return *name == '\0';
}

/* name[=value], up to '&' or the end. */
struct pair {
    const char *name, *name_end, *end;
};

/* name NULL: there is none. */
static struct pair first_pair(const char *p, const char *end)
{
    if (p >= end)
        return (struct pair){0};
    const char *pair_end = memchr(p, '&', (size_t)(end - p));
    if (pair_end == NULL)
        pair_end = end;
    const char *name_end = memchr(p, '=', (size_t)(pair_end - p));
    return (struct pair){p, name_end != NULL ? name_end : pair_end, pair_end};
}

int uri_query_get(const char *query, size_t len, const char *name, struct http1_slice *raw_value)
{
    int found = 0;
    raw_value->p = NULL;
    raw_value->len = 0;
    for (struct pair pair = first_pair(query, query + len); pair.name != NULL;
         pair = first_pair(pair.end + 1, query + len)) {
        if (!name_equals(pair.name, pair.name_end, name))
            continue;
        /* Two values for one question: whichever we took, someone else takes the other. */
        if (found)
            return -1;
        found = 1;
        raw_value->p = pair.name_end < pair.end ? pair.name_end + 1 : pair.end;
        raw_value->len = (uint32_t)(pair.end - raw_value->p);
    }
    return found;
}

bool uri_query_unknown(const char *query, size_t len, const char *const *names,
                       struct http1_slice *unknown)
{
    for (struct pair pair = first_pair(query, query + len); pair.name != NULL;
         pair = first_pair(pair.end + 1, query + len)) {
        const char *const *name = names;
        while (*name != NULL && !name_equals(pair.name, pair.name_end, *name))
            name++;
        if (*name == NULL && pair.name_end > pair.name) {
            *unknown = (struct http1_slice){pair.name, (uint32_t)(pair.name_end - pair.name)};
            return true;
        }
    }
    return false;
}

bool topic_name_valid(const char *p, size_t len)
{
    if (len == 0 || len > TOPIC_NAME_BYTES_MAX)
        return false;
    if (p[0] == '.' && (len == 1 || (len == 2 && p[1] == '.')))
        return false;
    return charclass_span(&CHARCLASS_TOPIC, p, p + len) == p + len;
}

bool topic_name_reserved(const char *p, size_t len)
{
    return len > 1 && p[0] == '_' && p[1] == '_';
}

bool topic_name_delayed(const char *p, size_t len)
{
    return len > DELAYED_PREFIX_BYTES && memcmp(p, DELAYED_PREFIX, DELAYED_PREFIX_BYTES) == 0 &&
           topic_name_valid(p + DELAYED_PREFIX_BYTES, len - DELAYED_PREFIX_BYTES) &&
           !topic_name_reserved(p + DELAYED_PREFIX_BYTES, len - DELAYED_PREFIX_BYTES);
}
