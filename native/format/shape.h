/* shape: what a JSON text surely is. A program, made of a JSON Schema (workers/schemas/shapes.py),
 * is held against values as they stand, in one pass, without an allocation.
 *
 * The answer is yes, or that nothing is known: of what is rare, large or hard (half a surrogate
 * pair, a number of 19 digits, more than 64 levels) somebody else is to judge, as of all that may
 * be wrong. So a program may ask for more than its schema, never for less. Of a member that is
 * there twice both are looked at: whichever of them counts, it is right. */
#ifndef BARCO_SHAPE_H
#define BARCO_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHAPE_BYTES_MAX (1u << 20) /* of a program */
#define SHAPE_REQUIRED_MAX 256u    /* members of one object */
#define SHAPE_DEPTH_MAX 64u        /* of values and of what they are held against */
#define SHAPE_NONE UINT32_MAX

/* What a value may be, and how it is looked at. */
enum shape_flags {
    SHAPE_NULL = 1,
    SHAPE_BOOLEAN = 2,
    SHAPE_INTEGER = 4,  /* a number without a fraction and an exponent */
    SHAPE_FRACTION = 8, /* one with */
    SHAPE_STRING = 16,
    SHAPE_ARRAY = 32,
    SHAPE_OBJECT = 64,
    SHAPE_OWN = 128, /* it asks for something besides what `all` and `any` do */
    SHAPE_BOUND = 256, /* numbers: between least and most, */
    SHAPE_ABOVE = 512, /* not the least itself, */
    SHAPE_BELOW = 1024, /* nor the most */
};

enum shape_form { SHAPE_ANY_FORM, SHAPE_DATE, SHAPE_DATE_TIME, SHAPE_UUID, SHAPE_FORMS };

/* A program: this, then so many of each, in this order, then bytes of names and texts. */
struct shape_head {
    uint32_t nodes, choices, members, refs, bytes, root;
};

struct shape_node {
    uint32_t flags, form;
    uint32_t members_at, members; /* of an object, that are named, */
    uint32_t required;            /* so many of which are to be there; */
    uint32_t others;              /* the node of each other one */
    uint32_t items;               /* of each item of an array */
    uint32_t items_least, items_most;
    uint32_t chars_least, chars_most;
    uint32_t choices_at, choices; /* it is one of these, if there are any */
    uint32_t all_at, all;         /* refs: each of these nodes, too */
    uint32_t any_at, any;         /* and one of these, if there are any */
    uint32_t unused;
    double least, most;
    int64_t step; /* a whole number is a multiple of it; 0: of none */
};

struct shape_choice {
    int64_t number;
    uint32_t kind; /* SHAPE_NULL, SHAPE_BOOLEAN (number: which), SHAPE_INTEGER or SHAPE_STRING */
    uint32_t at, len, unused;
};

struct shape_member {
    uint32_t at, len, node;
    uint32_t bit; /* its number among those that are required, or SHAPE_NONE */
};

struct shape;

/* NULL: no memory, or it is no program. */
struct shape *shape_new(const uint8_t *program, size_t len);
void shape_free(struct shape *shape);
/* Whether all of it surely is a value of the schema. */
bool shape_holds(const struct shape *shape, const uint8_t *value, size_t len);

#endif
