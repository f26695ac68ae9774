/* Fuzzes what recovery reads: snapshots, and groups that are applied to a shard. Whatever the
 * bytes: no read past the end, and a refused snapshot changes nothing. */
#include "format/group.h"
#include "log/shard.h"

#include "fuzz_codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint8_t *copy = copy_of(data, len);
    struct shard *shard = shard_new(0, 8);
    size_t again_len;
    if (shard_restore(shard, copy, len) == 0) {
        uint8_t *again = shard_snapshot(shard, NULL, 0, 0, &again_len);
        REQUIRE(again != NULL && shard_restore(shard, again, again_len) == 0);
        free(again);
    } else {
        REQUIRE(shard->topic_count == 0);
    }
    (void)shard_apply(shard, copy, len, 1);
    shard_free(shard);
    free(copy);
    return 0;
}
