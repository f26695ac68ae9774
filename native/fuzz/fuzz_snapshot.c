/* Fuzzes what recovery reads: snapshots, and groups that are applied to a shard; and what a peer
 * sends as a state: it is cut, and joined. Whatever the bytes: no read past the end, a refused
 * snapshot changes nothing, and the parts of a state are the state. */
#include "format/group.h"
#include "log/shard.h"
#include "log/state.h"

#include "fuzz_codec.h"

#define SLICES 8u

static void parts(const uint8_t *data, size_t len)
{
    const char *why;
    size_t whole_len, low_len, high_len, again_len;
    uint8_t *whole = state_cut(data, len, 0, SLICES, &whole_len, &why);
    if (whole == NULL)
        return;
    struct shard *shard = shard_new(0, SLICES);
    REQUIRE(shard_restore(shard, whole, whole_len) == 0);
    shard_free(shard);
    for (uint32_t border = 1; border < SLICES; border += 3) {
        uint8_t *low = state_cut(whole, whole_len, 0, border, &low_len, &why);
        uint8_t *high = state_cut(whole, whole_len, border, SLICES - border, &high_len, &why);
        REQUIRE(low != NULL && high != NULL);
        uint8_t *again = state_union(high, high_len, low, low_len, &again_len, &why);
        REQUIRE(again != NULL && again_len == whole_len && same_bytes(again, whole, whole_len));
        free(low);
        free(high);
        free(again);
    }
    free(whole);
}

/* Two states one behind the other, the length of the first before them. */
static void joined(const uint8_t *data, size_t len)
{
    uint16_t first;
    const char *why;
    size_t made_len;
    if (len < sizeof first)
        return;
    memcpy(&first, data, sizeof first);
    data += sizeof first;
    len -= sizeof first;
    if (first > len)
        return;
    uint8_t *one = copy_of(data, first), *other = copy_of(data + first, len - first);
    free(state_union(one, first, other, len - first, &made_len, &why));
    free(one);
    free(other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint8_t *copy = copy_of(data, len);
    struct shard *shard = shard_new(0, SLICES);
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
    parts(copy, len);
    joined(copy, len);
    free(copy);
    return 0;
}
