/* OpenTelemetry's requests, as protobuf and as JSON: what events they are, what is refused. */
#include "format/otlp.h"
#include "format/otlp_json.h"

#include "shipped_testing.h"

/* ---- messages, as another program writes them ---- */

struct made {
    uint8_t bytes[4096];
    size_t len;
};

static void add(struct made *m, const void *bytes, size_t len)
{
    CHECK(m->len + len <= sizeof m->bytes);
    memcpy(m->bytes + m->len, bytes, len);
    m->len += len;
}

static void add_varint(struct made *m, uint64_t value)
{
    while (value > 0x7f) {
        add(m, (uint8_t[]){(uint8_t)(value | 0x80)}, 1);
        value >>= 7;
    }
    add(m, (uint8_t[]){(uint8_t)value}, 1);
}

static void add_bytes(struct made *m, uint32_t number, const void *bytes, size_t len)
{
    add_varint(m, number << 3 | WIRE_BYTES);
    add_varint(m, len);
    add(m, bytes, len);
}

static void add_text(struct made *m, uint32_t number, const char *text)
{
    add_bytes(m, number, text, strlen(text));
}

static void add_made(struct made *m, uint32_t number, const struct made *inner)
{
    add_bytes(m, number, inner->bytes, inner->len);
}

static void add_number(struct made *m, uint32_t number, uint64_t value)
{
    add_varint(m, number << 3 | WIRE_VARINT);
    add_varint(m, value);
}

static void add_fixed64(struct made *m, uint32_t number, uint64_t value)
{
    add_varint(m, number << 3 | WIRE_FIXED64);
    add(m, &value, 8);
}

static struct made text_value(const char *text)
{
    struct made m = {.len = 0};
    add_text(&m, 1, text);
    return m;
}

static struct made pair(const char *key, const struct made *value)
{
    struct made m = {.len = 0};
    add_text(&m, 1, key);
    add_made(&m, 2, value);
    return m;
}

/* One request of one resource with one scope, and these records. */
static struct made request_of(const struct made *records, int count)
{
    struct made host = text_value("h\"1"), attribute = pair("host.name", &host);
    struct made resource = {.len = 0}, scope = {.len = 0}, scope_logs = {.len = 0};
    struct made resource_logs = {.len = 0}, request = {.len = 0};
    add_made(&resource, 1, &attribute);
    add_text(&scope, 1, "app");
    for (int i = 0; i < count; i++)
        add_made(&scope_logs, 2, &records[i]);
    add_made(&scope_logs, 1, &scope); /* in any order */
    add_made(&resource_logs, 2, &scope_logs);
    add_made(&resource_logs, 1, &resource);
    add_made(&request, 1, &resource_logs);
    return request;
}

/* ---- what is read ---- */

static void is_value(const struct result *r, uint32_t at, const char *text)
{
    CHECK(r->flaw == SHIPPED_FINE && at < r->s.count);
    const struct shipped_event *event = &r->s.events[at];
    if (event->value_len != strlen(text) || memcmp(event->value, text, strlen(text)) != 0) {
        fprintf(stderr, "%.*s is not %s\n", (int)event->value_len, event->value, text);
        exit(1);
    }
}

static void has_headers(const struct result *r, uint32_t at, const char *resource,
                        const char *scope)
{
    const uint8_t *headers = r->s.events[at].headers;
    CHECK(headers_valid(headers, r->s.events[at].headers_len) && headers_begin(&headers) == 2);
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "otel-scope" : "otel-resource", *value = i ? scope : resource;
        const struct header header = headers_next(&headers);
        CHECK(header.name_len == strlen(name) && memcmp(header.name, name, header.name_len) == 0);
        CHECK(header.value_len == strlen(value));
        CHECK(memcmp(header.value, value, header.value_len) == 0);
    }
}

static struct made record_of_all(void)
{
    const double third = 1.0 / 3, whole = 3;
    uint64_t bits[2];
    struct made r = {.len = 0}, text = text_value("a\n\"b\" \xc3\xa9"), number = {.len = 0};
    struct made real = {.len = 0}, flag = {.len = 0}, bytes = {.len = 0}, list = {.len = 0};
    struct made array = {.len = 0}, pairs = {.len = 0}, map = {.len = 0}, spoilt = {.len = 0};
    memcpy(bits, (const double[]){third, whole}, sizeof bits);
    add_fixed64(&r, 1, NOW * 1000ull + 7);
    add_number(&r, 2, 9);
    add_text(&r, 3, "INFO");
    add_made(&r, 5, &text);
    add_number(&number, 3, (uint64_t)-5);
    add_fixed64(&real, 4, bits[0]);
    add_number(&flag, 2, 1);
    add_bytes(&bytes, 7, "\xff\x00", 2);
    add_bytes(&spoilt, 1, "x\xff", 2);
    add_made(&list, 1, &number);
    add_fixed64(&list, 77, 0); /* not known */
    struct made second = {.len = 0};
    add_fixed64(&second, 4, bits[1]);
    add_made(&list, 1, &second);
    add_made(&array, 5, &list);
    struct made inner = pair("b", &flag);
    add_made(&pairs, 1, &inner);
    add_made(&map, 6, &pairs);
    const struct made *const values[] = {&number, &real, &bytes, &array, &map, &spoilt};
    for (int i = 0; i < 6; i++) {
        struct made each = pair((const char[]){(char)('m' + i), 0}, values[i]);
        add_made(&r, 6, &each);
    }
    add_bytes(&r, 9, "\x00\x1f", 2);
    return r;
}

static void test_protobuf(void)
{
    struct made records[2] = {record_of_all(), {.len = 0}};
    add_fixed64(&records[1], 11, (NOW + 5) * 1000ull);
    const struct made request = request_of(records, 2);
    struct result r = read_bytes(otlp_read, request.bytes, request.len);
    is_value(&r, 0,
             "{\"timeUnixNano\":\"1700000000000000007\",\"severityNumber\":9,\"severityText\":"
             "\"INFO\",\"body\":{\"stringValue\":\"a\\u000a\\\"b\\\" \xc3\xa9\"},\"attributes\":["
             "{\"key\":\"m\",\"value\":{\"intValue\":\"-5\"}},"
             "{\"key\":\"n\",\"value\":{\"doubleValue\":0.33333333333333331}},"
             "{\"key\":\"o\",\"value\":{\"bytesValue\":\"/wA=\"}},"
             "{\"key\":\"p\",\"value\":{\"arrayValue\":{\"values\":[{\"intValue\":\"-5\"},"
             "{\"doubleValue\":3}]}}},"
             "{\"key\":\"q\",\"value\":{\"kvlistValue\":{\"values\":[{\"key\":\"b\",\"value\":"
             "{\"boolValue\":true}}]}}},"
             "{\"key\":\"r\",\"value\":{\"stringValue\":\"x\\ufffd\"}}],\"traceId\":\"001f\"}");
    CHECK(r.s.events[0].time_us == NOW && r.s.events[1].time_us == NOW + 5);
    is_value(&r, 1, "{\"observedTimeUnixNano\":\"1700000000000005000\"}");
    const char *resource = "{\"attributes\":[{\"key\":\"host.name\",\"value\":"
                           "{\"stringValue\":\"h\\\"1\"}}]}";
    has_headers(&r, 0, resource, "{\"name\":\"app\"}");
    CHECK(r.s.events[0].headers == r.s.events[1].headers && r.s.kind_count == 1);
    result_free(&r);
}

static void test_protobuf_refused(void)
{
    struct made record = record_of_all();
    const struct made request = request_of(&record, 1);
    for (size_t len = 1; len < request.len; len++) { /* cut off anywhere */
        struct result r = read_bytes(otlp_read, request.bytes, len);
        CHECK(r.flaw == SHIPPED_SYNTAX);
        result_free(&r);
    }
    /* Values within values, one more than may be. */
    for (int depth = 14; depth < 20; depth++) {
        struct made value = text_value("x");
        for (int i = 0; i < depth; i++) {
            struct made list = {.len = 0}, outer = {.len = 0};
            add_made(&list, 1, &value);
            add_made(&outer, 5, &list);
            value = outer;
        }
        struct made deep = {.len = 0};
        add_made(&deep, 5, &value);
        const struct made whole = request_of(&deep, 1);
        struct result r = read_bytes(otlp_read, whole.bytes, whole.len);
        CHECK(r.flaw == (depth > 15 ? SHIPPED_SYNTAX : SHIPPED_FINE));
        result_free(&r);
    }
    /* One that is too large is rejected alone. */
    char text[EVENT_MAX + 1] = {0};
    memset(text, 'x', EVENT_MAX);
    struct made body = text_value(text), records[2] = {{.len = 0}, {.len = 0}};
    add_made(&records[0], 5, &body);
    const struct made both = request_of(records, 2);
    struct result r = read_bytes(otlp_read, both.bytes, both.len);
    is_value(&r, 1, "{}");
    CHECK(r.s.kinds[0].flaw == SHIPPED_EVENT_TOO_LARGE && r.s.kinds[0].count == 1);
    CHECK(r.s.kinds[1].flaw == SHIPPED_FINE && r.s.events[0].kind == 0);
    result_free(&r);
}

static void test_json(void)
{
    const char *text =
        " {\"x\":1,\"resourceLogs\":[{\"scopeLogs\":[{\"logRecords\":[ "
        "{\"timeUnixNano\":\"1700000000000001000\",\"body\":{\"stringValue\":\"}]\"}} ,"
        "{\"timeUnixNano\":0,\"observedTimeUnixNano\":1700000000000002000}],"
        "\"scope\":{\"name\":\"app\"}},{}],\"resource\":{\"attributes\":[]}},{}]}\n";
    struct result r = read_bytes(otlp_read_json, text, strlen(text));
    is_value(&r, 0, "{\"timeUnixNano\":\"1700000000000001000\",\"body\":{\"stringValue\":\"}]\"}}");
    CHECK(r.s.count == 2 && r.s.events[0].time_us == NOW + 1 && r.s.events[1].time_us == NOW + 2);
    has_headers(&r, 1, "{\"attributes\":[]}", "{\"name\":\"app\"}");
    result_free(&r);
    for (size_t len = 1; len + 2 < strlen(text); len++) { /* cut off anywhere */
        r = read_bytes(otlp_read_json, text, len);
        CHECK(r.flaw == SHIPPED_SYNTAX);
        result_free(&r);
    }
    static const char *const wrong[] = {
        "[]", "{} {}", "{\"resourceLogs\":{}}", "{\"resourceLogs\":[1]}",
        "{\"resourceLogs\":[{\"scopeLogs\":[{\"logRecords\":[[]]}]}]}", "",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        r = read_bytes(otlp_read_json, wrong[i], strlen(wrong[i]));
        CHECK(r.flaw == SHIPPED_SYNTAX);
        result_free(&r);
    }
    /* Headers that are too long: its records are rejected, and no others. */
    static char large[40000];
    snprintf(large, sizeof large,
             "{\"resourceLogs\":[{\"resource\":{\"a\":\"%020000d\"},\"scopeLogs\":[{\"logRecords\":"
             "[{}]}]},{\"scopeLogs\":[{\"logRecords\":[{}]}]}]}", 7);
    r = read_bytes(otlp_read_json, large, strlen(large));
    is_value(&r, 1, "{}");
    CHECK(r.s.kinds[0].flaw == SHIPPED_HEADERS && r.s.events[1].headers_len == 0);
    result_free(&r);
}

/* A string of any length, with what needs care anywhere in it, byte by byte. */
static size_t written(const uint8_t *text, size_t len, uint8_t *out)
{
    size_t at = 0;
    out[at++] = '"';
    for (size_t i = 0; i < len; i++) {
        if (text[i] < 0x20) {
            at += (size_t)sprintf((char *)out + at, "\\u%04x", text[i]);
            continue;
        }
        if (text[i] == '"' || text[i] == '\\')
            out[at++] = '\\';
        out[at++] = text[i];
    }
    out[at++] = '"';
    return at;
}

static void test_strings(void)
{
    static const uint8_t careful[] = {'"', '\\', 0x1f, 0x7f, 0xc3};
    uint8_t text[70], expected[6 * sizeof text + 2];
    uint64_t state = 29;
    for (int turn = 0; turn < 10000; turn++) {
        const size_t len = (size_t)turn % sizeof text;
        for (size_t i = 0; i < len; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            const unsigned any = (unsigned)(state >> 40);
            text[i] = any % 7 == 0 ? careful[any / 7 % 4] : (uint8_t)(0x20 + any % 95);
        }
        if (len >= 2 && turn % 3 == 0)
            memcpy(text + (unsigned)turn % (len - 1), "\xc3\xa9", 2); /* two bytes, one character */
        uint8_t *const exact = exact_copy(text, len);
        const size_t size = written(exact, len, expected);
        for (size_t less = 0; less < 24 && less < size; less++) {
            uint8_t *const room = exact_copy(expected, size - less);
            struct json_draft draft = {.out = room, .cap = size - less};
            memset(room, 0, size - less);
            json_put_string(&draft, (struct message){exact, exact + len});
            CHECK(draft.is_full == (less > 0) && draft.len <= size - less);
            CHECK(less > 0 || (draft.len == size && memcmp(room, expected, size) == 0));
            free(room);
        }
        free(exact);
    }
}

int main(void)
{
    test_strings();
    test_protobuf();
    test_protobuf_refused();
    test_json();
    return 0;
}
