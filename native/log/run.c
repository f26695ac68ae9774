#include "log/run.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Runs of single events come and go a hundred thousand times a second, in the order in which they
 * came: those up to this size lie one behind the other in blocks, which are used again when all of
 * theirs are gone. A group's runs are then read in a row, as the processor's prefetching likes it;
 * from a free list they lay anywhere, and half of the time spent on them was waiting for memory. */
#define SMALL_RUN_BYTES 512
#define BLOCK_BYTES (32u << 10) /* a power of two: blocks are aligned to it */
#define BLOCKS_KEPT 32

struct run_block {
    struct run_block *next; /* among the spare ones */
    uint32_t used, live;    /* bytes handed out; runs in use */
};

static _Thread_local struct {
    struct run_block *current, *spare;
    unsigned spare_count;
} blocks;

static struct run_block *block_with(size_t size)
{
    struct run_block *block = blocks.current;
    if (block != NULL && block->live == 0)
        block->used = sizeof *block;
    if (block != NULL && BLOCK_BYTES - block->used >= size)
        return block;
    block = blocks.spare;
    if (block != NULL) {
        blocks.spare = block->next;
        blocks.spare_count--;
    } else if ((block = aligned_alloc(BLOCK_BYTES, BLOCK_BYTES)) == NULL) {
        return NULL;
    }
    assert(size <= BLOCK_BYTES - sizeof *block);
    *block = (struct run_block){.used = sizeof *block};
    blocks.current = block; /* the last one's runs find it by their addresses */
    return block;
}

static struct run *small_run(size_t size)
{
    size = (size + 15) & ~(size_t)15;
    struct run_block *block = block_with(size);
    if (block == NULL)
        return NULL;
    struct run *run = (struct run *)((uint8_t *)block + block->used);
    block->used += (uint32_t)size;
    block->live++;
    return run;
}

static void small_run_free(struct run *run)
{
    struct run_block *block =
        (struct run_block *)((uintptr_t)run & ~(uintptr_t)(BLOCK_BYTES - 1));
    assert(block->live > 0);
    if (--block->live > 0 || block == blocks.current)
        return;
    if (blocks.spare_count == BLOCKS_KEPT) {
        free(block);
        return;
    }
    block->next = blocks.spare;
    blocks.spare = block;
    blocks.spare_count++;
}

struct run *run_new(struct stream *stream, size_t extra)
{
    size_t size = sizeof(struct run) + extra;
    struct run *run = size <= SMALL_RUN_BYTES ? small_run(size) : malloc(size);
    if (run == NULL)
        return NULL;
    memset(run, 0, sizeof *run);
    run->stream = stream;
    run->memory = size;
    return run;
}

void run_free(struct run *run)
{
    if (run->body != NULL)
        body_release(run->body);
    if (run->memory <= SMALL_RUN_BYTES)
        small_run_free(run);
    else
        free(run);
}

struct body *body_new(uint64_t *account, size_t capacity)
{
    struct body *body = calloc(1, sizeof *body);
    if (body == NULL)
        return NULL;
    body->data = malloc(capacity ? capacity : 1);
    if (body->data == NULL) {
        free(body);
        return NULL;
    }
    body->refs = 1;
    body->capacity = capacity;
    body->account = account;
    *account += capacity;
    return body;
}

bool body_reserve(struct body *body, size_t want)
{
    assert(body->refs > 0);
    if (want <= body->capacity)
        return true;
    uint8_t *data = realloc(body->data, want);
    if (data == NULL)
        return false;
    *body->account += want - body->capacity;
    body->data = data;
    body->capacity = want;
    return true;
}

void body_release(struct body *body)
{
    assert(body->refs > 0);
    if (--body->refs > 0)
        return;
    assert(*body->account >= body->capacity);
    *body->account -= body->capacity;
    free(body->data);
    free(body);
}
