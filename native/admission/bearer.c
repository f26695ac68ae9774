#include "admission/bearer.h"

#include <assert.h>
#include <string.h>

#include "admission/paths.h"
#include "base/base64.h"

enum scheme { SCHEME_NONE, SCHEME_BEARER, SCHEME_SPLUNK, SCHEME_BASIC, SCHEME_APIKEY };

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

static enum scheme scheme_of(const struct http1_slice *value, struct http1_slice *rest)
{
    if (is_scheme(value, "bearer", 6, rest))
        return SCHEME_BEARER;
    if (is_scheme(value, "basic", 5, rest))
        return SCHEME_BASIC;
    if (is_scheme(value, "splunk", 6, rest))
        return SCHEME_SPLUNK;
    return is_scheme(value, "apikey", 6, rest) ? SCHEME_APIKEY : SCHEME_NONE;
}

/* Unpacks base64, with its padding or without. The length; 0: it is none. */
static uint32_t unpack(const struct http1_slice *text, char room[NAMED_ROOM_BYTES])
{
    uint32_t bits = 0, held = 0, len = 0, left = text->len;
    assert(text->len <= NAMED_BYTES_MAX);
    while (left > 0 && text->len - left < 2 && text->p[left - 1] == '=')
        left--;
    if (left % 4 == 1)
        return 0;
    for (uint32_t i = 0; i < left; i++) {
        const int digit = base64_digit(text->p[i]);
        if (digit < 0)
            return 0;
        bits = bits << 6 | (uint32_t)digit;
        held += 6;
        if (held < 8)
            continue;
        held -= 8;
        room[len++] = (char)(bits >> held & 0xff);
    }
    assert(len <= NAMED_ROOM_BYTES);
    return len;
}

bool bearer_read(const struct http1_slice *value, char room[NAMED_ROOM_BYTES], struct bearer *out)
{
    struct http1_slice rest;
    const enum scheme scheme = scheme_of(value, &rest);
    assert(scheme != SCHEME_NONE && value->len <= SHOWN_BYTES_MAX);
    *out = (struct bearer){.token = rest};
    if (scheme == SCHEME_BASIC || scheme == SCHEME_APIKEY) {
        const uint32_t len = unpack(&rest, room);
        const char *colon = len > 0 ? memchr(room, ':', len) : NULL;
        if (colon == NULL)
            return false;
        const uint32_t before = (uint32_t)(colon - room);
        out->token = (struct http1_slice){colon + 1, len - before - 1};
        if (scheme == SCHEME_BASIC)
            out->name = (struct http1_slice){room, before};
    }
    return out->token.len > 0 && out->token.len <= TOKEN_BYTES_MAX;
}

bool bearer_is_bare(const struct http1_slice *value)
{
    struct http1_slice rest;
    return scheme_of(value, &rest) == SCHEME_BEARER;
}

static bool is_field(const struct http1_header *header)
{
    return is_named(&header->name, "authorization", 13);
}

bool bearer_is_there(const struct http1_request *head)
{
    for (uint16_t i = 0; i < head->header_count; i++)
        if (is_field(&head->headers[i]))
            return true;
    return false;
}

bool bearer_of(const struct http1_request *head, struct http1_slice *value)
{
    const struct http1_slice *found = NULL;
    struct http1_slice rest;
    for (uint16_t i = 0; i < head->header_count; i++) {
        if (!is_field(&head->headers[i]))
            continue;
        if (found != NULL)
            return false;
        found = &head->headers[i].value;
    }
    const enum scheme scheme = found == NULL ? SCHEME_NONE : scheme_of(found, &rest);
    if (scheme == SCHEME_NONE)
        return false;
    if ((scheme == SCHEME_SPLUNK || scheme == SCHEME_APIKEY) && !path_is_shippers(head))
        return false;
    const bool packed = scheme == SCHEME_BASIC || scheme == SCHEME_APIKEY;
    *value = *found;
    return rest.len <= (packed ? NAMED_BYTES_MAX : TOKEN_BYTES_MAX);
}
