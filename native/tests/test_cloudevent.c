/* CloudEvents in structured mode: what becomes a header and what a value, and what is refused. */
#include "format/cloudevent.h"

#include "codec_testing.h"

#define REST "\"source\":\"/s\",\"specversion\":\"1.0\",\"type\":\"t\""

static uint8_t room[HEADERS_STORED_MAX];

struct result {
    uint8_t *bytes;
    struct headers_draft draft;
    struct cloudevent event;
    enum cloudevent_flaw flaw;
};

static struct result read_text(const char *text)
{
    struct result r = {.bytes = exact_copy(text, strlen(text)), .draft = {.out = room}};
    struct cloudevents events;
    r.flaw = cloudevents_open(r.bytes, strlen(text), false, &events)
                 ? cloudevents_next(&events, &r.draft, &r.event)
                 : CLOUDEVENT_SYNTAX;
    return r;
}

static int has(const struct headers_draft *draft, const char *name, const char *value)
{
    const uint8_t *at = draft->out;
    for (uint32_t left = draft->len > 0 ? headers_begin(&at) : 0; left > 0; left--) {
        const struct header each = headers_next(&at);
        if (each.name_len == strlen(name) && memcmp(each.name, name, each.name_len) == 0)
            return each.value_len == strlen(value) &&
                   memcmp(each.value, value, each.value_len) == 0;
    }
    return 0;
}

static int is_data(const struct result *r, const char *text)
{
    return r->event.data_len == strlen(text) &&
           memcmp(r->bytes + r->event.data_at, text, strlen(text)) == 0;
}

static void test_attributes(void)
{
    struct result r = read_text(
        " {\"id\":\"a\\u00e9\\n\", \"data\" : {\"n\": [1, \"}\"]} ," REST
        ",\"time\":\"1969-12-31T23:59:59.5+01:00\",\"count\":-5,\"yes\":true,\"none\":null,"
        "\"partitionkey\":\"k\",\"datacontenttype\":\"application/json; charset=utf-8\"} ");
    CHECK(r.flaw == CLOUDEVENT_FINE && r.draft.count == 9);
    CHECK(headers_valid(r.draft.out, r.draft.len));
    CHECK(has(&r.draft, "ce-id", "a\xc3\xa9\n") && has(&r.draft, "ce-source", "/s"));
    CHECK(has(&r.draft, "ce-specversion", "1.0") && has(&r.draft, "ce-type", "t"));
    CHECK(has(&r.draft, "ce-time", "1969-12-31T23:59:59.5+01:00"));
    CHECK(has(&r.draft, "ce-count", "-5") && has(&r.draft, "ce-yes", "true"));
    CHECK(has(&r.draft, "ce-partitionkey", "k"));
    CHECK(has(&r.draft, "content-type", "application/json; charset=utf-8"));
    CHECK(is_data(&r, "{\"n\": [1, \"}\"]}") && r.event.json); /* as it stands */
    free(r.bytes);
}

static void test_data(void)
{
    static const struct {
        const char *members, *data;
        bool json;
    } cases[] = {
        {"\"data\":\"a\\\"b\"", "\"a\\\"b\"", true}, /* JSON stays as it stands */
        {"\"data\":12.50", "12.50", true},
        {"\"data\":\"a\\\"b\",\"datacontenttype\":\"text/plain\"", "a\"b", false},
        {"\"datacontenttype\":\"application/xml\",\"data\":\"<a/>\"", "<a/>", false},
        {"\"datacontenttype\":\"a/b+JSON\",\"data\":[]", "[]", true},
        {"\"data_base64\":\"AGEA/w==\",\"datacontenttype\":\"a/b\"", "", false},
        {"\"data_base64\":\"aGk=\"", "hi", false},
        {"\"data_base64\":\"aG\\u006b=\"", "hi", false}, /* JSON may escape what it likes */
        {"\"data\":\"\",\"datacontenttype\":\"text/plain\"", "", false},
    };
    char text[300];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, "{\"id\":\"1\"," REST ",%s}", cases[i].members);
        struct result r = read_text(text);
        CHECK(r.flaw == CLOUDEVENT_FINE && r.event.json == cases[i].json);
        if (i == 5)
            CHECK(r.event.data_len == 4 && memcmp(r.bytes + r.event.data_at, "\0a\0\xff", 4) == 0);
        else
            CHECK(is_data(&r, cases[i].data));
        free(r.bytes);
    }
    static const char *const none[] = {"{\"id\":\"1\"," REST "}",
                                       "{\"id\":\"1\"," REST ",\"data\":null}",
                                       "{\"id\":\"1\",\"data_base64\":null," REST "}"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        struct result r = read_text(none[i]);
        CHECK(r.flaw == CLOUDEVENT_FINE && r.event.data_len == CLOUDEVENT_NO_DATA);
        free(r.bytes);
    }
}

static void test_refusals(void)
{
    static const struct {
        const char *text;
        enum cloudevent_flaw flaw;
    } cases[] = {
        {"", CLOUDEVENT_SYNTAX},
        {"[]", CLOUDEVENT_SYNTAX},
        {"{\"id\":\"1\"," REST, CLOUDEVENT_SYNTAX},
        {"{\"id\":\"1\"," REST "} x", CLOUDEVENT_SYNTAX},
        {"{\"id\":\"\xff\"," REST "}", CLOUDEVENT_SYNTAX},
        {"{\"id\":\"\\ud800\"," REST "}", CLOUDEVENT_SYNTAX},
        {"{}", CLOUDEVENT_LACKS},
        {"{" REST "}", CLOUDEVENT_LACKS},
        {"{\"id\":null," REST "}", CLOUDEVENT_LACKS},
        {"{\"id\":\"1\",\"source\":\"/s\",\"type\":\"t\"}", CLOUDEVENT_LACKS},
        {"{\"id\":\"\"," REST "}", CLOUDEVENT_ATTRIBUTE},
        {"{\"id\":1," REST "}", CLOUDEVENT_ATTRIBUTE},
        {"{\"id\":\"1\",\"id\":\"1\"," REST "}", CLOUDEVENT_ATTRIBUTE},
        {"{\"id\":\"1\",\"x\":\"1\",\"x\":\"2\"," REST "}", CLOUDEVENT_ATTRIBUTE},
        {"{\"id\":\"1\",\"X\":\"1\"," REST "}", CLOUDEVENT_ATTRIBUTE},
        {"{\"id\":\"1\",\"\":\"1\"," REST "}", CLOUDEVENT_ATTRIBUTE},
        {"{\"id\":\"1\",\"a_b\":\"1\"," REST "}", CLOUDEVENT_ATTRIBUTE},
        {"{\"\\u0069d\":\"1\"," REST "}", CLOUDEVENT_ATTRIBUTE},
        {"{\"id\":\"1\",\"x\":{}," REST "}", CLOUDEVENT_ATTRIBUTE},
        {"{\"id\":\"1\",\"x\":[1]," REST "}", CLOUDEVENT_ATTRIBUTE},
        {"{\"id\":\"1\",\"datacontenttype\":\"a/b\",\"datacontenttype\":\"a/b\"," REST "}",
         CLOUDEVENT_ATTRIBUTE},
        {"{\"id\":\"1\",\"source\":\"/s\",\"specversion\":\"0.3\",\"type\":\"t\"}",
         CLOUDEVENT_VERSION},
        {"{\"id\":\"1\",\"time\":\"today\"," REST "}", CLOUDEVENT_TIME},
        {"{\"id\":\"1\",\"time\":\"2026-01-01T00:00:00\"," REST "}", CLOUDEVENT_TIME},
        {"{\"id\":\"1\",\"time\":\"0000-01-01T00:00:00Z\"," REST "}", CLOUDEVENT_TIME},
        {"{\"id\":\"1\",\"time\":20260101," REST "}", CLOUDEVENT_TIME},
        {"{\"id\":\"1\",\"data\":1,\"data\":1," REST "}", CLOUDEVENT_DATA},
        {"{\"id\":\"1\",\"data\":1,\"data_base64\":\"\"," REST "}", CLOUDEVENT_DATA},
        {"{\"id\":\"1\",\"data_base64\":\"a\"," REST "}", CLOUDEVENT_DATA},
        {"{\"id\":\"1\",\"data_base64\":\"aGl=\"," REST "}", CLOUDEVENT_DATA},
        {"{\"id\":\"1\",\"data_base64\":\"====\"," REST "}", CLOUDEVENT_DATA},
        {"{\"id\":\"1\",\"data_base64\":5," REST "}", CLOUDEVENT_DATA},
        {"{\"id\":\"1\",\"data\":{},\"datacontenttype\":\"text/plain\"," REST "}",
         CLOUDEVENT_DATA},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct result r = read_text(cases[i].text);
        if (r.flaw != cases[i].flaw) {
            fprintf(stderr, "%s: flaw %d\n", cases[i].text, r.flaw);
            exit(1);
        }
        free(r.bytes);
    }
}

static void test_limits(void)
{
    char *text = malloc(HEADERS_BYTES_MAX + 4096), *at = text;
    at += sprintf(at, "{\"id\":\"1\"," REST);
    for (int i = 0; i < 61; i++)
        at += sprintf(at, ",\"x%d\":%d%s", i, i, i == 60 ? "}" : "");
    struct result r = read_text(text);
    CHECK(r.flaw == CLOUDEVENT_HEADERS); /* the 65th */
    free(r.bytes);
    sprintf(at - strlen(",\"x60\":60}"), "}");
    r = read_text(text);
    CHECK(r.flaw == CLOUDEVENT_FINE && r.draft.count == EVENT_HEADERS_MAX);
    free(r.bytes);
    at = text + sprintf(text, "{\"id\":\"");
    memset(at, 'i', HEADERS_BYTES_MAX + 1);
    sprintf(at + HEADERS_BYTES_MAX + 1, "\"," REST "}");
    r = read_text(text);
    CHECK(r.flaw == CLOUDEVENT_HEADERS);
    free(r.bytes);
    free(text);
}

static void test_batches(void)
{
    static const char text[] =
        " [ {\"id\":\"1\"," REST ",\"data\":1} , {\"id\":\"2\",\"data_base64\":\"aGk=\"," REST "}"
        ",{\"id\":\"3\"," REST "} ] ";
    uint8_t *bytes = exact_copy(text, sizeof text - 1);
    struct cloudevents events;
    CHECK(cloudevents_open(bytes, sizeof text - 1, true, &events) && events.count == 3);
    for (int i = 1; i <= 3; i++) {
        struct headers_draft draft = {.out = room};
        struct cloudevent event;
        char id[2] = {(char)('0' + i), 0};
        CHECK(cloudevents_next(&events, &draft, &event) == CLOUDEVENT_FINE);
        CHECK(has(&draft, "ce-id", id));
        CHECK((event.data_len == CLOUDEVENT_NO_DATA) == (i == 3));
    }
    free(bytes);
    static const char *const others[] = {"{}", "", "[", "[1,]", "[{}]x"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        bytes = exact_copy(others[i], strlen(others[i]));
        CHECK(!cloudevents_open(bytes, strlen(others[i]), true, &events));
        free(bytes);
    }
    bytes = exact_copy("[ ]", 3);
    CHECK(cloudevents_open(bytes, 3, true, &events) && events.count == 0);
    free(bytes);
    bytes = exact_copy("[1]", 3);
    struct headers_draft draft = {.out = room};
    struct cloudevent event;
    CHECK(cloudevents_open(bytes, 3, true, &events) && events.count == 1);
    CHECK(cloudevents_next(&events, &draft, &event) == CLOUDEVENT_SYNTAX);
    free(bytes);
}

int main(void)
{
    test_attributes();
    test_data();
    test_refusals();
    test_limits();
    test_batches();
    return 0;
}
