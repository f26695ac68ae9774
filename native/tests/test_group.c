/* Groups: headers come back; no flipped bit of header or body passes. */
#include "format/group.h"

#include "base/crc32c.h"
#include "codec_testing.h"

static const char body[] = "the body of a group";

static struct group_header sample(void)
{
    struct group_header h = {.flags = GROUP_GEN_START | GROUP_SNAPSHOT,
                             .cluster_uuid = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                             .token = INT64_MIN,
                             .epoch = 1ull << 40,
                             .session = UINT64_MAX,
                             .gseq = 42,
                             .prev_crc = 0xDEADBEEF,
                             .durable_upto = 41,
                             .committed = 40,
                             .wall_us = 1700000000000000,
                             .body_bytes = sizeof body,
                             .chunk_count = 3,
                             .group_bytes = GROUP_ALIGN,
                             .segment_index = 7,
                             .blank_sectors = 9};
    h.body_crc = crc32c(0, body, sizeof body);
    return h;
}

static void test_round_trip(void)
{
    struct group_header h = sample(), back;
    uint8_t out[GROUP_HEADER_BYTES];
    group_header_write(&h, out);
    CHECK(memcmp(out, "BGRP", 4) == 0);
    CHECK(group_header_read(out, sizeof out, &back) == 0);
    CHECK(back.flags == h.flags && memcmp(back.cluster_uuid, h.cluster_uuid, 16) == 0);
    CHECK(back.token == h.token && back.epoch == h.epoch && back.session == h.session);
    CHECK(back.gseq == h.gseq && back.prev_crc == h.prev_crc && back.body_crc == h.body_crc);
    CHECK(back.durable_upto == h.durable_upto && back.committed == h.committed);
    CHECK(back.wall_us == h.wall_us && back.body_bytes == h.body_bytes);
    CHECK(back.chunk_count == h.chunk_count && back.group_bytes == h.group_bytes);
    CHECK(back.blank_sectors == 9);
    CHECK(back.segment_index == h.segment_index && back.header_crc == h.header_crc);
    CHECK(back.header_crc == crc32c(0, out, 124) && memcmp(out + 124, &h.header_crc, 4) == 0);
}

static void test_every_bit_and_cut(void)
{
    struct group_header h = sample(), back;
    uint8_t *group = calloc(1, GROUP_ALIGN);
    group_header_write(&h, group);
    memcpy(group + GROUP_HEADER_BYTES, body, sizeof body);
    CHECK(group_body_verify(&h, group, GROUP_ALIGN) == 0);
    for (size_t bit = 0; bit < (GROUP_HEADER_BYTES + sizeof body) * 8; bit++) {
        group[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CHECK(group_header_read(group, GROUP_ALIGN, &back) < 0 ||
              group_body_verify(&back, group, GROUP_ALIGN) == -1);
        group[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t len = 0; len < GROUP_ALIGN; len += 31) {
        uint8_t *cut = exact_copy(group, len);
        CHECK(len < GROUP_HEADER_BYTES ? group_header_read(cut, len, &back) == -1
                                       : group_body_verify(&h, cut, len) == -2);
        free(cut);
    }
    free(group);
}

/* A header with a right crc but sizes that no writer makes. */
static void test_impossible_sizes(void)
{
    static const struct { uint32_t body_bytes, group_bytes; } sizes[] = {
        {0, 0}, {0, 8192}, {3968, 8192}, {3969, 4096}, {UINT32_MAX, 0}, {UINT32_MAX, 4096},
        {1u << 30, (1u << 30) + 4096}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct group_header h = sample(), back;
        uint8_t out[GROUP_HEADER_BYTES];
        h.body_bytes = sizes[i].body_bytes;
        h.group_bytes = sizes[i].group_bytes;
        group_header_write(&h, out);
        CHECK(group_header_read(out, sizeof out, &back) == -1);
    }
}

static void test_blank_sectors(void)
{
    uint8_t *group = calloc(1, GROUP_ALIGN);
    memset(group, 1, 3 * SECTOR_BYTES);
    CHECK(group_blank_sectors(group, 3 * SECTOR_BYTES) == 1);
    CHECK(group_blank_sectors(group, 3 * SECTOR_BYTES + 1) == 2);
    CHECK(group_blank_sectors(group, 5 * SECTOR_BYTES) == 3);
    group[5 * SECTOR_BYTES - 1] = 1;
    CHECK(group_blank_sectors(group, 5 * SECTOR_BYTES) == 2);
    CHECK(group_blank_sectors(group, 5 * SECTOR_BYTES - 1) == 3);
    free(group);
}

int main(void)
{
    test_blank_sectors();
    test_round_trip();
    test_every_bit_and_cut();
    test_impossible_sizes();
    return 0;
}
