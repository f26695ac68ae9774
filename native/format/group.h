/* Append groups: the unit of append, replication and fencing. A group starts and ends on a 4 KiB
 * boundary; its header chains it to the one before. */
#ifndef BARCO_GROUP_H
#define BARCO_GROUP_H

#include <stddef.h>
#include <stdint.h>

#include "format/format.h"

struct group_header {
    uint16_t flags; /* enum group_flag */
    uint8_t cluster_uuid[16];
    int64_t token; /* start of the shard's range */
    uint64_t epoch, session, gseq;
    uint32_t prev_crc; /* header_crc of the generation's previous group; 0 for the first */
    uint32_t body_crc; /* crc32c of the body_bytes after the header */
    uint64_t durable_upto, committed;
    uint64_t wall_us; /* the leader's wall clock */
    uint32_t body_bytes, chunk_count;
    uint32_t group_bytes; /* header, body and padding: pad_group(128 + body_bytes) */
    uint32_t segment_index;
    uint32_t blank_sectors; /* group_blank_sectors(); 0: an older writer did not count */
    uint64_t log_us;     /* the log's own clock (clock.c); 0: written by an earlier version */
    uint32_t header_crc; /* of the first 124 bytes: set by group_header_write() and _read() */
};

/* Writes the header with its crc, which it also puts into header->header_crc. */
void group_header_write(struct group_header *header, uint8_t out[GROUP_HEADER_BYTES]);

/* Reads and checks magic, version, crc and sizes: 0, or -1 not a valid header. Whether the group
 * belongs where it stands (uuid, token, epoch, gseq, prev_crc) is for the caller to compare. */
int group_header_read(const uint8_t *buf, size_t len, struct group_header *out);

/* group: the bytes from the header on. 0; -1 the body's crc does not match; -2 len is less than
 * the group. */
int group_body_verify(const struct group_header *header, const uint8_t *group, size_t len);

/* What a write can be torn into: either all of a sector is stored or nothing of it. */
#define SECTOR_BYTES 512u

/* 1 + how many of the sectors that header and body take (used bytes) are zeros. A segment is zeros
 * before a group is written, so a torn group has more of them; one that was whole once and has
 * rotted has not (storage/index/scan.py). */
uint32_t group_blank_sectors(const uint8_t *group, size_t used);

/* When the group was appended, by the log's own clock: what ages are reckoned from. */
static inline int64_t group_time(const struct group_header *header)
{
    return (int64_t)(header->log_us ? header->log_us : header->wall_us);
}

#endif
