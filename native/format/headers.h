/* headers: the headers of an event as bytes: how many, then of each the lengths of its name and
 * value, the name and the value. Numbers are varints: seven bits a byte, the lowest first, the top
 * bit set in all but the last, none longer than it has to be. In their order, and a name may come
 * again. */
#ifndef BARCO_HEADERS_H
#define BARCO_HEADERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EVENT_HEADERS_MAX 64u
#define HEADERS_BYTES_MAX (16u << 10) /* of all their names and values */
#define HEADER_NAME_MAX 128u
/* With the numbers: each name's length has two bytes at most, each value's three. */
#define HEADERS_STORED_MAX (HEADERS_BYTES_MAX + 1 + EVENT_HEADERS_MAX * 5)

struct header {
    const uint8_t *name, *value;
    uint32_t name_len, value_len;
};

/* Whether these are the headers of an event: one at least, whole, and within the limits. */
bool headers_valid(const uint8_t *bytes, size_t len);

/* Of headers that are valid: how many, and then each. */
uint32_t headers_begin(const uint8_t **at);
struct header headers_next(const uint8_t **at);

/* [a-z0-9!#$%&'*+.^_`|~-]{1,128} */
bool header_name_valid(const uint8_t *name, size_t len);

/* Headers that are being written to out, of HEADERS_STORED_MAX bytes. */
struct headers_draft {
    uint8_t *out;
    uint32_t count, bytes; /* of names and values */
    size_t len;            /* of what is written: 0 as long as there is none */
};

/* False: the name is none, or they would be over the limits. */
bool headers_add(struct headers_draft *draft, const struct header *header);

#endif
