#include "run.h"

#include <stdlib.h>
#include <string.h>

/* Runs of single events come and go a hundred thousand times a second: those up to this size are
 * kept in a free list, which costs a fifth of malloc's work for sizes beyond its own cache. */
#define SMALL_RUN_BYTES 512
#define SMALL_RUNS_KEPT 4096

static _Thread_local struct run *small_runs;
static _Thread_local unsigned small_runs_count;

struct run *run_new(struct stream *stream, size_t extra)
{
    size_t size = sizeof(struct run) + extra;
    struct run *run;
    if (size <= SMALL_RUN_BYTES && small_runs != NULL) {
        run = small_runs;
        small_runs = run->next;
        small_runs_count--;
    } else {
        run = malloc(size <= SMALL_RUN_BYTES ? SMALL_RUN_BYTES : size);
        if (run == NULL)
            return NULL;
    }
    memset(run, 0, sizeof *run);
    run->stream = stream;
    run->memory = size;
    return run;
}

void run_free(struct run *run)
{
    if (run->body != NULL)
        body_release(run->body);
    if (run->memory <= SMALL_RUN_BYTES && small_runs_count < SMALL_RUNS_KEPT) {
        run->next = small_runs;
        small_runs = run;
        small_runs_count++;
        return;
    }
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
    if (--body->refs > 0)
        return;
    *body->account -= body->capacity;
    free(body->data);
    free(body);
}
