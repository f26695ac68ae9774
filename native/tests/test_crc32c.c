/* CRC-32C: known answers, and every path equal to the bitwise definition. */
#include "base/crc32c.h"

#include "codec_testing.h"

static uint32_t bitwise(uint32_t seed, const uint8_t *p, size_t len)
{
    uint32_t crc = ~seed;
    for (size_t i = 0; i < len; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
    }
    return ~crc;
}

/* RFC 3720, appendix B.4. */
static void test_known_answers(void)
{
    uint8_t block[32] = {0};
    CHECK(crc32c(0, "123456789", 9) == 0xE3069283);
    CHECK(crc32c(0, "", 0) == 0);
    CHECK(crc32c(0, block, 32) == 0x8A9136AA);
    memset(block, 0xFF, 32);
    CHECK(crc32c(0, block, 32) == 0x62A8AB43);
    for (int i = 0; i < 32; i++)
        block[i] = (uint8_t)i;
    CHECK(crc32c(0, block, 32) == 0x46DD794E);
    CHECK(crc32c_portable(0, block, 32) == 0x46DD794E);
}

/* Lengths around the borders of the streams (3 x 256 and 3 x 4096), at every alignment. */
static void test_lengths_and_alignments(void)
{
    static const size_t borders[] = {0, 8, 768, 1536, 12288, 13056, 24576, 37632};
    uint64_t seed = 1;
    uint8_t *bytes = malloc(40000);
    for (int i = 0; i < 40000; i++)
        bytes[i] = (uint8_t)random_next(&seed);
    for (size_t b = 0; b < sizeof borders / sizeof *borders; b++)
        for (int off = -9; off <= 9; off++) {
            size_t len = borders[b] + (size_t)off;
            if (len > 39000) /* Below zero, too. */
                continue;
            const uint8_t *p = bytes + random_next(&seed) % 16;
            uint32_t from = (uint32_t)random_next(&seed);
            uint32_t expected = bitwise(from, p, len);
            CHECK(crc32c(from, p, len) == expected);
            CHECK(crc32c_portable(from, p, len) == expected);
        }
    free(bytes);
}

static void test_calls_chain(void)
{
    uint8_t bytes[5000];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7);
    uint32_t whole = crc32c(0, bytes, sizeof bytes);
    for (size_t cut = 0; cut <= sizeof bytes; cut += 123)
        CHECK(crc32c(crc32c(0, bytes, cut), bytes + cut, sizeof bytes - cut) == whole);
}

static void test_reads_nothing_beyond(void)
{
    for (size_t len = 0; len < 900; len += 7) {
        uint8_t bytes[900] = {1, 2, 3};
        uint8_t *exact = exact_copy(bytes, len);
        CHECK(crc32c(0, exact, len) == bitwise(0, bytes, len));
        free(exact);
    }
}

int main(void)
{
    test_known_answers();
    test_lengths_and_alignments();
    test_calls_chain();
    test_reads_nothing_beyond();
    return 0;
}
