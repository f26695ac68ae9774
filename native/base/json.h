/* Which bytes may be spliced into a JSON document as they are. */
#ifndef BARCO_JSON_H
#define BARCO_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define JSON_STEP 16u /* bytes that are looked at at once */
#define JSON_DEPTH_MAX 512u   /* Deeper values are not spliced: consumers' parsers recurse. */
#define JSON_NUMBER_MAX 1024u /* Nor longer numbers: Python's refuses them, and all with them. */

/* RFC 8259 text: strict grammar, valid UTF-8, paired surrogate escapes, one value with optional
 * white space around it, within the two limits above. Iterative. */
bool json_valid(const uint8_t *p, size_t len);

/* Well-formed UTF-8 (no over-long forms, no surrogates, at most U+10FFFF). */
bool utf8_valid(const uint8_t *p, size_t len);

/* Length of the well-formed character at p (left > 0), or 0. */
size_t utf8_character(const uint8_t *p, size_t left);

/* Needs no care inside a JSON string: printable ASCII, no quote and no backslash. */
static inline bool json_is_plain(uint8_t byte)
{
    return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';
}

/* How many of the JSON_STEP bytes from p on come before the first that needs care. */
static inline unsigned json_plain_step(const uint8_t *p)
{
#if defined(__SSE2__)
    const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
    /* As signed bytes, everything from 0x80 on is below the space too. */
    const __m128i special =
        _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(x, _mm_set1_epi8('"')),
                                  _mm_cmpeq_epi8(x, _mm_set1_epi8('\\'))),
                     _mm_cmplt_epi8(x, _mm_set1_epi8(' ')));
    const unsigned mask = (unsigned)_mm_movemask_epi8(special);
    return mask != 0 ? (unsigned)__builtin_ctz(mask) : JSON_STEP;
#else
    unsigned at = 0;
    while (at < JSON_STEP && json_is_plain(p[at]))
        at++;
    return at;
#endif
}

/* How many bytes from p on need no care inside a JSON string: printable ASCII without quote and
 * backslash. May stop short of the first that does, never beyond it. */
size_t json_plain_run(const uint8_t *p, size_t len);

#endif
