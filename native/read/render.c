#include "read/render.h"

#include <stdbool.h>
#include <string.h>

#include "base/decimal.h"
#include "base/json.h"
#include "format/headers.h"

/* Where the text goes. Once something did not fit, full is set and the rest is dropped. */
struct sink {
    char *p, *end;
    bool full;
};

static inline bool room_for(struct sink *out, size_t len)
{
    if ((size_t)(out->end - out->p) >= len)
        return true;
    out->full = true;
    return false;
}

static void put(struct sink *out, const void *text, size_t len)
{
    if (len == 0 || !room_for(out, len))
        return;
    memcpy(out->p, text, len);
    out->p += len;
}

#define PUT_LITERAL(out, text) put(out, text, sizeof(text) - 1)

static void put_unsigned(struct sink *out, uint64_t value)
{
    char digits[DECIMAL_MAX];
    put(out, digits, (size_t)(put_u64(digits, value) - digits));
}

static void put_signed(struct sink *out, int64_t value)
{
    if (value < 0)
        PUT_LITERAL(out, "-");
    put_unsigned(out, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

/* One byte that may not stand in a string as it is. */
static void put_escape(struct sink *out, uint8_t c)
{
    static const char hex[] = "0123456789abcdef";
    static const char letter[32] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n',
                                    ['\f'] = 'f', ['\r'] = 'r'};
    if (c == '"' || c == '\\') {
        char escape[2] = {'\\', (char)c};
        put(out, escape, 2);
    } else if (letter[c] != 0) {
        char escape[2] = {'\\', letter[c]};
        put(out, escape, 2);
    } else {
        char escape[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
        put(out, escape, 6);
    }
}

/* Valid UTF-8 as a JSON string. */
static void put_string(struct sink *out, const uint8_t *p, size_t len)
{
    size_t at = 0;
    PUT_LITERAL(out, "\"");
    while (at < len && !out->full) {
        size_t run = json_plain_run(p + at, len - at);
        while (at + run < len && p[at + run] >= 0x80) /* Parts of valid characters. */
            run++;
        put(out, p + at, run);
        at += run;
        if (at < len && (p[at] < 0x20 || p[at] == '"' || p[at] == '\\'))
            put_escape(out, p[at++]);
    }
    PUT_LITERAL(out, "\"");
}

static void put_base64(struct sink *out, const uint8_t *p, size_t len)
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    PUT_LITERAL(out, "{\"base64\":\"");
    if (!room_for(out, (len + 2) / 3 * 4))
        return;
    for (; len >= 3; len -= 3, p += 3) {
        uint32_t x = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
        *out->p++ = alphabet[x >> 18];
        *out->p++ = alphabet[x >> 12 & 63];
        *out->p++ = alphabet[x >> 6 & 63];
        *out->p++ = alphabet[x & 63];
    }
    if (len > 0) {
        uint32_t x = (uint32_t)p[0] << 16 | (len == 2 ? (uint32_t)p[1] << 8 : 0);
        *out->p++ = alphabet[x >> 18];
        *out->p++ = alphabet[x >> 12 & 63];
        *out->p++ = len == 2 ? alphabet[x >> 6 & 63] : '=';
        *out->p++ = '=';
    }
    PUT_LITERAL(out, "\"}");
}

static void put_text(struct sink *out, const uint8_t *p, size_t len)
{
    if (utf8_valid(p, len))
        put_string(out, p, len);
    else
        put_base64(out, p, len);
}

/* one_line: line breaks become spaces. In valid JSON they only stand between tokens. */
static void put_value(struct sink *out, const uint8_t *p, size_t len, bool one_line)
{
    if (!json_valid(p, len)) {
        put_text(out, p, len);
        return;
    }
    char *start = out->p;
    put(out, p, len);
    if (!one_line)
        return;
    for (char *at = start; (at = memchr(at, '\n', (size_t)(out->p - at))) != NULL; at++)
        *at = ' ';
    for (char *at = start; (at = memchr(at, '\r', (size_t)(out->p - at))) != NULL; at++)
        *at = ' ';
}


_Static_assert(COLUMN_BYTES_COUNT == 3, "an event is shown with key, value and headers");

/* The events of a chunk one after another. */
struct walk {
    struct batch_columns c;
    struct column_numbers numbers[COLUMN_COUNT];
    uint32_t number_count;
    uint32_t index, last; /* last: one behind the last event wanted */
    const uint8_t *key, *val, *headers;
};

static inline uint32_t key_bytes(const struct walk *w)
{
    return w->c.key_len == NULL ? 0 : bytes_of(w->c.key_len[w->index]);
}

static inline uint32_t value_bytes(const struct walk *w)
{
    return bytes_of(w->c.val_len[w->index]);
}

static inline uint32_t headers_bytes(const struct walk *w)
{
    return w->c.hdr_len == NULL ? 0 : bytes_of(w->c.hdr_len[w->index]);
}

static void step(struct walk *w)
{
    /* Key bytes may be absent altogether; a null pointer must not even be moved by 0. */
    if (w->key != NULL)
        w->key += key_bytes(w);
    if (w->headers != NULL)
        w->headers += headers_bytes(w);
    w->val += value_bytes(w);
    w->index++;
}

/* Unpacks, and stands on the first event wanted: 1; 0 no event in the range; -1 malformed. */
static int start_walk(struct walk *w, const struct chunk_view *view, uint64_t from, uint64_t to,
                      uint8_t *scratch, size_t scratch_cap)
{
    uint64_t base = view->base_offset, end = base + view->count;
    uint64_t first = from > base ? from : base;
    uint64_t last = to < end ? to : end;
    if (first >= last)
        return 0;
    if (chunk_unpack_columns(view, scratch, scratch_cap, &w->c) < 0)
        return -1;
    w->index = 0;
    w->last = (uint32_t)(last - base);
    w->key = w->c.keys;
    w->val = w->c.vals;
    w->headers = w->c.hdrs;
    w->number_count = columns_numbers(&w->c, view->base_timestamp_us, w->numbers);
    while (w->index < (uint32_t)(first - base))
        step(w);
    return 1;
}

/* Ends where the last event that did fit has ended: the text, and in *next the offset of the first
 * event that is not in it. All or nothing where nobody asks for that. */
static ssize_t finish(const struct sink *sink, const char *out, const char *fitted,
                      const struct chunk_view *view, uint32_t index, uint64_t *next)
{
    if (sink->full && (next == NULL || fitted == out))
        return -3;
    if (next != NULL)
        *next = view->base_offset + index;
    return (sink->full ? fitted : sink->p) - out;
}

static void put_event_value(struct sink *out, const struct walk *w, bool one_line)
{
    if (w->c.val_len[w->index] == KEY_NULL)
        PUT_LITERAL(out, "null");
    else
        put_value(out, w->val, w->c.val_len[w->index], one_line);
}

ssize_t render_json_values(const struct chunk_view *view, uint64_t from, uint64_t to,
                           uint8_t *scratch, size_t scratch_cap, char *out, size_t cap,
                           uint64_t *next)
{
    struct sink sink = {out, out + cap, false};
    const char *fitted = out;
    struct walk w;
    int found = start_walk(&w, view, from, to, scratch, scratch_cap);
    if (found <= 0)
        return found;
    while (w.index < w.last) {
        if (fitted > out)
            PUT_LITERAL(&sink, ",");
        put_event_value(&sink, &w, false);
        if (sink.full)
            break;
        fitted = sink.p;
        step(&w);
    }
    return finish(&sink, out, fitted, view, w.index, next);
}

static void put_key(struct sink *out, const struct walk *w)
{
    if (w->c.key_len == NULL || w->c.key_len[w->index] == KEY_NULL)
        PUT_LITERAL(out, "null");
    else if (w->c.key_len[w->index] == 0)
        PUT_LITERAL(out, "\"\"");
    else
        put_text(out, w->key, key_bytes(w));
}

static bool is_same_name(const struct header *one, const struct header *other)
{
    return one->name_len == other->name_len && memcmp(one->name, other->name, one->name_len) == 0;
}

/* As an object, whose names are there once: of a name that comes again the last one counts. */
static void put_headers(struct sink *out, const uint8_t *at)
{
    uint32_t left = headers_begin(&at);
    bool first = true;
    PUT_LITERAL(out, "{");
    while (left-- > 0) {
        const struct header header = headers_next(&at);
        const uint8_t *ahead = at;
        bool again = false;
        for (uint32_t i = 0; i < left && !again; i++) {
            const struct header later = headers_next(&ahead);
            again = is_same_name(&header, &later);
        }
        if (again)
            continue;
        if (!first)
            PUT_LITERAL(out, ",");
        first = false;
        put_string(out, header.name, header.name_len);
        PUT_LITERAL(out, ":");
        put_text(out, header.value, header.value_len);
    }
    PUT_LITERAL(out, "}");
}

/* What every line of a chunk starts with, up to the offset. */
static void put_line_start(struct sink *out, const struct chunk_view *view, int64_t token)
{
    PUT_LITERAL(out, "{\"topic\":");
    put_text(out, (const uint8_t *)view->topic, view->topic_len);
    PUT_LITERAL(out, ",\"token\":\"");
    put_signed(out, token);
    PUT_LITERAL(out, "\",\"rangeIndex\":");
    put_unsigned(out, view->slice);
    PUT_LITERAL(out, ",\"version\":");
    put_unsigned(out, view->epoch);
    PUT_LITERAL(out, ",\"offset\":\"");
}

static uint64_t event_timestamp(const struct chunk_view *view, const struct walk *w)
{
    return (uint64_t)view->base_timestamp_us + column_delta(&w->c, w->index);
}

/* What stands before each column of a line. */
#define COLUMN_LABEL(id, section, field, kind, bit, name, ...)                                     \
    {",\"" name "\":", sizeof(",\"" name "\":") - 1},
static const struct {
    const char *text;
    size_t len;
} labels[] = {COLUMNS(COLUMN_LABEL)};

static void put_id(struct sink *out, uint64_t offset, const struct line_frame *frame)
{
    PUT_LITERAL(out, ",\"id\":\"");
    put(out, frame->id, frame->id_len);
    put_unsigned(out, offset);
    PUT_LITERAL(out, ".");
    put_unsigned(out, frame->deliveries);
    PUT_LITERAL(out, "\",\"deliveries\":");
    put_unsigned(out, frame->deliveries);
}

static void put_event(struct sink *out, const struct chunk_view *view, const struct walk *w,
                      const struct line_frame *frame)
{
    put_unsigned(out, view->base_offset + w->index);
    PUT_LITERAL(out, "\"");
    if (frame->id != NULL)
        put_id(out, view->base_offset + w->index, frame);
    for (uint32_t i = 0; i < w->number_count; i++) {
        const size_t place = (size_t)(w->numbers[i].column - columns_table);
        put(out, labels[place].text, labels[place].len);
        put_signed(out, number_at(&w->numbers[i], w->index));
    }
    PUT_LITERAL(out, ",\"key\":");
    put_key(out, w);
    PUT_LITERAL(out, ",\"value\":");
    put_event_value(out, w, true);
    if (headers_bytes(w) > 0) {
        PUT_LITERAL(out, ",\"headers\":");
        put_headers(out, w->headers);
    }
    PUT_LITERAL(out, "}\n");
}

static bool is_meant(const struct walk *w, const struct conditions *where)
{
    if (where == NULL)
        return true;
    const bool keyed = w->c.key_len != NULL && w->c.key_len[w->index] != KEY_NULL;
    const bool valued = w->c.val_len[w->index] != KEY_NULL;
    static const uint8_t nothing[1]; /* An empty key may have no place. */
    const struct condition_event event = {
        .key = !keyed ? NULL : w->key != NULL ? w->key : nothing,
        .key_len = key_bytes(w),
        .value = !valued ? NULL : w->val != NULL ? w->val : nothing,
        .value_len = value_bytes(w),
        .headers = headers_bytes(w) > 0 ? w->headers : NULL,
    };
    return conditions_hold(where, &event);
}

ssize_t render_ndjson(const struct chunk_view *view, uint64_t from, uint64_t to,
                      const struct line_frame *frame, uint8_t *scratch, size_t scratch_cap,
                      char *out, size_t cap, uint64_t *next)
{
    char start[1024]; /* 127 bytes of topic, each 6 at most when escaped, and 126 more */
    struct sink prefix = {start, start + sizeof start, false};
    struct sink sink = {out, out + cap, false};
    const char *fitted = out;
    struct walk w;
    int found = start_walk(&w, view, from, to, scratch, scratch_cap);
    if (found <= 0)
        return found;
    put_line_start(&prefix, view, frame->token);
    const uint32_t first = w.index;
    for (; w.index < w.last; step(&w)) {
        if (!is_meant(&w, frame->where))
            continue;
        put(&sink, start, (size_t)(prefix.p - start));
        put_event(&sink, view, &w, frame);
        if (sink.full)
            break;
        fitted = sink.p;
    }
    if (sink.full && fitted == out && w.index > first && next != NULL) {
        *next = view->base_offset + w.index; /* All before it were passed over. */
        return 0;
    }
    return finish(&sink, out, fitted, view, w.index, next);
}

static void put_big_endian(struct sink *out, uint64_t value, unsigned bytes)
{
    uint8_t text[8];
    for (unsigned i = 0; i < bytes; i++)
        text[i] = (uint8_t)(value >> 8 * (bytes - 1 - i));
    put(out, text, bytes);
}

ssize_t render_records(const struct chunk_view *view, uint64_t from, uint64_t to, uint8_t *scratch,
                       size_t scratch_cap, char *out, size_t cap, uint64_t *next)
{
    struct sink sink = {out, out + cap, false};
    const char *fitted = out;
    struct walk w;
    int found = start_walk(&w, view, from, to, scratch, scratch_cap);
    if (found <= 0)
        return found;
    for (; w.index < w.last; step(&w)) {
        put_big_endian(&sink, event_timestamp(view, &w), 8);
        put_big_endian(&sink, value_bytes(&w), 4);
        put(&sink, w.val, value_bytes(&w));
        if (sink.full)
            break;
        fitted = sink.p;
    }
    return finish(&sink, out, fitted, view, w.index, next);
}

int chunk_events_fit(const struct chunk_view *view, uint64_t from, uint64_t to, uint32_t frame,
                     uint64_t budget, uint8_t *scratch, size_t scratch_cap, uint64_t *end,
                     uint64_t *cost)
{
    struct walk w;
    *end = from;
    *cost = 0;
    int found = start_walk(&w, view, from, to, scratch, scratch_cap);
    for (; found > 0 && w.index < w.last; w.index++) {
        uint64_t more = (uint64_t)frame + value_bytes(&w) + key_bytes(&w) + headers_bytes(&w);
        if (*end > from && *cost + more > budget)
            break;
        *cost += more;
        *end = view->base_offset + w.index + 1;
    }
    return found < 0 ? -1 : 0;
}

int chunk_find_timestamp(const struct chunk_view *view, int64_t timestamp_us, uint8_t *scratch,
                         size_t scratch_cap, uint64_t *offset)
{
    struct walk w;
    *offset = view->base_offset + view->count;
    if (start_walk(&w, view, 0, UINT64_MAX, scratch, scratch_cap) < 0)
        return -1;
    while (w.index < w.last && (int64_t)event_timestamp(view, &w) < timestamp_us)
        w.index++;
    *offset = view->base_offset + w.index;
    return 0;
}
