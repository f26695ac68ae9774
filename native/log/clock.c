/* The log's own clock: the time of its last group, and the monotonic time gone by since. Ages are
 * reckoned by it (how long producers are remembered, what retention takes), never by a wall clock,
 * which may be wrong by any amount, at one of the members and from one moment to the next.
 *
 * It goes on with every group, wherever it is taken, so a new leader continues where the last one
 * was. What it cannot know is how long nobody was there; so it runs faster while the wall clock is
 * ahead, but not by more than CLOCK_HASTE: whoever keeps something for some time allows for that.
 * It never goes back, and never stands still.
 */
#include "log/clock.h"

/* In the year 2064: indexes have 32 bits for its seconds. */
#define CLOCK_FIRST_MAX 3000000000000000LL

/* What a producer's timestamp is taken for: an event that was, or is about to be. */
#define TIME_PAST_US (3653LL * 86400 * 1000000)
#define TIME_AHEAD_US (86400LL * 1000000)

void log_clock_begin(struct log *log, int64_t wall_us)
{
    if (log->clock_us == 0)
        log->clock_us = wall_us < 1 ? 1 : wall_us < CLOCK_FIRST_MAX ? wall_us : CLOCK_FIRST_MAX;
}

void log_clock_heard(struct log *log, int64_t time_us)
{
    if (time_us > log->clock_us)
        log->clock_us = time_us;
}

void log_tick(struct log *log, int64_t elapsed_us, int64_t wall_us)
{
    if (log->clock_us == 0 || elapsed_us <= 0)
        return;
    log->clock_us += elapsed_us;
    const int64_t behind_us = wall_us - log->clock_us, haste_us = elapsed_us / CLOCK_HASTE;
    if (behind_us > 0)
        log->clock_us += behind_us < haste_us ? behind_us : haste_us;
}

bool log_time_plausible(const struct log *log, int64_t wall_us, int64_t time_us)
{
    int64_t earliest = wall_us, latest = wall_us;
    if (log->clock_us != 0 && log->clock_us < earliest)
        earliest = log->clock_us;
    if (log->clock_us > latest)
        latest = log->clock_us;
    return time_us >= earliest - TIME_PAST_US && time_us <= latest + TIME_AHEAD_US;
}
