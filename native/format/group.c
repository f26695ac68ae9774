#include "format/group.h"

#include <string.h>

#include "base/crc32c.h"

struct stored_header {
    uint32_t magic;
    uint16_t version, flags;
    uint8_t cluster_uuid[16];
    int64_t token;
    uint64_t epoch, session, gseq;
    uint32_t prev_crc, body_crc;
    uint64_t durable_upto, committed, wall_us;
    uint32_t body_bytes, chunk_count, group_bytes, segment_index;
    uint32_t blank_sectors;
    uint32_t reserved_0; /* 0 */
    uint64_t log_us;
    uint32_t reserved_1; /* 0 */
    uint32_t header_crc;
};
_Static_assert(sizeof(struct stored_header) == GROUP_HEADER_BYTES, "no padding");
_Static_assert(offsetof(struct stored_header, header_crc) == 124, "last field");

void group_header_write(struct group_header *h, uint8_t out[GROUP_HEADER_BYTES])
{
    struct stored_header s = {
        .magic = GROUP_MAGIC,
        .version = GROUP_VERSION,
        .flags = h->flags,
        .token = h->token,
        .epoch = h->epoch,
        .session = h->session,
        .gseq = h->gseq,
        .prev_crc = h->prev_crc,
        .body_crc = h->body_crc,
        .durable_upto = h->durable_upto,
        .committed = h->committed,
        .wall_us = h->wall_us,
        .body_bytes = h->body_bytes,
        .chunk_count = h->chunk_count,
        .group_bytes = h->group_bytes,
        .segment_index = h->segment_index,
        .blank_sectors = h->blank_sectors,
        .log_us = h->log_us,
    };
    memcpy(s.cluster_uuid, h->cluster_uuid, sizeof s.cluster_uuid);
    s.header_crc = crc32c(0, &s, offsetof(struct stored_header, header_crc));
    h->header_crc = s.header_crc;
    memcpy(out, &s, sizeof s);
}

int group_header_read(const uint8_t *buf, size_t len, struct group_header *out)
{
    struct stored_header s;
    if (len < sizeof s)
        return -1;
    memcpy(&s, buf, sizeof s);
    if (s.magic != GROUP_MAGIC || s.version != GROUP_VERSION ||
        s.header_crc != crc32c(0, &s, offsetof(struct stored_header, header_crc)))
        return -1;
    /* A header that passes its crc was written by us; these hold unless a writer was wrong. */
    if (s.group_bytes > GROUP_BYTES_MAX ||
        s.group_bytes != pad_group((size_t)GROUP_HEADER_BYTES + s.body_bytes))
        return -1;

    *out = (struct group_header){
        .flags = s.flags,
        .token = s.token,
        .epoch = s.epoch,
        .session = s.session,
        .gseq = s.gseq,
        .prev_crc = s.prev_crc,
        .body_crc = s.body_crc,
        .durable_upto = s.durable_upto,
        .committed = s.committed,
        .wall_us = s.wall_us,
        .body_bytes = s.body_bytes,
        .chunk_count = s.chunk_count,
        .group_bytes = s.group_bytes,
        .segment_index = s.segment_index,
        .blank_sectors = s.blank_sectors,
        .log_us = s.log_us,
        .header_crc = s.header_crc,
    };
    memcpy(out->cluster_uuid, s.cluster_uuid, sizeof out->cluster_uuid);
    return 0;
}

int group_body_verify(const struct group_header *h, const uint8_t *group, size_t len)
{
    if (len < h->group_bytes || len - GROUP_HEADER_BYTES < h->body_bytes)
        return -2;
    return crc32c(0, group + GROUP_HEADER_BYTES, h->body_bytes) == h->body_crc ? 0 : -1;
}

uint32_t group_blank_sectors(const uint8_t *group, size_t used)
{
    static const uint8_t zeros[SECTOR_BYTES];
    uint32_t count = 1;
    for (size_t at = SECTOR_BYTES; at < used; at += SECTOR_BYTES) {
        const size_t len = used - at < SECTOR_BYTES ? used - at : SECTOR_BYTES;
        /* Nearly always the first byte tells. */
        count += group[at] == 0 && memcmp(group + at, zeros, len) == 0;
    }
    return count;
}
