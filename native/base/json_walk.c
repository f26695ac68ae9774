#include "base/json_walk.h"

#include <assert.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "base/charclass.h"
#include "base/json.h"

/* ---- where values end ---- */

uint8_t *json_string_end(const struct json_rest *rest)
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

/* How 64 bytes are looked at: what stands in them, and parity_up_to(). Two ways, by what the
 * processor can do; each is compiled into a container_end() of its own. */
struct look {
    struct marks (*marks)(const uint8_t *p);
    uint64_t (*parity)(uint64_t bits);
};

#define IN_EACH static inline __attribute__((always_inline))

/* Of fewer than 64 bytes; follows: they are read together with those before them. */
IN_EACH struct marks marks_of_last(const struct look *look, const uint8_t *p, size_t len,
                                   bool follows)
{
    uint8_t copy[64] = {0};
    assert(len > 0 && len < sizeof copy);
    if (!follows) {
        memcpy(copy, p, len);
        return look->marks(copy);
    }
    const unsigned before = (unsigned)(sizeof copy - len);
    const struct marks m = look->marks(p - before);
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
IN_EACH uint8_t *container_end_by(const struct look *look, const struct json_rest *rest)
{
    uint64_t carry = 0, inside = 0, depth = 0;
    assert(rest->p < rest->end && (*rest->p | 0x20) == '{');
    for (uint8_t *p = rest->p; p < rest->end; p += 64) {
        const size_t left = (size_t)(rest->end - p);
        const struct marks m = left >= 64 ? look->marks(p)
                                          : marks_of_last(look, p, left, p > rest->p);
        uint64_t quotes = m.quotes;
        if ((m.slashes | carry) != 0)
            quotes &= ~escaped_by(m.slashes, &carry);
        if ((m.opens | m.closes) == 0) {
            inside ^= -(uint64_t)(__builtin_popcountll(quotes) & 1);
            continue;
        }
        const uint64_t strings = look->parity(quotes) ^ inside;
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

uint8_t *json_container_end_plain(const struct json_rest *rest)
{
    static const struct look look = {marks_of, parity_up_to};
    return container_end_by(&look, rest);
}

#if defined(__x86_64__)
#define WIDE __attribute__((target("avx2,pclmul,popcnt,bmi")))

WIDE static inline uint64_t wide_bits(__m256i x, __m256i y, char wanted)
{
    const __m256i all = _mm256_set1_epi8(wanted);
    const uint32_t low = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(x, all));
    return low | (uint64_t)(uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(y, all)) << 32;
}

WIDE static inline struct marks wide_marks(const uint8_t *p)
{
    const __m256i lower = _mm256_set1_epi8(0x20);
    const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)p);
    const __m256i y = _mm256_loadu_si256((const __m256i *)(const void *)(p + 32));
    const __m256i bent_x = _mm256_or_si256(x, lower), bent_y = _mm256_or_si256(y, lower);
    return (struct marks){wide_bits(x, y, '"'), wide_bits(x, y, '\\'),
                          wide_bits(bent_x, bent_y, '{'), wide_bits(bent_x, bent_y, '}')};
}

/* A product without carries with 64 ones adds up, in each bit, all bits up to it. */
WIDE static inline uint64_t wide_parity(uint64_t bits)
{
    const __m128i ones = _mm_set1_epi8(-1), x = _mm_cvtsi64_si128((int64_t)bits);
    return (uint64_t)_mm_cvtsi128_si64(_mm_clmulepi64_si128(x, ones, 0));
}

WIDE static uint8_t *container_end_wide(const struct json_rest *rest)
{
    static const struct look look = {wide_marks, wide_parity};
    return container_end_by(&look, rest);
}

static bool is_wide;

/* Before main(), so that no caller has to check or lock. */
__attribute__((constructor)) static void prepare(void)
{
    __builtin_cpu_init();
    is_wide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("pclmul") &&
              __builtin_cpu_supports("bmi");
}

static uint8_t *container_end(const struct json_rest *rest)
{
    return __builtin_expect(is_wide, 1) ? container_end_wide(rest)
                                        : json_container_end_plain(rest);
}
#else
static uint8_t *container_end(const struct json_rest *rest)
{
    return json_container_end_plain(rest);
}
#endif

uint8_t *json_word_end(const struct json_rest *rest)
{
    uint8_t *p = rest->p;
    while (p < rest->end && *p != ',' && *p != '}' && *p != ']' && !json_is_space(*p))
        p++;
    return p;
}

bool json_pass_value(struct json_rest *rest)
{
    const uint8_t first = json_peek(rest);
    uint8_t *end;
    if (first == '{' || first == '[') {
        end = container_end(rest);
    } else if (first == '"') {
        rest->p++;
        end = json_string_end(rest);
        end = end == NULL ? NULL : end + 1;
    } else {
        end = json_word_end(rest);
        if (!json_valid(rest->p, (size_t)(end - rest->p)))
            return false;
    }
    if (end == NULL)
        return false;
    rest->p = end;
    return true;
}

bool json_take_name(struct json_rest *rest, struct json_rest *name)
{
    if (!json_take(rest, '"'))
        return false;
    uint8_t *quote = json_string_end(rest);
    if (quote == NULL)
        return false;
    *name = (struct json_rest){rest->p, quote};
    rest->p = quote + 1;
    return json_take(rest, ':');
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
static bool write_escape(struct json_rest *from, uint8_t **out)
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

int64_t json_write_text(const uint8_t *text, size_t len, uint8_t *out, size_t cap)
{
    /* It is only read: what is written goes to out. */
    struct json_rest from = {(uint8_t *)(uintptr_t)text, (uint8_t *)(uintptr_t)text + len};
    uint8_t *start = out;
    while (from.p < from.end) {
        const size_t room = cap - (size_t)(out - start);
        const size_t plain = json_plain_run(from.p, (size_t)(from.end - from.p));
        if (plain > room)
            return -3;
        memmove(out, from.p, plain);
        out += plain;
        from.p += plain;
        if (from.p == from.end)
            break;
        uint8_t piece[4], *end = piece;
        const uint8_t c = *from.p++;
        if (c < 0x20 || (c == '\\' && !write_escape(&from, &end)))
            return -1;
        if (c != '\\')
            *end++ = c;
        if (room - plain < (size_t)(end - piece))
            return -3;
        memcpy(out, piece, (size_t)(end - piece));
        out += end - piece;
    }
    return utf8_valid(start, (size_t)(out - start)) ? out - start : -1;
}
