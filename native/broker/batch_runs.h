/* batch_runs: client batches, checked, as runs of one slice. */
#ifndef BARCO_BATCH_RUNS_H
#define BARCO_BATCH_RUNS_H

#include "core/core.h"
#include "core/produce.h"

#define NO_NUMBER UINT32_MAX /* an event without a key */

/* What validation finds out about a batch. */
struct batch_facts {
    struct batch_view view;
    struct batch_columns columns;
    int64_t token_min, token_max, max_timestamp;
    bool keyed, one_slice;
    uint32_t number;     /* keyed and one_slice: that one */
    uint32_t *numbers;   /* keyed: of each event, behind the columns in scratch */
};

/* What is known of a batch once it has been checked. */
struct batch_outline {
    uint32_t count, bytes; /* bytes: keys and values */
    int64_t token_min, token_max, max_timestamp;
};

/* Unpacks and checks everything: what is stored must be readable for ever. 0, or the problem. */
uint16_t batch_examine(struct reactor *reactor, const uint8_t *bytes, size_t len,
                       struct batch_facts *facts);
/* Whether times that begin there may be stored: 0, or the problem and its detail. */
uint16_t batch_early(struct reactor *reactor, const struct produce *produce, int64_t base_us,
                     uint64_t *detail);
/* Whether it is to be cut into chunks of the usual size. */
bool batch_is_large(const struct batch_facts *facts);
/* One that was examined, as one chunk. 0, or the problem. */
uint16_t batch_sealed_run(struct reactor *reactor, const struct produce *produce, uint32_t number,
                          struct waiter waiter, const struct batch_facts *facts,
                          const uint8_t *bytes, size_t len, struct body *body, uint64_t *detail);
/* The events of one slice (or all, number < 0) as a batch of their own, which is not compressed:
 * whoever leads the slice gathers them into chunks. NULL without memory. */
struct body *batch_cut(struct reactor *reactor, const struct batch_facts *facts, int64_t number,
                       uint32_t keyless_slice);
/* Whether the batch can be stored in this slice as it is, as one chunk. 0, or the problem. Of what
 * was taken in before (taken) only the log bounds the sizes. */
uint16_t batch_check(struct reactor *reactor, uint32_t slice, const uint8_t *bytes, size_t len,
                     bool taken, struct batch_outline *out);
uint16_t batch_run(struct reactor *reactor, const struct produce *produce, uint32_t number,
                   struct waiter waiter, const uint8_t *bytes, size_t len, struct body *body,
                   uint64_t *detail);

#endif
