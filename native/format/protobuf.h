/* protobuf: a message's fields one after the other, as they lie in its bytes. Nothing is taken. */
#ifndef BARCO_PROTOBUF_H
#define BARCO_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

/* What is left of a message. */
struct message {
    const uint8_t *p, *end;
};

struct field {
    uint32_t number;
    uint8_t type;     /* enum wire_type: of a known field it may be another than it is to be */
    uint64_t value;   /* varint, fixed64, fixed32 */
    struct message in; /* bytes: a string, or a message */
};

/* 1 and the next field; 0: there is none; -1: the message is malformed. */
int message_next(struct message *message, struct field *field);
/* The first field with this number that is a string or a message, without a look at what comes
 * behind it; in.p NULL: there is none. False: the message is malformed. */
bool message_find(struct message message, uint32_t number, struct field *found);

static inline size_t message_len(const struct message *message)
{
    return (size_t)(message->end - message->p);
}

#endif
