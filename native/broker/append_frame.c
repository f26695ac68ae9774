/* The two messages of a group's usual way. What is not written exactly so is Python's to read. */
#include "broker/append_frame.h"

#include <string.h>

struct reader {
    const uint8_t *at, *end;
    bool failed;
};

static uint8_t next_byte(struct reader *r)
{
    if (r->at == r->end) {
        r->failed = true;
        return 0;
    }
    return *r->at++;
}

static void expect(struct reader *r, const char *bytes, size_t len)
{
    if ((size_t)(r->end - r->at) < len || memcmp(r->at, bytes, len) != 0) {
        r->failed = true;
        return;
    }
    r->at += len;
}

static uint64_t big_endian(struct reader *r, uint32_t bytes)
{
    uint64_t value = 0;
    for (uint32_t i = 0; i < bytes; i++)
        value = value << 8 | next_byte(r);
    return value;
}

/* Any of msgpack's integers from 0 to max. */
static uint64_t read_number(struct reader *r, uint64_t max)
{
    const uint8_t kind = next_byte(r);
    uint64_t value = kind;
    if (kind >= 0xcc && kind <= 0xcf)
        value = big_endian(r, 1u << (kind - 0xcc));
    else if (kind > 0x7f)
        r->failed = true;
    if (value > max)
        r->failed = true;
    return value;
}

static int64_t read_signed(struct reader *r)
{
    if (r->at == r->end || *r->at < 0xd0)
        return (int64_t)read_number(r, INT64_MAX);
    const uint8_t kind = next_byte(r);
    if (kind >= 0xe0)
        return (int8_t)kind;
    switch (kind) {
    case 0xd0: return (int8_t)big_endian(r, 1);
    case 0xd1: return (int16_t)big_endian(r, 2);
    case 0xd2: return (int32_t)big_endian(r, 4);
    case 0xd3: return (int64_t)big_endian(r, 8);
    default: r->failed = true; return 0;
    }
}

#define EXPECT(r, text) expect(r, text, sizeof(text) - 1)

bool append_message_read(const uint8_t *message, size_t len, struct append_message *out)
{
    struct reader r = {message, message + len, false};
    EXPECT(&r, "\x85\xa3" "gid" "\x92");
    out->token = read_signed(&r);
    out->epoch = read_number(&r, INT64_MAX);
    EXPECT(&r, "\xa7" "session");
    out->session = read_number(&r, UINT64_MAX);
    EXPECT(&r, "\xa4" "head" "\x94");
    out->gseq = read_number(&r, INT64_MAX);
    out->prev_crc = (uint32_t)read_number(&r, UINT32_MAX);
    out->header_crc = (uint32_t)read_number(&r, UINT32_MAX);
    out->bytes = (uint32_t)read_number(&r, UINT32_MAX);
    EXPECT(&r, "\xa9" "committed");
    out->committed = read_number(&r, INT64_MAX);
    EXPECT(&r, "\xa1t\xa6" "append");
    return !r.failed && r.at == r.end;
}

static uint8_t *put(uint8_t *out, const void *bytes, size_t len)
{
    memcpy(out, bytes, len);
    return out + len;
}

static uint8_t *put_number(uint8_t *out, uint8_t kind, uint64_t value)
{
    *out++ = kind;
    for (int shift = 56; shift >= 0; shift -= 8)
        *out++ = (uint8_t)(value >> shift);
    return out;
}

#define PUT(out, text) put(out, text, sizeof(text) - 1)

size_t appended_frame_write(int64_t token, uint64_t epoch, uint64_t gseq, uint64_t session,
                            uint8_t out[APPENDED_BYTES_MAX])
{
    uint8_t *end = out + FRAME_HEAD_BYTES;
    end = PUT(end, "\x84\xa3" "gid" "\x92");
    end = put_number(end, 0xd3, (uint64_t)token);
    end = put_number(end, 0xcf, epoch);
    end = PUT(end, "\xa4" "gseq");
    end = put_number(end, 0xcf, gseq);
    end = PUT(end, "\xa7" "session");
    end = put_number(end, 0xcf, session);
    end = PUT(end, "\xa1t\xa8" "appended");
    const uint32_t head[2] = {(uint32_t)(end - out) - FRAME_HEAD_BYTES, 0};
    memcpy(out, head, sizeof head); /* little-endian as all that barco runs on */
    return (size_t)(end - out);
}
