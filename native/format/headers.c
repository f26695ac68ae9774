#include "format/headers.h"

#include <assert.h>
#include <string.h>

#include "base/charclass.h"

/* Of at most three bytes: what they say, in *value; false: cut off, or longer than it has to be. */
static bool take_number(const uint8_t **at, const uint8_t *end, uint32_t *value)
{
    *value = 0;
    for (unsigned shift = 0; shift <= 14 && *at < end; shift += 7) {
        const uint8_t byte = *(*at)++;
        *value |= (uint32_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return byte != 0 || shift == 0;
    }
    return false;
}

static uint8_t *put_number(uint8_t *out, uint32_t value)
{
    assert(value < 1u << 21);
    for (; value >= 0x80; value >>= 7)
        *out++ = (uint8_t)(value | 0x80);
    *out++ = (uint8_t)value;
    return out;
}

bool header_name_valid(const uint8_t *name, size_t len)
{
    if (len == 0 || len > HEADER_NAME_MAX)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!charclass_has(&CHARCLASS_TOKEN, (char)name[i]) || (name[i] >= 'A' && name[i] <= 'Z'))
            return false;
    return true;
}

bool headers_valid(const uint8_t *bytes, size_t len)
{
    const uint8_t *at = bytes, *end = bytes + len;
    uint32_t count, all = 0;
    if (!take_number(&at, end, &count) || count == 0 || count > EVENT_HEADERS_MAX)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t name_len, value_len;
        if (!take_number(&at, end, &name_len) || !take_number(&at, end, &value_len) ||
            name_len > HEADER_NAME_MAX || value_len > HEADERS_BYTES_MAX)
            return false;
        all += name_len + value_len;
        if (all > HEADERS_BYTES_MAX || name_len + value_len > (size_t)(end - at) ||
            !header_name_valid(at, name_len))
            return false;
        at += name_len + value_len;
    }
    return at == end;
}

uint32_t headers_begin(const uint8_t **at)
{
    assert(**at > 0 && **at <= EVENT_HEADERS_MAX);
    return *(*at)++;
}

struct header headers_next(const uint8_t **at)
{
    struct header next;
    const uint8_t *far = *at + 5; /* two numbers, that are whole */
    take_number(at, far, &next.name_len);
    take_number(at, far, &next.value_len);
    next.name = *at;
    next.value = next.name + next.name_len;
    *at = next.value + next.value_len;
    return next;
}

bool headers_add(struct headers_draft *draft, const struct header *header)
{
    const uint64_t more = (uint64_t)header->name_len + header->value_len;
    if (draft->count == EVENT_HEADERS_MAX || more > HEADERS_BYTES_MAX - draft->bytes ||
        !header_name_valid(header->name, header->name_len))
        return false;
    uint8_t *at = draft->out + (draft->count == 0 ? 1 : draft->len);
    at = put_number(at, header->name_len);
    at = put_number(at, header->value_len);
    memcpy(at, header->name, header->name_len);
    at += header->name_len;
    if (header->value_len > 0)
        memmove(at, header->value, header->value_len);
    at += header->value_len;
    draft->bytes += (uint32_t)more;
    draft->out[0] = (uint8_t)++draft->count;
    draft->len = (size_t)(at - draft->out);
    assert(draft->len <= HEADERS_STORED_MAX);
    return true;
}
