/* Tokens: the published vectors, signed tails included, and no read beyond the key. */
#include "base/murmur3.h"

#include "codec_testing.h"

static const struct { const char *key; uint64_t hash; } vectors[] = {
    {"", 0},
    {"0", 0x2ac9debed546a380},
    {"01", 0x649e4eaa7fc1708e},
    {"012", 0xce68f60d7c353bdb},
    {"0123", 0x0f95757ce7f38254},
    {"01234", 0x0f04e459497f3fc1},
    {"012345", 0x88c0a92586be0a27},
    {"0123456", 0x13eb9fb82606f7a6},
    {"01234567", 0x8236039b7387354d},
    {"012345678", 0x4c1e87519fe738ba},
    {"0123456789", 0x3f9652ac3effeb24},
    {"01234567890", 0x3f33760ded9006c6},
    {"012345678901", 0xaed70a6631854cb1},
    {"0123456789012", 0x8a299a8f8e0e2da7},
    {"01234567890123", 0x624b675c779249a6},
    {"012345678901234", 0xa4b203bb1d90b9a3},
    {"0123456789012345", 0xa3293ad698ecb99a},
    {"01234567890123456", 0xbc740023dbd50048},
    {"012345678901234567", 0x3fe5ab9837d25cdd},
    {"0123456789012345678", 0x2d0338c1ca87d132},
    {"hello", 0xcbd8a7b341bd9b02},
    {"hello, world", 0x342fac623a5ebc8e},
    {"19 Jan 2038 at 3:14:07 AM", 0xb89e5988b737affc},
    {"The quick brown fox jumps over the lazy dog.", 0xcd99481f9ee902c9},
    {"abcd", (uint64_t)-5153323217664422577},
    {"wxyz", 6541399000449243469},
    {"mmmm", 1406774400723249678},
    {"Hashing a value", 3002999691413861203},
    {"a", (uint64_t)-8839064797231613815},
    {"hui", 7851606034017063987},
    {"\xc3\xa9", 5461403030378599040},
    {"\xe6\x97\xa5\xe6\x9c\xac", (uint64_t)-7507319893842418264},
    {"\xc3\xbf", 8918536574952381208},
};

int main(void)
{
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        size_t len = strlen(vectors[i].key);
        uint8_t *key = exact_copy(vectors[i].key, len);
        CHECK((uint64_t)murmur3_token(key, len) == vectors[i].hash);
        free(key);
    }

    uint8_t all[1024];
    for (int i = 0; i < 1024; i++)
        all[i] = (uint8_t)i;
    CHECK(murmur3_token(all, sizeof all) == 7627370222079200297);

    static const uint8_t tail[] = {0x00, 0x10, 0x43, 0x27, 0x52, 0x9f, 0xb6, 0x45, 0xdd,
                                   0x00, 0xb8, 0x83, 0xec, 0x39, 0xae, 0x44, 0x8b, 0xb8,
                                   0x00, 0x00, 0x04, 0x00, 0x06, 0x6a, 0x6b, 0x00};
    CHECK(murmur3_token(tail, sizeof tail) == -9223371632693506265);
    return 0;
}
