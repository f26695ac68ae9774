#include "format/shape.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/charclass.h"
#include "base/json.h"

#define DIGITS_MAX 18u           /* of a number: more may not be whole in a word */
#define EXACT (1ll << 53)        /* whole numbers up to it are doubles */
#define EXACT_TENS 22            /* powers of ten up to it, too: one operation rounds once */
#define AGAIN 16u                /* times its length may be read again, for what is asked beside */

struct shape {
    const struct shape_node *nodes;
    const struct shape_choice *choices;
    const struct shape_member *members;
    const uint32_t *refs;
    const uint8_t *bytes;
    uint32_t root;
    struct shape_head of;
    uint64_t program[]; /* aligned for all of them */
};

/* ---- the program ---- */

static bool lies(uint32_t at, uint32_t count, uint32_t in)
{
    return at <= in && count <= in - at;
}

static bool node_valid(const struct shape_head *of, const struct shape_node *node)
{
    return node->form < SHAPE_FORMS && node->others < of->nodes && node->items < of->nodes &&
           node->required <= SHAPE_REQUIRED_MAX && node->step >= 0 &&
           ((node->flags & SHAPE_OWN) || node->all > 0 || node->any > 0) && /* it is read at all */
           lies(node->members_at, node->members, of->members) &&
           lies(node->choices_at, node->choices, of->choices) &&
           lies(node->all_at, node->all, of->refs) && lies(node->any_at, node->any, of->refs);
}

static bool program_valid(const struct shape *s)
{
    const struct shape_head *of = &s->of;
    bool good = of->root < of->nodes;
    for (uint32_t i = 0; good && i < of->nodes; i++)
        good = node_valid(of, &s->nodes[i]);
    for (uint32_t i = 0; good && i < of->choices; i++)
        good = lies(s->choices[i].at, s->choices[i].len, of->bytes);
    for (uint32_t i = 0; good && i < of->members; i++)
        good = lies(s->members[i].at, s->members[i].len, of->bytes) &&
               s->members[i].node < of->nodes &&
               (s->members[i].bit == SHAPE_NONE || s->members[i].bit < SHAPE_REQUIRED_MAX);
    for (uint32_t i = 0; good && i < of->refs; i++)
        good = s->refs[i] < of->nodes;
    return good;
}

struct shape *shape_new(const uint8_t *program, size_t len)
{
    struct shape_head of;
    if (len < sizeof of || len > SHAPE_BYTES_MAX)
        return NULL;
    memcpy(&of, program, sizeof of);
    /* Counts of 32 bits: no sum of these overflows. */
    const uint64_t choices_at = (uint64_t)of.nodes * sizeof(struct shape_node);
    const uint64_t members_at = choices_at + (uint64_t)of.choices * sizeof(struct shape_choice);
    const uint64_t refs_at = members_at + (uint64_t)of.members * sizeof(struct shape_member);
    const uint64_t bytes_at = refs_at + (uint64_t)of.refs * sizeof(uint32_t);
    if (bytes_at + of.bytes != len - sizeof of)
        return NULL;
    struct shape *s = malloc(sizeof *s + len);
    if (s == NULL)
        return NULL;
    const uint8_t *base = (const uint8_t *)s->program;
    memcpy(s->program, program + sizeof of, len - sizeof of);
    s->of = of;
    s->root = of.root;
    s->nodes = (const void *)base;
    s->choices = (const void *)(base + choices_at);
    s->members = (const void *)(base + members_at);
    s->refs = (const void *)(base + refs_at);
    s->bytes = base + bytes_at;
    if (program_valid(s))
        return s;
    free(s);
    return NULL;
}

void shape_free(struct shape *shape) { free(shape); }

/* ---- texts and numbers ---- */

struct reader {
    const struct shape *shape;
    const uint8_t *p, *end;
    size_t again; /* bytes that may still be read once more */
    unsigned depth;
};

struct text {
    const uint8_t *start;
    size_t len, chars;
    bool escaped;
};

/* The next byte that is not white space, or -1 at the end. */
static inline int peek(struct reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\r' || *r->p == '\t'))
        r->p++;
    return r->p < r->end ? *r->p : -1;
}

/* How long the escape is at p, a backslash; 0: it is none, or half of a pair. */
static size_t escape_len(const uint8_t *p, const uint8_t *end)
{
    if (end - p < 2 || p[1] == 0)
        return 0;
    if (p[1] != 'u')
        return strchr("\"\\/bfnrt", p[1]) != NULL ? 2 : 0;
    if (end - p < 6)
        return 0;
    for (int i = 2; i < 6; i++)
        if (hex_digit((char)p[i]) < 0)
            return 0;
    return hex_digit((char)p[2]) == 13 && hex_digit((char)p[3]) >= 8 ? 0 : 6;
}

/* After the opening quote, to behind the closing one. */
static bool read_text(struct reader *r, struct text *text)
{
    size_t more = 0; /* bytes than characters */
    text->start = r->p;
    text->escaped = false;
    for (;;) {
        r->p += json_plain_run(r->p, (size_t)(r->end - r->p));
        if (r->p == r->end || *r->p < 0x20)
            return false;
        if (*r->p == '"')
            break;
        const bool escape = *r->p == '\\';
        const size_t len = escape ? escape_len(r->p, r->end)
                                  : utf8_character(r->p, (size_t)(r->end - r->p));
        if (len == 0)
            return false;
        text->escaped |= escape;
        more += len - 1;
        r->p += len;
    }
    text->len = (size_t)(r->p++ - text->start);
    text->chars = text->len - more;
    return true;
}

struct number {
    int64_t digits; /* with their sign, as if there were no point */
    int tens;
    bool whole;
};

/* So many digits more; 0: none, or too many of them. */
static unsigned read_digits(struct reader *r, uint64_t *digits, unsigned most)
{
    unsigned count = 0;
    for (; r->p < r->end && *r->p >= '0' && *r->p <= '9'; r->p++) {
        if (++count > most)
            return 0;
        *digits = *digits * 10 + (*r->p - '0');
    }
    return count;
}

static bool read_number(struct reader *r, struct number *number)
{
    uint64_t digits = 0, tens = 0;
    const bool negative = *r->p == '-';
    *number = (struct number){.whole = true};
    r->p += negative;
    const uint8_t *first = r->p;
    unsigned count = read_digits(r, &digits, DIGITS_MAX);
    if (count == 0 || (*first == '0' && count > 1))
        return false;
    if (r->p < r->end && *r->p == '.') {
        r->p++;
        count = read_digits(r, &digits, DIGITS_MAX - count);
        if (count == 0)
            return false;
        number->whole = false;
        number->tens = -(int)count;
    }
    if (r->p < r->end && (*r->p | 0x20) == 'e') {
        r->p++;
        const bool less = r->p < r->end && *r->p == '-';
        r->p += r->p < r->end && (*r->p == '-' || *r->p == '+');
        if (read_digits(r, &tens, 2) == 0)
            return false;
        number->whole = false;
        number->tens += less ? -(int)tens : (int)tens;
    }
    number->digits = negative ? -(int64_t)digits : (int64_t)digits;
    return true;
}

/* The double that it is; NaN: it takes more to find out. */
static double value_of(const struct number *number)
{
    static const double tens[EXACT_TENS + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                                1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (number->digits > EXACT || number->digits < -EXACT || number->tens > EXACT_TENS ||
        number->tens < -EXACT_TENS)
        return NAN;
    const double digits = (double)number->digits;
    return number->tens < 0 ? digits / tens[-number->tens] : digits * tens[number->tens];
}

static bool fits_number(const struct shape_node *node, const struct number *number)
{
    if (!(node->flags & (number->whole ? SHAPE_INTEGER : SHAPE_FRACTION)))
        return false;
    if (node->step != 0 && (!number->whole || number->digits > EXACT || number->digits < -EXACT ||
                            number->digits % node->step != 0))
        return false;
    if (!(node->flags & SHAPE_BOUND))
        return true;
    const double value = value_of(number);
    return (node->flags & SHAPE_ABOVE ? value > node->least : value >= node->least) &&
           (node->flags & SHAPE_BELOW ? value < node->most : value <= node->most);
}

/* ---- forms of texts ---- */

/* So many digits at p, which are there: what they say, or -1. */
static int digits_at(const uint8_t *p, int count)
{
    int value = 0;
    for (int i = 0; i < count; i++) {
        if (p[i] < '0' || p[i] > '9')
            return -1;
        value = value * 10 + (p[i] - '0');
    }
    return value;
}

static bool is_date(const uint8_t *p, size_t len)
{
    static const int days[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (len < 10 || p[4] != '-' || p[7] != '-')
        return false;
    const int year = digits_at(p, 4), month = digits_at(p + 5, 2), day = digits_at(p + 8, 2);
    return year > 0 && month > 0 && month <= 12 && day > 0 && day <= days[month - 1];
}

static bool is_clock(const uint8_t *p)
{
    const int hour = digits_at(p, 2), minute = digits_at(p + 3, 2);
    return hour >= 0 && hour < 24 && p[2] == ':' && minute >= 0 && minute < 60;
}

/* 2025-11-27T08:00:00.123Z, or +01:00 in place of the Z. */
static bool is_date_time(const uint8_t *p, size_t len)
{
    if (len < 20 || !is_date(p, len) || p[10] != 'T' || !is_clock(p + 11) || p[16] != ':')
        return false;
    const int second = digits_at(p + 17, 2);
    if (second < 0 || second > 59)
        return false;
    size_t at = 19;
    if (p[at] == '.') {
        const size_t first = ++at;
        while (at < len && p[at] >= '0' && p[at] <= '9')
            at++;
        if (at == first || at - first > 9)
            return false;
    }
    if (len - at == 1)
        return p[at] == 'Z';
    return len - at == 6 && (p[at] == '+' || p[at] == '-') && is_clock(p + at + 1);
}

static bool is_uuid(const uint8_t *p, size_t len)
{
    if (len != 36)
        return false;
    for (size_t i = 0; i < len; i++) {
        const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? p[i] != '-' : hex_digit((char)p[i]) < 0)
            return false;
    }
    return true;
}

static bool fits_text(const struct shape_node *node, const struct text *text)
{
    if (text->chars < node->chars_least || text->chars > node->chars_most)
        return false;
    switch ((enum shape_form)node->form) {
    case SHAPE_DATE:
        return text->len == 10 && is_date(text->start, text->len);
    case SHAPE_DATE_TIME:
        return is_date_time(text->start, text->len);
    case SHAPE_UUID:
        return is_uuid(text->start, text->len);
    case SHAPE_ANY_FORM:
    case SHAPE_FORMS:
        break;
    }
    return true;
}

/* ---- values ---- */

static bool read_value(struct reader *r, uint32_t at);

/* Whether it is one of those that it has to be. text: only of a string. */
static bool is_chosen(const struct shape *s, const struct shape_node *node, uint32_t kind,
                      int64_t number, const struct text *text)
{
    const struct shape_choice *each = s->choices + node->choices_at;
    for (const struct shape_choice *end = each + node->choices; each < end; each++) {
        if (each->kind != kind)
            continue;
        if (kind != SHAPE_STRING ? each->number == number
                                 : !text->escaped && text->len == each->len &&
                                       memcmp(text->start, s->bytes + each->at, each->len) == 0)
            return true;
    }
    return node->choices == 0;
}

/* The member of that name, which is looked for behind the one before: events are alike. */
static const struct shape_member *find_member(const struct shape *s, const struct shape_node *node,
                                              const struct text *name, uint32_t *next)
{
    const struct shape_member *all = s->members + node->members_at;
    uint32_t at = *next;
    for (uint32_t left = node->members; left > 0; left--, at++) {
        if (at >= node->members)
            at = 0;
        if (all[at].len == name->len &&
            memcmp(s->bytes + all[at].at, name->start, name->len) == 0) {
            *next = at + 1;
            return &all[at];
        }
    }
    return NULL;
}

static bool read_object(struct reader *r, const struct shape_node *node)
{
    uint64_t seen[SHAPE_REQUIRED_MAX / 64] = {0};
    uint32_t next = 0, found = 0;
    struct text name;
    r->p++;
    if (peek(r) == '}') {
        r->p++;
        return node->required == 0 && node->choices == 0;
    }
    for (;;) {
        if (peek(r) != '"')
            return false;
        r->p++;
        if (!read_text(r, &name) || peek(r) != ':')
            return false;
        r->p++;
        uint32_t below = node->others;
        if (node->members > 0) {
            if (name.escaped)
                return false;
            const struct shape_member *member = find_member(r->shape, node, &name, &next);
            if (member != NULL) {
                below = member->node;
                if (member->bit != SHAPE_NONE) {
                    const uint64_t bit = (uint64_t)1 << member->bit % 64;
                    found += !(seen[member->bit / 64] & bit);
                    seen[member->bit / 64] |= bit;
                }
            }
        }
        if (!read_value(r, below))
            return false;
        const int c = peek(r);
        if (c != ',' && c != '}')
            return false;
        r->p++;
        if (c == '}')
            return found == node->required && node->choices == 0;
    }
}

static bool read_array(struct reader *r, const struct shape_node *node)
{
    uint32_t count = 0;
    r->p++;
    if (peek(r) == ']') {
        r->p++;
        return node->items_least == 0 && node->choices == 0;
    }
    for (;;) {
        if (++count > node->items_most || !read_value(r, node->items))
            return false;
        const int c = peek(r);
        if (c != ',' && c != ']')
            return false;
        r->p++;
        if (c == ']')
            return count >= node->items_least && node->choices == 0;
    }
}

static bool read_word(struct reader *r, const char *word, size_t len)
{
    if ((size_t)(r->end - r->p) < len || memcmp(r->p, word, len) != 0)
        return false;
    r->p += len;
    return true;
}

/* By what the node itself asks for. */
static bool read_own(struct reader *r, const struct shape_node *node)
{
    const struct shape *s = r->shape;
    struct text text;
    struct number number;
    switch (*r->p) {
    case '"':
        r->p++;
        return (node->flags & SHAPE_STRING) && read_text(r, &text) && fits_text(node, &text) &&
               is_chosen(s, node, SHAPE_STRING, 0, &text);
    case '{':
        return (node->flags & SHAPE_OBJECT) && read_object(r, node);
    case '[':
        return (node->flags & SHAPE_ARRAY) && read_array(r, node);
    case 't':
        return (node->flags & SHAPE_BOOLEAN) && read_word(r, "true", 4) &&
               is_chosen(s, node, SHAPE_BOOLEAN, 1, NULL);
    case 'f':
        return (node->flags & SHAPE_BOOLEAN) && read_word(r, "false", 5) &&
               is_chosen(s, node, SHAPE_BOOLEAN, 0, NULL);
    case 'n':
        return (node->flags & SHAPE_NULL) && read_word(r, "null", 4) &&
               is_chosen(s, node, SHAPE_NULL, 0, NULL);
    default:
        return read_number(r, &number) && fits_number(node, &number) &&
               (node->choices == 0 ||
                (number.whole && is_chosen(s, node, SHAPE_INTEGER, number.digits, NULL)));
    }
}

/* Back to there, if that much may be read again. To try is something, too: what a schema asks for
 * at one place may be exponentially much. */
static bool go_back(struct reader *r, const uint8_t *start)
{
    const size_t len = (size_t)(r->p - start) + 1;
    if (len > r->again)
        return false;
    r->again -= len;
    r->p = start;
    return true;
}

static bool read_any(struct reader *r, const struct shape_node *node, const uint8_t *start)
{
    for (uint32_t i = 0; i < node->any; i++) {
        if (!go_back(r, start))
            return false;
        if (read_value(r, r->shape->refs[node->any_at + i]))
            return true;
    }
    return false;
}

static bool read_value(struct reader *r, uint32_t at)
{
    const struct shape_node *node = &r->shape->nodes[at];
    if (peek(r) < 0 || r->depth == SHAPE_DEPTH_MAX)
        return false;
    const uint8_t *start = r->p;
    r->depth++;
    bool good = !(node->flags & SHAPE_OWN) || read_own(r, node);
    for (uint32_t i = 0; good && i < node->all; i++)
        good = go_back(r, start) && read_value(r, r->shape->refs[node->all_at + i]);
    if (good && node->any > 0)
        good = read_any(r, node, start);
    r->depth--;
    return good;
}

bool shape_holds(const struct shape *shape, const uint8_t *value, size_t len)
{
    struct reader r = {shape, value, value + len, AGAIN * (len + AGAIN), 0};
    return read_value(&r, shape->root) && peek(&r) < 0;
}
