#include "format/protobuf.h"

#include <assert.h>
#include <string.h>

#define VARINT_BYTES_MAX 10
#define FIELD_NUMBER_MAX ((1u << 29) - 1)

static inline bool take_varint(struct message *message, uint64_t *value)
{
    if (message->p < message->end && *message->p < 0x80) { /* as most are */
        *value = *message->p++;
        return true;
    }
    *value = 0;
    for (unsigned i = 0; i < VARINT_BYTES_MAX && message->p < message->end; i++) {
        const uint8_t byte = *message->p++;
        *value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80)
            return i < VARINT_BYTES_MAX - 1 || byte <= 1;
    }
    return false;
}

/* Little-endian, as this machine is. */
static bool take_fixed(struct message *message, size_t len, uint64_t *value)
{
    assert(len <= sizeof *value);
    if (message_len(message) < len)
        return false;
    *value = 0;
    memcpy(value, message->p, len);
    message->p += len;
    return true;
}

int message_next(struct message *message, struct field *field)
{
    uint64_t tag;
    bool good = false;
    if (message->p == message->end)
        return 0;
    assert(message->p < message->end);
    if (!take_varint(message, &tag) || tag >> 3 == 0 || tag >> 3 > FIELD_NUMBER_MAX)
        return -1;
    field->number = (uint32_t)(tag >> 3);
    field->type = (uint8_t)(tag & 7);
    field->value = 0;
    field->in = (struct message){NULL, NULL};
    switch (field->type) {
    case WIRE_VARINT: good = take_varint(message, &field->value); break;
    case WIRE_FIXED64: good = take_fixed(message, 8, &field->value); break;
    case WIRE_FIXED32: good = take_fixed(message, 4, &field->value); break;
    case WIRE_BYTES:
        good = take_varint(message, &field->value) && field->value <= message_len(message);
        if (good) {
            field->in = (struct message){message->p, message->p + field->value};
            message->p += field->value;
        }
        break;
    default: break; /* groups, which nobody writes any more */
    }
    return good ? 1 : -1;
}

bool message_find(struct message message, uint32_t number, struct field *found)
{
    int more;
    assert(number > 0 && number <= FIELD_NUMBER_MAX);
    while ((more = message_next(&message, found)) > 0)
        if (found->number == number && found->type == WIRE_BYTES)
            return true;
    *found = (struct field){0};
    return more == 0;
}
