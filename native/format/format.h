/* The bytes on disk and on the wire: magics, sizes, field positions and limits of chunks, groups
 * and client batches. Everything is little-endian; the layouts of the structs below are the
 * layouts of the files, asserted here and nowhere else. */
#ifndef BARCO_FORMAT_H
#define BARCO_FORMAT_H

#include <stddef.h>
#include <stdint.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the formats are read in place");

#define CHUNK_MAGIC 0x4B484342u /* "BCHK" */
#define GROUP_MAGIC 0x50524742u /* "BGRP" */
#define BATCH_MAGIC 0x54414242u /* "BBAT" */

/* Of chunks and batches. An event with headers or without a value makes them FORMAT_HEADERS, all
 * others are as versions of barco before 2026-11-27 read them. */
enum format_version { FORMAT_PLAIN = 1, FORMAT_HEADERS = 2 };
/* Of logs, as LOG_FORMATS of barco/model/options.py counts them: from which on they may have events
 * with headers or without a value, and times of 1970 and before. */
enum log_format { LOG_HEADERS = 2, LOG_EARLY = 3 };
#define GROUP_VERSION 1

#define CHUNK_HEADER_BYTES 80u
#define GROUP_HEADER_BYTES 128u
#define BATCH_HEADER_BYTES 32u
#define SECTION_ENTRY_BYTES 16u
#define PRODUCER_BYTES 40u

#define GROUP_ALIGN 4096u            /* Groups start and end on direct I/O's block. */
#define GROUP_BYTES_MAX (1u << 30)   /* four times the largest request allowed */

#define CHUNK_VALUES_TARGET (128u << 10) /* Raw value bytes after which a chunk is closed. */
#define SECTION_RAW_MAX (64u << 20)      /* No reader allocates more for one section. */
#define SECTION_RATIO_MAX 256u           /* LZ4 cannot expand beyond 255 to 1. */
#define SECTION_COMPRESS_MIN 256u        /* Smaller sections are stored raw. */
#define SECTION_SAVING_SHIFT 4           /* LZ4 must save 1/16, or the section is stored raw. */
#define TOPIC_NAME_BYTES_MAX 127u
#define KEY_BYTES_MAX 65535u
#define KEY_NULL 0xFFFFFFFFu /* In a column of lengths: the event has no key, value, headers. */

#define TIMESTAMP_US_MIN (-62135596800000000LL) /* of events: the year 1, as databases have it */

enum section_codec { CODEC_RAW = 0, CODEC_LZ4 = 1 };

enum group_flag { GROUP_GEN_START = 1, GROUP_SNAPSHOT = 2, GROUP_HEARTBEAT = 4, GROUP_SEAL = 8 };

/* One run of events of one idempotent producer inside a chunk. */
struct chunk_producer {
    uint8_t id[16];
    uint32_t epoch;
    uint32_t first_event; /* index in the chunk */
    uint64_t seq;         /* of the first event */
    uint32_t event_count;
    uint32_t reserved; /* 0 */
};
_Static_assert(sizeof(struct chunk_producer) == PRODUCER_BYTES, "no padding");

struct section_entry {
    uint8_t id, codec;
    uint16_t reserved; /* 0 */
    uint32_t raw_len, stored_len;
    uint32_t crc; /* crc32c of the stored bytes */
};
_Static_assert(sizeof(struct section_entry) == SECTION_ENTRY_BYTES, "no padding");

struct chunk_header {
    uint32_t magic;
    uint16_t version;
    uint8_t topic_len, section_count;
    uint32_t stored_bytes; /* of the whole chunk, a multiple of 8 */
    uint32_t count;
    uint64_t epoch, base_offset;
    int64_t base_timestamp_us, max_timestamp_us, token_min, token_max;
    uint32_t slice;
    uint32_t raw_bytes;  /* of all sections */
    uint32_t flags;      /* 0 */
    uint32_t header_crc; /* crc32c of header, padded topic and directory, with this field 0 */
};
_Static_assert(sizeof(struct chunk_header) == CHUNK_HEADER_BYTES, "no padding");
_Static_assert(offsetof(struct chunk_header, header_crc) == 76, "last field");

struct batch_header {
    uint32_t magic;
    uint8_t version, section_count;
    uint16_t flags; /* 0 */
    uint32_t count;
    uint32_t total_bytes;      /* of the whole batch, a multiple of 8 */
    int64_t base_timestamp_us; /* 0: the broker's clock, and no SECTION_TS_DELTA */
    uint64_t reserved;         /* 0 */
};
_Static_assert(sizeof(struct batch_header) == BATCH_HEADER_BYTES, "no padding");

static inline size_t pad8(size_t bytes)
{
    return (bytes + 7) & ~(size_t)7;
}

static inline size_t pad_group(size_t bytes)
{
    return (bytes + GROUP_ALIGN - 1) & ~(size_t)(GROUP_ALIGN - 1);
}

#endif
