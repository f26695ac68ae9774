#include "admission/bearer.h"

#include <assert.h>
#include <string.h>

#include "admission/paths.h"
#include "base/base64.h"

#define NAMED_BYTES_MAX 288u /* base64 of a name of 64 bytes, a colon and the longest token */

static const char bearer[] = "Bearer ";

static bool is_named(const struct http1_slice *name, const char *lower, uint32_t len)
{
    if (name->len != len)
        return false;
    for (uint32_t i = 0; i < len; i++)
        if ((name->p[i] | 0x20) != lower[i])
            return false;
    return true;
}

/* Whether the value is of this scheme; then what is behind it. */
static bool is_scheme(const struct http1_slice *value, const char *lower, uint32_t len,
                      struct http1_slice *rest)
{
    if (value->len <= len + 1 || !is_named(&(struct http1_slice){value->p, len}, lower, len) ||
        value->p[len] != ' ')
        return false;
    *rest = (struct http1_slice){value->p + len + 1, value->len - len - 1};
    return true;
}

/* What NAME:TOKEN in base64 says behind its first colon, to room. 0: that is not what it is. */
static uint32_t named_token(const struct http1_slice *text, char *room, uint32_t cap)
{
    uint32_t bits = 0, held = 0, len = 0, left = text->len;
    bool behind = false;
    if (text->len > NAMED_BYTES_MAX)
        return 0;
    while (left > 0 && text->len - left < 2 && text->p[left - 1] == '=')
        left--;
    for (uint32_t i = 0; i < left; i++) {
        const int digit = base64_digit(text->p[i]);
        if (digit < 0)
            return 0;
        bits = bits << 6 | (uint32_t)digit;
        held += 6;
        if (held < 8)
            continue;
        held -= 8;
        const char byte = (char)(bits >> held & 0xff);
        if (behind && len == cap)
            return 0;
        if (behind)
            room[len++] = byte;
        behind |= byte == ':';
    }
    assert(len <= cap);
    return len;
}

static bool write_bearer(const struct http1_slice *value, char room[BEARER_BYTES_MAX],
                         struct http1_slice *out)
{
    const uint32_t before = sizeof bearer - 1, cap = BEARER_BYTES_MAX - before;
    struct http1_slice rest;
    uint32_t len = 0;
    memcpy(room, bearer, before);
    if (is_scheme(value, "splunk", 6, &rest)) {
        if (rest.len > cap)
            return false;
        memcpy(room + before, rest.p, rest.len);
        len = rest.len;
    } else if (is_scheme(value, "basic", 5, &rest) || is_scheme(value, "apikey", 6, &rest)) {
        len = named_token(&rest, room + before, cap);
    }
    assert(before + len <= BEARER_BYTES_MAX);
    *out = (struct http1_slice){room, before + len};
    return len > 0;
}

bool bearer_of(const struct http1_request *head, char room[BEARER_BYTES_MAX],
               struct http1_slice *out)
{
    const struct http1_slice *found = NULL;
    struct http1_slice token;
    for (uint16_t i = 0; i < head->header_count; i++) {
        if (!is_named(&head->headers[i].name, "authorization", 13))
            continue;
        if (found != NULL)
            return false;
        found = &head->headers[i].value;
    }
    if (found == NULL)
        return false;
    if (is_scheme(found, "bearer", 6, &token)) {
        *out = *found;
        return found->len <= BEARER_BYTES_MAX;
    }
    return path_is_shippers(head) && write_bearer(found, room, out);
}
