/* Fuzzes the reader of lines with keys. Whatever the bytes: no crash, no read past the end; places
 * lie within the body, in order; lines that are stored as they stand are not changed, and a value
 * ends where its own brackets do. */
#include "format/format.h"
#include "format/headers.h"
#include "format/keyed.h"

#include "fuzz_codec.h"

#define EVENT_MAX 4096u
#define NOW_US 1764230400000000LL

static uint8_t room[2][KEYED_KEY_MAX], headers_room[HEADERS_STORED_MAX];

/* Where a container ends, byte by byte; 0: nowhere. */
static size_t plain_end(const uint8_t *p, size_t len)
{
    size_t depth = 0;
    int inside = 0;
    for (size_t i = 0; i < len; i++) {
        /* Outside of strings a backslash is no JSON; there it is taken for an escape, too. */
        if (p[i] == '\\') {
            i++;
        } else if (p[i] == '"') {
            inside = !inside;
        } else if (inside) {
            continue;
        } else if (p[i] == '{' || p[i] == '[') {
            depth++;
        } else if (p[i] == '}' || p[i] == ']') {
            if (--depth == 0)
                return i + 1;
        }
    }
    return 0;
}

/* Backslashes outside of strings: there the two ways to count may differ, and neither is wrong. */
static int has_stray(const uint8_t *p, size_t len)
{
    int inside = 0;
    for (size_t i = 0; i < len; i++) {
        if (p[i] == '\\') {
            if (!inside)
                return 1;
            i++;
        } else if (p[i] == '"') {
            inside = !inside;
        }
    }
    return 0;
}

static void check(const uint8_t *data, size_t len, const char *field)
{
    uint8_t *bytes = copy_of(data, len);
    const uint32_t most = keyed_lines_most(len);
    struct keyed_line *lines = malloc(most * sizeof *lines);
    const struct keyed_rules rules = {.field = (const uint8_t *)field,
                                      .field_len = field ? (uint32_t)strlen(field) : 0,
                                      .key_room = room[0],
                                      .headers_room = headers_room,
                                      .event_bytes_max = EVENT_MAX,
                                      .now_us = NOW_US,
                                      .due_least_us = NOW_US - 1000,
                                      .due_most_us = NOW_US + 1000000};
    uint32_t count;
    bool delayed;
    uint64_t line;
    const enum keyed_flaw flaw = keyed_read(bytes, len, &rules, lines, most, &count,
                                            &delayed, &line);
    REQUIRE(count <= most && flaw < KEYED_FLAWS && flaw != KEYED_TOO_MANY);
    REQUIRE(flaw == KEYED_FINE ? line >= count : line > count);
    REQUIRE(field == NULL || len == 0 || memcmp(bytes, data, len) == 0);
    uint64_t end = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *value = bytes + lines[i].value_at;
        REQUIRE(lines[i].timestamp == KEYED_NO_TIME || lines[i].timestamp >= TIMESTAMP_US_MIN);
        REQUIRE(!delayed || (lines[i].timestamp >= rules.due_least_us &&
                             lines[i].timestamp <= rules.due_most_us));
        REQUIRE((lines[i].timestamp == KEYED_NO_TIME) == (lines[0].timestamp == KEYED_NO_TIME));
        REQUIRE((uint64_t)lines[i].headers_at + lines[i].headers_len <= len);
        REQUIRE(lines[i].headers_len == 0 ||
                headers_valid(bytes + lines[i].headers_at, lines[i].headers_len));
        if (lines[i].value_len == KEY_NULL) {
            REQUIRE(field == NULL);
            lines[i].value_len = 0;
        } else {
            REQUIRE((uint64_t)lines[i].value_at + lines[i].value_len <= len);
            REQUIRE(lines[i].value_len <= EVENT_MAX && lines[i].value_at >= end);
            end = (uint64_t)lines[i].value_at + lines[i].value_len;
        }
        if (field == NULL && lines[i].value_len > 0 && (*value == '{' || *value == '[') &&
            data[lines[i].value_at] == *value && !has_stray(value, lines[i].value_len) &&
            lines[i].value_at > 0 && data[lines[i].value_at - 1] == ':')
            REQUIRE(plain_end(value, lines[i].value_len) == lines[i].value_len);
        if (lines[i].key_len == KEY_NULL)
            continue;
        REQUIRE(lines[i].key_len <= KEYED_KEY_MAX);
        const uint8_t *key = keyed_key(bytes, &lines[i], room[1]);
        REQUIRE(key == room[1] || key + lines[i].key_len <= bytes + len);
    }
    free(lines);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    check(data, len, NULL);
    check(data, len, "id");
    return 0;
}
