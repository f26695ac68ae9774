#include "format/keyed.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "base/charclass.h"
#include "base/json.h"
#include "format/format.h"
#include "format/headers.h"

#define TIME_MAX (INT64_MAX - UINT32_MAX) /* as of a batch */
#define TIME_DIGITS_MAX 18
#define LINE_BYTES_MIN 8u /* {"a":1} and its end; with a value it is more */

/* What is left of a line. */
struct rest {
    uint8_t *p, *end;
};

/* ---- where values end ---- */

/* From behind the opening quote to the closing one; NULL: there is none. */
static uint8_t *string_end(const struct rest *rest)
{
    for (uint8_t *from = rest->p;;) {
        uint8_t *quote = memchr(from, '"', (size_t)(rest->end - from));
        if (quote == NULL)
            return NULL;
        const uint8_t *slash = quote;
        while (slash > rest->p && slash[-1] == '\\')
            slash--;
        if (((quote - slash) & 1) == 0)
            return quote;
        from = quote + 1;
    }
}

/* What stands in 64 bytes: a bit each. Most have no bracket and no backslash: then those are 0 and
 * cost little. */
struct marks {
    uint64_t quotes, slashes, opens, closes;
};

#if defined(__SSE2__)
static uint64_t bits_of(const __m128i equal[4])
{
    uint64_t bits = 0;
    for (int i = 0; i < 4; i++)
        bits |= (uint64_t)(uint32_t)_mm_movemask_epi8(equal[i]) << (16 * i);
    return bits;
}

static bool any_of(const __m128i a[4], const __m128i b[4])
{
    __m128i all = _mm_setzero_si128();
    for (int i = 0; i < 4; i++)
        all = _mm_or_si128(all, _mm_or_si128(a[i], b[i]));
    return _mm_movemask_epi8(all) != 0;
}

static struct marks marks_of(const uint8_t *p)
{
    const __m128i lower = _mm_set1_epi8(0x20); /* makes '[' of '{' and ']' of '}' alike */
    __m128i quotes[4], slashes[4], opens[4], closes[4];
    for (int i = 0; i < 4; i++) {
        const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i));
        const __m128i bent = _mm_or_si128(x, lower);
        quotes[i] = _mm_cmpeq_epi8(x, _mm_set1_epi8('"'));
        slashes[i] = _mm_cmpeq_epi8(x, _mm_set1_epi8('\\'));
        opens[i] = _mm_cmpeq_epi8(bent, _mm_set1_epi8('{'));
        closes[i] = _mm_cmpeq_epi8(bent, _mm_set1_epi8('}'));
    }
    struct marks m = {bits_of(quotes), 0, 0, 0};
    if (any_of(slashes, slashes))
        m.slashes = bits_of(slashes);
    if (any_of(opens, closes)) {
        m.opens = bits_of(opens);
        m.closes = bits_of(closes);
    }
    return m;
}
#else
static struct marks marks_of(const uint8_t *p)
{
    struct marks m = {0, 0, 0, 0};
    for (int i = 0; i < 64; i++) {
        m.quotes |= (uint64_t)(p[i] == '"') << i;
        m.slashes |= (uint64_t)(p[i] == '\\') << i;
        m.opens |= (uint64_t)((p[i] | 0x20) == '{') << i;
        m.closes |= (uint64_t)((p[i] | 0x20) == '}') << i;
    }
    return m;
}
#endif

/* Of fewer than 64 bytes; follows: they are read together with those before them. */
static struct marks marks_of_last(const uint8_t *p, size_t len, bool follows)
{
    uint8_t copy[64] = {0};
    assert(len > 0 && len < sizeof copy);
    if (!follows) {
        memcpy(copy, p, len);
        return marks_of(copy);
    }
    const unsigned before = (unsigned)(sizeof copy - len);
    const struct marks m = marks_of(p - before);
    return (struct marks){m.quotes >> before, m.slashes >> before, m.opens >> before,
                          m.closes >> before};
}

/* Which bytes a backslash stands before that is none of its own; *carry: the next block's first. */
static uint64_t escaped_by(uint64_t slashes, uint64_t *carry)
{
    uint64_t escaped = *carry, left = slashes & ~escaped;
    *carry = 0;
    while (left != 0) {
        const uint64_t slash = left & -left;
        escaped |= slash << 1;
        left &= ~(slash | slash << 1);
        if (slash >> 63)
            *carry = 1;
    }
    return escaped;
}

/* Each bit becomes that of all up to it, counted by twos: within a string or not. */
static uint64_t parity_up_to(uint64_t bits)
{
    for (int shift = 1; shift < 64; shift *= 2)
        bits ^= bits << shift;
    return bits;
}

/* From an opening bracket to behind the one that closes it; NULL: none does. Which of the two kinds
 * a bracket is nobody looks at. 64 bytes at a time, however much stands in them. */
static uint8_t *container_end(const struct rest *rest)
{
    uint64_t carry = 0, inside = 0, depth = 0;
    assert(rest->p < rest->end && (*rest->p | 0x20) == '{');
    for (uint8_t *p = rest->p; p < rest->end; p += 64) {
        const size_t left = (size_t)(rest->end - p);
        const struct marks m = left >= 64 ? marks_of(p) : marks_of_last(p, left, p > rest->p);
        uint64_t quotes = m.quotes;
        if ((m.slashes | carry) != 0)
            quotes &= ~escaped_by(m.slashes, &carry);
        if ((m.opens | m.closes) == 0) {
            inside ^= -(uint64_t)(__builtin_popcountll(quotes) & 1);
            continue;
        }
        const uint64_t strings = parity_up_to(quotes) ^ inside;
        const uint64_t opens = m.opens & ~strings, closes = m.closes & ~strings;
        inside = strings >> 63 ? ~(uint64_t)0 : 0;
        const unsigned closed = (unsigned)__builtin_popcountll(closes);
        if (depth > closed) { /* the last one is not here */
            depth += (uint64_t)__builtin_popcountll(opens) - closed;
            continue;
        }
        for (uint64_t each = opens | closes; each != 0; each &= each - 1) {
            if (opens & each & -each)
                depth++;
            else if (--depth == 0)
                return p + __builtin_ctzll(each) + 1;
        }
    }
    return NULL;
}

static bool is_space(uint8_t byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r';
}

/* The next byte that is not white space, or 0. */
static uint8_t peek(struct rest *rest)
{
    while (rest->p < rest->end && is_space(*rest->p))
        rest->p++;
    return rest->p < rest->end ? *rest->p : 0;
}

static bool take(struct rest *rest, uint8_t byte)
{
    if (peek(rest) != byte)
        return false;
    rest->p++;
    return true;
}

/* To behind what is no string and no container: the text of a number or of a word. */
static uint8_t *word_end(const struct rest *rest)
{
    uint8_t *p = rest->p;
    while (p < rest->end && *p != ',' && *p != '}' && !is_space(*p))
        p++;
    return p;
}

/* Passes over one value. A container's inside is taken as it is. */
static bool pass_value(struct rest *rest)
{
    const uint8_t first = peek(rest);
    uint8_t *end;
    if (first == '{' || first == '[') {
        end = container_end(rest);
    } else if (first == '"') {
        rest->p++;
        end = string_end(rest);
        end = end == NULL ? NULL : end + 1;
    } else {
        end = word_end(rest);
        if (!json_valid(rest->p, (size_t)(end - rest->p)))
            return false;
    }
    if (end == NULL)
        return false;
    rest->p = end;
    return true;
}

/* ---- what is escaped, written out where it is ---- */

static int hex4(const uint8_t *p, const uint8_t *end)
{
    int value = 0;
    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        const int digit = hex_digit((char)p[i]);
        if (digit < 0)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

static uint8_t *put_utf8(uint8_t *out, uint32_t c)
{
    if (c < 0x80) {
        *out++ = (uint8_t)c;
    } else if (c < 0x800) {
        *out++ = (uint8_t)(0xc0 | c >> 6);
        *out++ = (uint8_t)(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        *out++ = (uint8_t)(0xe0 | c >> 12);
        *out++ = (uint8_t)(0x80 | (c >> 6 & 0x3f));
        *out++ = (uint8_t)(0x80 | (c & 0x3f));
    } else {
        *out++ = (uint8_t)(0xf0 | c >> 18);
        *out++ = (uint8_t)(0x80 | (c >> 12 & 0x3f));
        *out++ = (uint8_t)(0x80 | (c >> 6 & 0x3f));
        *out++ = (uint8_t)(0x80 | (c & 0x3f));
    }
    return out;
}

/* After the backslash; what it stands for goes to *out: 4 bytes at most. */
static bool write_escape(struct rest *from, uint8_t **out)
{
    static const char names[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    if (from->p == from->end)
        return false;
    const uint8_t c = *from->p++;
    if (c != 'u') {
        const char *found = c != 0 ? strchr(names, c) : NULL;
        if (found == NULL)
            return false;
        *(*out)++ = (uint8_t)bytes[found - names];
        return true;
    }
    int unit = hex4(from->p, from->end);
    if (unit < 0 || (unit >= 0xdc00 && unit <= 0xdfff))
        return false;
    from->p += 4;
    if (unit >= 0xd800 && unit <= 0xdbff) {
        if (from->end - from->p < 6 || from->p[0] != '\\' || from->p[1] != 'u')
            return false;
        const int low = hex4(from->p + 2, from->end);
        if (low < 0xdc00 || low > 0xdfff)
            return false;
        from->p += 6;
        unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
    }
    *out = put_utf8(*out, (uint32_t)unit);
    return true;
}

/* The characters of a JSON string, without its quotes, to out, which may be where it is. Their
 * bytes, -1 malformed, or -3 more than cap. */
static int64_t write_text(uint8_t *text, size_t len, uint8_t *out, size_t cap)
{
    struct rest from = {text, text + len};
    uint8_t *start = out;
    while (from.p < from.end) {
        uint8_t piece[4], *end = piece;
        const uint8_t c = *from.p++;
        if (c < 0x20 || (c == '\\' && !write_escape(&from, &end)))
            return -1;
        if (c != '\\')
            *end++ = c;
        if (cap - (size_t)(out - start) < (size_t)(end - piece))
            return -3;
        memcpy(out, piece, (size_t)(end - piece));
        out += end - piece;
    }
    return utf8_valid(start, (size_t)(out - start)) ? out - start : -1;
}

static int base64_digit(uint8_t c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* The bytes that base64 with its padding stands for. How many, or -1. */
static int64_t write_base64(uint8_t *text, size_t len)
{
    uint8_t *out = text;
    if (len % 4 != 0)
        return -1;
    size_t digits = len;
    while (digits > 0 && len - digits < 2 && text[digits - 1] == '=')
        digits--;
    uint32_t bits = 0;
    unsigned held = 0;
    for (size_t i = 0; i < digits; i++) {
        const int digit = base64_digit(text[i]);
        if (digit < 0)
            return -1;
        bits = bits << 6 | (uint32_t)digit;
        held += 6;
        if (held >= 8) {
            held -= 8;
            *out++ = (uint8_t)(bits >> held);
        }
    }
    /* What the last digit says beyond the last byte is nothing. */
    return (bits & ((1u << held) - 1)) == 0 ? out - text : -1;
}

/* {"base64": "..."} and nothing else in it: 1 and the text between the quotes. 0: another thing. */
static int find_base64(struct rest object, struct rest *text)
{
    static const char name[] = "\"base64\"";
    if (!take(&object, '{') || peek(&object) != '"' ||
        (size_t)(object.end - object.p) < sizeof name ||
        memcmp(object.p, name, sizeof name - 1) != 0)
        return 0;
    object.p += sizeof name - 1;
    if (!take(&object, ':') || !take(&object, '"'))
        return 0;
    uint8_t *quote = string_end(&object);
    if (quote == NULL)
        return 0;
    *text = (struct rest){object.p, quote};
    object.p = quote + 1;
    return take(&object, '}') && object.p == object.end;
}

/* ---- members ---- */

/* One body while it is read. */
struct reading {
    uint8_t *base;
    const struct keyed_rules *rules;
};

static enum keyed_flaw set_key(const struct reading *r, struct keyed_line *line, uint8_t *at,
                               int64_t len)
{
    if (len == -3 || len > KEYED_KEY_MAX)
        return KEYED_LONG_KEY;
    if (len < 0)
        return KEYED_KEY;
    line->key_at = (uint32_t)(at - r->base);
    line->key_len = (uint32_t)len;
    return KEYED_FINE;
}

/* A string's characters. Where the line is to stay as it is, an escaped one is only looked at. */
static enum keyed_flaw read_text_key(const struct reading *r, struct rest *rest,
                                     struct keyed_line *line)
{
    rest->p++;
    uint8_t *text = rest->p, *quote = string_end(rest);
    if (quote == NULL)
        return KEYED_SYNTAX;
    const size_t raw = (size_t)(quote - text);
    rest->p = quote + 1;
    if (json_plain_run(text, raw) == raw) /* nothing in it needs care */
        return set_key(r, line, text, (int64_t)raw);
    const bool is_escaped = memchr(text, '\\', raw) != NULL;
    const bool stays = r->rules->field_len > 0;
    if (!is_escaped && raw > KEYED_KEY_MAX)
        return KEYED_LONG_KEY;
    const int64_t len = write_text(text, raw, is_escaped && stays ? r->rules->key_room : text,
                                   KEYED_KEY_MAX);
    if (is_escaped && stays)
        line->key_escaped = (uint32_t)raw;
    return set_key(r, line, text, len);
}

static enum keyed_flaw read_key(const struct reading *r, struct rest *rest,
                                struct keyed_line *line)
{
    struct rest text;
    const uint8_t first = peek(rest);
    if (first == '"')
        return read_text_key(r, rest, line);
    const struct rest value = *rest;
    if (!pass_value(rest))
        return KEYED_SYNTAX;
    if (first == '{' && find_base64((struct rest){value.p, rest->p}, &text)) {
        const int64_t len = write_base64(text.p, (size_t)(text.end - text.p));
        return len < 0 ? KEYED_BASE64 : set_key(r, line, text.p, len);
    }
    return rest->p - value.p == 4 && memcmp(value.p, "null", 4) == 0 ? KEYED_FINE : KEYED_KEY;
}

static enum keyed_flaw read_value(const struct reading *r, struct rest *rest,
                                  struct keyed_line *line)
{
    struct rest text;
    const uint8_t first = peek(rest);
    uint8_t *start = rest->p;
    if (!pass_value(rest))
        return KEYED_SYNTAX;
    int64_t len = rest->p - start;
    if (first == 'n') {
        line->value_len = KEY_NULL;
        return KEYED_FINE;
    }
    if (first == '{' && find_base64((struct rest){start, rest->p}, &text)) {
        start = text.p;
        len = write_base64(text.p, (size_t)(text.end - text.p));
        if (len < 0)
            return KEYED_BASE64;
    }
    if ((uint64_t)len > r->rules->event_bytes_max)
        return KEYED_TOO_LARGE;
    line->value_at = (uint32_t)(start - r->base);
    line->value_len = (uint32_t)len;
    return KEYED_FINE;
}

/* "name" and the colon: its text between the quotes. */
static bool take_name(struct rest *rest, struct rest *name)
{
    if (!take(rest, '"'))
        return false;
    uint8_t *quote = string_end(rest);
    if (quote == NULL)
        return false;
    *name = (struct rest){rest->p, quote};
    rest->p = quote + 1;
    return take(rest, ':');
}

/* A string's characters, or what {"base64": ...} stands for, in place of it. */
static enum keyed_flaw read_header_value(struct rest *rest, struct header *header)
{
    struct rest text;
    const uint8_t first = peek(rest);
    uint8_t *start = rest->p;
    if (!pass_value(rest))
        return KEYED_SYNTAX;
    int64_t len;
    if (first == '"') {
        header->value = ++start;
        len = write_text(start, (size_t)(rest->p - 1 - start), start, SIZE_MAX);
    } else if (first == '{' && find_base64((struct rest){start, rest->p}, &text)) {
        header->value = text.p;
        len = write_base64(text.p, (size_t)(text.end - text.p));
    } else {
        return KEYED_HEADERS;
    }
    if (len < 0 || len > HEADERS_BYTES_MAX)
        return KEYED_HEADERS;
    header->value_len = (uint32_t)len;
    return KEYED_FINE;
}

/* {"name": "value", ...}: as they are stored, in place of it, which is never shorter. None: {}. */
static enum keyed_flaw read_event_headers(const struct reading *r, struct rest *rest,
                                          struct keyed_line *line)
{
    struct headers_draft draft = {.out = r->rules->headers_room};
    peek(rest);
    uint8_t *start = rest->p;
    if (!take(rest, '{'))
        return KEYED_HEADERS;
    if (take(rest, '}'))
        return KEYED_FINE;
    do {
        struct rest name;
        struct header header;
        if (!take_name(rest, &name))
            return KEYED_SYNTAX;
        const int64_t len = write_text(name.p, (size_t)(name.end - name.p), name.p, SIZE_MAX);
        if (len < 0 || len > HEADER_NAME_MAX)
            return KEYED_HEADERS;
        header.name = name.p;
        header.name_len = (uint32_t)len;
        const enum keyed_flaw flaw = read_header_value(rest, &header);
        if (flaw != KEYED_FINE)
            return flaw;
        if (!headers_add(&draft, &header))
            return KEYED_HEADERS;
    } while (take(rest, ','));
    if (!take(rest, '}'))
        return KEYED_SYNTAX;
    assert(draft.len <= (size_t)(rest->p - start));
    memcpy(start, draft.out, draft.len);
    line->headers_at = (uint32_t)(start - r->base);
    line->headers_len = (uint32_t)draft.len;
    return KEYED_FINE;
}

static enum keyed_flaw read_time(struct rest *rest, struct keyed_line *line)
{
    peek(rest);
    const uint8_t *end = word_end(rest);
    int64_t time = 0;
    if (end == rest->p || end - rest->p > TIME_DIGITS_MAX || *rest->p == '0')
        return KEYED_TIME;
    for (; rest->p < end; rest->p++) {
        if (*rest->p < '0' || *rest->p > '9')
            return KEYED_TIME;
        time = time * 10 + (*rest->p - '0');
    }
    assert(time > 0 && time < TIME_MAX);
    line->timestamp = time;
    return KEYED_FINE;
}

static bool is_named(const struct rest *name, const void *text, size_t len)
{
    return (size_t)(name->end - name->p) == len && memcmp(name->p, text, len) == 0;
}

/* {"key": ..., "value": ..., "timestamp": ..., "headers": ...} */
static enum keyed_flaw read_event(const struct reading *r, struct rest rest,
                                  struct keyed_line *line)
{
    enum { KEY = 1, VALUE = 2, TIME = 4, HEADERS = 8 };
    unsigned seen = 0;
    if (!take(&rest, '{'))
        return KEYED_SYNTAX;
    if (peek(&rest) == '}')
        return KEYED_VALUE;
    do {
        struct rest name;
        if (!take_name(&rest, &name))
            return KEYED_SYNTAX;
        const unsigned which = is_named(&name, "value", 5) ? VALUE
                               : is_named(&name, "key", 3) ? KEY
                               : is_named(&name, "timestamp", 9) ? TIME
                               : is_named(&name, "headers", 7) ? HEADERS : 0;
        if (which == 0 || (seen & which))
            return KEYED_MEMBER;
        seen |= which;
        const enum keyed_flaw flaw = which == VALUE ? read_value(r, &rest, line)
                                     : which == KEY ? read_key(r, &rest, line)
                                     : which == TIME ? read_time(&rest, line)
                                                     : read_event_headers(r, &rest, line);
        if (flaw != KEYED_FINE)
            return flaw;
    } while (take(&rest, ','));
    if (!take(&rest, '}') || peek(&rest) != 0 || rest.p != rest.end)
        return KEYED_SYNTAX;
    return seen & VALUE ? KEYED_FINE : KEYED_VALUE;
}

/* The text of a number, or of true or false, as it stands. */
static enum keyed_flaw read_word_key(const struct reading *r, struct rest *rest,
                                     struct keyed_line *line)
{
    uint8_t *end = word_end(rest);
    const size_t len = (size_t)(end - rest->p);
    if (!json_valid(rest->p, len))
        return KEYED_SYNTAX;
    return *rest->p == 'n' ? KEYED_KEY : set_key(r, line, rest->p, (int64_t)len);
}

/* The first member of that name is the key; what is behind it is not looked at. */
static enum keyed_flaw read_member(const struct reading *r, struct rest rest,
                                   struct keyed_line *line)
{
    if (!take(&rest, '{'))
        return KEYED_SYNTAX;
    if (peek(&rest) == '}')
        return KEYED_KEY;
    do {
        struct rest name;
        if (!take_name(&rest, &name))
            return KEYED_SYNTAX;
        if (!is_named(&name, r->rules->field, r->rules->field_len)) {
            if (!pass_value(&rest))
                return KEYED_SYNTAX;
            continue;
        }
        const uint8_t first = peek(&rest);
        if (first == '{' || first == '[' || first == 0)
            return KEYED_KEY;
        return first == '"' ? read_text_key(r, &rest, line) : read_word_key(r, &rest, line);
    } while (take(&rest, ','));
    return peek(&rest) == '}' ? KEYED_KEY : KEYED_SYNTAX;
}

/* ---- lines ---- */

const uint8_t *keyed_key(const uint8_t *bytes, const struct keyed_line *line, uint8_t *room)
{
    assert(line->key_len != KEY_NULL && line->key_len <= KEYED_KEY_MAX);
    if (line->key_escaped == 0)
        return bytes + line->key_at;
    /* It is only read: what is written goes to room. */
    const int64_t len = write_text((uint8_t *)(uintptr_t)(bytes + line->key_at),
                                   line->key_escaped, room, KEYED_KEY_MAX);
    assert(len == (int64_t)line->key_len); /* as when it was looked at */
    return room;
}

uint32_t keyed_lines_most(size_t len)
{
    const size_t most = len / LINE_BYTES_MIN + 1;
    return most < KEYED_LINES_MAX ? (uint32_t)most : KEYED_LINES_MAX;
}

static enum keyed_flaw read_line(const struct reading *r, uint8_t *start, uint8_t *end,
                                 struct keyed_line *line)
{
    const struct rest rest = {start, end};
    *line = (struct keyed_line){.key_len = KEY_NULL};
    if (r->rules->field_len == 0)
        return read_event(r, rest, line);
    if ((uint64_t)(end - start) > r->rules->event_bytes_max)
        return KEYED_TOO_LARGE;
    line->value_at = (uint32_t)(start - r->base);
    line->value_len = (uint32_t)(end - start);
    return read_member(r, rest, line);
}

enum keyed_flaw keyed_read(uint8_t *bytes, size_t len, const struct keyed_rules *rules,
                           struct keyed_line *out, uint32_t room, uint32_t *count, uint64_t *line)
{
    const struct reading reading = {bytes, rules};
    assert(len <= UINT32_MAX && room <= KEYED_LINES_MAX);
    *count = 0;
    *line = 0;
    for (uint8_t *at = bytes, *end = bytes + len, *next; at < end; at = next) {
        uint8_t *stop = memchr(at, '\n', (size_t)(end - at));
        next = stop != NULL ? stop + 1 : end;
        stop = stop != NULL ? stop : end;
        ++*line;
        if (stop > at && stop[-1] == '\r')
            stop--;
        struct rest rest = {at, stop};
        if (peek(&rest) == 0 && rest.p == rest.end)
            continue;
        if (*count == room)
            return KEYED_TOO_MANY;
        enum keyed_flaw flaw = read_line(&reading, at, stop, &out[*count]);
        if (flaw == KEYED_FINE && (out[*count].timestamp == 0) != (out[0].timestamp == 0))
            flaw = KEYED_MIXED;
        if (flaw != KEYED_FINE)
            return flaw;
        ++*count;
    }
    return KEYED_FINE;
}
