/* moment: times and spans as headers and lines spell them. Pure; nothing of what comes in is
 * believed. */
#ifndef BARCO_MOMENT_H
#define BARCO_MOMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MOMENT_US_MAX (1LL << 58) /* the year 11,103: sums with it do not overflow */

/* Microseconds since 1970 of "2026-11-27T08:30:00.25Z", of the same with +01:00, or of a whole
 * number of milliseconds. The zone is not guessed: a date without one is none. False: neither. */
bool moment_parse(const char *text, size_t len, int64_t *us);
/* Microseconds of such a date with its zone, from the year 1 on: negative before 1970. */
bool date_parse(const char *text, size_t len, int64_t *us);
/* Microseconds of "1500", "1500ms", "30s", "5m", "2h" or "1d". */
bool span_parse(const char *text, size_t len, int64_t *us);

#endif
