/* json_draft: JSON that is being written: as much as there is room for. */
#ifndef BARCO_JSON_DRAFT_H
#define BARCO_JSON_DRAFT_H

#include <assert.h>
#include <string.h>

#include "format/protobuf.h"

struct json_draft {
    uint8_t *out;
    size_t len, cap;
    bool is_full;      /* it did not fit */
    bool is_malformed; /* what it was made of is no such message */
};

#define JSON_TEXT(draft, literal) json_put(draft, literal, sizeof(literal) - 1)

/* Inline, for most are a few bytes of a length that the compiler knows. */
static inline void json_put(struct json_draft *draft, const void *bytes, size_t len)
{
    assert(draft->len <= draft->cap);
    if (len > draft->cap - draft->len) {
        draft->is_full = true;
        return;
    }
    if (len > 0)
        memcpy(draft->out + draft->len, bytes, len);
    draft->len += len;
}

/* With its quotes. Bytes that are no UTF-8 are no text: each of them is told as unknown. */
void json_put_string(struct json_draft *draft, struct message text);
/* As few digits as it takes to read the same number again. */
void json_put_double(struct json_draft *draft, uint64_t bits);

#endif
