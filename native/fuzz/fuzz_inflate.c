/* Fuzzes the unpacking of bodies. Whatever the bytes: no crash, nothing read or written beyond what
 * was given, an end; and the same answer however little room there is at a time. Not so zstd: what
 * points back beyond its window, as nothing may, is found where there is room for all of it. */
#include "http/inflate.h"

#include "fuzz_codec.h"

#define MOST (1u << 20)

static int unpack(enum coding coding, const uint8_t *in, size_t len, size_t step, uint8_t *out,
                  size_t *made)
{
    struct inflater *inflater = inflate_new(coding);
    REQUIRE(inflater != NULL);
    size_t used = 0, room = step;
    int status = 0;
    *made = 0;
    while (status == 0 && room <= MOST) {
        size_t taken, some;
        status = inflate_some(inflater, in + used, len - used, &taken, out + *made, room - *made,
                              &some);
        used += taken;
        *made += some;
        REQUIRE(used <= len && *made <= room && (status != 0 || *made == room));
        REQUIRE(status != 1 || used == len);
        room = *made + step;
    }
    inflate_free(inflater);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint8_t *copy = copy_of(data, len), *out = malloc(MOST), *again = malloc(MOST);
    REQUIRE(out != NULL && again != NULL);
    for (int coding = CODING_GZIP; coding < CODING_UNKNOWN; coding++) {
        size_t all, pieces;
        (void)inflate_hint((enum coding)coding, copy, len);
        const int status = unpack((enum coding)coding, copy, len, MOST, out, &all);
        const int other = unpack((enum coding)coding, copy, len, 4099, again, &pieces);
        if (status == 1 && all < MOST - 4099 && coding != CODING_ZSTD)
            REQUIRE(other == 1 && pieces == all && memcmp(out, again, all) == 0);
    }
    free(again);
    free(out);
    free(copy);
    return 0;
}
