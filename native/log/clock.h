/* clock: the log's own clock. */
#ifndef BARCO_CLOCK_H
#define BARCO_CLOCK_H

#include "log/log_state.h"

/* So much time has gone by since the last call, says the monotonic clock. */
void log_tick(struct log *log, int64_t elapsed_us, int64_t wall_us);
/* Whether a producer's timestamp is of the last 10 years or the next day. By both clocks: a wrong
 * one only makes the window wider. */
bool log_time_plausible(const struct log *log, int64_t wall_us, int64_t time_us);
/* A log that nobody has written to begins with the wall clock. */
void log_clock_begin(struct log *log, int64_t wall_us);
/* Recovery: so late it was when this was written. */
void log_clock_heard(struct log *log, int64_t time_us);

#endif
