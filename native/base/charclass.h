/* charclass: how far does a run of characters of one class go? Sixteen bytes at a time.
 *
 * A class of ASCII characters is 16 bytes: bit h of low[l] says whether the character with high
 * nibble h and low nibble l belongs to it. One shuffle looks up the low nibbles, another turns the
 * high nibbles into bits (none for 0x80 and above), and the AND of both is the answer for 16
 * characters, exactly. The same table serves the last few bytes one by one, so nothing is ever
 * read past the end. */
#ifndef BARCO_CHARCLASS_H
#define BARCO_CHARCLASS_H

#include <stdbool.h>
#include <stdint.h>
#if defined(__SSSE3__)
#include <tmmintrin.h>
#endif

struct charclass {
    uint8_t low[16];
};

/* tchar of RFC 9110 5.6.2: methods, header names, names of chunk extensions. */
static const struct charclass CHARCLASS_TOKEN = {{0xe8, 0xfc, 0xf8, 0xfc, 0xfc, 0xfc, 0xfc, 0xfc,
                                                  0xf8, 0xf8, 0xf4, 0x54, 0xd0, 0x54, 0xf4, 0x70}};
/* Visible ASCII but '#' and '?': the path of a request target. */
static const struct charclass CHARCLASS_PATH = {{0xf8, 0xfc, 0xfc, 0xf8, 0xfc, 0xfc, 0xfc, 0xfc,
                                                 0xfc, 0xfc, 0xfc, 0xfc, 0xfc, 0xfc, 0xfc, 0x74}};
/* Visible ASCII but '#': the query of a request target. */
static const struct charclass CHARCLASS_QUERY = {{0xf8, 0xfc, 0xfc, 0xf8, 0xfc, 0xfc, 0xfc, 0xfc,
                                                  0xfc, 0xfc, 0xfc, 0xfc, 0xfc, 0xfc, 0xfc, 0x7c}};
/* RFC 3986 host and port, but the comma, which in a Host header only says that two were merged. */
static const struct charclass CHARCLASS_HOST = {{0xa8, 0xfc, 0xf8, 0xf8, 0xfc, 0xfc, 0xfc, 0xfc,
                                                 0xfc, 0xfc, 0xfc, 0x7c, 0x50, 0x7c, 0xd4, 0x70}};
/* [a-zA-Z0-9_.-] */
static const struct charclass CHARCLASS_TOPIC = {{0xa8, 0xf8, 0xf8, 0xf8, 0xf8, 0xf8, 0xf8, 0xf8,
                                                  0xf8, 0xf8, 0xf0, 0x50, 0x50, 0x54, 0x54, 0x70}};

/* The value of a hexadecimal digit, or -1. */
static inline int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    const char lower = (char)(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

static inline bool charclass_has(const struct charclass *class, char character)
{
    uint8_t c = (uint8_t)character;
    return c < 0x80 && ((class->low[c & 15] >> (c >> 4)) & 1);
}

#if defined(__SSSE3__)
/* One bit for each of the 16 bytes at p that is not in the class. */
static inline uint32_t charclass_outside_16(const struct charclass *class, const char *p)
{
    const __m128i low = _mm_loadu_si128((const __m128i *)class->low);
    const __m128i high = _mm_setr_epi8(1, 2, 4, 8, 16, 32, 64, (char)128, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m128i nibble = _mm_set1_epi8(15);
    __m128i c = _mm_loadu_si128((const __m128i *)p);
    __m128i by_low = _mm_shuffle_epi8(low, _mm_and_si128(c, nibble));
    __m128i by_high = _mm_shuffle_epi8(high, _mm_and_si128(_mm_srli_epi16(c, 4), nibble));
    __m128i outside = _mm_cmpeq_epi8(_mm_and_si128(by_low, by_high), _mm_setzero_si128());
    return (uint32_t)_mm_movemask_epi8(outside);
}

/* One bit for each of the 16 bytes at p that is a control character: not the tab, but 0x7f. */
static inline uint32_t charclass_control_16(const char *p)
{
    __m128i c = _mm_loadu_si128((const __m128i *)p);
    __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(c, _mm_set1_epi8(0x1f)), c);
    __m128i tab = _mm_cmpeq_epi8(c, _mm_set1_epi8('\t'));
    __m128i del = _mm_cmpeq_epi8(c, _mm_set1_epi8(0x7f));
    return (uint32_t)_mm_movemask_epi8(_mm_or_si128(_mm_andnot_si128(tab, control), del));
}
#endif

/* The first character of [p, end) that is not in the class, or end. */
static inline const char *charclass_span(const struct charclass *class, const char *p,
                                         const char *end)
{
#if defined(__SSSE3__)
    for (; end - p >= 16; p += 16) {
        uint32_t outside = charclass_outside_16(class, p);
        if (outside != 0)
            return p + __builtin_ctz(outside);
    }
#endif
    while (p < end && charclass_has(class, *p))
        p++;
    return p;
}

/* The first byte of [p, end) that a header value can not hold (a control character other than the
 * tab; 0x7f), or end. */
static inline const char *charclass_value_span(const char *p, const char *end)
{
#if defined(__SSSE3__)
    for (; end - p >= 16; p += 16) {
        uint32_t control = charclass_control_16(p);
        if (control != 0)
            return p + __builtin_ctz(control);
    }
#endif
    while (p < end && (((uint8_t)*p >= 0x20 && *p != 0x7f) || *p == '\t'))
        p++;
    return p;
}

/* Both ends of the header line at p: *name_end is the first character that is no token, *stop the
 * first control character from there on; end where there is none. Most lines fit into 32 bytes:
 * then both are found at once, and the next line does not wait for two searches in a row. */
static inline void charclass_header_span(const char *p, const char *end, const char **name_end,
                                         const char **stop)
{
#if defined(__SSSE3__)
    if (__builtin_expect(end - p >= 32, 1)) {
        uint32_t outside = charclass_outside_16(&CHARCLASS_TOKEN, p) |
                           charclass_outside_16(&CHARCLASS_TOKEN, p + 16) << 16;
        uint32_t control = charclass_control_16(p) | charclass_control_16(p + 16) << 16;
        if (control != 0) {
            *name_end = p + __builtin_ctz(outside); /* Controls are outside: it is not 0 either. */
            *stop = p + __builtin_ctz(control);
            return;
        }
    }
#endif
    *name_end = charclass_span(&CHARCLASS_TOKEN, p, end);
    *stop = charclass_value_span(*name_end, end);
}

#endif
