/* Which texts say what trace a request is a part of. */
#include "http/traceparent.h"

#include "codec_testing.h"

#define TRACE "0af7651916cd43dd8448eb211c80319c"
#define PARENT "b7ad6b7169203331"

static bool is_valid(const char *text)
{
    const size_t len = strlen(text);
    uint8_t *copy = exact_copy(text, len);
    const bool valid = traceparent_valid((const char *)copy, len);
    free(copy);
    return valid;
}

static void test_what_is_read(void)
{
    uint8_t trace[16], parent[8];
    const char *const text = "00-" TRACE "-" PARENT "-01";
    CHECK(traceparent_read(text, trace, parent));
    for (size_t i = 0; i < 24; i++) {
        char two[3];
        const size_t at = i < 16 ? 3 + 2 * i : 36 + 2 * (i - 16);
        snprintf(two, sizeof two, "%02x", i < 16 ? trace[i] : parent[i - 16]);
        CHECK(memcmp(two, text + at, 2) == 0);
    }
    CHECK(!traceparent_read("00-" TRACE "-" PARENT "-00", trace, parent));
    CHECK(!traceparent_read("00-" TRACE "-" PARENT "-02", trace, parent));
    CHECK(traceparent_read("00-" TRACE "-" PARENT "-ff", trace, parent));
}

int main(void)
{
    test_what_is_read();
    const char *const good = "00-" TRACE "-" PARENT "-01";
    CHECK(is_valid(good) && is_valid("00-" TRACE "-" PARENT "-00"));
    CHECK(is_valid("cc-" TRACE "-" PARENT "-01") && is_valid("cc-" TRACE "-" PARENT "-01-more"));
    CHECK(!is_valid("cc-" TRACE "-" PARENT "-01.more")); /* more begins with a dash */
    CHECK(!is_valid("00-" TRACE "-" PARENT "-01-more")); /* version 0 has no more */
    CHECK(!is_valid("ff-" TRACE "-" PARENT "-01"));
    CHECK(!is_valid("00-00000000000000000000000000000000-" PARENT "-01"));
    CHECK(!is_valid("00-" TRACE "-0000000000000000-01"));
    CHECK(!is_valid("") && !is_valid("00"));
    for (size_t i = 0; i < strlen(good); i++) { /* each of its characters counts */
        char text[64];
        strcpy(text, good);
        text[i] = text[i] == '-' ? '0' : 'G';
        CHECK(!is_valid(text));
        text[i] = 'A'; /* lower case only */
        CHECK(!is_valid(text));
        strcpy(text, good);
        text[i] = 0;
        CHECK(!is_valid(text));
    }
    char longest[160] = "cc-" TRACE "-" PARENT "-01-";
    memset(longest + strlen(longest), 'x', 128 - strlen(longest));
    CHECK(strlen(longest) == 128 && is_valid(longest));
    longest[128] = 'x';
    CHECK(!is_valid(longest));
    return 0;
}
