#include "http/traceparent.h"

#include <assert.h>
#include <string.h>

#define TRACE_DIGITS 32u
#define PARENT_DIGITS 16u
#define TRACEPARENT_BYTES (2 + 1 + TRACE_DIGITS + 1 + PARENT_DIGITS + 1 + 2)
#define TRACEPARENT_BYTES_MAX 128u /* of later versions: more is none of any use */

/* So many digits, and whether they are not all 0. */
static bool are_digits(const char *text, size_t count, bool *any)
{
    *any = false;
    for (size_t i = 0; i < count; i++) {
        if (!(text[i] >= '0' && text[i] <= '9') && !(text[i] >= 'a' && text[i] <= 'f'))
            return false;
        *any |= text[i] != '0';
    }
    return true;
}

bool traceparent_valid(const char *text, size_t len)
{
    bool version, trace, parent, flags;
    if (len < TRACEPARENT_BYTES || len > TRACEPARENT_BYTES_MAX)
        return false;
    const char *const trace_at = text + 3, *const parent_at = trace_at + TRACE_DIGITS + 1;
    const char *const flags_at = parent_at + PARENT_DIGITS + 1;
    assert(flags_at + 2 == text + TRACEPARENT_BYTES);
    if (!are_digits(text, 2, &version) || memcmp(text, "ff", 2) == 0 || trace_at[-1] != '-' ||
        !are_digits(trace_at, TRACE_DIGITS, &trace) || !trace || parent_at[-1] != '-' ||
        !are_digits(parent_at, PARENT_DIGITS, &parent) || !parent || flags_at[-1] != '-' ||
        !are_digits(flags_at, 2, &flags))
        return false;
    return len == TRACEPARENT_BYTES || (version && text[TRACEPARENT_BYTES] == '-');
}

struct http1_slice traceparent_trace(const char *text)
{
    return (struct http1_slice){text + 3, TRACE_DIGITS};
}

static uint8_t digit_of(char c) { return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10); }

static void read_digits(const char *text, uint8_t *out, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        out[i] = (uint8_t)(digit_of(text[2 * i]) << 4 | digit_of(text[2 * i + 1]));
}

bool traceparent_read(const char *text, uint8_t trace[16], uint8_t parent[8])
{
    const char *const trace_at = text + 3, *const parent_at = trace_at + TRACE_DIGITS + 1;
    uint8_t flags;
    read_digits(trace_at, trace, TRACE_DIGITS / 2);
    read_digits(parent_at, parent, PARENT_DIGITS / 2);
    read_digits(parent_at + PARENT_DIGITS + 1, &flags, 1);
    return flags & 1;
}
