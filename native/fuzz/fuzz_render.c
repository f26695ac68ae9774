/* Fuzzes JSON rendering with any bytes as topic, key and value: the output is always valid JSON
 * within its bound, on one line for each event. */
#include "tests/render_testing.h"

#include <sys/param.h>

#include "format/headers.h"
#include "fuzz_codec.h"
#include "base/json.h"

static void check_validators(const uint8_t *data, size_t len)
{
    if (!json_valid(data, len))
        return;
    REQUIRE(utf8_valid(data, len));
    uint8_t *spaced = malloc(len + 2);
    spaced[0] = ' ';
    memcpy(spaced + 1, data, len);
    spaced[len + 1] = '\n';
    REQUIRE(json_valid(spaced, len + 2));
    spaced[0] = ','; /* Never at the start of a value. */
    REQUIRE(!json_valid(spaced, len + 2));
    free(spaced);
}

/* Values nested as deep as is spliced are one deeper in their envelope. */
static bool valid_inside(const char *text, size_t len)
{
    size_t depth = 0;
    for (size_t i = 0; i < len; i++)
        depth += text[i] == '[' || text[i] == '{';
    return depth >= JSON_DEPTH_MAX || json_valid((const uint8_t *)text, len);
}

static void check_lines(const char *text, size_t len, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const char *end = memchr(text, '\n', len);
        REQUIRE(end != NULL && memchr(text, '\r', (size_t)(end - text)) == NULL);
        REQUIRE(valid_inside(text, (size_t)(end - text)));
        len -= (size_t)(end + 1 - text);
        text = end + 1;
    }
    REQUIRE(len == 0);
}

/* Whatever is asked of them: some of the events, or none, on lines that are whole. */
static void check_meant(const struct chunk_view *view, char *out, size_t bound, uint8_t *scratch)
{
    static const uint8_t text[] = "a1";
    size_t scratch_bytes = chunk_scratch_bytes(view), room_bytes = view->raw_bytes + 1;
    struct conditions where = {.count = 1, .room = malloc(room_bytes), .room_bytes = room_bytes};
    struct condition *one = &where.each[0];
    const struct line_frame frame = {.where = &where};
    for (int each = 0; each < CONDITION_OF_COUNT * CONDITION_TEST_COUNT; each++) {
        *one = (struct condition){.of = (enum condition_of)(each / CONDITION_TEST_COUNT),
                                  .test = (enum condition_test)(each % CONDITION_TEST_COUNT),
                                  .name = text, .name_len = 1, .text = text + each % 2,
                                  .text_len = 1, .has_number = each % 2 == 1, .number = 1};
        one->steps[0] = (struct condition_step){each % 3 == 0 ? NULL : text, 1, 1};
        one->step_count = each % 5 == 0 ? 0 : 1;
        ssize_t n = render_ndjson(view, 0, UINT64_MAX, &frame, scratch, scratch_bytes, out, bound,
                                  NULL);
        REQUIRE(n >= 0 && (size_t)n <= bound && (n == 0 || out[n - 1] == '\n'));
    }
    free(where.room);
}

static void check_render(const struct chunk_view *view)
{
    size_t scratch_bytes = chunk_scratch_bytes(view), bound = render_bound(view);
    uint8_t *scratch = malloc(scratch_bytes);
    char *out = malloc(bound + 2);
    out[0] = '[';
    ssize_t n = render_json_values(view, 0, UINT64_MAX, scratch, scratch_bytes, out + 1, bound,
                                   NULL);
    REQUIRE(n > 0 && (size_t)n <= bound);
    out[n + 1] = ']';
    REQUIRE(valid_inside(out, (size_t)n + 2));
    const struct line_frame frame = {.token = -1};
    n = render_ndjson(view, 0, UINT64_MAX, &frame, scratch, scratch_bytes, out, bound, NULL);
    REQUIRE(n > 0 && (size_t)n <= bound);
    check_lines(out, (size_t)n, view->count);

    check_meant(view, out, bound, scratch);
    char *exact = malloc((size_t)n); /* One byte less does not fit, and is not written beyond. */
    REQUIRE(render_ndjson(view, 0, UINT64_MAX, &frame, scratch, scratch_bytes, exact,
                          (size_t)n - 1, NULL) == -3);
    free(exact);
    free(out);
    free(scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len == 0 || len > 1 << 16)
        return 0;
    /* Three events: all the bytes, the first half, the second half; keys from the same bytes. A
     * fourth has no value, and two headers of them. */
    uint32_t half = (uint32_t)len / 2, all = (uint32_t)len;
    static uint8_t hdrs[HEADERS_STORED_MAX];
    struct headers_draft draft = {.out = hdrs};
    const struct header first = {data, data, MIN(half, HEADER_NAME_MAX), MIN(all, 4096)};
    const struct header second = {(const uint8_t *)"a", data, 1, MIN(half, 4096)};
    headers_add(&draft, &first);
    REQUIRE(headers_add(&draft, &second) && headers_valid(hdrs, draft.len));
    uint32_t val_len[4] = {all, half, all - half, KEY_NULL};
    uint32_t key_len[4] = {half, KEY_NULL, all - half, KEY_NULL};
    uint32_t hdr_len[4] = {KEY_NULL, KEY_NULL, KEY_NULL, (uint32_t)draft.len};
    uint8_t *values = malloc(2 * len), *copy = copy_of(data, len);
    memcpy(values, data, len);
    memcpy(values + len, data, len);
    check_validators(copy, len);

    struct chunk_columns c = {.topic = (const char *)copy, .topic_len = (uint8_t)MIN(len, 127),
                              .count = 4, .base_timestamp_us = INT64_MIN, .key_len = key_len,
                              .val_len = val_len, .keys = copy, .keys_bytes = all, .vals = values,
                              .vals_bytes = 2 * all, .hdr_len = hdr_len, .hdrs = hdrs,
                              .hdrs_bytes = (uint32_t)draft.len};
    size_t bound = chunk_bound(&c);
    uint8_t *stored = malloc(bound);
    struct chunk_view view;
    size_t stored_bytes = chunk_seal(shared_sealer(), &c, stored, bound);
    REQUIRE(chunk_open(stored, stored_bytes, &view) == 0);
    check_render(&view);
    free(stored);
    free(copy);
    free(values);
    return 0;
}
