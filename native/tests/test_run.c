/* Small runs share blocks: each keeps its own bytes, whatever order the others go in. */
#include "log/run.h"

#include <string.h>

#include "codec_testing.h"

#define RUNS 600 /* several blocks */

static struct run *runs[RUNS];
static size_t extra_of(size_t i) { return i % 7 == 0 ? 300 + i : i % 50; } /* some are not small */

static void make(size_t i)
{
    runs[i] = run_new(NULL, extra_of(i));
    CHECK(runs[i] != NULL && runs[i]->count == 0 && runs[i]->next == NULL);
    runs[i]->count = (uint32_t)i + 1;
    memset(runs[i]->tail, (int)i, extra_of(i));
}

static void check(size_t i)
{
    CHECK(runs[i]->count == i + 1 && runs[i]->memory == sizeof(struct run) + extra_of(i));
    for (size_t at = 0; at < extra_of(i); at++)
        CHECK(runs[i]->tail[at] == (uint8_t)i);
}

/* Frees and makes every run in steps that visit all of them, twice. */
static void churn(size_t step)
{
    for (size_t n = 0, i = 0; n < 2 * RUNS; n++, i = (i + step) % RUNS) {
        check(i);
        run_free(runs[i]);
        make(i);
    }
    for (size_t i = 0; i < RUNS; i++)
        check(i);
}

int main(void)
{
    for (size_t i = 0; i < RUNS; i++)
        make(i);
    churn(1);
    churn(7);
    churn(RUNS - 1);
    for (size_t i = 0; i < RUNS; i++)
        run_free(runs[i]);
    /* Runs made one after the other lie in a row: that is what the blocks are for. */
    struct run *first = run_new(NULL, 0), *second = run_new(NULL, 0);
    CHECK((uint8_t *)second - (uint8_t *)first == ((sizeof(struct run) + 15) & ~(size_t)15));
    run_free(first);
    run_free(second);
    return 0;
}
