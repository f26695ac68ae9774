/* append_frame: APPEND and APPENDED as bytes, the two messages of a group's usual way. Each has one
 * fixed layout, little-endian and without padding: the structs below. The other hand that knows it
 * is barco/protocol/append_frame.py; docs/protocol.md has bytes on which both must agree. */
#ifndef BARCO_APPEND_FRAME_H
#define BARCO_APPEND_FRAME_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/crc32c.h"

/* Lengths of the message and of the group behind it. */
#define FRAME_HEAD_BYTES 8u
/* The first byte of either: no msgpack begins with it, which all other messages are. */
#define FIXED_MARK 0xc1u
enum fixed_kind { FIXED_APPEND = 1, FIXED_APPENDED = 2 };

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "messages between machines");

struct append_message {
    uint8_t mark, kind;
    uint16_t zero_0;
    uint32_t bytes; /* of the group behind it */
    int64_t token;
    uint64_t epoch, session, gseq, committed;
    uint32_t prev_crc, header_crc; /* of the headers of the group before and of this one */
    uint32_t zero_1;
    uint32_t frame_crc; /* crc32c of all before */
};
static_assert(sizeof(struct append_message) == 64, "no padding");
static_assert(offsetof(struct append_message, frame_crc) == 60, "last field");

/* False: it is none, or damaged. Then Python says so. */
static inline bool append_message_read(const uint8_t *message, size_t len,
                                       struct append_message *out)
{
    if (len != sizeof *out)
        return false;
    memcpy(out, message, sizeof *out);
    return out->mark == FIXED_MARK && out->kind == FIXED_APPEND &&
           out->frame_crc == crc32c(0, out, offsetof(struct append_message, frame_crc)) &&
           out->zero_0 == 0 && out->zero_1 == 0 && out->epoch > 0 && out->epoch <= INT64_MAX &&
           out->gseq > 0 && out->gseq <= INT64_MAX && out->committed <= INT64_MAX;
}

/* An APPENDED with the lengths before it. */
struct appended_frame {
    uint32_t message_bytes, group_bytes;
    uint8_t mark, kind;
    uint16_t zero_0;
    uint32_t zero_1;
    int64_t token;
    uint64_t epoch, session, gseq;
    uint32_t zero_2;
    uint32_t frame_crc; /* crc32c of all before, without the lengths */
};
static_assert(sizeof(struct appended_frame) == FRAME_HEAD_BYTES + 48, "no padding");
static_assert(offsetof(struct appended_frame, mark) == FRAME_HEAD_BYTES, "behind the lengths");
static_assert(offsetof(struct appended_frame, frame_crc) == FRAME_HEAD_BYTES + 44, "last field");

/* Adds what is the same in all of them, and the checksum. */
static inline void appended_frame_seal(struct appended_frame *frame)
{
    assert(frame->epoch > 0 && frame->epoch <= INT64_MAX && frame->gseq <= INT64_MAX);
    frame->message_bytes = sizeof *frame - FRAME_HEAD_BYTES;
    frame->group_bytes = 0;
    frame->mark = FIXED_MARK;
    frame->kind = FIXED_APPENDED;
    frame->zero_0 = 0;
    frame->zero_1 = frame->zero_2 = 0;
    frame->frame_crc = crc32c(0, &frame->mark,
                              offsetof(struct appended_frame, frame_crc) - FRAME_HEAD_BYTES);
}

#endif
