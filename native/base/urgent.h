/* urgent: whether clients wait for appends just now. Then what nobody waits for in that way, bulk
 * reads of the disk and long answers, goes in portions, and appends go in between: a device and a
 * loop that have megabytes to do first let them wait for milliseconds.
 *
 * Of the whole process, which has one log; noted by its loop, asked by any thread. */
#ifndef BARCO_URGENT_H
#define BARCO_URGENT_H

#include <stdbool.h>
#include <stdint.h>

/* After the last append that somebody waited for: longer than from one answer to the next call. */
#define URGENT_US 20000
/* On the device for all readers together, and of an answer in one turn of the loop: an append waits
 * for about as much, a tenth of a millisecond. */
#define URGENT_PORTION_BYTES (128u << 10)

/* Times are those of the monotonic clock. */
void urgent_note(int64_t now_us);
bool urgent_at(int64_t now_us);
/* Whether it is urgent now, by a look at the clock. */
bool urgent(void);

#endif
