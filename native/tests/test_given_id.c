/* What a client calls its request, and what is no such name. */
#include "http/given_id.h"

#include "codec_testing.h"

#define TRACE "0af7651916cd43dd8448eb211c80319c"
#define PARENT "traceparent: 00-" TRACE "-b7ad6b7169203331-00\r\n"

/* What is found in these fields, or "". */
static const char *found(const char *fields)
{
    static char id[GIVEN_ID_BYTES_MAX + 1];
    char text[2048];
    struct http1_request head;
    struct http1_slice given;
    const int len = snprintf(text, sizeof text, "GET / HTTP/1.1\r\nHost: h\r\n%s\r\n", fields);
    uint8_t *copy = exact_copy(text, (size_t)len);
    CHECK(http1_parse_head((const char *)copy, (size_t)len, 0, &head) == len);
    id[0] = 0;
    if (given_id_find(&head, &given)) {
        CHECK(given.len > 0 && given.len <= GIVEN_ID_BYTES_MAX);
        snprintf(id, sizeof id, "%.*s", (int)given.len, given.p);
    }
    free(copy);
    return id;
}

static bool is_found(const char *fields, const char *id) { return strcmp(found(fields), id) == 0; }

static void test_letters(void)
{
    for (int c = 0; c < 256; c++) {
        const char text[] = {'a', (char)c, 'b'};
        const bool good = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                          (c >= 'A' && c <= 'Z') || (c > 0 && strchr("._~+/=:@-", c) != NULL);
        CHECK(given_id_valid(text, sizeof text) == good);
    }
    char longest[GIVEN_ID_BYTES_MAX + 1];
    memset(longest, 'x', sizeof longest);
    CHECK(given_id_valid(longest, sizeof longest - 1) && !given_id_valid(longest, sizeof longest));
    CHECK(!given_id_valid(longest, 0));
}

int main(void)
{
    test_letters();
    CHECK(is_found("", "") && is_found("X-Request-Ie: a\r\n", ""));
    CHECK(is_found("x-rEquest-ID: Root=1-67/a+b:c@d~e_f.g\r\n", "Root=1-67/a+b:c@d~e_f.g"));
    CHECK(is_found("X-Request-Id:\r\n", "") && is_found("X-Request-Id: a b\r\n", ""));
    CHECK(is_found("X-Request-Id: a\r\nx-request-id: a\r\n", "")); /* which one? */
    CHECK(is_found(PARENT, TRACE) && is_found(PARENT PARENT, ""));
    CHECK(is_found("traceparent: 00-" TRACE "-b7ad6b7169203331\r\n", ""));
    CHECK(is_found(PARENT "X-Request-Id: own\r\n", "own"));
    CHECK(is_found("X-Request-Id: \"\r\n" PARENT, TRACE));
    CHECK(is_found("X-Request-Id: a\r\nX-Request-Id: b\r\n" PARENT, TRACE));
    return 0;
}
