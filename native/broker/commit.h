/* commit: events and the mark that says so, all or none. */
#ifndef BARCO_COMMIT_H
#define BARCO_COMMIT_H

#include "broker/batch_runs.h"

struct commit_batch {
    const uint8_t *bytes;
    size_t len;
    struct batch_outline outline;
};

/* Events of one stream that become stable together with one internal event, the mark, or not at
 * all: all are one group. */
struct commit {
    struct topic *topic, *mark_topic;
    uint32_t slice, batch_count;
    const struct commit_batch *batches;
    const uint8_t *key, *value; /* of the mark */
    uint32_t key_len, value_len;
    uint64_t tag; /* of the upcall when it is stable */
};

/* 0, or the problem: then nothing was queued. PROBLEM_BAD_BATCH: a batch fails its checksums. */
uint16_t commit_append(struct reactor *reactor, const struct commit *commit);

#endif
