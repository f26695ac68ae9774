/* Stages of a produce, by a clock of our own. */
#include "core/stages.h"

#include "codec_testing.h"

static struct stages stages;
static struct log *log_;

static uint64_t noted(enum stage stage, uint64_t value)
{
    return stages.of[stage].counts[histogram_bucket(value)];
}

static uint64_t all(enum stage stage)
{
    uint64_t count = 0;
    for (uint32_t bucket = 0; bucket < HISTOGRAM_BUCKETS; bucket++)
        count += stages.of[stage].counts[bucket];
    return count;
}

static void begin(bool gated)
{
    memset(&stages, 0, sizeof stages);
    memset(log_, 0, sizeof *log_);
    log_->open = true;
    log_->gated = gated;
    log_->options.epoch = 3;
    log_->next_gseq = 1;
}

/* One group is built and its write begins. */
static struct append built(struct run *runs, int64_t now_us)
{
    struct append append = {.gseq = log_->next_gseq++, .bytes = 4096, .runs = runs};
    stages_submitted(&stages, log_, &append, now_us);
    return append;
}

static void follower_has(uint64_t gseq, int64_t now_us)
{
    stages_replicated(&stages, log_, gseq, now_us);
    if (gseq > log_->replicated)
        log_->replicated = gseq;
}

static void test_the_oldest_call_of_a_group_counts(void)
{
    begin(false);
    struct run *young = run_new(NULL, 0), *old = run_new(NULL, 0);
    old->queued_us = 1000;
    old->next = young;
    young->queued_us = 1900;
    struct append append = built(old, 2000);
    CHECK(all(STAGE_GATHER) == 1 && noted(STAGE_GATHER, 1000) == 1);
    append.done = 512; /* the rest of a short write gathers nothing */
    stages_submitted(&stages, log_, &append, 3000);
    built(NULL, 4000); /* nor does a group without calls */
    CHECK(all(STAGE_GATHER) == 1);
    run_free(old);
    run_free(young);
}

static void test_each_group_is_replicated_once(void)
{
    begin(true);
    built(NULL, 1000);
    built(NULL, 2000);
    built(NULL, 3000);
    follower_has(2, 5000);
    CHECK(all(STAGE_REPLICATE) == 2);
    CHECK(noted(STAGE_REPLICATE, 4000) == 1 && noted(STAGE_REPLICATE, 3000) == 1);
    follower_has(2, 9000);
    follower_has(1, 9000);
    CHECK(all(STAGE_REPLICATE) == 2 && stages.released_us == 9000);
    follower_has(3, 9000);
    CHECK(all(STAGE_REPLICATE) == 3 && noted(STAGE_REPLICATE, 6000) == 1);
}

static void test_groups_of_another_leader_are_not_ours(void)
{
    begin(true);
    built(NULL, 1000);
    log_->options.epoch = 4; /* and these groups were taken, or loaded */
    log_->next_gseq = 1000001;
    follower_has(1, 2000);
    follower_has(1000000, 2000);
    CHECK(all(STAGE_REPLICATE) == 0);
    built(NULL, 3000);
    follower_has(1000001, 3500);
    CHECK(all(STAGE_REPLICATE) == 1 && noted(STAGE_REPLICATE, 500) == 1);
    log_->open = false; /* a follower writes too */
    built(NULL, 4000);
    follower_has(1000002, 5000);
    CHECK(all(STAGE_REPLICATE) == 1);
}

static void test_as_many_groups_as_can_be_on_their_way(void)
{
    begin(true);
    const uint64_t most = HELD_BUILD_MAX + APPENDS_IN_FLIGHT;
    for (uint64_t i = 0; i < most; i++)
        built(NULL, 1000);
    follower_has(most, 1100);
    CHECK(noted(STAGE_REPLICATE, 100) == most);
}

static void test_answers_of_events_that_were_led(void)
{
    begin(true);
    log_->events = log_->followed_events = 10;
    CHECK(!stages_answering(&stages, log_));
    stages.released_us = 1000;
    log_->events += 5;
    CHECK(stages_answering(&stages, log_));
    stages_answered(&stages, log_, 1040);
    CHECK(!stages_answering(&stages, log_));
    CHECK(all(STAGE_ANSWER) == 1 && noted(STAGE_ANSWER, 40) == 1);
}

int main(void)
{
    log_ = calloc(1, sizeof *log_);
    CHECK(log_ != NULL);
    test_the_oldest_call_of_a_group_counts();
    test_each_group_is_replicated_once();
    test_groups_of_another_leader_are_not_ours();
    test_as_many_groups_as_can_be_on_their_way();
    test_answers_of_events_that_were_led();
    for (int i = 0; i < STAGES; i++)
        CHECK(stage_name((enum stage)i)[0] != 0);
    free(log_);
    return 0;
}
