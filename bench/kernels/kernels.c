/* kernels: what the parts of the C core cost by themselves, on one core, in thread CPU time.
 * Every pass walks 64 MiB of different events, because a block that comes again teaches the branch
 * predictor what no producer would. Prints {"kernel": {"bytes": per step, "seconds": [per step]}}.
 * usage: kernels [PASSES] */
#define _GNU_SOURCE
#include "../loadgen/pool.h"
#include "format/batch.h"
#include "format/chunk.h"
#include "base/crc32c.h"
#include "http/http1.h"
#include "base/murmur3.h"

#include <lz4.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BLOCKS_MAX 8192
#define EVENTS_MAX 4096
#define PASSES_MAX 64

struct block {
    struct chunk_columns columns;
    uint32_t lengths[EVENTS_MAX];
    uint8_t *chunk, *batch;
    size_t chunk_len, batch_len;
};

static struct pool pool;
static struct block *blocks;
static size_t block_count;
static struct chunk_sealer *sealer;
static uint8_t *scratch;
static size_t scratch_cap;
static uint64_t guard; /* Sums up results, so that no call can be left out. */
static int printed;

static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

_Noreturn static void die(const char *what)
{
    fprintf(stderr, "kernels: %s\n", what);
    exit(1);
}

/* Cuts the pool's events into blocks of at most so many bytes of values. */
static void cut(uint32_t bytes)
{
    size_t event = 0;
    for (block_count = 0; block_count < BLOCKS_MAX && event < pool.count; block_count++) {
        struct block *b = &blocks[block_count];
        struct chunk_columns *c = &b->columns;
        uint32_t count = 0, total = 0;
        const struct body *first = &pool.bodies[event];
        while (event < pool.count && count < EVENTS_MAX &&
               total + pool.bodies[event].len <= bytes) {
            total += pool.bodies[event].len;
            b->lengths[count++] = pool.bodies[event++].len;
        }
        *c = (struct chunk_columns){.topic = "bench", .topic_len = 5, .epoch = 1,
                                    .base_offset = event, .base_timestamp_us = 1700000000000000,
                                    .max_timestamp_us = 1700000000000000};
        c->count = count;
        c->val_len = b->lengths;
        c->vals = (const uint8_t *)first->p;
        c->vals_bytes = total;
    }
}

typedef size_t kernel(struct block *b, size_t index);

/* Runs a kernel over all blocks, passes times, and prints CPU seconds a step of each pass. */
static void measure(const char *name, kernel *run, int passes)
{
    double seconds[PASSES_MAX];
    uint64_t bytes = 0;
    for (int pass = 0; pass < passes; pass++) {
        bytes = 0;
        double begin = cpu_now();
        for (size_t i = 0; i < block_count; i++)
            bytes += run(&blocks[i], i);
        seconds[pass] = (cpu_now() - begin) / (double)block_count;
    }
    printf("%s\"%s\": {\"bytes\": %.1f, \"seconds\": [", printed++ ? ",\n" : "{", name,
           (double)bytes / (double)block_count);
    for (int pass = 0; pass < passes; pass++)
        printf("%s%.12f", pass ? ", " : "", seconds[pass]);
    printf("]}");
}

static size_t run_lz4(struct block *b, size_t index)
{
    (void)index;
    int len = LZ4_compress_default((const char *)b->columns.vals, (char *)scratch,
                                   (int)b->columns.vals_bytes, (int)scratch_cap);
    guard += (uint64_t)len;
    return b->columns.vals_bytes;
}

static size_t run_seal(struct block *b, size_t index)
{
    (void)index;
    guard += chunk_seal(sealer, &b->columns, scratch, scratch_cap);
    return b->columns.vals_bytes;
}

static size_t run_verify(struct block *b, size_t index)
{
    struct chunk_view view;
    (void)index;
    if (chunk_open(b->chunk, b->chunk_len, &view) || chunk_verify(&view))
        die("a chunk that was just sealed does not verify");
    return b->chunk_len;
}

static size_t run_unpack(struct block *b, size_t index)
{
    struct chunk_view view;
    (void)index;
    if (chunk_open(b->chunk, b->chunk_len, &view))
        die("a chunk that was just sealed does not open");
    if (chunk_unpack(&view, SECTION_VALUES, scratch, scratch_cap) != (int)b->columns.vals_bytes)
        die("values do not unpack");
    return b->columns.vals_bytes;
}

static size_t run_batch_check(struct block *b, size_t index)
{
    struct batch_view view;
    struct batch_columns columns;
    (void)index;
    if (batch_open(b->batch, b->batch_len, &view) ||
        batch_unpack(&view, 1 << 20, scratch, scratch_cap, &columns))
        die("a batch that was just made is not accepted");
    guard += columns.count;
    return b->columns.vals_bytes;
}

static size_t run_batch_store(struct block *b, size_t index)
{
    struct batch_view view;
    (void)index;
    if (batch_open(b->batch, b->batch_len, &view))
        die("a batch that was just made does not open");
    guard += chunk_seal_batch(&view, &b->columns, scratch, scratch_cap);
    return b->columns.vals_bytes;
}

static size_t run_crc(struct block *b, size_t index)
{
    (void)index;
    guard += crc32c(0, b->columns.vals, b->columns.vals_bytes);
    return b->columns.vals_bytes;
}

static size_t run_token(struct block *b, size_t index)
{
    (void)b;
    guard += (uint64_t)murmur3_token(pool.bytes + index * 13, 13);
    return 13;
}

static char head_short[1024], head_long[1024];

static size_t run_head(const char *head)
{
    struct http1_request request;
    size_t len = strlen(head);
    if (http1_parse_head(head, len, 0, &request) != (int)len)
        die("a good head is not parsed");
    guard += request.header_count;
    return len;
}

static size_t run_head_short(struct block *b, size_t index)
{
    (void)b, (void)index;
    return run_head(head_short);
}

static size_t run_head_long(struct block *b, size_t index)
{
    (void)b, (void)index;
    return run_head(head_long);
}

static void prepare_heads(void)
{
    const char *start = "POST /v1/topic/orders/messages?partitionKey=c-4711 HTTP/1.1\r\n"
                        "Host: 127.0.0.1:9251\r\nContent-Type: application/json\r\n"
                        "Content-Length: 1024\r\nPrefer: return=minimal\r\n";
    snprintf(head_short, sizeof head_short, "%s\r\n", start);
    snprintf(head_long, sizeof head_long,
             "%sUser-Agent: barco/0.1 (python 3.11)\r\nAccept: application/json\r\n"
             "Accept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\n"
             "Producer-Id: 6f1f6f0e-6f0b-4a57-9b39-1c5c6fd3e1b7\r\nProducer-Seq: 1234567\r\n\r\n",
             start);
}

/* Seals every block once, as chunk and as batch, for the kernels that read. */
static void prepare_sealed(void)
{
    for (size_t i = 0; i < block_count; i++) {
        struct block *b = &blocks[i];
        size_t bound = chunk_bound(&b->columns);
        b->chunk = aligned_alloc(64, (bound + 63) & ~(size_t)63);
        b->batch = aligned_alloc(64, (bound + 63) & ~(size_t)63);
        if (!b->chunk || !b->batch)
            die("out of memory");
        struct chunk_columns batch = b->columns;
        batch.base_timestamp_us = batch.max_timestamp_us = 0;
        b->chunk_len = chunk_seal(sealer, &b->columns, b->chunk, bound);
        b->batch_len = batch_seal(sealer, &batch, b->batch, bound);
        if (!b->chunk_len || !b->batch_len)
            die("a block cannot be sealed");
    }
}

int main(int argc, char **argv)
{
    int passes = argc > 1 ? atoi(argv[1]) : 7;
    static const struct {
        uint32_t bytes;
        const char *lz4, *seal;
    } sizes[] = {{1 << 10, "lz4 1 KiB", "chunk_seal 1 KiB"},
                 {16 << 10, "lz4 16 KiB", "chunk_seal 16 KiB"},
                 {128 << 10, "lz4 128 KiB", "chunk_seal 128 KiB"}};
    struct pool_spec spec = {64 << 20, 243, 100, 0, 1};
    blocks = calloc(BLOCKS_MAX, sizeof *blocks);
    sealer = chunk_sealer_new(1);
    scratch_cap = 4 << 20;
    scratch = aligned_alloc(64, scratch_cap);
    if (passes < 1 || passes > PASSES_MAX || !blocks || !sealer || !scratch)
        die("needs 1 to 64 passes, and memory");
    if (pool_generate(&pool, &spec) < 0)
        die("cannot make events");
    memset(scratch, 1, scratch_cap);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        cut(sizes[i].bytes);
        measure(sizes[i].lz4, run_lz4, passes);
        measure(sizes[i].seal, run_seal, passes);
    }
    prepare_sealed(); /* of 128 KiB, the last size */
    measure("chunk_open and chunk_verify", run_verify, passes);
    measure("chunk_unpack of the values", run_unpack, passes);
    measure("batch_open and batch_unpack", run_batch_check, passes);
    measure("batch_open and chunk_seal_batch", run_batch_store, passes);
    measure("crc32c 128 KiB", run_crc, passes);
    cut(16 << 10);
    prepare_heads();
    measure("murmur3_token of 13 bytes", run_token, passes);
    measure("http1_parse_head, 4 headers", run_head_short, passes);
    measure("http1_parse_head, 10 headers", run_head_long, passes);
    printf("}\n");
    return guard == 0;
}
