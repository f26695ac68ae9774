/* What is pushed to Loki, samples of Prometheus, and what Snappy packs. */
#include "format/loki.h"
#include "format/protobuf.h"
#include "format/remote_write.h"
#include "http/snappy.h"

#include "shipped_testing.h"

static int is_text(const uint8_t *p, uint32_t len, const char *text)
{
    return len == strlen(text) && memcmp(p, text, len) == 0;
}

static void is_event(const struct result *r, uint32_t at, const char *value, const char *key,
                     int64_t time_us)
{
    CHECK(r->flaw == SHIPPED_FINE && at < r->s.count);
    const struct shipped_event *event = &r->s.events[at];
    if (!is_text(event->value, event->value_len, value)) {
        fprintf(stderr, "%.*s is not %s\n", (int)event->value_len, event->value, value);
        exit(1);
    }
    CHECK(is_text(event->key, event->key_len, key) && event->time_us == time_us);
}

static void has_header(const struct result *r, uint32_t at, uint32_t number, const char *name,
                       const char *value)
{
    const uint8_t *headers = r->s.events[at].headers;
    CHECK(headers_valid(headers, r->s.events[at].headers_len));
    CHECK(headers_begin(&headers) > number);
    struct header header = headers_next(&headers);
    for (; number > 0; number--)
        header = headers_next(&headers);
    CHECK(is_text(header.name, header.name_len, name));
    CHECK(is_text(header.value, header.value_len, value));
}

static void cut_off(reader read, const uint8_t *bytes, size_t len)
{
    for (size_t less = 1; less < len; less++) {
        struct result r = read_bytes(read, bytes, less);
        CHECK(r.flaw != SHIPPED_FINE);
        result_free(&r);
    }
}

static void test_json(void)
{
    const char *text =
        "{\"streams\": [{\"values\": [[\"1700000000000001999\", \"a\\n\\\"]\"], "
        "[\"1700000000000002000\", \"b\", {\"m\": \"n\"}] ],\"stream\": {\"app\": \"x\\\"y\","
        "\"z\":\"1\"}},{\"stream\":{},\"values\":[[\"12\",\"c\",{}]]}]}\n";
    struct result r = read_bytes(loki_read_json, text, strlen(text));
    is_event(&r, 0, "a\n\"]", "{app=\"x\\\"y\", z=\"1\"}", NOW + 1);
    is_event(&r, 1, "b", "{app=\"x\\\"y\", z=\"1\"}", NOW + 2);
    is_event(&r, 2, "c", "{}", 0); /* 1970 can not be its time */
    has_header(&r, 0, 0, "loki-labels", "{app=\"x\\\"y\", z=\"1\"}");
    has_header(&r, 1, 1, "loki-metadata", "{\"m\": \"n\"}");
    CHECK(r.s.events[0].headers != r.s.events[1].headers && r.s.count == 3);
    result_free(&r);
    cut_off(loki_read_json, (const uint8_t *)text, strlen(text) - 1);
    static const char *const wrong[] = {
        "{\"streams\":{}}",
        "{\"streams\":[]} x",
        "{\"streams\":[{\"stream\":{}}]}",
        "{\"streams\":[{\"stream\":[],\"values\":[]}]}",
        "{\"streams\":[{\"stream\":{\"a\":1},\"values\":[]}]}",
        "{\"streams\":[{\"stream\":{},\"values\":[[1,\"a\"]]}]}",
        "{\"streams\":[{\"stream\":{},\"values\":[[\"\",\"a\"]]}]}",
        "{\"streams\":[{\"stream\":{},\"values\":[[\"12345678901234567890\",\"a\"]]}]}",
        "{\"streams\":[{\"stream\":{},\"values\":[[\"1\",2]]}]}",
        "{\"streams\":[{\"stream\":{},\"values\":[[\"1\",\"a\",1]]}]}",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        r = read_bytes(loki_read_json, wrong[i], strlen(wrong[i]));
        CHECK(r.flaw == SHIPPED_SYNTAX || r.flaw == SHIPPED_TIME);
        result_free(&r);
    }
    r = read_bytes(loki_read_json, "{\"streams\":[]}", 14);
    CHECK(r.flaw == SHIPPED_FINE && r.s.count == 0);
    result_free(&r);
}

/* 1700000000 s and 2,000 ns: what protobuf makes of it. */
#define STAMP "\x08\x80\xe2\xcf\xaa\x06\x10\xd0\x0f"

static void test_protobuf(void)
{
    /* An entry: its time, its line, and a pair of metadata. Then the labels, behind it. */
    static const char request[] = "\x0a\x26"
                                  "\x12\x1a" "\x0a\x09" STAMP "\x12\x05" "li\"ne"
                                  "\x1a\x06" "\x0a\x01" "m" "\x12\x01" "n"
                                  "\x0a\x08" "{a=\"bc\"}";
    struct result r = read_bytes(loki_read, request, sizeof request - 1);
    is_event(&r, 0, "li\"ne", "{a=\"bc\"}", NOW + 2);
    has_header(&r, 0, 0, "loki-labels", "{a=\"bc\"}");
    has_header(&r, 0, 1, "loki-metadata", "{\"m\":\"n\"}");
    CHECK(r.s.count == 1);
    result_free(&r);
    cut_off(loki_read, (const uint8_t *)request, sizeof request - 1);
}

static void test_samples(void)
{
    /* Two labels, then samples of 1.5 at NOW, and of a number that is none at 1 ms. */
    static const char request[] = "\x0a\x47"
                                  "\x0a\x0e" "\x0a\x08" "__name__" "\x12\x02" "up"
                                  "\x0a\x09" "\x0a\x03" "job" "\x12\x02" "x\""
                                  "\x12\x10" "\x09\x00\x00\x00\x00\x00\x00\xf8\x3f"
                                  "\x10\x80\xd0\x95\xff\xbc\x31"
                                  "\x12\x0b" "\x09\x02\x00\x00\x00\x00\x00\xf8\x7f" "\x10\x01"
                                  "\x1a\x05" "other" /* not known */
                                  "\x22\x00" /* metadata of the request, if it were there */;
    const size_t len = sizeof request - 1 - 2;
    uint8_t bytes[sizeof request];
    memcpy(bytes, request, sizeof request);
    bytes[1] = (uint8_t)(len - 2);
    struct result r = read_bytes(remote_write_read, bytes, len);
    const char *labels = "{\"__name__\":\"up\",\"job\":\"x\\\"\"}";
    is_event(&r, 0,
             "{\"labels\":{\"__name__\":\"up\",\"job\":\"x\\\"\"},\"timestamp\":1700000000000,"
             "\"value\":1.5}", labels, NOW);
    is_event(&r, 1, "{\"labels\":{\"__name__\":\"up\",\"job\":\"x\\\"\"},\"timestamp\":1,"
                    "\"value\":\"NaN\"}", labels, 0);
    CHECK(r.s.count == 2 && r.s.events[0].headers_len == 0);
    result_free(&r);
    cut_off(remote_write_read, bytes, len);
    r = read_bytes(remote_write_read, "\x0a\x02\x22\x00", 4); /* a native histogram */
    CHECK(r.flaw == SHIPPED_OP);
    result_free(&r);
}

static void unpacks(const char *packed, size_t len, const char *text)
{
    uint8_t *in = exact_copy(packed, len), *out = calloc(1, strlen(text) > 0 ? strlen(text) : 1);
    CHECK(snappy_len(in, len) == (int64_t)strlen(text));
    CHECK(snappy_unpack(in, len, out, strlen(text)) && memcmp(out, text, strlen(text)) == 0);
    free(in);
    free(out);
}

static void is_none(const char *packed, size_t len, size_t made)
{
    uint8_t *in = exact_copy(packed, len), *out = calloc(1, made);
    CHECK(!snappy_unpack(in, len, out, made));
    free(in);
    free(out);
}

static void test_snappy(void)
{
    unpacks("\x00", 1, "");
    unpacks("\x03\x08" "abc", 5, "abc");
    unpacks("\x0a\x08" "abc" "\x0d\x03", 7, "abcabcabca");             /* a pattern goes on */
    unpacks("\x07\x08" "abc" "\x0e\x03\x00", 8, "abcabca");            /* in two bytes */
    unpacks("\x07\x08" "abc" "\x0f\x03\x00\x00\x00", 10, "abcabca");   /* in four */
    unpacks("\x03\xf0\x02" "abc", 6, "abc");                           /* a length of its own */
    CHECK(snappy_len((const uint8_t *)"\xff\xff\xff\xff\x0f", 5) == UINT32_MAX);
    CHECK(snappy_len((const uint8_t *)"\xff\xff\xff\xff\x1f", 5) < 0);
    CHECK(snappy_len((const uint8_t *)"\x80", 1) < 0 && snappy_len((const uint8_t *)"", 0) < 0);
    is_none("\x03\x08" "ab", 4, 3);                     /* cut off */
    is_none("\x02\x08" "abc", 5, 2);                    /* more than it says */
    is_none("\x04\x08" "abc", 5, 4);                    /* less */
    is_none("\x07\x08" "abc" "\x0e\x04\x00", 8, 7);     /* from before the beginning */
    is_none("\x07\x08" "abc" "\x0e\x00\x00", 8, 7);     /* from itself */
    is_none("\x07\x08" "abc" "\x0e\x03", 7, 7);         /* half of an offset */
    is_none("\x03\xf4\x02", 3, 3);                      /* half of a length */
    is_none("\x03\xfc\xff\xff\xff\xff" "abc", 9, 3);    /* 4 GiB of a literal */
}

int main(void)
{
    test_json();
    test_protobuf();
    test_samples();
    test_snappy();
    return 0;
}
