/* Fuzzes what a peer sends as APPEND: as it is, and with the checksum that its bytes have, so that
 * the checks behind it are reached. What is taken holds nothing impossible and is those bytes. */
#include "core/append_frame.h"

#include "fuzz_codec.h"

static void read_one(const uint8_t *bytes, size_t len)
{
    struct append_message out;
    if (!append_message_read(bytes, len, &out))
        return;
    REQUIRE(len == sizeof out && memcmp(&out, bytes, len) == 0);
    REQUIRE(out.epoch > 0 && out.gseq > 0);
    REQUIRE(out.epoch <= INT64_MAX && out.gseq <= INT64_MAX && out.committed <= INT64_MAX);
    REQUIRE(out.zero_0 == 0 && out.zero_1 == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    const size_t crc_at = offsetof(struct append_message, frame_crc);
    uint8_t *copy = copy_of(data, len);
    read_one(copy, len);
    if (len == sizeof(struct append_message)) {
        const uint32_t crc = crc32c(0, copy, crc_at);
        memcpy(copy + crc_at, &crc, sizeof crc);
        read_one(copy, len);
    }
    free(copy);
    return 0;
}
