#include "base/murmur3.h"

#include <string.h>

static const uint64_t C1 = 0x87c37b91114253d5u;
static const uint64_t C2 = 0x4cf5ad432745937fu;

static inline uint64_t rotate(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

static inline uint64_t load64(const uint8_t *p)
{
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

static inline uint64_t mix1(uint64_t k)
{
    return rotate(k * C1, 31) * C2;
}

static inline uint64_t mix2(uint64_t k)
{
    return rotate(k * C2, 33) * C1;
}

static inline uint64_t finish(uint64_t h)
{
    h = (h ^ h >> 33) * 0xff51afd7ed558ccdu;
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53u;
    return h ^ h >> 33;
}

static inline uint32_t load32(const uint8_t *p)
{
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* Up to 8 bytes, each sign-extended before it is shifted to its place: the quirk. Of text in ASCII
 * nothing is extended, and the bytes are the word: two loads that overlap. */
static inline uint64_t tail_word(const uint8_t *p, size_t len)
{
    uint64_t word = 0;
    if (len >= 4) {
        word = load32(p) | (uint64_t)load32(p + len - 4) << (8 * (len - 4));
        if ((word & 0x8080808080808080u) == 0)
            return word;
        word = 0;
    }
    for (size_t i = 0; i < len; i++)
        word ^= (uint64_t)(int64_t)(int8_t)p[i] << (8 * i);
    return word;
}

int64_t murmur3_token(const void *key, size_t len)
{
    const uint8_t *p = key;
    uint64_t h1 = 0, h2 = 0;
    size_t rest = len;

    for (; rest >= 16; rest -= 16, p += 16) {
        h1 ^= mix1(load64(p));
        h1 = (rotate(h1, 27) + h2) * 5 + 0x52dce729;
        h2 ^= mix2(load64(p + 8));
        h2 = (rotate(h2, 31) + h1) * 5 + 0x38495ab5;
    }
    if (rest > 8)
        h2 ^= mix2(tail_word(p + 8, rest - 8));
    if (rest > 0)
        h1 ^= mix1(tail_word(p, rest < 8 ? rest : 8));

    h1 ^= len;
    h2 ^= len;
    h1 += h2;
    h2 += h1;
    h1 = finish(h1);
    h2 = finish(h2);
    return (int64_t)(h1 + h2);
}
