#include "base/json.h"

#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "base/charclass.h"

struct scanner {
    const uint8_t *p, *end;
};

size_t json_plain_run(const uint8_t *p, size_t len)
{
    size_t at = 0;
    for (; len - at >= JSON_STEP; at += JSON_STEP) {
        const unsigned plain = json_plain_step(p + at);
        if (plain < JSON_STEP)
            return at + plain;
    }
    while (at < len && json_is_plain(p[at]))
        at++;
    return at;
}

static inline bool continuation(uint8_t byte)
{
    return (byte & 0xC0) == 0x80;
}

/* Unicode table 3-7. */
size_t utf8_character(const uint8_t *p, size_t left)
{
    uint8_t c = p[0];
    if (c < 0x80)
        return 1;
    if (c < 0xC2 || c > 0xF4)
        return 0;
    if (c < 0xE0)
        return left >= 2 && continuation(p[1]) ? 2 : 0;
    uint8_t low = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
    uint8_t high = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
    if (left < 3 || p[1] < low || p[1] > high || !continuation(p[2]))
        return 0;
    if (c < 0xF0)
        return 3;
    return left >= 4 && continuation(p[3]) ? 4 : 0;
}

static size_t ascii_run(const uint8_t *p, size_t len)
{
    size_t at = 0;
    for (uint64_t x; len - at >= 8; at += 8) {
        memcpy(&x, p + at, 8);
        if (x & 0x8080808080808080u)
            break;
    }
    while (at < len && p[at] < 0x80)
        at++;
    return at;
}

bool utf8_valid(const uint8_t *p, size_t len)
{
    size_t at = 0;
    while ((at += ascii_run(p + at, len - at)) < len) {
        size_t n = utf8_character(p + at, len - at);
        if (n == 0)
            return false;
        at += n;
    }
    return true;
}

/* The four digits of a \u escape at p; -1 if they are not. */
static int hex4(const uint8_t *p, const uint8_t *end)
{
    int value = 0;
    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit((char)p[i]);
        if (digit < 0)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

/* After the backslash. A high surrogate must be followed by its low one: half a pair is
 * grammatical, but many parsers refuse it. */
static bool scan_escape(struct scanner *s)
{
    if (s->p == s->end)
        return false;
    uint8_t c = *s->p++;
    if (c != 'u')
        return c != 0 && strchr("\"\\/bfnrt", c) != NULL;
    int unit = hex4(s->p, s->end);
    if (unit < 0 || (unit >= 0xDC00 && unit <= 0xDFFF))
        return false;
    s->p += 4;
    if (unit < 0xD800 || unit > 0xDBFF)
        return true;
    if (s->end - s->p < 6 || s->p[0] != '\\' || s->p[1] != 'u')
        return false;
    int low = hex4(s->p + 2, s->end);
    s->p += 6;
    return low >= 0xDC00 && low <= 0xDFFF;
}

/* After the opening quote, to behind the closing one. */
static bool scan_string(struct scanner *s)
{
    for (;;) {
        s->p += json_plain_run(s->p, (size_t)(s->end - s->p));
        if (s->p == s->end || *s->p < 0x20)
            return false;
        if (*s->p == '"') {
            s->p++;
            return true;
        }
        if (*s->p == '\\') {
            s->p++;
            if (!scan_escape(s))
                return false;
            continue;
        }
        size_t n = utf8_character(s->p, (size_t)(s->end - s->p));
        if (n == 0)
            return false;
        s->p += n;
    }
}

static bool scan_digits(struct scanner *s)
{
    const uint8_t *start = s->p;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
        s->p++;
    return s->p > start;
}

static bool scan_number(struct scanner *s)
{
    const uint8_t *start = s->p;
    if (*s->p == '-')
        s->p++;
    if (s->p < s->end && *s->p == '0')
        s->p++;
    else if (!scan_digits(s))
        return false;
    if (s->p < s->end && *s->p == '.') {
        s->p++;
        if (!scan_digits(s))
            return false;
    }
    if (s->p < s->end && (*s->p | 0x20) == 'e') {
        s->p++;
        if (s->p < s->end && (*s->p == '+' || *s->p == '-'))
            s->p++;
        if (!scan_digits(s))
            return false;
    }
    return (size_t)(s->p - start) <= JSON_NUMBER_MAX;
}

static bool scan_word(struct scanner *s, const char *word, size_t len)
{
    if ((size_t)(s->end - s->p) < len || memcmp(s->p, word, len) != 0)
        return false;
    s->p += len;
    return true;
}

/* Anything but an object or an array. */
static bool scan_scalar(struct scanner *s)
{
    switch (*s->p) {
    case '"':
        s->p++;
        return scan_string(s);
    case 't':
        return scan_word(s, "true", 4);
    case 'f':
        return scan_word(s, "false", 5);
    case 'n':
        return scan_word(s, "null", 4);
    default:
        return (*s->p == '-' || (*s->p >= '0' && *s->p <= '9')) && scan_number(s);
    }
}

/* The next byte that is not white space, or -1 at the end. */
static int peek(struct scanner *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' || *s->p == '\t'))
        s->p++;
    return s->p < s->end ? *s->p : -1;
}

/* "name" and the colon. */
static bool scan_name(struct scanner *s)
{
    if (peek(s) != '"')
        return false;
    s->p++;
    if (!scan_string(s) || peek(s) != ':')
        return false;
    s->p++;
    return true;
}

/* What is open around the current value: one bit a level, set for an object. */
struct nesting {
    uint32_t depth;
    uint64_t objects[JSON_DEPTH_MAX / 64];
};

static bool open_level(struct nesting *n, bool object)
{
    if (n->depth == JSON_DEPTH_MAX)
        return false;
    uint64_t bit = (uint64_t)1 << n->depth % 64;
    uint64_t *word = &n->objects[n->depth / 64];
    *word = object ? *word | bit : *word & ~bit;
    n->depth++;
    return true;
}

static bool in_object(const struct nesting *n)
{
    return n->objects[(n->depth - 1) / 64] >> (n->depth - 1) % 64 & 1;
}

/* After a value: closes levels until a comma asks for the next value (1), or the outermost value
 * is complete (0); -1 malformed. */
static int scan_after(struct scanner *s, struct nesting *n)
{
    while (n->depth > 0) {
        bool object = in_object(n);
        int c = peek(s);
        if (c == ',') {
            s->p++;
            return !object || scan_name(s) ? 1 : -1;
        }
        if (c != (object ? '}' : ']'))
            return -1;
        s->p++;
        n->depth--;
    }
    return 0;
}

bool json_valid(const uint8_t *p, size_t len)
{
    struct scanner s = {p, p + len};
    struct nesting n = {.depth = 0};
    for (;;) {
        int c = peek(&s);
        if (c == '{' || c == '[') {
            s.p++;
            if (!open_level(&n, c == '{'))
                return false;
            if (peek(&s) != (c == '{' ? '}' : ']')) {
                if (c == '{' && !scan_name(&s))
                    return false;
                continue;
            }
        } else if (c < 0 || !scan_scalar(&s)) {
            return false;
        }
        int more = scan_after(&s, &n);
        if (more < 0)
            return false;
        if (more == 0)
            return peek(&s) == -1;
    }
}
