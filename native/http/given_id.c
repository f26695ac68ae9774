#include "http/given_id.h"

#include <assert.h>
#include <string.h>

#include "http/traceparent.h"

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != 0 && strchr("._~+/=:@-", c) != NULL);
}

bool given_id_valid(const char *text, size_t len)
{
    if (len == 0 || len > GIVEN_ID_BYTES_MAX)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!is_letter(text[i]))
            return false;
    return true;
}

/* Letter by letter, in lower case. */
static bool is_named(const struct http1_slice *name, const char *lower)
{
    for (uint32_t i = 0; i < name->len; i++)
        if ((name->p[i] >= 'A' && name->p[i] <= 'Z' ? name->p[i] | 0x20 : name->p[i]) != lower[i])
            return false;
    return true;
}

bool given_id_find(const struct http1_request *head, struct http1_slice *id)
{
    static const char own[] = "x-request-id", trace[] = "traceparent";
    const struct http1_slice *owns = NULL, *traces = NULL;
    bool twice = false, often = false;
    /* Their lengths sort out nearly all others. */
    for (uint16_t i = 0; i < head->header_count; i++) {
        const struct http1_header *field = &head->headers[i];
        if (field->name.len == sizeof own - 1 && is_named(&field->name, own)) {
            twice |= owns != NULL;
            owns = &field->value;
        } else if (field->name.len == sizeof trace - 1 && is_named(&field->name, trace)) {
            often |= traces != NULL;
            traces = &field->value;
        }
    }
    if (owns != NULL && !twice && given_id_valid(owns->p, owns->len)) {
        *id = *owns;
        return true;
    }
    if (traces == NULL || often || !traceparent_valid(traces->p, traces->len))
        return false;
    *id = traceparent_trace(traces->p);
    assert(given_id_valid(id->p, id->len));
    return true;
}
