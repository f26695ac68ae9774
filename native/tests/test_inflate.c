/* Bodies with a Content-Encoding: in pieces, cut off, spoilt, and more than the room takes. */
#include "http/inflate.h"

#include <lz4frame.h>
#include <zlib.h>
#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>

#include "codec_testing.h"

#define PLAIN_MAX 300000

static uint8_t plain[PLAIN_MAX], back[PLAIN_MAX + 1];

static size_t pack(enum coding coding, const uint8_t *in, size_t len, uint8_t *out, size_t cap)
{
    if (coding == CODING_LZ4) {
        const LZ4F_preferences_t wanted = {.frameInfo = {.contentSize = len}};
        const size_t bytes = LZ4F_compressFrame(out, cap, in, len, &wanted);
        CHECK(!LZ4F_isError(bytes));
        return bytes;
    }
    if (coding == CODING_ZSTD) {
        ZSTD_CCtx *cctx = ZSTD_createCCtx();
        CHECK(!ZSTD_isError(ZSTD_CCtx_setParameter(cctx, ZSTD_c_checksumFlag, 1)));
        const size_t bytes = ZSTD_compress2(cctx, out, cap, in, len);
        CHECK(!ZSTD_isError(bytes));
        ZSTD_freeCCtx(cctx);
        return bytes;
    }
    z_stream z = {.next_in = (Bytef *)(uintptr_t)in, .avail_in = (uInt)len, .next_out = out,
                  .avail_out = (uInt)cap};
    CHECK(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
    const size_t bytes = z.total_out;
    deflateEnd(&z);
    return bytes;
}

/* All of it, with room for so many bytes at a time. The last status, and how much was made. */
static int unpack(enum coding coding, const uint8_t *in, size_t len, size_t step, size_t *made)
{
    uint8_t *exact = exact_copy(in, len);
    struct inflater *inflater = inflate_new(coding);
    size_t used = 0, room = step;
    int status = 0;
    *made = 0;
    while (status == 0 && room <= PLAIN_MAX + step) {
        size_t taken, some;
        const size_t cap = room < sizeof back ? room : sizeof back;
        status = inflate_some(inflater, exact + used, len - used, &taken, back + *made,
                              cap - *made, &some);
        used += taken;
        *made += some;
        CHECK(used <= len && *made <= cap);
        CHECK(status != 0 || *made == cap); /* it asks for room because there is none */
        CHECK(status != 1 || used == len);
        room += step;
    }
    inflate_free(inflater);
    free(exact);
    return status;
}

static void check_coding(enum coding coding)
{
    static uint8_t packed[2 * PLAIN_MAX + 1000];
    static const size_t sizes[] = {0, 1, 100, 65536, 65537, PLAIN_MAX};
    size_t made;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t len = pack(coding, plain, sizes[i], packed, sizeof packed);
        CHECK(inflate_hint(coding, packed, len) == sizes[i]);
        for (size_t step = sizes[i] / 7 + 1; step <= PLAIN_MAX; step *= 5) {
            CHECK(unpack(coding, packed, len, step, &made) == 1);
            CHECK(made == sizes[i] && memcmp(back, plain, made) == 0);
        }
        /* Two of them, one behind the other, are one body. */
        if (2 * sizes[i] <= PLAIN_MAX) {
            const size_t more = pack(coding, plain, sizes[i], packed + len, sizeof packed - len);
            CHECK(unpack(coding, packed, len + more, PLAIN_MAX, &made) == 1);
            CHECK(made == 2 * sizes[i] && memcmp(back + sizes[i], plain, sizes[i]) == 0);
        }
        packed[len] = 'x';
        CHECK(unpack(coding, packed, len + 1, PLAIN_MAX, &made) == -1);
        for (size_t cut = 0; cut < len; cut += len / 40 + 1)
            CHECK(unpack(coding, packed, cut, PLAIN_MAX, &made) == -1);
    }
    uint64_t seed = 3;
    const size_t len = pack(coding, plain, 5000, packed, sizeof packed);
    for (int i = 0; i < 3000; i++) {
        const size_t at = random_next(&seed) % len;
        const uint8_t was = packed[at];
        packed[at] ^= (uint8_t)(1 + random_next(&seed) % 255);
        const int status = unpack(coding, packed, len, PLAIN_MAX, &made);
        CHECK(status == -1 || status == 1); /* 1: what the checksums do not cover */
        packed[at] = was;
    }
    size_t all = 0;
    while (all < sizeof packed - 100000)
        all += pack(coding, plain, 0, packed + all, sizeof packed - all);
    CHECK(unpack(coding, packed, all, PLAIN_MAX, &made) == -1); /* far too many of nothing */
}

static void test_bomb(void)
{
    static uint8_t zeros[PLAIN_MAX], packed[2 * PLAIN_MAX];
    for (int coding = CODING_GZIP; coding < CODING_UNKNOWN; coding++) {
        size_t used, made;
        const size_t len = pack((enum coding)coding, zeros, sizeof zeros, packed, sizeof packed);
        struct inflater *inflater = inflate_new((enum coding)coding);
        CHECK(len < PLAIN_MAX / 100);
        uint8_t *room = malloc(1000); /* no more is ever written */
        CHECK(inflate_some(inflater, packed, len, &used, room, 1000, &made) == 0 && made == 1000);
        free(room);
        inflate_free(inflater);
    }
}

/* One event, "a", in frames made by hand: what a head says is all that matters of them. */
#define ZSTD_MAGIC 0x28, 0xb5, 0x2f, 0xfd
#define ZSTD_A 0x09, 0x00, 0x00, 'a' /* the last block: as it is, one byte */
#define SKIPPABLE(n) 0x50 | (n), 0x2a, 0x4d, 0x18, 0x02, 0x00, 0x00, 0x00, 'x', 'y'

static int unpack_frames(const uint8_t *frames, size_t len, size_t *made)
{
    int status = unpack(CODING_ZSTD, frames, len, PLAIN_MAX, made);
    size_t again;
    CHECK(unpack(CODING_ZSTD, frames, len, 1, &again) == status && again == *made);
    return status;
}

/* A window is memory: 8 MiB are the most, whoever unpacks it and however small its events are. */
static void test_windows(void)
{
    static const uint8_t unsaid[] = {ZSTD_MAGIC, 0x00, 0x68, ZSTD_A};
    static const uint8_t said[] = {ZSTD_MAGIC, 0x80, 0x68, 1, 0, 0, 0, ZSTD_A};
    static const uint8_t alone[] = {ZSTD_MAGIC, 0xa0, 0, 0, 0x80, 0, ZSTD_A}; /* 8 MiB in one */
    uint8_t frame[32];
    size_t made;
    CHECK(ZSTD_estimateDStreamSize(INFLATE_WINDOW_MAX) <= INFLATE_OWN_BYTES);
    CHECK(unpack_frames(unsaid, sizeof unsaid, &made) == 1 && made == 1 && back[0] == 'a');
    CHECK(unpack_frames(said, sizeof said, &made) == 1 && made == 1);
    CHECK(inflate_hint(CODING_ZSTD, unsaid, sizeof unsaid) == 0);
    CHECK(inflate_hint(CODING_ZSTD, said, sizeof said) == 1);
    for (uint8_t window = 0x69; window != 0; window++) { /* an eighth more, up to 3.75 TiB */
        memcpy(frame, unsaid, sizeof unsaid);
        frame[5] = window;
        CHECK(unpack(CODING_ZSTD, frame, sizeof unsaid, PLAIN_MAX, &made) == -1 && made == 0);
        memcpy(frame, said, sizeof said);
        frame[5] = window;
        CHECK(unpack(CODING_ZSTD, frame, sizeof said, PLAIN_MAX, &made) == -1 && made == 0);
    }
    CHECK(inflate_hint(CODING_ZSTD, alone, sizeof alone) == INFLATE_WINDOW_MAX);
    CHECK(unpack(CODING_ZSTD, alone, sizeof alone, PLAIN_MAX, &made) == -1); /* it is "a" */
}

static void test_frames(void)
{
    static const uint8_t between[] = {SKIPPABLE(0), ZSTD_MAGIC, 0x00, 0x00, ZSTD_A, SKIPPABLE(15),
                                      ZSTD_MAGIC, 0x00, 0x00, ZSTD_A, SKIPPABLE(7)};
    static const uint8_t skipped[] = {SKIPPABLE(3)};
    static const uint8_t earlier[] = {0x27, 0xb5, 0x2f, 0xfd, 0x00, 0x00, /* of version 0.7 */
                                      0x40, 0x00, 0x01, 'a', 0xc0, 0x00, 0x00};
    size_t made;
    CHECK(unpack_frames(between, sizeof between, &made) == 1 && made == 2);
    CHECK(back[0] == 'a' && back[1] == 'a');
    CHECK(unpack_frames(skipped, sizeof skipped, &made) == 1 && made == 0);
    for (size_t cut = 0; cut < sizeof skipped; cut++)
        CHECK(unpack_frames(skipped, cut, &made) == -1);
    CHECK(unpack_frames(between, sizeof between - 1, &made) == -1 && made == 2);
    CHECK(unpack_frames(earlier, sizeof earlier, &made) == -1 && made == 0);
}

static enum coding coding_of(const char *name)
{
    const struct http1_slice slice = {name, (uint32_t)strlen(name)};
    return inflate_coding(&slice);
}

int main(void)
{
    uint64_t seed = 1;
    for (size_t i = 0; i < sizeof plain; i++)
        plain[i] = (uint8_t)(i % 3 ? 'a' + i % 11 : random_next(&seed));
    check_coding(CODING_GZIP);
    check_coding(CODING_LZ4);
    check_coding(CODING_ZSTD);
    test_bomb();
    test_windows();
    test_frames();
    CHECK(coding_of("GZip") == CODING_GZIP && coding_of("x-gzip") == CODING_GZIP);
    CHECK(coding_of("lz4") == CODING_LZ4 && coding_of("identity") == CODING_NONE);
    CHECK(coding_of("gzip, lz4") == CODING_UNKNOWN && coding_of("") == CODING_UNKNOWN);
    CHECK(coding_of("ZStd") == CODING_ZSTD && coding_of("deflate") == CODING_UNKNOWN);
    return 0;
}
