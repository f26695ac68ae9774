/* json_walk: through a JSON text from value to value: where each ends, and what is escaped in it.
 *
 * Only as much of the grammar is looked at as it takes to find that: what is stored as it stands is
 * the reader's to parse. */
#ifndef BARCO_JSON_WALK_H
#define BARCO_JSON_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* What is left of a text. */
struct json_rest {
    uint8_t *p, *end;
};

/* From behind the opening quote to the closing one; NULL: there is none. */
uint8_t *json_string_end(const struct json_rest *rest);
/* To behind what is no string and no container: the text of a number or of a word. */
uint8_t *json_word_end(const struct json_rest *rest);
/* From an opening bracket to behind the one that closes it; NULL: none does. What json_pass_value()
 * does of it where a processor has no wider registers. */
uint8_t *json_container_end_plain(const struct json_rest *rest);
/* Passes over one value. A container's inside is taken as it is. */
bool json_pass_value(struct json_rest *rest);
/* "name" and the colon: its text between the quotes. */
bool json_take_name(struct json_rest *rest, struct json_rest *name);
/* The characters of a JSON string, without its quotes, to out, which may be where it is. Their
 * bytes, -1 malformed, or -3 more than cap. */
int64_t json_write_text(const uint8_t *text, size_t len, uint8_t *out, size_t cap);

static inline bool json_is_space(uint8_t byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

/* The next byte that is not white space, or 0. */
static inline uint8_t json_peek(struct json_rest *rest)
{
    while (rest->p < rest->end && json_is_space(*rest->p))
        rest->p++;
    return rest->p < rest->end ? *rest->p : 0;
}

static inline bool json_take(struct json_rest *rest, uint8_t byte)
{
    if (json_peek(rest) != byte)
        return false;
    rest->p++;
    return true;
}

static inline bool json_is_named(const struct json_rest *name, const void *text, size_t len)
{
    return (size_t)(name->end - name->p) == len && memcmp(name->p, text, len) == 0;
}

#endif
