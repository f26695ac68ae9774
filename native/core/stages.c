#include "core/stages.h"

static_assert((BUILT_KEPT & (BUILT_KEPT - 1)) == 0, "a group's number is masked to its place");
static_assert(HELD_BUILD_MAX + APPENDS_IN_FLIGHT < BUILT_KEPT, "none is overwritten on its way");

const char *stage_name(enum stage stage)
{
    switch (stage) {
    case STAGE_RECEIVE: return "receive";
    case STAGE_GATHER: return "gather";
    case STAGE_WRITE: return "write";
    case STAGE_REPLICATE: return "replicate";
    case STAGE_ANSWER: return "answer";
    case STAGE_WHOLE: return "whole";
    case STAGES: break;
    }
    return "";
}

void stages_submitted(struct stages *stages, const struct log *log, const struct append *append,
                      int64_t now_us)
{
    assert(append->done < append->bytes);
    if (append->done > 0 || !log->open)
        return;
    if (append->runs != NULL)
        histogram_note(&stages->of[STAGE_GATHER], now_us - append->runs->queued_us);
    if (log->gated)
        stages->built[append->gseq & (BUILT_KEPT - 1)] =
            (struct built){log->options.epoch, append->gseq, now_us};
}

void stages_replicated(struct stages *stages, const struct log *log, uint64_t gseq, int64_t now_us)
{
    /* What was said before is not new; nor is a group whose time is not known. */
    uint64_t from = log->replicated + 1;
    if (gseq >= BUILT_KEPT && from < gseq - BUILT_KEPT + 1)
        from = gseq - BUILT_KEPT + 1;
    for (uint64_t at = from; at <= gseq && at < log->next_gseq; at++) {
        struct built *built = &stages->built[at & (BUILT_KEPT - 1)];
        if (built->gseq != at || built->epoch != log->options.epoch)
            continue;
        assert(built->at_us <= now_us); /* by one clock */
        histogram_note(&stages->of[STAGE_REPLICATE], now_us - built->at_us);
        built->gseq = 0;
    }
    stages->released_us = now_us;
}

bool stages_answering(const struct stages *stages, const struct log *log)
{
    assert(log->followed_events <= log->events);
    return log->events - log->followed_events != stages->answered;
}

void stages_answered(struct stages *stages, const struct log *log, int64_t now_us)
{
    histogram_note(&stages->of[STAGE_ANSWER], now_us - stages->released_us);
    stages->answered = log->events - log->followed_events;
}
