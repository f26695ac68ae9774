/* JSON: what may be spliced, what is quoted, and that nothing is written beyond the room. */
#include "tests/render_testing.h"

#include "base/json.h"
#include "codec_testing.h"

static bool valid(const char *text, size_t len)
{
    uint8_t *exact = exact_copy(text, len);
    bool result = json_valid(exact, len);
    free(exact);
    return result;
}

static void test_valid(void)
{
    static const char *const texts[] = {
        "0", "-0", "1", "-12.5e+10", "1E5", "0.0", "0e1", "true", "false", "null", "\"\"", "[]",
        "{}", " [ ] ", "\t{\n}\r", "[1,2]", "[[],[],{}]", "{\"a\":1,\"a\":[{}]}",
        "{\"\":\"\\u00e9\\n\\\\\\\"\\/\"}", "\"\\ud83d\\ude00\"", "\"\xc3\xa9\"",
        "\"\xf0\x9f\x98\x80 and more than sixteen bytes\"", "\"\x7f\"",
        "{\"a\" : [ 1 , { \"b\" : null } ] }"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        CHECK(valid(texts[i], strlen(texts[i])));
}

static void test_invalid(void)
{
    static const char *const texts[] = {
        "", " ", "01", "-", "+1", "1.", ".5", "1e", "1e+", "0x1", "NaN", "Infinity", "-Infinity",
        "tru", "truee", "nul", "True", "\"", "\"a", "\"\\\"", "\"\\x\"", "\"\\u12\"", "\"\\u12g4\"",
        "\"\n\"", "\"\t\"", "'a'", "[", "]", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "[1}", "{", "}",
        "{1:2}", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{\"a\":1 \"b\":2}", "{\"a\":1]", "{,}",
        "1 2", "[] []", "\"a\"x", "//1", "\xef\xbb\xbf" "1", "\"\\ud83d\"", "\"\\ude00\"",
        "\"\\ud83d\\u0041\"", "\"\\ud83d\\\"", "\"\x80\"", "\"\xc3\"", "\"\xc0\xaf\"",
        "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"", "\"\xe2\x82",
        "\"aaaaaaaaaaaaaaaaaaaaaaaaa\xff\""};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        CHECK(!valid(texts[i], strlen(texts[i])));
    CHECK(!valid("\"\0\"", 3) && !valid("1\0", 2) && !valid("\"\\\0\"", 4));
}

static void test_depth_and_numbers(void)
{
    char *text = malloc(300000);
    for (int depth = 511; depth <= 513; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        CHECK(valid(text, (size_t)depth * 2) == (depth <= 512));
    }
    memset(text, '[', 300000);
    CHECK(!valid(text, 300000));
    memset(text, '7', 2000);
    CHECK(valid(text, 1024) && !valid(text, 1025));
    /* Objects and arrays are told apart at every depth. */
    strcpy(text, "");
    for (int i = 0; i < 100; i++)
        strcat(text, i % 2 ? "{\"k\":" : "[");
    strcat(text, "1");
    for (int i = 99; i >= 0; i--)
        strcat(text, i % 2 ? "}" : "]");
    size_t len = strlen(text);
    CHECK(valid(text, len));
    for (size_t at = len - 100; at < len; at++) {
        char was = text[at];
        text[at] = was == '}' ? ']' : '}';
        CHECK(!valid(text, len));
        text[at] = was;
    }
    free(text);
}

static void test_utf8(void)
{
    static const struct { const char *text; bool valid; } cases[] = {
        {"", true}, {"plain", true}, {"\x7f", true}, {"\xc2\x80", true}, {"\xdf\xbf", true},
        {"\xe0\xa0\x80", true}, {"\xed\x9f\xbf", true}, {"\xee\x80\x80", true},
        {"\xf0\x90\x80\x80", true}, {"\xf4\x8f\xbf\xbf", true}, {"12345678\xc3\xa9", true},
        {"\x80", false}, {"\xc1\xbf", false}, {"\xc2", false}, {"\xc2 ", false},
        {"\xe0\x9f\xbf", false}, {"\xed\xa0\x80", false}, {"\xef\xbf", false},
        {"\xf0\x8f\xbf\xbf", false}, {"\xf4\x90\x80\x80", false}, {"\xf5\x80\x80\x80", false},
        {"\xff", false}, {"12345678\xc3", false}, {"\xf0\x9f\x98", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t len = strlen(cases[i].text);
        uint8_t *exact = exact_copy(cases[i].text, len);
        CHECK(utf8_valid(exact, len) == cases[i].valid);
        free(exact);
    }
}

/* One chunk at offset 1000: the values and keys of the tests below. */
struct fixture {
    struct chunk_view view;
    uint8_t *stored, *scratch;
    size_t scratch_bytes;
};

static struct fixture make(void)
{
    static const uint32_t val_len[] = {7, 5, 2, 0, 7, 9};
    static const uint32_t key_len[] = {2, KEY_NULL, 1, 0, 3, KEY_NULL};
    static const uint32_t ts_delta[] = {0, 1, 2, 3, 4, 5};
    static const char vals[] = "{\"a\":1}"
                               "a\"\x01\n\\"
                               "\xff\xfe"
                               "[1,\r\n2]"
                               "nul \xc3\xa9\xc3\xa9x";
    static const char keys[] = "k1" "\xff" "a\tb";
    struct chunk_columns c = {.topic = "t-1", .topic_len = 3, .slice = 5, .count = 6, .epoch = 9,
                              .base_offset = 1000, .base_timestamp_us = 50, .ts_delta = ts_delta,
                              .key_len = key_len, .val_len = val_len,
                              .keys = (const uint8_t *)keys, .vals = (const uint8_t *)vals,
                              .keys_bytes = 6, .vals_bytes = 30};
    struct fixture f;
    struct chunk_sealer *sealer = chunk_sealer_new(1);
    size_t bound = chunk_bound(&c);
    f.stored = malloc(bound);
    size_t stored = chunk_seal(sealer, &c, f.stored, bound);
    chunk_sealer_free(sealer);
    CHECK(chunk_open(f.stored, stored, &f.view) == 0);
    f.scratch_bytes = chunk_scratch_bytes(&f.view);
    f.scratch = malloc(f.scratch_bytes);
    return f;
}

static struct line_frame frame = {.token = -7};

static void expect(struct fixture *f, bool lines, uint64_t from, uint64_t to, const char *text)
{
    size_t len = strlen(text);
    CHECK(render_bound(&f->view) >= len);
    for (size_t cap = len > 40 ? len - 40 : 0; cap <= len + 1; cap++) {
        char *out = malloc(cap + 1);
        ssize_t n = lines ? render_ndjson(&f->view, from, to, &frame, f->scratch,
                                          f->scratch_bytes, out, cap, NULL)
                          : render_json_values(&f->view, from, to, f->scratch, f->scratch_bytes,
                                               out, cap, NULL);
        CHECK(n == (cap < len ? -3 : (ssize_t)len));
        CHECK(n < 0 || memcmp(out, text, len) == 0);
        free(out);
    }
}

static void test_values(void)
{
    struct fixture f = make();
    expect(&f, false, 0, UINT64_MAX,
           "{\"a\":1},\"a\\\"\\u0001\\n\\\\\",{\"base64\":\"//4=\"},\"\",[1,\r\n2],"
           "\"nul \xc3\xa9\xc3\xa9x\"");
    expect(&f, false, 1003, 1005, "\"\",[1,\r\n2]");
    expect(&f, false, 1000, 1001, "{\"a\":1}");
    expect(&f, false, 1006, 2000, "");
    expect(&f, false, 0, 1000, "");
    expect(&f, false, 1004, 1002, "");
    free(f.stored);
    free(f.scratch);
}

static void test_lines(void)
{
    struct fixture f = make();
#define LINE(offset, time, key, value)                                                             \
    "{\"topic\":\"t-1\",\"token\":\"-7\",\"rangeIndex\":5,\"version\":9,\"offset\":\"" offset      \
    "\",\"timestamp\":" time ",\"key\":" key ",\"value\":" value "}\n"
    expect(&f, true, 1000, 1002,
           LINE("1000", "50", "\"k1\"", "{\"a\":1}")
           LINE("1001", "51", "null", "\"a\\\"\\u0001\\n\\\\\""));
    expect(&f, true, 1002, 9999,
           LINE("1002", "52", "{\"base64\":\"/w==\"}", "{\"base64\":\"//4=\"}")
           LINE("1003", "53", "\"\"", "\"\"")
           LINE("1004", "54", "\"a\\tb\"", "[1,  2]")
           LINE("1005", "55", "null", "\"nul \xc3\xa9\xc3\xa9x\""));
#undef LINE
    frame = (struct line_frame){.token = -7, .id = "13.2.", .id_len = 5, .deliveries = 3};
    expect(&f, true, 1001, 1002,
           "{\"topic\":\"t-1\",\"token\":\"-7\",\"rangeIndex\":5,\"version\":9,\"offset\":\"1001\""
           ",\"id\":\"13.2.1001.3\",\"deliveries\":3,\"timestamp\":51,\"key\":null,"
           "\"value\":\"a\\\"\\u0001\\n\\\\\"}\n");
    frame = (struct line_frame){.token = -7};
    free(f.stored);
    free(f.scratch);
}

int main(void)
{
    test_valid();
    test_invalid();
    test_depth_and_numbers();
    test_utf8();
    test_values();
    test_lines();
    return 0;
}
