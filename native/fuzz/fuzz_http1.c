/* Fuzzes the HTTP/1 parser. Whatever the bytes: no crash, no read past the end, nothing consumed
 * that was not there, and the same verdict however they are cut. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/http1_testing.h"
#include "http/uri.h"

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

#define BODY_BYTES_MAX 4096

/* A copy of exactly len bytes, so that AddressSanitizer sees the first byte too many. */
static char *copy_of(const uint8_t *data, size_t len)
{
    char *copy = malloc(len > 0 ? len : 1);
    REQUIRE(copy != NULL);
    return len > 0 ? memcpy(copy, data, len) : copy;
}

/* The length of the next piece: 1, or something up to 64 that follows from the bytes. */
static size_t piece(uint32_t *random, size_t left)
{
    if (*random == 0)
        return 1;
    *random = *random * 1664525u + 1013904223u;
    if (*random == 0)
        *random = 1;
    size_t n = 1 + (*random >> 26);
    return n < left ? n : left;
}

static uint32_t hash_of(const uint8_t *data, size_t len)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ data[i]) * 16777619u;
    return hash | 1;
}

static void require_same(const struct http1_slice *a, const struct http1_slice *b)
{
    REQUIRE(a->len == b->len && (a->p == NULL) == (b->p == NULL));
    REQUIRE(a->len == 0 || memcmp(a->p, b->p, a->len) == 0);
}

static void require_within(const struct http1_slice *s, const char *start, size_t len)
{
    REQUIRE(s->p == NULL || (s->p >= start && s->p + s->len <= start + len));
}

static void require_same_request(const struct http1_request *a, const struct http1_request *b)
{
    REQUIRE(a->method == b->method && a->minor == b->minor && a->keep_alive == b->keep_alive);
    REQUIRE(a->chunked == b->chunked && a->expect_continue == b->expect_continue);
    REQUIRE(a->header_count == b->header_count && a->content_length == b->content_length);
    require_same(&a->method_text, &b->method_text);
    require_same(&a->path, &b->path);
    require_same(&a->query, &b->query);
    for (uint16_t i = 0; i < a->header_count; i++) {
        require_same(&a->headers[i].name, &b->headers[i].name);
        require_same(&a->headers[i].value, &b->headers[i].value);
    }
}

/* What the parser promises about a request that it accepts. */
static void require_sound(const struct http1_request *r, const char *head, size_t len)
{
    REQUIRE(len <= HTTP1_HEAD_BYTES_MAX && memcmp(head + len - 2, "\r\n", 2) == 0);
    REQUIRE(!(r->chunked && r->content_length >= 0) && !(r->chunked && r->minor == 0));
    REQUIRE(r->content_length >= -1 && r->header_count <= HTTP1_HEADERS_MAX);
    REQUIRE(r->path.len > 0 && (r->path.p[0] == '/' || r->method == HTTP1_OPTIONS));
    REQUIRE(r->minor == 0 || header_get(r, "host") != NULL);
    require_within(&r->method_text, head, len);
    require_within(&r->path, head, len);
    require_within(&r->query, head, len);
    for (uint16_t i = 0; i < r->header_count; i++) {
        require_within(&r->headers[i].name, head, len);
        require_within(&r->headers[i].value, head, len);
        REQUIRE(r->headers[i].name.len > 0);
    }
}

/* Feeds the head in pieces, each time a fresh buffer of exactly the bytes so far. */
static void check_head_pieces(const uint8_t *data, size_t len, uint32_t random,
                              const struct http1_request *whole, int verdict)
{
    static struct http1_request r;
    size_t fed = 0, last = 0;
    int got = HTTP1_PARTIAL;
    while (got == HTTP1_PARTIAL && fed < len) {
        fed += piece(&random, len - fed);
        char *buf = copy_of(data, fed);
        got = http1_parse_head(buf, fed, last, &r);
        REQUIRE(got <= (int)fed);
        if (got > 0)
            require_same_request(whole, &r);
        free(buf);
        last = fed;
    }
    REQUIRE(got == verdict);
    if (got == HTTP1_ERROR) {
        REQUIRE(r.error_status == whole->error_status);
        REQUIRE(r.error_reason == whole->error_reason);
    }
}

static void check_uri(const struct http1_request *r)
{
    char out[64];
    struct http1_slice value;
    for (int plus = 0; plus <= 1; plus++) {
        int n = uri_decode(r->path.p, r->path.len, plus != 0, out, sizeof(out));
        REQUIRE(n >= -3 && n <= (int)sizeof(out) && n <= (int)r->path.len);
        if (n >= 0)
            topic_name_valid(out, (size_t)n);
    }
    if (r->query.p != NULL && uri_query_get(r->query.p, r->query.len, "partitionKey", &value) == 1)
        require_within(&value, r->query.p, r->query.len);
}

static void check_chunked(const uint8_t *data, size_t len, uint32_t random)
{
    static char out[1 << 20], again[1 << 20];
    if (len > sizeof(out))
        return;
    struct http1_chunked d;
    char *in = copy_of(data, len);
    size_t used, made, n, m, fed = 0, written = 0;
    http1_chunked_init(&d, BODY_BYTES_MAX);
    int verdict = http1_chunked_feed(&d, in, len, &used, out, sizeof(out), &made);
    REQUIRE(verdict == 1 || verdict == 0 || verdict == -1 || verdict == -3);
    REQUIRE(used <= len && made <= used && made <= BODY_BYTES_MAX);
    REQUIRE(verdict != 0 || used == len);

    http1_chunked_init(&d, BODY_BYTES_MAX);
    int got = 0;
    while (fed < len && (got == 0 || got == -4)) {
        /* The output is small at times, too. */
        size_t room = random == 0 ? 1 : random & 15;
        if (room > sizeof(again) - written)
            room = sizeof(again) - written;
        got = http1_chunked_feed(&d, in + fed, piece(&random, len - fed), &n, again + written,
                                 room, &m);
        REQUIRE(m <= room);
        fed += n;
        written += m;
    }
    REQUIRE((got == -4 ? 0 : got) == verdict && fed == used && written == made);
    REQUIRE(memcmp(out, again, made) == 0);

    http1_chunked_init(&d, BODY_BYTES_MAX);
    REQUIRE(http1_chunked_feed(&d, in, len, &n, in, len, &m) == verdict);
    REQUIRE(n == used && m == made && memcmp(in, out, made) == 0);
    free(in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct http1_request request;
    char *buf = copy_of(data, len);
    int verdict = http1_parse_head(buf, len, 0, &request);
    REQUIRE(verdict == HTTP1_ERROR || verdict == HTTP1_PARTIAL ||
            (verdict > 0 && (size_t)verdict <= len));
    if (verdict == HTTP1_ERROR)
        REQUIRE(request.error_status >= 400 && request.error_reason != NULL);
    if (verdict > 0) {
        require_sound(&request, buf, (size_t)verdict);
        check_uri(&request);
    }
    uint32_t random = hash_of(data, len);
    if (len <= 4096) /* Quadratic: every prefix is copied. */
        check_head_pieces(data, len, 0, &request, verdict);
    check_head_pieces(data, len, random, &request, verdict);
    size_t head = verdict > 0 ? (size_t)verdict : 0;
    if (verdict <= 0 || request.chunked) {
        check_chunked(data + head, len - head, 0);
        check_chunked(data + head, len - head, random);
    }
    free(buf);
    return 0;
}
