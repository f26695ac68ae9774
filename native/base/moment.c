#include "base/moment.h"

#include <string.h>

#define SECOND_US 1000000LL
#define DAY_S 86400LL

struct text {
    const char *p, *end;
};

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* A number of exactly so many digits. */
static bool take_number(struct text *text, int digits, int64_t *value)
{
    *value = 0;
    for (int i = 0; i < digits; i++, text->p++) {
        if (text->p == text->end || !is_digit(*text->p))
            return false;
        *value = *value * 10 + (*text->p - '0');
    }
    return true;
}

static bool take(struct text *text, char c)
{
    const bool found = text->p < text->end && *text->p == c;
    text->p += found;
    return found;
}

/* Digits up to whatever ends them: at least one, and no more than fit. */
static bool take_whole(struct text *text, int64_t most, int64_t *value)
{
    const char *start = text->p;
    for (*value = 0; text->p < text->end && is_digit(*text->p); text->p++) {
        *value = *value * 10 + (*text->p - '0');
        if (*value > most)
            return false;
    }
    return text->p > start;
}

/* Days since 1970 of a date that there is; the calendar repeats itself every 400 years. */
static bool days_of(int64_t year, int64_t month, int64_t day, int64_t *days)
{
    static const uint8_t lengths[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (year < 1 || month < 1 || month > 12 || day < 1 || day > lengths[month - 1] ||
        (month == 2 && day == 29 && !leap))
        return false;
    const int64_t shifted = month > 2 ? month - 3 : month + 9; /* March is the first */
    const int64_t y = month > 2 ? year : year - 1;
    *days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * shifted + 2) / 5 + day - 1 - 719468;
    return true;
}

/* Up to six digits count, as many as there are microseconds. */
static bool take_fraction(struct text *text, int64_t *us)
{
    int64_t unit = SECOND_US / 10;
    const char *start = text->p;
    for (*us = 0; text->p < text->end && is_digit(*text->p); text->p++, unit /= 10)
        *us += (*text->p - '0') * unit;
    return text->p > start;
}

static bool take_zone(struct text *text, int64_t *seconds)
{
    int64_t hours, minutes;
    *seconds = 0;
    if (take(text, 'Z'))
        return true;
    const bool west = take(text, '-');
    if ((!west && !take(text, '+')) || !take_number(text, 2, &hours) || !take(text, ':') ||
        !take_number(text, 2, &minutes) || hours > 23 || minutes > 59)
        return false;
    *seconds = (hours * 60 + minutes) * (west ? -60 : 60);
    return true;
}

bool date_parse(const char *given, size_t len, int64_t *us)
{
    struct text text = {given, given + len};
    int64_t year, month, day, hour, minute, second, days, zone, fraction = 0;
    if (!take_number(&text, 4, &year) || !take(&text, '-') || !take_number(&text, 2, &month) ||
        !take(&text, '-') || !take_number(&text, 2, &day) || !take(&text, 'T') ||
        !take_number(&text, 2, &hour) || !take(&text, ':') || !take_number(&text, 2, &minute) ||
        !take(&text, ':') || !take_number(&text, 2, &second) ||
        (take(&text, '.') && !take_fraction(&text, &fraction)) || !take_zone(&text, &zone) ||
        text.p != text.end || hour > 23 || minute > 59 || second > 59 ||
        !days_of(year, month, day, &days))
        return false;
    *us = (days * DAY_S + hour * 3600 + minute * 60 + second - zone) * SECOND_US + fraction;
    return true;
}

bool moment_parse(const char *text, size_t len, int64_t *us)
{
    struct text left = {text, text + len};
    if (len > 4 && text[4] == '-')
        return date_parse(text, len, us) && *us >= 0;
    if (!take_whole(&left, MOMENT_US_MAX / 1000, us) || left.p != left.end)
        return false;
    *us *= 1000;
    return true;
}

bool span_parse(const char *text, size_t len, int64_t *us)
{
    static const struct unit {
        const char *name;
        int64_t us;
    } units[] = {{"", 1000},
                 {"ms", 1000},
                 {"s", SECOND_US},
                 {"m", 60 * SECOND_US},
                 {"h", 3600 * SECOND_US},
                 {"d", DAY_S * SECOND_US}};
    struct text left = {text, text + len};
    int64_t number;
    if (!take_whole(&left, MOMENT_US_MAX, &number))
        return false;
    len = (size_t)(left.end - left.p);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strlen(units[i].name) == len && memcmp(units[i].name, left.p, len) == 0) {
            if (number > MOMENT_US_MAX / units[i].us)
                return false;
            *us = number * units[i].us;
            return true;
        }
    return false;
}
