/* Each request is parsed at the end of a mapped page, so that reading one byte too far faults, and
 * again byte by byte, which has to give the same verdict. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/http1_testing.h"
#include "http/uri.h"

static int failures;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            failures++;                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
        }                                                                                          \
    } while (0)

#define ARENA_BYTES (64 * 1024)

/* A copy of the bytes that ends where the mapping ends. */
static char *at_page_end(const char *bytes, size_t len)
{
    static char *end;
    if (end == NULL) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        char *map = mmap(NULL, ARENA_BYTES + page, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (map == MAP_FAILED || mprotect(map + ARENA_BYTES, page, PROT_NONE) != 0)
            abort();
        end = map + ARENA_BYTES;
    }
    if (len > ARENA_BYTES)
        abort();
    return len == 0 ? end : memcpy(end - len, bytes, len);
}

static struct http1_request request;

/* Parses the bytes whole, and in pieces of 1 and 7 bytes with last_len; all have to agree. */
static int parse(const char *bytes, size_t len)
{
    static struct http1_request other;
    for (size_t step = 1; step <= 7; step += 6) {
        char *end = at_page_end(bytes, len) + len;
        int verdict = HTTP1_PARTIAL;
        size_t fed = 0, last = 0;
        while (verdict == HTTP1_PARTIAL && fed < len) {
            fed = fed + step < len ? fed + step : len;
            verdict = http1_parse_head(memmove(end - fed, bytes, fed), fed, last, &other);
            last = fed;
        }
        int whole = http1_parse_head(at_page_end(bytes, len), len, 0, &request);
        CHECK(verdict == whole);
        if (whole == HTTP1_ERROR) {
            CHECK(request.error_status == other.error_status);
            CHECK(request.error_reason == other.error_reason);
        } else if (whole > 0) {
            CHECK(step > 1 || (size_t)whole == fed);
            CHECK(request.header_count == other.header_count);
            CHECK(request.content_length == other.content_length);
            CHECK(request.chunked == other.chunked && request.keep_alive == other.keep_alive);
            CHECK(request.path.len == other.path.len && request.query.len == other.query.len);
        }
    }
    return http1_parse_head(at_page_end(bytes, len), len, 0, &request);
}

#define PARSE(text) parse(text, sizeof(text) - 1)
#define EQUALS(slice, text)                                                                        \
    ((slice).len == sizeof(text) - 1 && memcmp((slice).p, text, sizeof(text) - 1) == 0)

static void refused(int line, const char *bytes, size_t len, int status)
{
    int verdict = parse(bytes, len);
    if (verdict == HTTP1_ERROR && request.error_status == status && request.error_reason[0])
        return;
    failures++;
    fprintf(stderr, "%s:%d: verdict %d, status %d, wanted %d for %.60s\n", __FILE__, line, verdict,
            verdict == HTTP1_ERROR ? request.error_status : 0, status, bytes);
}

#define REFUSED(text, status) refused(__LINE__, text, sizeof(text) - 1, status)
#define HEAD "GET / HTTP/1.1\r\nHost: h\r\n"
#define REFUSED_HEADER(text, status) REFUSED(HEAD text "\r\n\r\n", status)

static void test_request(void)
{
    const char text[] = "POST /topics/a%20b?partitionKey=x&y= HTTP/1.1\r\nHost: localhost:8080\r\n"
                        "Content-Length: 1024\r\n"
                        "X-Long: 0123456789012345678901234567890123456789\r\n"
                        "eMPTY:\r\nX-Obs:\t caf\xe9 \t\r\n\r\nbody";
    CHECK(parse(text, sizeof(text) - 1) == (int)sizeof(text) - 5);
    CHECK(request.method == HTTP1_POST && request.minor == 1 && request.keep_alive);
    CHECK(EQUALS(request.method_text, "POST") && EQUALS(request.path, "/topics/a%20b"));
    CHECK(EQUALS(request.query, "partitionKey=x&y="));
    CHECK(request.content_length == 1024 && !request.chunked && !request.expect_continue);
    CHECK(request.header_count == 5 && request.error_status == 0);
    CHECK(EQUALS(*header_get(&request, "x-obs"), "caf\xe9"));
    CHECK(EQUALS(*header_get(&request, "empty"), ""));
    CHECK(header_get(&request, "absent") == NULL);
    for (size_t len = 0; len < sizeof(text) - 5; len++)
        CHECK(parse(text, len) == HTTP1_PARTIAL);
}

static void test_methods_and_targets(void)
{
    static const char *const names[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"};
    char text[64];
    for (int i = 0; i < 7; i++) {
        int n = snprintf(text, sizeof(text), "%s /x HTTP/1.1\r\nHost: h\r\n\r\n", names[i]);
        CHECK(parse(text, (size_t)n) == n && request.method == HTTP1_GET + i);
    }
    CHECK(PARSE("get / HTTP/1.1\r\nHost: h\r\n\r\n") > 0 && request.method == HTTP1_OTHER);
    CHECK(PARSE("TRACE / HTTP/1.1\r\nHost: h\r\n\r\n") > 0 && request.method == HTTP1_OTHER);
    CHECK(PARSE("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n") > 0 && EQUALS(request.path, "*"));
    CHECK(PARSE("GET HTTP://h:1/p?q HTTP/1.1\r\nHost: h\r\n\r\n") > 0);
    CHECK(EQUALS(request.path, "/p") && EQUALS(request.query, "q"));
    CHECK(PARSE("GET https://h?q HTTP/1.1\r\nHost: h\r\n\r\n") > 0 && EQUALS(request.path, "/"));
    CHECK(PARSE("GET /? HTTP/1.1\r\nHost: h\r\n\r\n") > 0 && request.query.p && !request.query.len);
    CHECK(PARSE("GET / HTTP/1.1\r\nHost: h\r\n\r\n") > 0 && !request.query.p);
    REFUSED("GET * HTTP/1.1\r\n", 400);
    REFUSED("GET ?q HTTP/1.1\r\n", 400);
    REFUSED("GET http:///p HTTP/1.1\r\n", 400);
    REFUSED("GET http://u@h/p HTTP/1.1\r\n", 400);
    REFUSED("GET ftp://h/ HTTP/1.1\r\n", 400);
    REFUSED("GET /#f HTTP/1.1\r\n", 400);
    REFUSED("GET /\xc3\xa9 HTTP/1.1\r\n", 400);
    REFUSED("GET /?\x80 HTTP/1.1\r\n", 400);
    REFUSED("GET /a\tb HTTP/1.1\r\n", 400);
    REFUSED("GET  / HTTP/1.1\r\n", 400);
    REFUSED("GET\t/ HTTP/1.1\r\n", 400);
    REFUSED("CONNECT h:1 HTTP/1.1\r\n", 501);
}

static void test_versions(void)
{
    CHECK(PARSE("GET / HTTP/1.0\r\n\r\n") > 0 && request.minor == 0 && !request.keep_alive);
    CHECK(PARSE("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n") > 0 && request.keep_alive);
    CHECK(PARSE("GET / HTTP/1.0\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n") > 0);
    CHECK(!request.keep_alive);
    CHECK(PARSE(HEAD "Connection: x, Close ,y\r\n\r\n") > 0 && !request.keep_alive);
    CHECK(PARSE(HEAD "Connection: closed\r\n\r\n") > 0 && request.keep_alive);
    REFUSED("GET / HTTP/0.9\r\n", 505);
    REFUSED("GET / HTTP/1.2\r\n", 505);
    REFUSED("GET / HTTP/9.9\r\n", 505);
    REFUSED("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505);
    REFUSED("GET /\r\n", 400);
    REFUSED("GET / HTTP/1\xc3\xb6" "1\r\n", 400);
    REFUSED("GET / http/1.1\r\n", 400);
    REFUSED("GET / HTTP/1.1 \r\n", 400);
    REFUSED("GET / HTTP/1.10\r\n", 400);
    REFUSED("GET / HTTP/1.1\n", 400);
    REFUSED("GET / HTTP/1.1\r\r\n", 400);
    REFUSED("\r\nGET / HTTP/1.1\r\n", 400);
    REFUSED(" GET / HTTP/1.1\r\n", 400);
    REFUSED("\x16\x03\x01", 400);
}

static void test_framing(void)
{
    CHECK(PARSE(HEAD "content-LENGTH:\t0009223372036\r\n\r\n") > 0);
    CHECK(request.content_length == 9223372036LL);
    CHECK(PARSE(HEAD "Content-Length: 9223372036854775807\r\n\r\n") > 0);
    CHECK(request.content_length == INT64_MAX);
    CHECK(PARSE(HEAD "TRANSFER-encoding: CHUNKED \r\n\r\n") > 0 && request.chunked);
    CHECK(request.content_length == -1);
    static const char *const lengths[] = {"", "+5", "-1", "0x5", "5_0", "5 0", "5,5", "5, 6",
        "5.0", "\xd9\xa5", "9223372036854775808", "18446744073709551616",
        "1000000000000000000000000000000", "00000000000000000005"};
    char text[256];
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        int n = snprintf(text, sizeof(text), HEAD "Content-Length: %s\r\n\r\n", lengths[i]);
        refused(__LINE__, text, (size_t)n, 400);
    }
    static const char *const codings[] = {"", "xchunked", "chunkedx", "chunked, identity",
        "identity, chunked", "chunked, chunked", "chunked,", ",chunked", "\"chunked\"",
        "Chunked\x0b", "chunked\t", "chunked;q=1", "gzip", "chunked gzip"};
    for (size_t i = 0; i < sizeof(codings) / sizeof(codings[0]); i++) {
        int n = snprintf(text, sizeof(text), HEAD "Transfer-Encoding: %s\r\n\r\n", codings[i]);
        refused(__LINE__, text, (size_t)n, 400);
    }
    REFUSED_HEADER("Transfer-Encoding: gzip, chunked", 501);
    REFUSED_HEADER("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 400);
    REFUSED_HEADER("Content-Length: 5\r\nContent-Length: 5", 400);
    REFUSED_HEADER("Content-Length: 5\r\nTransfer-Encoding: chunked", 400);
    REFUSED_HEADER("Transfer-Encoding: chunked\r\nContent-Length: 5", 400);
    REFUSED("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400);
}

static void test_headers(void)
{
    REFUSED("GET / HTTP/1.1\r\n\r\n", 400);
    REFUSED_HEADER("hOST: h", 400);
    REFUSED("GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", 400);
    REFUSED("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400);
    REFUSED("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 400);
    CHECK(PARSE("GET / HTTP/1.1\r\nHost:\r\n\r\n") > 0);
    CHECK(PARSE("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n") > 0);
    REFUSED_HEADER("a b: c", 400);
    REFUSED_HEADER("a : c", 400);
    REFUSED_HEADER(": c", 400);
    REFUSED_HEADER("a", 400);
    REFUSED_HEADER(" a: folded", 400);
    REFUSED_HEADER("b: c\r\n\tfolded", 400);
    REFUSED_HEADER("b: c\nd: e", 400);
    REFUSED_HEADER("b: c\rd: e", 400);
    REFUSED_HEADER("b: c\r\r", 400);
    REFUSED_HEADER("b: \0", 400);
    REFUSED_HEADER("b\0: c", 400);
    REFUSED_HEADER("b\x80: c", 400);
    REFUSED_HEADER("b: \x7f", 400);
    REFUSED_HEADER("b: \x01", 400);
    CHECK(PARSE(HEAD "b: a\tb\x80\xff\r\n\r\n") > 0);
    CHECK(PARSE(HEAD "Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n") > 0);
    CHECK(request.keep_alive);
    CHECK(PARSE(HEAD "Expect: 100-Continue\r\nContent-Length: 1\r\n\r\n") > 0);
    CHECK(request.expect_continue);
    CHECK(PARSE(HEAD "Expect: 100-continue\r\n\r\n") > 0 && !request.expect_continue);
    CHECK(PARSE("GET / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n") > 0);
    CHECK(!request.expect_continue);
    REFUSED_HEADER("Expect: 200-ok", 417);
    REFUSED_HEADER("Expect:", 417);
    REFUSED_HEADER("Expect: 100-continue, 100-continue", 417);
    REFUSED_HEADER("Expect: 100-continue\r\nExpect: 100-continue", 417);
}

/* Every byte in every place of a short line: the tables against what RFC 9110 writes. */
static void test_every_byte(void)
{
    for (int c = 0; c < 256; c++) {
        bool token = c < 0x80 && c > 0x20 && c != 0x7f && !strchr("()<>@,;:\\\"/[]?={}", c);
        bool visible = c > 0x20 && c < 0x7f;
        for (int pad = 0; pad <= 20; pad += 20) { /* In the wide loop and in its tail. */
            char text[160];
            int n = snprintf(text, sizeof(text), HEAD "n%c%.*s: v\r\n\r\n", c ? c : '!', pad,
                             "aaaaaaaaaaaaaaaaaaaa");
            text[sizeof(HEAD)] = (char)c;
            CHECK((parse(text, (size_t)n) > 0) == (token || c == ':'));
            n = snprintf(text, sizeof(text), HEAD "n: v%c%.*s\r\n\r\n", c ? c : '!', pad,
                         "aaaaaaaaaaaaaaaaaaaa");
            text[sizeof(HEAD) + 3] = (char)c;
            CHECK((parse(text, (size_t)n) > 0) == ((c >= ' ' && c != 0x7f) || c == '\t'));
            n = snprintf(text, sizeof(text), "GET /p%c%.*s HTTP/1.0\r\n\r\n", c ? c : '!', pad,
                         "aaaaaaaaaaaaaaaaaaaa");
            text[6] = (char)c;
            CHECK((parse(text, (size_t)n) > 0) == (visible && c != '#'));
            CHECK(c != '?' || request.query.p != NULL);
        }
    }
}

static void fill(char *text, size_t len, const char *start, char with)
{
    memset(text, with, len);
    memcpy(text, start, strlen(start));
}

static void test_limits(void)
{
    static char text[ARENA_BYTES];
    /* A request line of exactly 16 KiB, and one byte more. */
    const char *tail = " HTTP/1.0\r\n\r\n";
    for (size_t line = 16384; line <= 16385; line++) {
        fill(text, line - 11, "GET /", 'a');
        memcpy(text + line - 11, tail, strlen(tail));
        if (line == 16384)
            CHECK(parse(text, line + 2) == (int)line + 2);
        else
            refused(__LINE__, text, line + 2, 414);
    }
    fill(text, ARENA_BYTES, "GET /", 'a');
    CHECK(parse(text, 16383) == HTTP1_PARTIAL);
    refused(__LINE__, text, 16384, 414);
    refused(__LINE__, text, ARENA_BYTES, 414);
    fill(text, ARENA_BYTES, "A", 'A'); /* A method without an end. */
    refused(__LINE__, text, ARENA_BYTES, 414);
    /* A head of exactly 32 KiB, and one byte more. */
    const char *start = "GET / HTTP/1.0\r\na: ";
    for (size_t head = 32768; head <= 32769; head++) {
        fill(text, head, start, 'a');
        memcpy(text + head - 4, "\r\n\r\n", 4);
        if (head == 32768)
            CHECK(parse(text, head) == (int)head);
        else
            refused(__LINE__, text, head, 431);
    }
    fill(text, ARENA_BYTES, start, 'a');
    CHECK(parse(text, 32767) == HTTP1_PARTIAL);
    refused(__LINE__, text, 32768, 431);
    /* An error in a line that is never completed is the limit's. */
    fill(text, ARENA_BYTES, start, '\0');
    refused(__LINE__, text, ARENA_BYTES, 431);
    /* 64 headers, and 65. */
    for (int count = 64; count <= 65; count++) {
        size_t n = (size_t)sprintf(text, "GET / HTTP/1.0\r\n");
        for (int i = 0; i < count; i++)
            n += (size_t)sprintf(text + n, "a:\r\n");
        n += (size_t)sprintf(text + n, "\r\n");
        if (count == 64)
            CHECK(parse(text, n) == (int)n && request.header_count == 64);
        else
            refused(__LINE__, text, n, 431);
    }
}

/* Decodes whole, byte by byte, and in place; all have to agree. */
static int decode(const char *bytes, size_t len, uint64_t max, size_t *used, char *out,
                  size_t *made)
{
    struct http1_chunked d;
    http1_chunked_init(&d, max);
    char *in = at_page_end(bytes, len);
    int verdict = http1_chunked_feed(&d, in, len, used, out, ARENA_BYTES, made);
    if (verdict < 0)
        CHECK(http1_chunked_feed(&d, "0", 1, &(size_t){0}, out, 1, &(size_t){0}) == verdict);
    static char piecewise[ARENA_BYTES];
    size_t total = 0, i = 0, n, m;
    int again = 0;
    http1_chunked_init(&d, max);
    for (; again == 0 && i < len; i += n) {
        again = http1_chunked_feed(&d, in + i, 1, &n, piecewise + total, 1, &m);
        total += m;
    }
    CHECK(again == verdict && i == *used && total == *made && !memcmp(piecewise, out, total));
    http1_chunked_init(&d, max);
    CHECK(http1_chunked_feed(&d, in, len, &n, in, len, &m) == verdict);
    CHECK(n == *used && m == *made && memcmp(in, out, m) == 0);
    return verdict;
}

static void chunked(int line, const char *bytes, size_t len, int verdict, const char *body)
{
    static char out[ARENA_BYTES];
    size_t used, made;
    int got = decode(bytes, len, 1000, &used, out, &made);
    if (got == verdict && used <= len && made <= used &&
        (body == NULL || (made == strlen(body) && memcmp(out, body, made) == 0)))
        return;
    failures++;
    fprintf(stderr, "%s:%d: verdict %d, body %.*s\n", __FILE__, line, got, (int)made, out);
}

#define CHUNKED(text, verdict, body) chunked(__LINE__, text, sizeof(text) - 1, verdict, body)

static void test_chunked(void)
{
    CHUNKED("5\r\nhello\r\n6\r\n world\r\n0\r\n\r\nGET", 1, "hello world");
    CHUNKED("0\r\n\r\n", 1, "");
    CHUNKED("00a;x\r\n0123456789\r\n000\r\n\r\n", 1, "0123456789");
    CHUNKED("1;a=b;c=\"d\\\"e;\r\"\r\nx\r\n0\r\n\r\n", -1, "");
    CHUNKED("1;a=b;c=\"d\\\"e;\"\r\nx\r\n0;z\r\nT: v\r\nU:\xff\r\n\r\n", 1, "x");
    CHUNKED("5\r\nhel", 0, "hel");
    CHUNKED("3e8\r\n", 0, "");
    CHUNKED("3e9\r\n", -3, "");
    CHUNKED("3e8\r\nx", 0, "x");
    CHUNKED("ffffffffffffffff\r\n", -3, "");
    CHUNKED("10000000000000000\r\n", -1, "");
    CHUNKED("00000000000000001\r\n", -1, "");
    static const char *const bad[] = {"\r\n", "-1\r\n", "+1\r\n", "0x1\r\n", "g\r\n", " 1\r\n",
        "1 \r\n", "1\n", "1\r\r", "1;\r\n", "1;a\nb\r\n", "1;=b\r\n", "1;a=\r\n", "1;a b\r\n",
        "1;a=\"b\"c\r\n", "1\r\nxx", "1\r\nx\n", "1\r\nx\r0", "0\r\n\n", "0\r\na\r\n",
        "0\r\n:b\r\n",
        "0\r\n a: b\r\n", "0\r\na: b\n", "0\r\na: b\r\r", "0\r\n\rx", "0\r\na\x80:b\r\n",
        "0\r\na: \x01\r\n", "0\r\nContent-Length: 5\r\n", "0\r\ntransfer-encoding: chunked\r\n",
        "0\r\nHOST: x\r\n", "0\r\nConnection: close\r\n"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        chunked(__LINE__, bad[i], strlen(bad[i]), -1, NULL);
    CHUNKED("0\r\n1234567890123456789012345: long name\r\n\r\n", 1, "");
    CHUNKED("0\r\na: \0\r\n", -1, "");
}

static void test_chunked_limits(void)
{
    static char text[ARENA_BYTES];
    /* 4 KiB of extensions, then one byte more, in one chunk and spread over many. */
    fill(text, 2 + 4096, "0;", 'a');
    memcpy(text + 2 + 4096, "\r\n\r\n", 4);
    chunked(__LINE__, text, 2 + 4096 + 4, -1, "");
    memcpy(text + 2 + 4095, "\r\n\r\n", 4); /* The CR counts. */
    chunked(__LINE__, text, 2 + 4095 + 4, 1, "");
    size_t n = 0;
    while (n + 16 < ARENA_BYTES && n < 16 * 900)
        n += (size_t)sprintf(text + n, "1;abcdef\r\nx\r\n");
    chunked(__LINE__, text, n, -1, NULL);
    n = (size_t)sprintf(text, "0\r\n");
    while (n < ARENA_BYTES - 8)
        n += (size_t)sprintf(text + n, "a:b\r\n");
    chunked(__LINE__, text, n, -1, "");
    chunked(__LINE__, text, 3 + 8190, 0, "");
    /* A full output is no error: the rest can be fed again. */
    struct http1_chunked d;
    char out[2];
    size_t used, made;
    http1_chunked_init(&d, 10);
    CHECK(http1_chunked_feed(&d, "3\r\nabc\r\n0\r\n\r\n", 13, &used, out, 2, &made) == -4);
    CHECK(used == 5 && made == 2 && memcmp(out, "ab", 2) == 0);
    CHECK(http1_chunked_feed(&d, "c\r\n0\r\n\r\n", 8, &used, out, 2, &made) == 1);
    CHECK(used == 8 && made == 1 && out[0] == 'c');
    CHECK(http1_chunked_feed(&d, "GET", 3, &used, out, 2, &made) == 1 && used == 0 && made == 0);
}

static int uri(const char *in, bool plus, char *out, size_t cap)
{
    size_t len = strlen(in);
    return uri_decode(at_page_end(in, len), len, plus, out, cap);
}

static void test_uri(void)
{
    char out[32];
    CHECK(uri("a%20b+%7e%FF", false, out, 32) == 6 && memcmp(out, "a b+~\xff", 6) == 0);
    CHECK(uri("a+b%2B", true, out, 32) == 4 && memcmp(out, "a b+", 4) == 0);
    CHECK(uri("%00", false, out, 1) == 1 && out[0] == 0);
    CHECK(uri("", false, out, 0) == 0 && uri("ab", false, out, 1) == -3);
    CHECK(uri("%", false, out, 32) == -1 && uri("a%2", false, out, 32) == -1);
    CHECK(uri("%g0", false, out, 32) == -1 && uri("%0g", false, out, 32) == -1);
    CHECK(uri("%%41", false, out, 32) == -1 && uri("%u0041", false, out, 32) == -1);
    struct http1_slice v;
    const char q[] = "a=1&partition%4bey=x%20y&b&c==&&d=";
    CHECK(uri_query_get(q, sizeof(q) - 1, "partitionKey", &v) == 1 && EQUALS(v, "x%20y"));
    CHECK(uri_query_get(q, sizeof(q) - 1, "b", &v) == 1 && v.len == 0 && v.p != NULL);
    CHECK(uri_query_get(q, sizeof(q) - 1, "c", &v) == 1 && EQUALS(v, "="));
    CHECK(uri_query_get(q, sizeof(q) - 1, "d", &v) == 1 && v.len == 0);
    CHECK(uri_query_get(q, sizeof(q) - 1, "partition", &v) == 0 && v.p == NULL);
    CHECK(uri_query_get("k=1&%6B=2", 9, "k", &v) == -1);
    CHECK(uri_query_get("%6=1&%zz=2", 10, "k", &v) == 0);
    CHECK(uri_query_get("", 0, "k", &v) == 0);
    const char *const names[] = {"a", "partitionKey", "b", NULL};
    const char all[] = "a=1&partition%4bey=x&&=y&b";
    struct http1_slice raw;
    CHECK(!uri_query_unknown(all, sizeof(all) - 1, names, &raw));
    CHECK(!uri_query_unknown("", 0, names, &raw) && uri_query_unknown("A", 1, names, &raw));
    CHECK(uri_query_unknown("a=1&ab=2", 8, names, &raw));
    CHECK(raw.len == 2 && memcmp(raw.p, "ab", 2) == 0);
    CHECK(uri_query_unknown("partitionKe=1", 13, names, &raw));
    CHECK(uri_query_unknown("a=&%=1", 6, names, &raw) && raw.len == 1 && *raw.p == '%');
    char name[129];
    memset(name, 'a', sizeof(name));
    for (size_t len = 0; len <= 129; len++)
        CHECK(topic_name_valid(at_page_end(name, len), len) == (len >= 1 && len <= 127));
    CHECK(!topic_name_valid(".", 1) && !topic_name_valid("..", 2) && topic_name_valid("...", 3));
    CHECK(topic_name_valid("__offsets", 9) && topic_name_valid("aZ09_.-", 7));
    for (int c = 0; c < 256; c++) {
        bool good = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                    c == '_' || c == '-' || c == '.';
        name[18] = (char)c;
        CHECK(topic_name_valid(name, 20) == good && topic_name_valid(name + 17, 3) == good);
    }
}

int main(void)
{
    test_request();
    test_methods_and_targets();
    test_versions();
    test_framing();
    test_headers();
    test_every_byte();
    test_limits();
    test_chunked();
    test_chunked_limits();
    test_uri();
    if (failures)
        fprintf(stderr, "%d checks failed\n", failures);
    return failures != 0;
}
