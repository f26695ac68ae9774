/* Lines that bring a key each: what is read, what is refused and where, and where values end. */
#include "format/keyed.h"

#include "base/json_walk.h"
#include "codec_testing.h"
#include "format/format.h"
#include "format/headers.h"

#define ROOM 16
#define NOW_US 1764230400000000LL /* 2025-11-27T08:00:00Z */
#define DAY_US 86400000000LL

static uint8_t key_room[KEYED_KEY_MAX], headers_room[HEADERS_STORED_MAX];

struct result {
    uint8_t *bytes;
    struct keyed_line lines[ROOM];
    uint32_t count;
    uint64_t line;
    bool delayed;
    enum keyed_flaw flaw;
};

static struct result read_bytes(const void *text, size_t len, const char *field)
{
    struct result r = {.bytes = exact_copy(text, len)};
    const struct keyed_rules rules = {.field = (const uint8_t *)field,
                                      .field_len = field ? (uint32_t)strlen(field) : 0,
                                      .key_room = key_room,
                                      .headers_room = headers_room,
                                      .event_bytes_max = 100,
                                      .now_us = NOW_US,
                                      .due_least_us = NOW_US - DAY_US,
                                      .due_most_us = NOW_US + DAY_US};
    const uint32_t most = keyed_lines_most(len);
    r.flaw = keyed_read(r.bytes, len, &rules, r.lines, most < ROOM ? most : ROOM, &r.count,
                        &r.delayed, &r.line);
    return r;
}

static struct result read_text(const char *text, const char *field)
{
    return read_bytes(text, strlen(text), field);
}

static void refused(const char *text, const char *field, enum keyed_flaw flaw, uint64_t line)
{
    struct result r = read_text(text, field);
    if (r.flaw != flaw || r.line != line) {
        fprintf(stderr, "%s: flaw %d in line %llu\n", text, r.flaw, (unsigned long long)r.line);
        exit(1);
    }
    free(r.bytes);
}

static int is_value(const struct result *r, uint32_t at, const char *text)
{
    return at < r->count && r->lines[at].value_len == strlen(text) &&
           memcmp(r->bytes + r->lines[at].value_at, text, strlen(text)) == 0;
}

static int is_key(const struct result *r, uint32_t at, const char *text, size_t len)
{
    static uint8_t room[KEYED_KEY_MAX];
    return at < r->count && r->lines[at].key_len == len &&
           memcmp(keyed_key(r->bytes, &r->lines[at], room), text, len) == 0;
}

static void test_events(void)
{
    struct result r = read_text(
        "{\"key\":\"a\",\"value\":{\"n\":1, \"s\":\"}\\\"]\"}}\n"
        "\n \t\r\n"
        " { \"timestamp\" : 1700000000000000 , \"value\" : [1,2] , \"key\" : null } \r\n",
        NULL);
    CHECK(r.flaw == KEYED_MIXED && r.line == 4);
    free(r.bytes);
    r = read_text("{\"key\":\"a\",\"value\":{\"n\":1, \"s\":\"}\\\"]\"}}\n\n \t\r\n"
                  " { \"value\" : [1,2] , \"key\" : null } \r\n"
                  "{\"value\":-1.5e3}\n{\"value\":\"t\\u0041\",\"key\":\"\"}\n{\"value\":true}",
                  NULL);
    CHECK(r.flaw == KEYED_FINE && r.count == 5);
    CHECK(is_value(&r, 0, "{\"n\":1, \"s\":\"}\\\"]\"}") && is_key(&r, 0, "a", 1));
    CHECK(is_value(&r, 1, "[1,2]") && r.lines[1].key_len == KEY_NULL);
    CHECK(is_value(&r, 2, "-1.5e3") && r.lines[2].key_len == KEY_NULL);
    CHECK(is_value(&r, 3, "\"t\\u0041\"") && is_key(&r, 3, "", 0)); /* as it stands */
    CHECK(is_value(&r, 4, "true") && r.lines[4].timestamp == KEYED_NO_TIME);
    free(r.bytes);
    r = read_text("{\"value\":1,\"timestamp\":1}\n{\"timestamp\":999999999999999999,\"value\":2}",
                  NULL);
    CHECK(r.flaw == KEYED_FINE && r.lines[0].timestamp == 1);
    CHECK(r.lines[1].timestamp == 999999999999999999);
    free(r.bytes);
    r = read_text("{\"value\":1,\"timestamp\":0}\n{\"timestamp\":-62135596800000000,\"value\":2}\n"
                  "{\"value\":3,\"timestamp\":-5 }", NULL);
    CHECK(r.flaw == KEYED_FINE && r.lines[0].timestamp == 0 && r.lines[2].timestamp == -5);
    CHECK(r.lines[1].timestamp == TIMESTAMP_US_MIN);
    free(r.bytes);
}

static void test_dues(void)
{
    static const char *const soon[] = {
        "\"deliverAt\":\"2025-11-27T08:00:00.25Z\"", "\"deliverAt\" : 1764230400250 ",
        "\"deliverAt\":\"1764230400250\"",
        "\"deliverAt\":\"2025-11-27T09:00:00.250\\u002b01:00\"", /* as some write a plus */
        "\"deliverAfter\":250", "\"deliverAfter\":\"250ms\"", "\"deliverAfter\":\"250\""};
    static const char *const none[] = {
        "\"deliverAt\":\"tomorrow\"", "\"deliverAt\":\"2025-11-27T08:00:00\"", "\"deliverAt\":\"\"",
        "\"deliverAt\":null", "\"deliverAt\":1764230400", "\"deliverAt\":-1", "\"deliverAt\":1e12",
        "\"deliverAt\":1764230400250.5", "\"deliverAt\":{}", "\"deliverAt\":\"\\ud800\"",
        "\"deliverAfter\":-1", "\"deliverAfter\":\"1 week\"", "\"deliverAfter\":true",
        "\"deliverAfter\":[1]", "\"deliverAfter\":1,\"deliverAt\":1764230400250",
        "\"timestamp\":1764230400250000,\"deliverAfter\":1",
        "\"deliverAfter\":1,\"timestamp\":1764230400250000",
        "\"deliverAt\":1764143999999", "\"deliverAfter\":99999999999999999999"};
    static const char *const far[] = {"\"deliverAfter\":86400001", "\"deliverAfter\":\"25h\"",
                                      "\"deliverAt\":1764316800001", "\"deliverAfter\":\"9999d\""};
    char text[200];
    for (size_t i = 0; i < sizeof soon / sizeof *soon; i++) {
        snprintf(text, sizeof text, "{%s,\"value\":1}\n{\"value\":2,\"deliverAfter\":0}", soon[i]);
        struct result r = read_text(text, NULL);
        CHECK(r.flaw == KEYED_FINE && r.delayed && r.count == 2 && is_value(&r, 0, "1"));
        CHECK(r.lines[0].timestamp == NOW_US + 250000 && r.lines[1].timestamp == NOW_US);
        free(r.bytes);
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        snprintf(text, sizeof text, "{\"deliverAfter\":1,\"value\":0}\n\n{\"value\":1,%s}",
                 none[i]);
        refused(text, NULL, KEYED_DUE, 3);
    }
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
        snprintf(text, sizeof text, "{\"value\":0,\"deliverAfter\":1}\n{\"value\":1,%s}", far[i]);
        refused(text, NULL, KEYED_FAR_DUE, 2);
    }
    refused("{\"value\":1,\"deliverAfter\":1}\n{\"value\":1}", NULL, KEYED_MIXED_DUE, 2);
    refused("{\"value\":1}\n{\"value\":1,\"deliverAfter\":1}", NULL, KEYED_MIXED_DUE, 2);
    refused("{\"value\":1,\"timestamp\":5}\n{\"value\":1,\"deliverAfter\":1}", NULL,
            KEYED_MIXED_DUE, 2);
    refused("{\"value\":1,\"deliverAfter\":1,\"deliverAfter\":1}", NULL, KEYED_MEMBER, 1);
    refused("{\"value\":1,\"deliverafter\":1}", NULL, KEYED_MEMBER, 1);
    refused("{\"value\":1,\"deliverAfter\":30s}", NULL, KEYED_SYNTAX, 1);
    refused("{\"value\":1,\"deliverAt\":01764230400250}", NULL, KEYED_SYNTAX, 1);
    refused("{\"value\":1,\"deliverAt\":\"1}", NULL, KEYED_SYNTAX, 1);
    /* In a line that is an event as it stands it is the event's own. */
    struct result r = read_text("{\"id\":1,\"deliverAfter\":\"x\"}", "id");
    CHECK(r.flaw == KEYED_FINE && !r.delayed && r.lines[0].timestamp == KEYED_NO_TIME);
    free(r.bytes);
}

static void test_escapes(void)
{
    struct result r = read_text(
        "{\"key\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\u20ac\\ud83d\\ude00\\u0000z\",\"value\":1}\n"
        "{\"key\":{\"base64\":\"/wA=\"},\"value\": { \"base64\" : \"AAEC\" } }\n"
        "{\"value\":{\"base64\":\"AAEC\",\"n\":1}}\n{\"value\":{\"base64\":\"\"}}",
        NULL);
    CHECK(r.flaw == KEYED_FINE && r.count == 4);
    static const char key[] = "\"\\/\b\f\n\r\t\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\0z";
    CHECK(is_key(&r, 0, key, sizeof key - 1));
    CHECK(is_key(&r, 1, "\xff\0", 2) && r.lines[1].value_len == 3);
    CHECK(memcmp(r.bytes + r.lines[1].value_at, "\0\1\2", 3) == 0);
    CHECK(is_value(&r, 2, "{\"base64\":\"AAEC\",\"n\":1}") && is_value(&r, 3, ""));
    free(r.bytes);
}

static void test_fields(void)
{
    static const char text[] =
        "{\"a\":{\"id\":\"no\"},\"id\":\"x\\u0041\",\"id\":\"later\" it is not looked at\n"
        "{\"id\":-12.50,\"b\":1}\n{\"b\":[\"id\"],\"id\":false}\n"
        "{\"s\":\"id\",\"id\":\"\xc3\xa9\"}";
    struct result r = read_text(text, "id");
    CHECK(r.flaw == KEYED_FINE && r.count == 4);
    CHECK(is_key(&r, 0, "xA", 2) && is_key(&r, 1, "-12.50", 6) && is_key(&r, 2, "false", 5));
    CHECK(is_key(&r, 3, "\xc3\xa9", 2));
    CHECK(memcmp(r.bytes, text, sizeof text - 1) == 0); /* stored as it came */
    CHECK(is_value(&r, 1, "{\"id\":-12.50,\"b\":1}"));
    free(r.bytes);
    refused("{\"a\":1}", "id", KEYED_KEY, 1);
    refused("{}", "id", KEYED_KEY, 1);
    refused("{\"id\":1}\n{\"id\":null}", "id", KEYED_KEY, 2);
    refused("{\"id\":{\"base64\":\"AA==\"}}", "id", KEYED_KEY, 1);
    refused("{\"id\":[1]}", "id", KEYED_KEY, 1);
    refused("{\"id\":\"\\ud800\"}", "id", KEYED_KEY, 1);
    refused("{\"id\":nil}", "id", KEYED_SYNTAX, 1);
    refused("[\"id\"]", "id", KEYED_SYNTAX, 1);
    refused("{\"a\":[1,\"id\":2}", "id", KEYED_SYNTAX, 1);
    refused("{\"a\" 1,\"id\":2}", "id", KEYED_SYNTAX, 1);
    refused("{\"id\"", "id", KEYED_SYNTAX, 1);
}

static void test_flaws(void)
{
    refused("{\"key\":\"a\"}", NULL, KEYED_VALUE, 1);
    refused("{}", NULL, KEYED_VALUE, 1);
    refused("{\"value\":1}\n{\"value\":1,\"value\":2}", NULL, KEYED_MEMBER, 2);
    refused("{\"value\":1,\"Key\":2}", NULL, KEYED_MEMBER, 1);
    refused("{\"value\":1,\"key\":2}", NULL, KEYED_KEY, 1);
    refused("{\"value\":1,\"key\":\"\xff\"}", NULL, KEYED_KEY, 1);
    refused("{\"value\":1,\"key\":\"\x01\"}", NULL, KEYED_KEY, 1);
    refused("{\"value\":1,\"key\":\"\\x\"}", NULL, KEYED_KEY, 1);
    refused("{\"value\":1,\"key\":{\"base64\":\"A\"}}", NULL, KEYED_BASE64, 1);
    refused("{\"value\":{\"base64\":\"AB==\"}}", NULL, KEYED_BASE64, 1);
    refused("{\"value\":{\"base64\":\"A===\"}}", NULL, KEYED_BASE64, 1);
    refused("{\"value\":1,\"timestamp\":00}", NULL, KEYED_TIME, 1);
    refused("{\"value\":1,\"timestamp\":-}", NULL, KEYED_TIME, 1);
    refused("{\"value\":1,\"timestamp\":-0}", NULL, KEYED_TIME, 1);
    refused("{\"value\":1,\"timestamp\":--5}", NULL, KEYED_TIME, 1);
    refused("{\"value\":1,\"timestamp\":-62135596800000001}", NULL, KEYED_TIME, 1);
    refused("{\"value\":1,\"timestamp\":\"5\"}", NULL, KEYED_TIME, 1);
    refused("{\"value\":1,\"timestamp\":1.5}", NULL, KEYED_TIME, 1);
    refused("{\"value\":1,\"timestamp\":1000000000000000000}", NULL, KEYED_TIME, 1);
    refused("{\"value\":1", NULL, KEYED_SYNTAX, 1);
    refused("{\"value\":1}x", NULL, KEYED_SYNTAX, 1);
    refused("{\"value\":1,}", NULL, KEYED_SYNTAX, 1);
    refused("{\"value\":nul}", NULL, KEYED_SYNTAX, 1);
    refused("{\"value\":}", NULL, KEYED_SYNTAX, 1);
    refused("{\"value\":[[1]}", NULL, KEYED_SYNTAX, 1);
    refused("{\"value\":\"a\\\"}", NULL, KEYED_SYNTAX, 1);
    refused("{\"value\":{\"a\":\"}}", NULL, KEYED_SYNTAX, 1);
    refused("plain", NULL, KEYED_SYNTAX, 1);
}

static void test_limits(void)
{
    char text[300000];
    int len = snprintf(text, sizeof text, "{\"value\":1}\n{\"value\":\"%099d\"}", 0);
    struct result r = read_bytes(text, (size_t)len, NULL);
    CHECK(r.flaw == KEYED_TOO_LARGE && r.line == 2);
    free(r.bytes);
    len = snprintf(text, sizeof text, "{\"value\":1}\n{\"value\":\"%098d\"}", 0);
    r = read_bytes(text, (size_t)len, NULL);
    CHECK(r.flaw == KEYED_FINE && r.lines[1].value_len == 100);
    free(r.bytes);
    for (int escaped = 0; escaped < 2; escaped++)
        for (int over = 0; over < 2; over++) {
            int at = snprintf(text, sizeof text, "{\"value\":1,\"key\":\"");
            for (int i = 0; i < (int)KEYED_KEY_MAX + over; i++)
                at += snprintf(text + at, sizeof text - (size_t)at, escaped ? "\\u0041" : "A");
            at += snprintf(text + at, sizeof text - (size_t)at, "\"}");
            r = read_bytes(text, (size_t)at, NULL);
            CHECK(r.flaw == (over ? KEYED_LONG_KEY : KEYED_FINE));
            free(r.bytes);
        }
    for (int i = 0; i < ROOM + 1; i++)
        memcpy(text + i * 12, "{\"value\":1}\n", 12);
    r = read_bytes(text, ROOM * 12, NULL);
    CHECK(r.flaw == KEYED_FINE && r.count == ROOM);
    free(r.bytes);
    r = read_bytes(text, (ROOM + 1) * 12, NULL);
    CHECK(r.flaw == KEYED_TOO_MANY && r.line == ROOM + 1);
    free(r.bytes);
    CHECK(keyed_lines_most(7) == 1 && keyed_lines_most(15) == 2); /* the shortest with a key */
    CHECK(keyed_lines_most(SIZE_MAX) == KEYED_LINES_MAX);
}

/* Where a container ends, byte by byte. */
static size_t plain_end(const char *p, size_t len)
{
    size_t depth = 0;
    int inside = 0;
    for (size_t i = 0; i < len; i++) {
        if (inside) {
            if (p[i] == '\\')
                i++;
            else if (p[i] == '"')
                inside = 0;
        } else if (p[i] == '"') {
            inside = 1;
        } else if (p[i] == '{' || p[i] == '[') {
            depth++;
        } else if ((p[i] == '}' || p[i] == ']') && --depth == 0) {
            return i + 1;
        }
    }
    return 0;
}

/* A random container, of which some are longer than several blocks. */
static size_t make_value(uint64_t *seed, char *out, size_t most)
{
    static const char *const pieces[] = {"{", "}", "[", "]", "\"a\\\\\"", "\"\\\"]\"", "\"{[\"",
                                         "1,", "\"\\\\\\\"\"", ":", "          ", "\"}\\\\\\\\\""};
    const size_t wanted = random_next(seed) % most;
    size_t len = 1, depth = 1;
    out[0] = '{';
    while (depth > 0) {
        size_t which = random_next(seed) % (sizeof pieces / sizeof *pieces);
        if (len > wanted && which != 4)
            which = 1;
        const char *piece = pieces[which];
        depth += which == 0 || which == 2;
        depth -= which == 1 || which == 3;
        memcpy(out + len, piece, strlen(piece));
        len += strlen(piece);
    }
    return len;
}

static void test_ends(void)
{
    char text[8192];
    uint64_t seed = 7;
    for (int i = 0; i < 20000; i++) {
        const size_t at = (size_t)snprintf(text, sizeof text, "%*s{\"value\":", i % 70, "");
        const size_t len = make_value(&seed, text + at, i % 100 ? 300 : 2000);
        CHECK(plain_end(text + at, len) == len);
        struct json_rest rest = {(uint8_t *)text + at, (uint8_t *)text + at + len};
        CHECK(json_container_end_plain(&rest) == rest.end);
        rest.end--;
        CHECK(json_container_end_plain(&rest) == NULL);
        text[at + len] = '}';
        struct result r = read_bytes(text, at + len + 1, NULL);
        CHECK(r.flaw == (len > 100 ? KEYED_TOO_LARGE : KEYED_FINE));
        if (r.flaw == KEYED_FINE)
            CHECK(r.lines[0].value_at == at && r.lines[0].value_len == len);
        free(r.bytes);
        r = read_bytes(text, at + len - 1, NULL); /* its last bracket is not there */
        CHECK(r.flaw == KEYED_SYNTAX);
        free(r.bytes);
    }
}

/* As most write a line, and with one blank more: what is found, and what is wrong, is the same. */
static void test_usual(void)
{
    static const char *const keys[] = {
        "", "a", "exactly16bytes--", "seventeen-bytes-x", "\\u0041", "\\\"", "\\\\", "\xc3\xa9",
        "\xff", "\x01", "0123456789012345678901234567890123456789", "a\",\"value", "\\q",
    };
    static const char *const values[] = {
        "1}", "{\"a\":\"}\"}}", "null}", "1,\"timestamp\":5}", "1,\"key\":\"b\"}", "1,\"value\":2}",
        "1", "{\"a\":1}", "}", "", "1} x", "1,}", "1,\"headers\":{\"a\":\"b\"}}",
        "{\"base64\":\"/wA=\"}}", "x}", " 1 } ",
    };
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            char usual[200], other[200];
            snprintf(usual, sizeof usual, "{\"key\":\"%s\",\"value\":%s", keys[k], values[v]);
            snprintf(other, sizeof other, " {\"key\":\"%s\",\"value\":%s", keys[k], values[v]);
            struct result one = read_text(usual, NULL), two = read_text(other, NULL);
            const struct keyed_line *a = one.lines, *b = two.lines;
            CHECK(one.flaw == two.flaw && one.count == two.count && one.line == two.line);
            if (one.flaw == KEYED_FINE) {
                CHECK(a->key_len == b->key_len && a->value_len == b->value_len);
                CHECK(a->timestamp == b->timestamp && a->headers_len == b->headers_len);
                CHECK(a->key_len == KEY_NULL || a->key_at + 1 == b->key_at);
                CHECK(memcmp(one.bytes + a->key_at, two.bytes + b->key_at, a->key_len) == 0);
                CHECK(a->value_len == KEY_NULL || a->value_at + 1 == b->value_at);
            }
            free(one.bytes);
            free(two.bytes);
        }
    char *text = malloc(KEYED_KEY_MAX + 100); /* a key as long as may be, and one more byte */
    for (uint32_t over = 0; over <= 1; over++) {
        const int at = sprintf(text, "{\"key\":\"");
        memset(text + at, 'k', KEYED_KEY_MAX + over);
        sprintf(text + at + KEYED_KEY_MAX + over, "\",\"value\":1}");
        struct result r = read_text(text, NULL);
        CHECK(r.flaw == (over ? KEYED_LONG_KEY : KEYED_FINE));
        free(r.bytes);
    }
    free(text);
}

/* The headers of a line are these bytes. */
static int is_headers(const struct result *r, uint32_t at, const char *bytes, size_t len)
{
    const struct keyed_line *line = &r->lines[at];
    return at < r->count && line->headers_len == len &&
           memcmp(r->bytes + line->headers_at, bytes, len) == 0 &&
           (len == 0 || headers_valid(r->bytes + line->headers_at, len));
}

static void test_headers(void)
{
    struct result r = read_text(
        "{\"value\":null}\n"
        "{\"headers\":{\"a\":\"x\"},\"value\":1,\"key\":\"k\"}\n"
        "{\"value\":{\"headers\":1},\"headers\" : { \"n-1\" : \"\\u00e9\\n\" , \"n-1\":\"\" } }\n"
        "{\"value\":null,\"headers\":{}}\n"
        "{\"headers\":{\"\\u0061\":{\"base64\":\"/wA=\"}},\"value\":\"}\"}\n",
        NULL);
    CHECK(r.flaw == KEYED_FINE && r.count == 5);
    CHECK(r.lines[0].value_len == KEY_NULL && is_headers(&r, 0, "", 0));
    CHECK(is_headers(&r, 1, "\1\1\1ax", 5) && is_value(&r, 1, "1") && is_key(&r, 1, "k", 1));
    CHECK(is_headers(&r, 2, "\2\3\3n-1\xc3\xa9\n\3\0n-1", 14));
    CHECK(is_value(&r, 2, "{\"headers\":1}"));
    CHECK(r.lines[3].value_len == KEY_NULL && is_headers(&r, 3, "", 0));
    CHECK(is_headers(&r, 4, "\1\1\2a\xff\0", 6) && is_value(&r, 4, "\"}\""));
    free(r.bytes);
    static const char *const flawed[] = {
        "null", "[]", "1", "\"a\"", "{\"A\":\"x\"}", "{\"\":\"x\"}", "{\"a b\":\"\"}",
        "{\"a\":1}", "{\"a\":null}", "{\"a\":[\"x\"]}", "{\"a\":{\"base64\":\"x\"}}",
        "{\"a\":\"\\ud800\"}", "{\"a\":\"\xff\"}", "{\"\\x\":\"\"}",
    };
    for (size_t i = 0; i < sizeof flawed / sizeof *flawed; i++) {
        char text[200];
        snprintf(text, sizeof text, "{\"value\":1}\n{\"value\":1,\"headers\":%s}", flawed[i]);
        refused(text, NULL, KEYED_HEADERS, 2);
    }
    refused("{\"value\":1,\"headers\":{\"a\":\"x\"", NULL, KEYED_SYNTAX, 1);
    refused("{\"value\":1,\"headers\":{\"a\" \"x\"}}", NULL, KEYED_SYNTAX, 1);
    refused("{\"value\":1,\"headers\":{},\"headers\":{}}", NULL, KEYED_MEMBER, 1);
    refused("{\"headers\":{\"a\":\"x\"}}", NULL, KEYED_VALUE, 1);
}

/* 64 headers, and 16 KiB of them; where the JSON is the tightest, what is stored fits in it. */
static void test_headers_at_their_limits(void)
{
    char *text = malloc(40000);
    for (int count = 64; count <= 65; count++) {
        size_t at = (size_t)sprintf(text, "{\"value\":1,\"headers\":{");
        for (int i = 0; i < count; i++)
            at += (size_t)sprintf(text + at, "%s\"a\":\"\"", i ? "," : "");
        sprintf(text + at, "}}");
        struct result r = read_text(text, NULL);
        CHECK(r.flaw == (count == 64 ? KEYED_FINE : KEYED_HEADERS));
        CHECK(count == 65 || r.lines[0].headers_len == 1 + 64 * 3);
        free(r.bytes);
    }
    for (int over = 0; over <= 1; over++) {
        size_t at = (size_t)sprintf(text, "{\"headers\":{\"");
        memset(text + at, 'n', 128);
        at += 128 + (size_t)sprintf(text + at + 128, "\":\"");
        memset(text + at, 'v', HEADERS_BYTES_MAX - 128 + (size_t)over);
        sprintf(text + at + HEADERS_BYTES_MAX - 128 + over, "\"},\"value\":1}");
        struct result r = read_text(text, NULL);
        CHECK(r.flaw == (over ? KEYED_HEADERS : KEYED_FINE) && (over || is_value(&r, 0, "1")));
        CHECK(over || headers_valid(r.bytes + r.lines[0].headers_at, r.lines[0].headers_len));
        free(r.bytes);
    }
    free(text);
}

int main(void)
{
    test_headers();
    test_headers_at_their_limits();
    test_events();
    test_usual();
    test_dues();
    test_escapes();
    test_fields();
    test_flaws();
    test_limits();
    test_ends();
    return 0;
}
