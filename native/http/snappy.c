#include "http/snappy.h"

#include <assert.h>
#include <string.h>

#define LEN_BYTES_MAX 5 /* of a 32-bit number */

enum tag { LITERAL, COPY_1, COPY_2, COPY_4 }; /* by the bytes that an offset has */

/* The length in front; *used: its bytes, 0: there is none. */
static uint32_t read_len(const uint8_t *in, size_t len, size_t *used)
{
    uint64_t value = 0;
    *used = 0;
    for (size_t i = 0; i < len && i < LEN_BYTES_MAX; i++) {
        value |= (uint64_t)(in[i] & 0x7f) << (7 * i);
        if (in[i] >= 0x80)
            continue;
        *used = value <= UINT32_MAX ? i + 1 : 0;
        break;
    }
    return (uint32_t)value;
}

int64_t snappy_len(const uint8_t *in, size_t len)
{
    size_t used;
    const uint32_t found = read_len(in, len, &used);
    return used > 0 ? (int64_t)found : -1;
}

/* Little-endian. */
static uint32_t read_le(const uint8_t *p, unsigned bytes)
{
    uint32_t value = 0;
    assert(bytes <= 4);
    for (unsigned i = 0; i < bytes; i++)
        value |= (uint32_t)p[i] << (8 * i);
    return value;
}

/* What is copied may be what is being written: a pattern that goes on. */
static void repeat(uint8_t *out, size_t at, uint32_t offset, uint32_t count)
{
    assert(offset > 0 && offset <= at);
    if (offset >= count)
        memcpy(out + at, out + at - offset, count);
    else
        for (uint32_t i = 0; i < count; i++)
            out[at + i] = out[at + i - offset];
}

bool snappy_unpack(const uint8_t *in, size_t len, uint8_t *out, size_t out_len)
{
    size_t at;
    if (read_len(in, len, &at) != out_len || at == 0)
        return false;
    size_t made = 0;
    while (at < len) {
        const uint8_t tag = in[at++];
        const unsigned kind = tag & 3;
        uint32_t count = (tag >> 2) + 1u, offset = 0;
        if (kind == LITERAL && count > 60) {
            const unsigned bytes = count - 60;
            if (len - at < bytes || read_le(in + at, bytes) == UINT32_MAX)
                return false;
            count = read_le(in + at, bytes) + 1;
            at += bytes;
        } else if (kind != LITERAL) {
            const unsigned bytes = kind == COPY_4 ? 4 : kind;
            if (len - at < bytes)
                return false;
            offset = read_le(in + at, bytes);
            at += bytes;
            if (kind == COPY_1) {
                count = (tag >> 2 & 7) + 4u;
                offset |= (uint32_t)(tag >> 5) << 8;
            }
        }
        if (count > out_len - made)
            return false;
        if (kind == LITERAL) {
            if (count > len - at)
                return false;
            memcpy(out + made, in + at, count);
            at += count;
        } else if (offset == 0 || offset > made) {
            return false;
        } else {
            repeat(out, made, offset, count);
        }
        made += count;
    }
    return made == out_len;
}
