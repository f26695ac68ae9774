/* condition: which events somebody asks for, by their key, a header or a place in a value that is
 * JSON. */
#ifndef BARCO_CONDITION_H
#define BARCO_CONDITION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONDITIONS_MAX 8u
#define CONDITION_STEPS_MAX 16u /* of a path into a value */

/* What is looked at, and what is to be true of it. */
enum condition_of { OF_KEY, OF_HEADER, OF_PATH, OF_BYTES, CONDITION_OF_COUNT };
enum condition_test {
    IS_THERE,
    IS,
    IS_NOT, /* what IS is not, so also where there is nothing */
    HAS,    /* in letters of either case, of ASCII */
    BELOW,
    AT_MOST,
    ABOVE,
    AT_LEAST,
    CONDITION_TEST_COUNT
};

/* A member of an object, or an element of an array. */
struct condition_step {
    const uint8_t *name; /* NULL: an element */
    size_t len;
    uint64_t index;
};

struct condition {
    enum condition_of of;
    enum condition_test test;
    const uint8_t *name; /* of a header, in lower case */
    size_t name_len;
    struct condition_step steps[CONDITION_STEPS_MAX];
    uint32_t step_count;
    const uint8_t *text; /* what it is compared with; of HAS in lower case */
    size_t text_len;
    bool quoted;     /* nothing but a string is that */
    bool has_number; /* the text is a number: this one */
    double number;
};

/* All of them have to be true. */
struct conditions {
    uint32_t count;
    struct condition each[CONDITIONS_MAX];
    uint8_t *room; /* as many bytes as key, value and headers of any event that is looked at */
    size_t room_bytes;
};

struct condition_event {
    const uint8_t *key, *value, *headers; /* NULL: it has none */
    size_t key_len, value_len;
};

bool conditions_hold(const struct conditions *all, const struct condition_event *event);

#endif
