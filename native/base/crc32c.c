#include "base/crc32c.h"

#include <stdbool.h>
#include <string.h>

#define POLYNOMIAL 0x82F63B78u

/* table[k][b]: the crc of byte b followed by k zero bytes. */
static uint32_t table[8][256];

static inline uint64_t load64(const uint8_t *p)
{
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

uint32_t crc32c_portable(uint32_t seed, const void *buf, size_t len)
{
    const uint8_t *p = buf;
    uint32_t crc = ~seed;

    for (; len >= 8; len -= 8, p += 8) {
        uint64_t x = load64(p) ^ crc;
        crc = table[7][x & 255] ^ table[6][x >> 8 & 255] ^ table[5][x >> 16 & 255] ^
              table[4][x >> 24 & 255] ^ table[3][x >> 32 & 255] ^ table[2][x >> 40 & 255] ^
              table[1][x >> 48 & 255] ^ table[0][x >> 56];
    }
    for (; len > 0; len--, p++)
        crc = table[0][(crc ^ *p) & 255] ^ crc >> 8;
    return ~crc;
}

#if defined(__x86_64__)
#include <immintrin.h>

/* The crc32 instruction has a latency of three cycles and starts every cycle: three independent
 * streams, of LONG or SHORT bytes each, keep it busy. */
enum { LONG = 4096, SHORT = 256 };

/* Multipliers that move a crc over one or two streams' length of zero bytes. */
static uint32_t long_by_1, long_by_2, short_by_1, short_by_2;
static bool hardware;

/* x^n modulo the polynomial, bit-reflected: start at x^0 and shift n times. */
static uint32_t power_of_x(uint32_t n)
{
    uint32_t value = 0x80000000u;
    while (n-- > 0)
        value = value >> 1 ^ (value & 1 ? POLYNOMIAL : 0);
    return value;
}

/* The product of two reflected 32-bit polynomials comes out one bit low, and reducing it with a
 * 64-bit crc step multiplies by x^32 more: hence the 33 here. */
static uint32_t shift_multiplier(uint32_t bytes)
{
    return power_of_x(8 * bytes - 33);
}

__attribute__((target("sse4.2,pclmul"))) static inline uint64_t shift(uint64_t crc, uint32_t by)
{
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)crc),
                                           _mm_cvtsi32_si128((int)by), 0);
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

/* Three streams of `stream` bytes each, from p on. */
__attribute__((target("sse4.2,pclmul"), always_inline)) static inline uint64_t
three_streams(uint64_t crc, const uint8_t *p, size_t stream, uint32_t by_1, uint32_t by_2)
{
    uint64_t a = crc, b = 0, c = 0;
    for (size_t i = 0; i < stream; i += 16) {
        a = _mm_crc32_u64(a, load64(p + i));
        b = _mm_crc32_u64(b, load64(p + stream + i));
        c = _mm_crc32_u64(c, load64(p + 2 * stream + i));
        a = _mm_crc32_u64(a, load64(p + i + 8));
        b = _mm_crc32_u64(b, load64(p + stream + i + 8));
        c = _mm_crc32_u64(c, load64(p + 2 * stream + i + 8));
    }
    return shift(a, by_2) ^ shift(b, by_1) ^ c;
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t crc32c_hardware(uint32_t seed,
                                                                         const uint8_t *p,
                                                                         size_t len)
{
    uint64_t crc = (uint32_t)~seed;
    for (; len >= 3 * LONG; len -= 3 * LONG, p += 3 * LONG)
        crc = three_streams(crc, p, LONG, long_by_1, long_by_2);
    for (; len >= 3 * SHORT; len -= 3 * SHORT, p += 3 * SHORT)
        crc = three_streams(crc, p, SHORT, short_by_1, short_by_2);
    for (; len >= 8; len -= 8, p += 8)
        crc = _mm_crc32_u64(crc, load64(p));
    for (; len > 0; len--, p++)
        crc = _mm_crc32_u8((uint32_t)crc, *p);
    return ~(uint32_t)crc;
}

static void prepare_hardware(void)
{
    long_by_1 = shift_multiplier(LONG);
    long_by_2 = shift_multiplier(2 * LONG);
    short_by_1 = shift_multiplier(SHORT);
    short_by_2 = shift_multiplier(2 * SHORT);
    __builtin_cpu_init();
    hardware = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}
#endif

/* Before main(), so that no caller has to check or lock. */
__attribute__((constructor)) static void prepare(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        table[0][byte] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (int byte = 0; byte < 256; byte++)
            table[k][byte] = table[0][table[k - 1][byte] & 255] ^ table[k - 1][byte] >> 8;
#if defined(__x86_64__)
    prepare_hardware();
#endif
}

uint32_t crc32c(uint32_t seed, const void *p, size_t len)
{
#if defined(__x86_64__)
    if (__builtin_expect(hardware, 1))
        return crc32c_hardware(seed, p, len);
#endif
    return crc32c_portable(seed, p, len);
}
