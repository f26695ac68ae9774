/* stages: how long the parts of a produce take, in microseconds, since the start. */
#ifndef BARCO_STAGES_H
#define BARCO_STAGES_H

#include "base/histogram.h"
#include "log/log_state.h"

enum stage {
    STAGE_RECEIVE,   /* of a request: from its whole head to its whole body */
    STAGE_GATHER,    /* of a group: from when its oldest call waited until it was built */
    STAGE_WRITE,     /* of a group: from there until it is on this disk; a follower's as well */
    STAGE_REPLICATE, /* of a group: from where it was built until a follower has it on disk too */
    STAGE_ANSWER,    /* of groups: from when they are safe until their answers are on their way */
    STAGE_WHOLE,     /* of a request: from its whole head to its answer */
    STAGES
};

#define BUILT_KEPT 128u /* a power of two; more groups than a leader has on their way */

struct built {
    uint64_t epoch, gseq;
    int64_t at_us;
};

struct stages {
    struct histogram of[STAGES];
    struct built built[BUILT_KEPT]; /* by gseq, until a follower has it */
    int64_t released_us;            /* when groups were safe that were not before */
    uint64_t answered;              /* events, of those that were led here */
};

/* For answers, and for whoever asks. */
const char *stage_name(enum stage stage);
/* A write begins: of a group that was built, or taken from a leader, or the rest of one. */
void stages_submitted(struct stages *stages, const struct log *log, const struct append *append,
                      int64_t now_us);
/* A follower has all groups up to this one; before log_replicated(). */
void stages_replicated(struct stages *stages, const struct log *log, uint64_t gseq,
                       int64_t now_us);
/* Whether events have become safe whose answers were sent meanwhile. */
bool stages_answering(const struct stages *stages, const struct log *log);
void stages_answered(struct stages *stages, const struct log *log, int64_t now_us);

#endif
