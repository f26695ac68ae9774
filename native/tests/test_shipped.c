/* Bodies of shippers of logs: what events they are, what is refused, where, and their columns. */
#include "format/bulk.h"
#include "format/hec.h"

#include "codec_testing.h"

#define NOW 1700000000000000
#define EVENT_MAX 100u

static struct shipped made(uint64_t bytes_max)
{
    return (struct shipped){.limits = {EVENT_MAX, bytes_max, NOW - 1000000000, NOW + 1000000000}};
}

struct result {
    uint8_t *bytes;
    struct shipped s;
    enum shipped_flaw flaw;
};

typedef enum shipped_flaw (*reader)(struct shipped *, const uint8_t *, size_t);

static struct result read_text(reader read, const char *text)
{
    struct result r = {.bytes = exact_copy(text, strlen(text)), .s = made(10000)};
    r.flaw = read(&r.s, r.bytes, strlen(text));
    return r;
}

static void result_free(struct result *r)
{
    shipped_free(&r->s);
    free(r->bytes);
}

static void refused(reader read, const char *text, enum shipped_flaw flaw, uint64_t at)
{
    struct result r = read_text(read, text);
    if (r.flaw != flaw || r.s.at != at) {
        fprintf(stderr, "%s: flaw %d at %llu\n", text, r.flaw, (unsigned long long)r.s.at);
        exit(1);
    }
    result_free(&r);
}

static int is_text(const uint8_t *p, uint32_t len, const char *text)
{
    return len == strlen(text) && memcmp(p, text, len) == 0;
}

static int is_value(const struct result *r, uint32_t at, const char *text)
{
    return at < r->s.count && is_text(r->s.events[at].value, r->s.events[at].value_len, text);
}

static const struct shipped_kind *kind_of(const struct result *r, uint32_t at)
{
    CHECK(at < r->s.count);
    return &r->s.kinds[r->s.events[at].kind];
}

static void test_bulk(void)
{
    struct result r = read_text(
        bulk_read, "{\"index\":{\"_index\":\"a\",\"_id\":\"x\\u0041\"}}\n{\"n\": 1}\n"
                   "\r\n { \"create\" : { } } \r\n {\"n\":\"}\"}\r\n"
                   "{\"index\":{\"_index\":\"a\",\"_id\":7,\"routing\":\"r\",\"z\":[1]}}\n"
                   "{\"n\":3}\n"
                   "{\"delete\":{\"_index\":\"a\",\"_id\":null}}\n"
                   "{\"update\":{\"_index\":\"a\"}}\n{\"doc\":{}}\n"
                   "{\"index\":{\"_index\":\"a\"}}\n[1]");
    CHECK(r.flaw == SHIPPED_FINE && r.s.count == 6);
    CHECK(is_value(&r, 0, "{\"n\": 1}") && is_value(&r, 1, "{\"n\":\"}\"}"));
    CHECK(is_text(r.s.events[0].key, r.s.events[0].key_len, "xA"));
    CHECK(is_text(r.s.events[0].id, r.s.events[0].id_len, "\"x\\u0041\""));
    CHECK(r.s.events[1].key_len == KEY_NULL && r.s.events[1].id == NULL);
    CHECK(is_text(r.s.events[2].key, r.s.events[2].key_len, "r"));
    CHECK(is_text(r.s.events[2].id, r.s.events[2].id_len, "7"));
    CHECK(is_text(kind_of(&r, 0)->name, kind_of(&r, 0)->name_len, "a"));
    CHECK(kind_of(&r, 0) == kind_of(&r, 2) && kind_of(&r, 0)->count == 2);
    CHECK(kind_of(&r, 1)->name == NULL && kind_of(&r, 1)->op == BULK_CREATE);
    CHECK(kind_of(&r, 3)->op == BULK_DELETE && kind_of(&r, 3)->flaw == SHIPPED_OP);
    CHECK(r.s.events[3].id == NULL);
    CHECK(kind_of(&r, 4)->op == BULK_UPDATE && kind_of(&r, 4)->flaw == SHIPPED_OP);
    CHECK(kind_of(&r, 5)->flaw == SHIPPED_SYNTAX && kind_of(&r, 5)->op == BULK_INDEX);
    CHECK(r.s.kind_count == 5);
    result_free(&r);
}

static void test_bulk_refused(void)
{
    refused(bulk_read, "", SHIPPED_FINE, 0);
    refused(bulk_read, "{\"index\":{}}\n", SHIPPED_NO_EVENT, 1);
    refused(bulk_read, "{\"index\":{}}\n{}\n{\"n\":1}\n{}", SHIPPED_SYNTAX, 3);
    refused(bulk_read, "{\"index\":{}\n{}", SHIPPED_SYNTAX, 1);
    refused(bulk_read, "{\"index\":{}} x\n{}", SHIPPED_SYNTAX, 1);
    refused(bulk_read, "{\"index\":[]}\n{}", SHIPPED_SYNTAX, 1);
    refused(bulk_read, "{\"index\":{\"_index\":{}}}\n{}", SHIPPED_SYNTAX, 1);
    refused(bulk_read, "{\"index\":{\"_id\":\"\\ud800\"}}\n{}", SHIPPED_SYNTAX, 1);
    refused(bulk_read, "{\"index\":{\"_id\":\"\\", SHIPPED_SYNTAX, 1);
    /* A document that is too large is its own flaw, and the others are stored. */
    char text[3 * EVENT_MAX];
    snprintf(text, sizeof text, "{\"index\":{}}\n{\"%0*d\":1}\n{\"index\":{}}\n{}",
             (int)EVENT_MAX, 7);
    struct result r = read_text(bulk_read, text);
    CHECK(r.flaw == SHIPPED_FINE && kind_of(&r, 0)->flaw == SHIPPED_EVENT_TOO_LARGE);
    CHECK(kind_of(&r, 1)->flaw == SHIPPED_FINE && is_value(&r, 1, "{}"));
    result_free(&r);
}

static void test_hec(void)
{
    struct result r = read_text(
        hec_read, "{\"event\":\"a\\tb\",\"time\":1700000000.25,\"host\":\"h\","
                  "\"sourcetype\":\"s\"}"
                  "{\"time\":\"1700000001\",\"sourcetype\":\"s\",\"host\":\"h\","
                  "\"event\":{\"n\":[1]}}\n\n"
                  " {\"event\":5,\"index\":\"i\",\"fields\":{\"a\":\"b\"},\"time\":12}\r\n"
                  "{\"event\":true,\"index\":null,\"host\":null,\"time\":null}");
    CHECK(r.flaw == SHIPPED_FINE && r.s.count == 4);
    CHECK(is_value(&r, 0, "a\tb") && is_value(&r, 1, "{\"n\":[1]}") && is_value(&r, 2, "5"));
    CHECK(r.s.events[0].time_us == NOW + 250000 && r.s.events[1].time_us == NOW + 1000000);
    CHECK(r.s.events[2].time_us == 0 && r.s.events[3].time_us == 0); /* 12 can not be one */
    CHECK(r.s.events[0].headers_len > 0 && r.s.events[0].headers == r.s.events[1].headers);
    CHECK(r.s.events[3].headers_len == 0 && is_value(&r, 3, "true"));
    const uint8_t *at = r.s.events[0].headers;
    CHECK(headers_valid(at, r.s.events[0].headers_len) && headers_begin(&at) == 2);
    struct header first = headers_next(&at), second = headers_next(&at);
    CHECK(is_text(first.name, first.name_len, "host"));
    CHECK(is_text(first.value, first.value_len, "h"));
    CHECK(is_text(second.name, second.name_len, "sourcetype"));
    at = r.s.events[2].headers;
    CHECK(headers_begin(&at) == 1);
    first = headers_next(&at);
    CHECK(is_text(first.value, first.value_len, "{\"a\":\"b\"}"));
    CHECK(r.s.kind_count == 2 && is_text(kind_of(&r, 2)->name, kind_of(&r, 2)->name_len, "i"));
    result_free(&r);
}

static void test_hec_refused(void)
{
    refused(hec_read, " \n", SHIPPED_FINE, 0);
    refused(hec_read, "{\"event\":1}{\"time\":1}", SHIPPED_NO_EVENT, 1);
    refused(hec_read, "{\"event\":1}{\"event\":null}", SHIPPED_NO_EVENT, 1);
    refused(hec_read, "{\"event\":\"\"}", SHIPPED_BLANK_EVENT, 0);
    refused(hec_read, "{\"event\":1,\"time\":\"now\"}", SHIPPED_TIME, 0);
    refused(hec_read, "{\"event\":1,\"time\":-1}", SHIPPED_TIME, 0);
    refused(hec_read, "{\"event\":1,\"time\":1234567890123}", SHIPPED_TIME, 0);
    refused(hec_read, "{\"event\":1}[{\"event\":1}]", SHIPPED_SYNTAX, 1);
    refused(hec_read, "{\"event\":1}{\"event\":{\"a\":1}", SHIPPED_SYNTAX, 1);
    refused(hec_read, "{\"event\":\"\\ud800\"}", SHIPPED_SYNTAX, 0);
    refused(hec_read, "{\"event\":", SHIPPED_SYNTAX, 0);
    refused(hec_read, "{\"event\":1,\"time\":\"", SHIPPED_SYNTAX, 0);
    static char text[40000];
    int len = snprintf(text, sizeof text, "{\"event\":1,\"host\":\"%020000d\"}", 7);
    CHECK(len > 20000);
    struct result r = {.bytes = exact_copy(text, (size_t)len), .s = made(100000)};
    CHECK(hec_read(&r.s, r.bytes, (size_t)len) == SHIPPED_HEADERS);
    result_free(&r);
}

static void test_lines(void)
{
    static const uint8_t headers[] = {1, 1, 1, 'h', 'v'};
    const char *text = "a\r\n\n{\"n\":1}\nlast";
    struct result r = {.bytes = exact_copy(text, strlen(text)), .s = made(10000)};
    CHECK(lines_read(&r.s, r.bytes, strlen(text), headers, sizeof headers) == SHIPPED_FINE);
    CHECK(r.s.count == 3 && is_value(&r, 0, "a") && is_value(&r, 1, "{\"n\":1}"));
    CHECK(is_value(&r, 2, "last") && r.s.events[2].headers == headers && r.s.kind_count == 1);
    result_free(&r);
}

/* What all of them are in a batch is counted before anything is made; one more byte is too much. */
static void test_budget(void)
{
    static const uint8_t headers[] = {1, 1, 1, 'h', 'v'};
    const char *text = "aaaa\nbbbb\n";
    const uint64_t need = 2 * (4 + sizeof headers + 24);
    for (uint64_t most = need - 1; most <= need; most++) {
        struct result r = {.bytes = exact_copy(text, strlen(text)), .s = made(most)};
        const enum shipped_flaw flaw = lines_read(&r.s, r.bytes, strlen(text), headers,
                                                  sizeof headers);
        CHECK(flaw == (most < need ? SHIPPED_TOO_LARGE : SHIPPED_FINE));
        result_free(&r);
    }
    /* So is what is written anew: a name that is escaped, of each of many kinds. */
    struct result r = {.s = made(200)};
    const char *item = "{\"index\":{\"_index\":\"\\u0041\"}}\n{}\n";
    char items[20 * 40] = "";
    for (int i = 0; i < 20; i++)
        strcat(items, item);
    r.bytes = exact_copy(items, strlen(items));
    CHECK(bulk_read(&r.s, r.bytes, strlen(items)) == SHIPPED_TOO_LARGE && r.s.room_bytes <= 200);
    result_free(&r);
}

static void test_counts(void)
{
    const size_t lines = SHIPPED_EVENTS_MAX + 1;
    char *text = malloc(2 * lines);
    for (size_t i = 0; i < lines; i++)
        memcpy(text + 2 * i, "a\n", 2);
    for (size_t more = 0; more < 2; more++) {
        struct result r = {.bytes = exact_copy(text, 2 * (lines - 1 + more)), .s = made(1u << 26)};
        const enum shipped_flaw flaw = lines_read(&r.s, r.bytes, 2 * (lines - 1 + more), NULL, 0);
        CHECK(flaw == (more ? SHIPPED_TOO_MANY : SHIPPED_FINE));
        result_free(&r);
    }
    free(text);
    char *items = malloc((SHIPPED_KINDS_MAX + 1) * 64), *at = items;
    for (uint32_t i = 0; i <= SHIPPED_KINDS_MAX; i++)
        at += sprintf(at, "{\"event\":1,\"index\":\"i%u\"}", i);
    struct result r = {.bytes = exact_copy(items, (size_t)(at - items)), .s = made(1u << 26)};
    CHECK(hec_read(&r.s, r.bytes, (size_t)(at - items)) == SHIPPED_KINDS);
    CHECK(r.s.at == SHIPPED_KINDS_MAX);
    result_free(&r);
    free(items);
}

static void test_columns(void)
{
    struct result r = read_text(
        hec_read, "{\"event\":\"one\",\"time\":1700000002,\"host\":\"h\"}"
                  "{\"event\":\"no\",\"index\":\"i\"}"
                  "{\"event\":\"three\"}{\"event\":\"four\",\"time\":1700000001}");
    struct chunk_columns c;
    uint8_t *memory;
    CHECK(r.flaw == SHIPPED_FINE && r.s.kind_count == 2);
    CHECK(shipped_columns(&r.s, (const uint8_t[]){1, 0}, NOW, &c, &memory));
    CHECK(c.count == 3 && is_text(c.vals, c.vals_bytes, "onethreefour"));
    CHECK(c.val_len[0] == 3 && c.val_len[1] == 5 && c.val_len[2] == 4 && c.key_len == NULL);
    /* The one without a time is of now. */
    CHECK(c.base_timestamp_us == NOW && c.max_timestamp_us == NOW + 2000000);
    CHECK(c.ts_delta[0] == 2000000 && c.ts_delta[1] == 0 && c.ts_delta[2] == 1000000);
    CHECK(c.ts_high == NULL && c.hdr_len[0] == c.hdrs_bytes && c.hdr_len[1] == KEY_NULL);
    free(memory);
    CHECK(shipped_columns(&r.s, (const uint8_t[]){0, 1}, NOW, &c, &memory));
    CHECK(c.count == 1 && c.base_timestamp_us == 0 && c.ts_delta == NULL && c.hdr_len == NULL);
    free(memory);
    result_free(&r);
    r = read_text(bulk_read, "{\"index\":{\"_id\":\"k\"}}\n{}\n{\"index\":{}}\n{}\n");
    CHECK(shipped_columns(&r.s, (const uint8_t[]){1}, NOW, &c, &memory));
    CHECK(c.count == 2 && c.key_len[0] == 1 && c.key_len[1] == KEY_NULL && *c.keys == 'k');
    free(memory);
    result_free(&r);
}

int main(void)
{
    test_bulk();
    test_bulk_refused();
    test_hec();
    test_hec_refused();
    test_lines();
    test_budget();
    test_counts();
    test_columns();
    return 0;
}
