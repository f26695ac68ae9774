/* Headers and events without a value: what is sealed comes back, limits hold, lies are refused. */
#include "format/headers.h"

#include "base/crc32c.h"
#include "codec_testing.h"
#include "format/batch.h"
#include "format/group.h"
#include "log/shard.h"

static uint8_t filler[HEADERS_BYTES_MAX + 1];

static struct header of(const char *name, const uint8_t *value, size_t len)
{
    return (struct header){(const uint8_t *)name, value, (uint32_t)strlen(name), (uint32_t)len};
}

/* Exactly these bytes, so that a sanitizer sees a read beyond them. */
static bool valid(const void *bytes, size_t len)
{
    uint8_t *exact = exact_copy(bytes, len);
    const bool said = headers_valid(exact, len);
    free(exact);
    return said;
}

static void test_there_and_back(void)
{
    static const size_t lens[] = {0, 1, 127, 128, 129, 4096, 10000};
    uint8_t *out = malloc(HEADERS_STORED_MAX);
    struct headers_draft draft = {.out = out};
    char names[7][HEADER_NAME_MAX + 1];
    for (int i = 0; i < 7; i++) {
        memset(names[i], 'a' + i, HEADER_NAME_MAX);
        names[i][i == 6 ? (int)HEADER_NAME_MAX : i == 5 ? 127 : i + 1] = 0;
        const struct header header = of(names[i], filler + i, lens[i]);
        CHECK(headers_add(&draft, &header));
        CHECK(valid(out, draft.len));
    }
    const uint8_t *at = out;
    CHECK(headers_begin(&at) == 7);
    for (int i = 0; i < 7; i++) {
        const struct header header = headers_next(&at);
        CHECK(header.name_len == strlen(names[i]) && header.value_len == lens[i]);
        CHECK(memcmp(header.name, names[i], header.name_len) == 0);
        CHECK(memcmp(header.value, filler + i, lens[i]) == 0);
    }
    CHECK(at == out + draft.len);
    for (size_t cut = 0; cut < draft.len; cut++)
        CHECK(!valid(out, cut));
    out[draft.len] = 0;
    CHECK(!valid(out, draft.len + 1)); /* something is behind them */
    free(out);
}

static void test_limits(void)
{
    uint8_t *out = malloc(HEADERS_STORED_MAX);
    struct headers_draft draft = {.out = out};
    for (uint32_t i = 0; i < EVENT_HEADERS_MAX; i++) {
        const uint32_t len = i == 0 ? HEADERS_BYTES_MAX - EVENT_HEADERS_MAX : 0;
        const struct header header = of("a", filler, len);
        CHECK(headers_add(&draft, &header));
    }
    CHECK(draft.bytes == HEADERS_BYTES_MAX && valid(out, draft.len));
    const struct header one = of("a", filler, 0), most = of("a", filler, HEADERS_BYTES_MAX - 1),
                        over = of("a", filler, HEADERS_BYTES_MAX);
    CHECK(!headers_add(&draft, &one)); /* the 65th */
    out[0] = EVENT_HEADERS_MAX + 1;          /* one more, of two zeros: no name */
    CHECK(!valid(out, draft.len));
    draft = (struct headers_draft){.out = out};
    CHECK(!headers_add(&draft, &over) && draft.len == 0);
    CHECK(headers_add(&draft, &most) && !headers_add(&draft, &one));
    CHECK(valid(out, draft.len));
    static const char *const bad[] = {"", "A", "a b", "a:b", "a\x7f", "\xc3\xa9", "a\"", "(a)"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!header_name_valid((const uint8_t *)bad[i], strlen(bad[i])));
    CHECK(!header_name_valid((const uint8_t *)"a\0b", 3));
    static const char good[] = "abcxyz0189!#$%&'*+.^_`|~-";
    CHECK(header_name_valid((const uint8_t *)good, sizeof good - 1));
    uint8_t long_name[HEADER_NAME_MAX + 1];
    memset(long_name, 'n', sizeof long_name);
    CHECK(header_name_valid(long_name, HEADER_NAME_MAX));
    CHECK(!header_name_valid(long_name, HEADER_NAME_MAX + 1));
    free(out);
}

static void test_lies(void)
{
    static const struct {
        const char *bytes;
        size_t len;
        bool good;
    } cases[] = {
        {"\1\1\0a", 4, true},      {"\0", 1, false},           {"", 0, false},
        {"\1\1\1a", 4, false},     {"\1\2\0a", 4, false},      {"\1\0\1a", 4, false},
        {"\1\1\0A", 4, false},     {"\2\1\0a", 4, false},      {"\1\x81\0\0a", 5, false},
        {"\x81\0\1\0a", 5, false}, {"\1\1\x80\0a", 5, false},  {"\1\1\0ab", 5, false},
        {"\1\1\xff\xff\xff\xff\x0f" "a", 8, false}, {"\1\xff\xff\xff\xff\x0f\0a", 8, false},
        {"\1\1\x80\x80\x02" "a", 6, false}, {"\1\1\1a\xff", 5, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK(valid(cases[i].bytes, cases[i].len) == cases[i].good);
}

/* Two events: one as ever, one with a header and no value. */
struct forged {
    uint32_t val_len[2], hdr_len[2];
    uint8_t vals[8], hdrs[8];
    struct chunk_columns c;
};

static void forge(struct forged *f)
{
    *f = (struct forged){.val_len = {3, KEY_NULL}, .hdr_len = {KEY_NULL, 5}, .vals = "abc",
                         .hdrs = {1, 1, 1, 'n', 'v'}};
    f->c = (struct chunk_columns){.topic = "__offsets", .topic_len = 9, .count = 2,
                                  .epoch = 1, .base_timestamp_us = 5, .max_timestamp_us = 5,
                                  .val_len = f->val_len, .vals = f->vals, .vals_bytes = 3,
                                  .hdr_len = f->hdr_len, .hdrs = f->hdrs, .hdrs_bytes = 5};
}

/* Seals the columns as they are, and reads them. 0 or -1; the version in *version. */
static int sealed(const struct chunk_columns *c, uint8_t as_version, uint8_t *version)
{
    uint8_t out[1024];
    size_t stored = chunk_seal(NULL, c, out, sizeof out);
    struct chunk_header h;
    memcpy(&h, out, sizeof h);
    *version = (uint8_t)h.version;
    if (as_version != 0) {
        const size_t head = chunk_head_bytes(h.topic_len, h.section_count);
        h.version = as_version;
        h.header_crc = 0;
        memcpy(out, &h, sizeof h);
        h.header_crc = crc32c(0, out, head);
        memcpy(out, &h, sizeof h);
    }
    uint8_t *exact = exact_copy(out, stored);
    struct chunk_view view;
    struct batch_columns back;
    int status = chunk_open(exact, stored, &view);
    if (status == 0) {
        uint8_t *scratch = malloc(chunk_scratch_bytes(&view) + 1);
        status = chunk_unpack_columns(&view, scratch, chunk_scratch_bytes(&view), &back);
        CHECK(status != 0 || columns_equal(c, &back));
        free(scratch);
    }
    free(exact);
    return status;
}

static void test_versions_and_lengths_that_lie(void)
{
    struct forged f;
    uint8_t version;
    forge(&f);
    CHECK(sealed(&f.c, 0, &version) == 0 && version == FORMAT_HEADERS);
    CHECK(sealed(&f.c, FORMAT_PLAIN, &version) == -1);
    CHECK(sealed(&f.c, 3, &version) == -1 && sealed(&f.c, 255, &version) == -1);
    f.c.hdr_len = NULL; /* no value is enough */
    f.c.hdrs_bytes = 0;
    CHECK(sealed(&f.c, 0, &version) == 0 && version == FORMAT_HEADERS);
    CHECK(sealed(&f.c, FORMAT_PLAIN, &version) == -1);
    f.val_len[1] = 0; /* and an empty one is one */
    CHECK(sealed(&f.c, 0, &version) == 0 && version == FORMAT_PLAIN);
    static const uint32_t lies[][2] = {{KEY_NULL, 4}, {KEY_NULL, 6}, {5, 5},
                                       {KEY_NULL, KEY_NULL}, {0, 5}, {2, 3},
                                       {KEY_NULL, UINT32_MAX - 1}, {0x80000000u, 0x80000005u}};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        forge(&f);
        memcpy(f.hdr_len, lies[i], sizeof f.hdr_len);
        CHECK(sealed(&f.c, 0, &version) == -1);
    }
    for (uint8_t at = 0; at < 3; at++) {
        forge(&f);
        f.hdrs[at]++; /* what is in them */
        CHECK(sealed(&f.c, 0, &version) == -1);
    }
    forge(&f);
    f.val_len[0] = KEY_NULL; /* then whose are the three bytes? */
    CHECK(sealed(&f.c, 0, &version) == -1);
}

/* Values of internal topics are applied: a length that is none must not be walked along. */
static void test_a_state_without_a_value(void)
{
    struct forged f;
    uint8_t group[GROUP_ALIGN] = {0};
    static const uint32_t key_len[2] = {1, 1};
    for (int lies = 0; lies < 2; lies++) {
        forge(&f);
        f.c.hdr_len = NULL;
        f.c.hdrs_bytes = 0;
        f.c.key_len = key_len;
        f.c.keys = (const uint8_t *)"kl";
        f.c.keys_bytes = 2;
        f.c.slice = 4;
        if (!lies)
            f.val_len[1] = 0;
        const size_t stored = chunk_seal(NULL, &f.c, group + GROUP_HEADER_BYTES,
                                         sizeof group - GROUP_HEADER_BYTES);
        CHECK(stored > 0);
        struct group_header h = {.epoch = 1, .session = 1, .gseq = 1, .chunk_count = 1,
                                 .body_bytes = (uint32_t)stored, .group_bytes = GROUP_ALIGN,
                                 .body_crc = crc32c(0, group + GROUP_HEADER_BYTES, stored)};
        group_header_write(&h, group);
        uint8_t *exact = exact_copy(group, sizeof group);
        struct reach *reaches;
        uint32_t count;
        struct shard *shard = shard_new(4, 4);
        CHECK(shard_apply(shard, exact, sizeof group, 1) == (lies ? -1 : 0));
        shard_free(shard);
        shard = shard_new(4, 4);
        CHECK(shard_take(shard, exact, sizeof group, 0, &reaches, &count) == (lies ? -1 : 0));
        free(reaches);
        shard_free(shard);
        free(exact);
    }
}

int main(void)
{
    for (size_t i = 0; i < sizeof filler; i++)
        filler[i] = (uint8_t)(i * 31);
    test_there_and_back();
    test_limits();
    test_lies();
    test_versions_and_lengths_that_lie();
    test_a_state_without_a_value();
    return 0;
}
