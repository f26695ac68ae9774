#include "http/inflate.h"

#include <assert.h>
#include <limits.h>
#include <lz4frame.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>
#define ZSTD_STATIC_LINKING_ONLY /* ZSTD_getFrameHeader() */
#include <zstd.h>
#include <zstd_errors.h>

#define GZIP_WINDOW (15 + 16) /* the largest, and gzip's frame, nothing else */
#define GZIP_BYTES_MIN 18u    /* of a member */

struct inflater {
    enum coding coding;
    uint32_t members; /* begun */
    bool within;      /* a member has begun and not ended */
    z_stream gzip;
    LZ4F_dctx *lz4;
    ZSTD_DCtx *zstd;
};

enum coding inflate_coding(const struct http1_slice *name)
{
    static const struct {
        const char *name;
        enum coding coding;
    } known[] = {{"identity", CODING_NONE},
                 {"gzip", CODING_GZIP},
                 {"x-gzip", CODING_GZIP}, /* RFC 9110 8.4.1.3 */
                 {"lz4", CODING_LZ4},
                 {"zstd", CODING_ZSTD}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (name->len == strlen(known[i].name) &&
            strncasecmp(name->p, known[i].name, name->len) == 0)
            return known[i].coding;
    return CODING_UNKNOWN;
}

struct inflater *inflate_new(enum coding coding)
{
    struct inflater *inflater = calloc(1, sizeof *inflater);
    assert(coding > CODING_NONE && coding < CODING_UNKNOWN);
    if (inflater == NULL)
        return NULL;
    bool made;
    if (coding == CODING_GZIP)
        made = inflateInit2(&inflater->gzip, GZIP_WINDOW) == Z_OK;
    else if (coding == CODING_LZ4)
        made = !LZ4F_isError(LZ4F_createDecompressionContext(&inflater->lz4, LZ4F_VERSION));
    else
        made = (inflater->zstd = ZSTD_createDCtx()) != NULL;
    if (!made) {
        free(inflater);
        return NULL;
    }
    inflater->coding = coding;
    return inflater;
}

void inflate_free(struct inflater *inflater)
{
    if (inflater->coding == CODING_GZIP)
        inflateEnd(&inflater->gzip);
    else if (inflater->coding == CODING_ZSTD)
        ZSTD_freeDCtx(inflater->zstd);
    else
        LZ4F_freeDecompressionContext(inflater->lz4);
    free(inflater);
}

uint64_t inflate_hint(enum coding coding, const uint8_t *in, size_t len)
{
    if (coding == CODING_GZIP && len >= GZIP_BYTES_MIN) /* of its last member */
        return in[len - 4] | (uint32_t)in[len - 3] << 8 | (uint32_t)in[len - 2] << 16 |
               (uint64_t)in[len - 1] << 24;
    /* The frame's head: magic, flags, block size, and 8 bytes of length if a flag says so. */
    if (coding == CODING_LZ4 && len >= 14 && (in[4] & 0x08)) {
        uint64_t size = 0;
        for (int i = 13; i >= 6; i--)
            size = size << 8 | in[i];
        return size;
    }
    if (coding == CODING_ZSTD) {
        const unsigned long long size = ZSTD_getFrameContentSize(in, len);
        return size < ZSTD_CONTENTSIZE_ERROR ? size : 0; /* not UNKNOWN, which is above it */
    }
    return 0;
}

/* As inflate_some(), but to the end of one member at most. */
static int gzip_some(struct inflater *inflater, const uint8_t *in, size_t len, size_t *used,
                     uint8_t *out, size_t cap, size_t *made)
{
    z_stream *z = &inflater->gzip;
    const uInt take = len < UINT_MAX ? (uInt)len : UINT_MAX;
    const uInt room = cap < UINT_MAX ? (uInt)cap : UINT_MAX;
    z->next_in = (z_const Bytef *)(uintptr_t)in;
    z->avail_in = take;
    z->next_out = out;
    z->avail_out = room;
    const int status = inflate(z, Z_NO_FLUSH);
    *used = take - z->avail_in;
    *made = room - z->avail_out;
    switch (status) {
    case Z_STREAM_END: return inflateReset(z) == Z_OK ? 1 : -2;
    case Z_OK:
    case Z_BUF_ERROR: return 0;
    case Z_MEM_ERROR: return -2;
    default: return -1;
    }
}

static int lz4_some(struct inflater *inflater, const uint8_t *in, size_t len, size_t *used,
                    uint8_t *out, size_t cap, size_t *made)
{
    *used = len;
    *made = cap;
    const size_t left = LZ4F_decompress(inflater->lz4, out, made, in, used, NULL);
    if (LZ4F_isError(left)) {
        const bool starved = strcmp(LZ4F_getErrorName(left), "ERROR_allocation_failed") == 0;
        *used = *made = 0;
        return starved ? -2 : -1;
    }
    return left == 0 ? 1 : 0;
}

/* Whether a member may begin here. Only zstd's has to be asked: its window is memory, and where the
 * magic number is one of its earlier formats other code reads it, which asks for what it likes. */
static bool may_begin(const struct inflater *inflater, const uint8_t *in, size_t len)
{
    ZSTD_frameHeader head;
    return inflater->coding != CODING_ZSTD ||
           (ZSTD_getFrameHeader(&head, in, len) == 0 &&
            (head.frameType == ZSTD_skippableFrame || head.windowSize <= INFLATE_WINDOW_MAX));
}

static int zstd_some(struct inflater *inflater, const uint8_t *in, size_t len, size_t *used,
                     uint8_t *out, size_t cap, size_t *made)
{
    ZSTD_inBuffer from = {in, len, 0};
    ZSTD_outBuffer to = {out, cap, 0};
    const size_t left = ZSTD_decompressStream(inflater->zstd, &to, &from);
    *used = from.pos;
    *made = to.pos;
    if (ZSTD_isError(left))
        return ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation ? -2 : -1;
    return left == 0 ? 1 : 0;
}

int inflate_some(struct inflater *inflater, const uint8_t *in, size_t len, size_t *used,
                 uint8_t *out, size_t cap, size_t *made)
{
    static int (*const some[CODING_UNKNOWN])(struct inflater *, const uint8_t *, size_t, size_t *,
                                             uint8_t *, size_t, size_t *) = {
        [CODING_GZIP] = gzip_some, [CODING_LZ4] = lz4_some, [CODING_ZSTD] = zstd_some};
    *used = *made = 0;
    while (*used < len || inflater->within || inflater->members == 0) {
        size_t step_used, step_made;
        if (!inflater->within && (++inflater->members > INFLATE_MEMBERS_MAX ||
                                  !may_begin(inflater, in + *used, len - *used)))
            return -1;
        inflater->within = true;
        const int status = some[inflater->coding](inflater, in + *used, len - *used, &step_used,
                                                  out + *made, cap - *made, &step_made);
        *used += step_used;
        *made += step_made;
        assert(*used <= len && *made <= cap);
        if (status < 0)
            return status;
        inflater->within = status == 0;
        if (inflater->within && step_used == 0 && step_made == 0)
            return *made < cap ? -1 : 0; /* there is room, and no more comes of it: it is cut off */
    }
    return 1;
}
