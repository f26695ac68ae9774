/* Fuzzes the reader of groups. Whatever the bytes: no read past the end, and an accepted header
 * is written again as it was. */
#include "format/group.h"

#include "fuzz_codec.h"

static void check_group(const uint8_t *data, size_t len)
{
    struct group_header h;
    uint8_t again[GROUP_HEADER_BYTES];
    if (group_header_read(data, len, &h) < 0)
        return;
    REQUIRE(h.group_bytes % GROUP_ALIGN == 0 && h.group_bytes >= GROUP_HEADER_BYTES);
    REQUIRE(h.body_bytes <= h.group_bytes - GROUP_HEADER_BYTES);
    int status = group_body_verify(&h, data, len);
    REQUIRE((status == -2) == (len < h.group_bytes));
    group_header_write(&h, again);
    REQUIRE(memcmp(again, data, 104) == 0); /* Up to the reserved bytes. */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint8_t *copy = copy_of(data, len);
    check_group(copy, len);
    if (len >= GROUP_HEADER_BYTES) {
        uint32_t crc = crc32c(0, copy, 124);
        memcpy(copy + 124, &crc, sizeof crc);
        check_group(copy, len);
    }
    free(copy);
    return 0;
}
