/* Chunks are read by an index, checked and moved together; what is not right ends a group. */
#define _GNU_SOURCE
#include "read/stored.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "read/arrow.h"
#include "codec_testing.h"
#include "read/disk.h"

enum { CHUNKS = 300, PAGE = 4096, GROUP = 1 << 18 };

static struct stored_entry entries[CHUNKS];
static uint8_t *chunks[CHUNKS];
static int fd;

/* Chunks of one stream with gaps between them, some small enough to be read along. */
static void write_file(const char *path)
{
    struct chunk_sealer *sealer = chunk_sealer_new(1);
    uint64_t seed = 4, offset = 1000, at = 0;
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && sealer != NULL);
    for (size_t i = 0; i < CHUNKS; i++) {
        struct test_columns t;
        columns_make(&t, i, 1 + (uint32_t)(random_next(&seed) % 60), 200, i % 2);
        t.c.base_offset = offset;
        size_t bound = chunk_bound(&t.c);
        uint8_t *out = aligned_alloc(8, pad8(bound));
        uint32_t bytes = (uint32_t)chunk_seal(sealer, &t.c, out, bound);
        CHECK(bytes > 0 && pwrite(fd, out, bytes, (off_t)at) == (ssize_t)bytes);
        entries[i] = (struct stored_entry){offset, (uint32_t)(at / STORED_UNIT), bytes, t.c.count,
                                           0, 0};
        chunks[i] = out;
        offset += t.c.count;
        at += bytes + (i % 5 == 0 ? 0 : i % 5 == 4 ? 100000 : pad8(random_next(&seed) % 9000));
        columns_free(&t);
    }
    chunk_sealer_free(sealer);
}

static uint8_t *memory_new(size_t bytes)
{
    uint8_t *memory = aligned_alloc(PAGE, bytes);
    CHECK(memory != NULL);
    return memory;
}

static struct stored_want want_of(uint32_t columns)
{
    return (struct stored_want){"flights", 7, 3, columns == 0, arrow_parts(columns)};
}

static size_t part_or_whole(size_t at, const struct stored_want *want, const uint8_t *p)
{
    struct chunk_view v;
    size_t bytes = entries[at].stored_bytes;
    CHECK(chunk_open(chunks[at], bytes, &v) == 0);
    if (want->whole) {
        CHECK(memcmp(p, chunks[at], bytes) == 0);
        return bytes;
    }
    uint8_t *part = malloc(bytes);
    chunk_part_write(&v, want->parts, part);
    bytes = chunk_part_bytes(&v, want->parts);
    CHECK(memcmp(p, part, bytes) == 0);
    free(part);
    return bytes;
}

/* Everything, some groups a call, is what was written; whole, or some of its columns. */
static void check_all(uint32_t columns, size_t groups)
{
    struct stored_want want = want_of(columns);
    for (size_t at = 0, next = 0; at < CHUNKS;) {
        struct stored_part parts[8] = {0};
        size_t count = 0;
        for (; count < groups && next < CHUNKS; count++) {
            struct stored_group group = stored_next(entries + next, CHUNKS - next, GROUP);
            CHECK(group.count > 0 && (group.bytes <= GROUP || group.count == 1));
            parts[count].entries = entries + next;
            parts[count].count = group.count;
            parts[count].memory = memory_new(group.bytes);
            next += group.count;
        }
        CHECK(stored_read(fd, parts, count, &want) == 0);
        for (size_t g = 0; g < count; g++) {
            const struct stored_result *r = &parts[g].result;
            const uint8_t *p = parts[g].memory;
            CHECK(r->chunks == parts[g].count);
            for (size_t i = 0; i < parts[g].count; i++)
                p += part_or_whole(at++, &want, p);
            CHECK(p == parts[g].memory + r->bytes);
            CHECK(r->end == entries[at - 1].base_offset + entries[at - 1].count);
            free(parts[g].memory);
        }
    }
}

static size_t good_of(const struct stored_entry *some, size_t count, const struct stored_want *want)
{
    struct stored_group group = stored_next(some, count, SIZE_MAX);
    struct stored_part part = {some, count, memory_new(group.bytes), {0}};
    CHECK(group.count == count && stored_read(fd, &part, 1, want) == 0);
    free(part.memory);
    return part.result.chunks;
}

/* A flipped bit, in any of some places of the third chunk: the two before it are good. */
static void check_damage(void)
{
    struct stored_want whole = want_of(0), keys = want_of(COLUMN_KEY);
    uint64_t start = (uint64_t)entries[2].position * STORED_UNIT;
    for (uint32_t at = 0; at < entries[2].stored_bytes; at += 97) {
        uint8_t byte = chunks[2][at] ^ 0x10;
        CHECK(pwrite(fd, &byte, 1, (off_t)(start + at)) == 1);
        CHECK(good_of(entries, 6, &whole) == 2 && good_of(entries, 6, &keys) == 2);
        CHECK(pwrite(fd, &chunks[2][at], 1, (off_t)(start + at)) == 1);
    }
    CHECK(good_of(entries, 6, &whole) == 6);
}

/* An index that lies is not believed, nor is a chunk of another stream served. */
static void check_lies(void)
{
    struct stored_want want = want_of(0);
    struct stored_entry some[3];
    for (int lie = 0; lie < 5; lie++) {
        memcpy(some, entries, sizeof some);
        some[1].base_offset += lie == 0;
        some[1].count += lie == 1;
        some[1].stored_bytes += lie == 2 ? 8 : 0;
        some[1].position += lie == 3;
        some[1].position += lie == 4 ? 1u << 28 : 0; /* behind the file's end */
        CHECK(good_of(some, 3, &want) == 1);
    }
    want.slice = 4;
    CHECK(good_of(entries, 3, &want) == 0);
    want = want_of(0);
    want.topic = "flightz";
    CHECK(good_of(entries, 3, &want) == 0);
    CHECK(ftruncate(fd, (off_t)entries[1].position * STORED_UNIT + 100) == 0);
    want = want_of(0);
    CHECK(good_of(entries, 3, &want) == 1);
}

int main(void)
{
    char path[] = "test_stored.XXXXXX";
    CHECK(disk_init() == 0 && close(mkstemp(path)) == 0);
    write_file(path);
    check_all(0, 1);
    check_all(0, 8);
    check_all(COLUMN_VALUE, 3);
    check_all(COLUMN_KEY | COLUMN_TIMESTAMP, 8);
    check_damage();
    check_lies();
    close(fd);
    unlink(path);
    for (size_t i = 0; i < CHUNKS; i++)
        free(chunks[i]);
    return 0;
}
