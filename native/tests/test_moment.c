/* Times and spans as headers and lines spell them: what they are, and what they are not. */
#include "base/moment.h"

#include "codec_testing.h"

#define S 1000000LL

static int64_t parsed(const char *text, bool (*parse)(const char *, size_t, int64_t *))
{
    const size_t len = strlen(text);
    uint8_t *copy = exact_copy(text, len); /* a sanitizer sees a read beyond it */
    int64_t us = 0;
    const bool good = parse((const char *)copy, len, &us);
    free(copy);
    CHECK(!good || us >= 0);
    return good ? us : -1;
}

static int64_t moment(const char *text) { return parsed(text, moment_parse); }
static int64_t span(const char *text) { return parsed(text, span_parse); }

static void test_moments(void)
{
    static const char *const none[] = {
        "", " ", "x", "-1", "+1", "1.5", "1e3", "17 ", "99999999999999999999", "288230376151712",
        "2026-11-27", "2026-11-27T08:30:00", "2026-11-27T08:30Z", "2026-11-27 08:30:00Z",
        "2026-11-27T08:30:00z", "2026-11-27T08:30:00.Z", "2026-11-27T08:30:00Z ",
        "2026-11-27T08:30:00+01", "2026-11-27T08:30:00+0100", "2026-11-27T08:30:00+24:00",
        "2026-11-27T08:30:00+01:60", "2026-13-27T08:30:00Z", "2026-00-27T08:30:00Z",
        "2026-11-31T08:30:00Z", "2026-11-00T08:30:00Z", "2027-02-29T00:00:00Z",
        "2100-02-29T00:00:00Z", "2026-11-27T24:00:00Z", "2026-11-27T08:60:00Z",
        "2026-11-27T08:30:60Z", "1969-12-31T23:59:59Z", "1970-01-01T00:30:00+01:00",
        "2026-1-27T08:30:00Z", "2026-11-27T08:30:00", "2026-", "2026-11-27T08:30:00.123456789",
    };
    CHECK(moment("0") == 0 && moment("1764230400000") == 1764230400 * S);
    CHECK(moment("288230376151711") == 288230376151711000);
    CHECK(moment("1970-01-01T00:00:00Z") == 0);
    CHECK(moment("2026-11-27T08:30:00Z") == 1795768200 * S);
    CHECK(moment("2026-11-27T09:30:00+01:00") == 1795768200 * S);
    CHECK(moment("2026-11-27T00:00:00-08:30") == 1795768200 * S);
    CHECK(moment("2026-11-27T08:30:00.25Z") == 1795768200 * S + 250000);
    CHECK(moment("2026-11-27T08:30:00.1234567Z") == 1795768200 * S + 123456);
    CHECK(moment("2028-02-29T00:00:00Z") == 1835395200 * S);
    CHECK(moment("2000-02-29T12:00:00Z") == 951825600 * S);
    CHECK(moment("9999-12-31T23:59:59Z") == 253402300799 * S);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        CHECK(moment(none[i]) == -1);
}

static int64_t date(const char *text)
{
    const size_t len = strlen(text);
    uint8_t *copy = exact_copy(text, len);
    int64_t us;
    const bool good = date_parse((const char *)copy, len, &us);
    free(copy);
    return good ? us : INT64_MIN;
}

static void test_dates(void)
{
    CHECK(date("1970-01-01T00:00:00Z") == 0 && date("1970-01-01T00:30:00+01:00") == -1800 * S);
    CHECK(date("1969-12-31T23:59:59.999999Z") == -1);
    CHECK(date("1900-02-28T12:00:00Z") == -2203934400 * S);
    CHECK(date("1900-03-01T00:00:00Z") == -2203891200 * S); /* no leap year */
    CHECK(date("0001-01-01T00:00:00Z") == -62135596800 * S);
    CHECK(date("0000-12-31T23:59:59Z") == INT64_MIN && date("1900-02-29T00:00:00Z") == INT64_MIN);
    CHECK(date("0") == INT64_MIN && date("") == INT64_MIN);
    CHECK(date("-001-01-01T00:00:00Z") == INT64_MIN);
}

static void test_every_day(void) /* of 130 years, one after the other */
{
    static const int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int64_t days = 0;
    for (int year = 1970; year < 2101; year++)
        for (int month = 1; month <= 12; month++) {
            const bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            for (int day = 1; day <= lengths[month - 1] + (month == 2 && leap); day++, days++) {
                char text[48];
                snprintf(text, sizeof text, "%04d-%02d-%02dT00:00:00Z", year, month, day);
                CHECK(moment(text) == days * 86400 * S);
            }
        }
}

static void test_spans(void)
{
    static const char *const none[] = {"",   "s",  "ms",  "-1",    "1.5s",  "1 s",
                                       "1S", "1w", "1mss", "1sm", "+1s", "99999999999999999999",
                                       "288230376151711745", "3336000000d"};
    CHECK(span("0") == 0 && span("1500") == 1500000 && span("1500ms") == 1500000);
    CHECK(span("30s") == 30 * S && span("5m") == 300 * S && span("2h") == 7200 * S);
    CHECK(span("1d") == 86400 * S && span("3335999d") == 3335999 * (86400 * S));
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        CHECK(span(none[i]) == -1);
}

int main(void)
{
    test_moments();
    test_dates();
    test_every_day();
    test_spans();
    return 0;
}
