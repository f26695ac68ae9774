#include "http/http1.h"

#include <string.h>

#include "base/charclass.h"

/* Where the parser is. The fields after out are what the headers said about framing; they are
 * judged together once the head is complete. */
struct cursor {
    const char *buf, *p, *end; /* end: of what may be looked at, within the limit. */
    size_t len, limit;         /* limit: bytes by which the current line has to be over. */
    struct http1_request *out;
    struct http1_slice authority; /* of an absolute form; p NULL: it is none */
    uint8_t host_count;
    bool has_length, has_close, has_keep_alive, has_expect;
};

static void limit_set(struct cursor *c, size_t limit)
{
    c->limit = limit;
    c->end = c->buf + (c->len < limit ? c->len : limit);
}

static int error_set(struct http1_request *out, uint16_t status, const char *reason)
{
    out->error_status = status;
    out->error_reason = reason;
    return HTTP1_ERROR;
}

static int too_long(struct http1_request *out, size_t limit)
{
    if (limit == HTTP1_REQUEST_LINE_BYTES_MAX)
        return error_set(out, 414, "the request line is longer than 16 KiB");
    return error_set(out, 431, "the request head is longer than 32 KiB");
}

/* The input ended within a line: wait for more, unless that line is already too long. */
static int starved(const struct cursor *c)
{
    return c->len < c->limit ? HTTP1_PARTIAL : too_long(c->out, c->limit);
}

/* Refuses because of the character at p, once its line is complete: until then the verdict would
 * depend on how the bytes were cut, as a resumed parse looks at whole lines only. */
static int refuse(const struct cursor *c, uint16_t status, const char *reason)
{
    if (memchr(c->p, '\n', (size_t)(c->end - c->p)) == NULL)
        return starved(c);
    return error_set(c->out, status, reason);
}

static struct http1_slice slice(const char *start, const char *end)
{
    return (struct http1_slice){start, (uint32_t)(end - start)};
}

/* Compares n >= 4 characters with lower-case letters and hyphens. Setting bit 5 turns letters into
 * lower case; only control characters, which neither names nor values hold, would become a hyphen
 * by it, and nothing else becomes a letter. */
static inline bool equals_lower(const char *p, const char *lower, size_t n)
{
    uint32_t word, want;
    uint32_t different = 0;
    for (size_t i = 0; i < n; i += 4) {
        size_t at = i + 4 <= n ? i : n - 4;
        memcpy(&word, p + at, 4);
        memcpy(&want, lower + at, 4);
        different |= (word | 0x20202020u) ^ want;
    }
    return different == 0;
}

/* ASCII only: 'A' to 'Z'. Safe for any bytes, unlike equals_lower. */
static char lower_of(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

static bool slice_is(struct http1_slice s, const char *lower, size_t n)
{
    if (s.len != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (lower_of(s.p[i]) != lower[i])
            return false;
    return true;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* ---- The request line ---- */

static uint8_t method_of(struct http1_slice m)
{
    static const struct {
        const char *text;
        uint8_t len, method;
    } known[] = {{"GET", 3, HTTP1_GET},         {"HEAD", 4, HTTP1_HEAD},
                 {"POST", 4, HTTP1_POST},       {"PUT", 3, HTTP1_PUT},
                 {"DELETE", 6, HTTP1_DELETE},   {"PATCH", 5, HTTP1_PATCH},
                 {"OPTIONS", 7, HTTP1_OPTIONS}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (m.len == known[i].len && memcmp(m.p, known[i].text, m.len) == 0)
            return known[i].method;
    return HTTP1_OTHER;
}

static int parse_method(struct cursor *c)
{
    const char *start = c->p;
    /* What producers and consumers send, without a search. */
    if (c->end - start >= 5 && memcmp(start, "POST ", 5) == 0) {
        c->out->method = HTTP1_POST;
        c->p = start + 4;
    } else if (c->end - start >= 4 && memcmp(start, "GET ", 4) == 0) {
        c->out->method = HTTP1_GET;
        c->p = start + 3;
    } else {
        c->p = charclass_span(&CHARCLASS_TOKEN, start, c->end);
        if (c->p == c->end)
            return starved(c);
        if (*c->p != ' ' || c->p == start)
            return refuse(c, 400, "the request does not start with a method and one space");
        c->out->method = method_of(slice(start, c->p));
    }
    c->out->method_text = slice(start, c->p);
    c->p++;
    return 0;
}

static int refuse_target(struct cursor *c)
{
    char at = *c->p;
    if (at == '\r' || at == '\n')
        return refuse(c, 400, "the request line has no HTTP version");
    if (at == '#')
        return refuse(c, 400, "the request target has a fragment");
    if (at == ' ')
        return refuse(c, 400, "the request target is empty");
    return refuse(c, 400, "the request target holds a character that must be percent-encoded");
}

static int parse_target(struct cursor *c)
{
    const char *start = c->p;
    c->p = charclass_span(&CHARCLASS_PATH, start, c->end);
    c->out->path = slice(start, c->p);
    c->out->query = (struct http1_slice){NULL, 0};
    if (c->p < c->end && *c->p == '?') {
        start = c->p + 1;
        c->p = charclass_span(&CHARCLASS_QUERY, start, c->end);
        c->out->query = slice(start, c->p);
    }
    if (c->p == c->end)
        return starved(c);
    if (*c->p != ' ' || (c->out->path.len == 0 && c->out->query.p == NULL))
        return refuse_target(c);
    c->p++;
    return 0;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int refuse_version(struct cursor *c)
{
    const char *v = c->p;
    if (c->end - v >= 10 && memcmp(v, "HTTP/", 5) == 0 && is_digit(v[5]) && v[6] == '.' &&
        is_digit(v[7]) && v[8] == '\r' && v[9] == '\n')
        return refuse(c, 505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
    return refuse(c, 400, "the request line does not end with \" HTTP/1.1\" and CRLF");
}

static int parse_version(struct cursor *c)
{
    const char *v = c->p;
    if (c->end - v < 10 || memcmp(v, "HTTP/1.", 7) != 0 || (v[7] != '1' && v[7] != '0') ||
        v[8] != '\r' || v[9] != '\n')
        return refuse_version(c);
    c->out->minor = (uint8_t)(v[7] - '0');
    c->p = v + 10;
    return 0;
}

/* Bytes of "http://" or "https://" at the start of s, 0 where there is no such scheme. */
static uint32_t scheme_len(struct http1_slice s)
{
    if (s.len >= 7 && slice_is((struct http1_slice){s.p, 7}, "http://", 7))
        return 7;
    return s.len >= 8 && slice_is((struct http1_slice){s.p, 8}, "https://", 8) ? 8 : 0;
}

/* The rarer forms of a target (RFC 9112 3.2.2 to 3.2.4); the request line is complete. */
static int reduce_target(struct cursor *c)
{
    struct http1_request *out = c->out;
    if (out->method_text.len == 7 && memcmp(out->method_text.p, "CONNECT", 7) == 0)
        return error_set(out, 501, "CONNECT is not offered: this is not a proxy");
    struct http1_slice *path = &out->path;
    if (path->len > 0 && path->p[0] == '/')
        return 0;
    if (out->method == HTTP1_OPTIONS && path->len == 1 && path->p[0] == '*' && !out->query.p)
        return 0;
    uint32_t scheme = scheme_len(*path);
    if (scheme == 0)
        return error_set(out, 400, "the request target does not start with '/'");
    const char *end = path->p + path->len;
    const char *authority = path->p + scheme;
    const char *root = charclass_span(&CHARCLASS_HOST, authority, end);
    if (root == authority || (root < end && *root != '/'))
        return error_set(out, 400, "the request target names no valid host");
    c->authority = slice(authority, root);
    /* "http://host" means "/"; the last slash of its scheme can stand for it. */
    *path = root == end ? slice(authority - 1, authority) : slice(root, end);
    return 0;
}

static int parse_request_line(struct cursor *c)
{
    int verdict;
    limit_set(c, HTTP1_REQUEST_LINE_BYTES_MAX);
    if ((verdict = parse_method(c)) != 0 || (verdict = parse_target(c)) != 0 ||
        (verdict = parse_version(c)) != 0)
        return verdict;
    const struct http1_request *out = c->out;
    if (out->path.len == 0 || out->path.p[0] != '/' || out->method == HTTP1_OTHER)
        return reduce_target(c);
    return 0;
}

/* ---- Headers that decide about framing ---- */

static int take_content_length(struct cursor *c, struct http1_slice value)
{
    if (c->has_length)
        return error_set(c->out, 400, "Content-Length is there twice");
    /* 19 digits can not overflow 64 unsigned bits. */
    if (value.len == 0 || value.len > 19)
        return error_set(c->out, 400, "Content-Length is not a number of at most 19 digits");
    uint64_t length = 0;
    for (uint32_t i = 0; i < value.len; i++) {
        if (!is_digit(value.p[i]))
            return error_set(c->out, 400, "Content-Length is not a plain decimal number");
        length = length * 10 + (uint64_t)(value.p[i] - '0');
    }
    if (length > INT64_MAX)
        return error_set(c->out, 400, "Content-Length is over 2^63 - 1");
    c->has_length = true;
    c->out->content_length = (int64_t)length;
    return 0;
}

static int take_transfer_encoding(struct cursor *c, struct http1_slice value)
{
    if (c->out->chunked)
        return error_set(c->out, 400, "Transfer-Encoding is there twice");
    if (slice_is(value, "chunked", 7)) {
        const char *after = value.p + value.len;
        while (*after == ' ')
            after++;
        /* llhttp does not take "chunked" with a tab after it for chunked. */
        if (*after == '\r') {
            c->out->chunked = true;
            return 0;
        }
    }
    /* One known coding before chunked is a well-formed wish (RFC 9112 6.1: 501); all else is a
     * body whose end nobody can be sure of. */
    static const struct http1_slice known[] = {{"gzip", 4}, {"deflate", 7}, {"compress", 8}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        uint32_t n = known[i].len;
        if (value.len > n + 8 && slice_is((struct http1_slice){value.p, n}, known[i].p, n) &&
            value.p[n] == ',' &&
            slice_is((struct http1_slice){value.p + n + 1 + is_blank(value.p[n + 1]),
                                          value.len - n - 1 - is_blank(value.p[n + 1])},
                     "chunked", 7))
            return error_set(c->out, 501, "the only transfer coding understood is chunked");
    }
    return error_set(c->out, 400, "Transfer-Encoding is not exactly \"chunked\"");
}

/* A comma-separated list, of which only close and keep-alive mean something here. */
static void take_connection(struct cursor *c, struct http1_slice value)
{
    const char *end = value.p + value.len;
    if (value.len == 10 && equals_lower(value.p, "keep-alive", 10)) {
        c->has_keep_alive = true; /* What clients send, if anything. */
        return;
    }
    for (const char *p = value.p; p < end;) {
        const char *comma = memchr(p, ',', (size_t)(end - p));
        const char *item_end = comma == NULL ? end : comma;
        const char *next = comma == NULL ? end : comma + 1;
        while (p < item_end && is_blank(*p))
            p++;
        while (item_end > p && is_blank(item_end[-1]))
            item_end--;
        c->has_close |= slice_is(slice(p, item_end), "close", 5);
        c->has_keep_alive |= slice_is(slice(p, item_end), "keep-alive", 10);
        p = next;
    }
}

static int take_expect(struct cursor *c, struct http1_slice value)
{
    if (c->has_expect || !slice_is(value, "100-continue", 12))
        return error_set(c->out, 417, "the only expectation that can be met is 100-continue");
    c->has_expect = true;
    return 0;
}

static int take_host(struct cursor *c, struct http1_slice value)
{
    const char *end = value.p + value.len;
    if (c->host_count++ > 0)
        return error_set(c->out, 400, "Host is there twice");
    /* Up to the end of the input, so that the wide loop serves short names too; the blank or CR
     * after the value stops it. */
    if (charclass_span(&CHARCLASS_HOST, value.p, c->end) != end)
        return error_set(c->out, 400, "Host is not a host name with an optional port");
    c->out->host = value;
    return 0;
}

static void take_origin(struct cursor *c, struct http1_slice value)
{
    if (c->out->origin.p != NULL)
        value.len = 0; /* nobody's */
    c->out->origin = value;
}

/* Looks at the name's length and letters; everything but these six is the caller's business. */
static inline int take_header(struct cursor *c, const struct http1_header *header)
{
    const char *name = header->name.p;
    switch (header->name.len) {
    case 4:
        return equals_lower(name, "host", 4) ? take_host(c, header->value) : 0;
    case 6:
        if (equals_lower(name, "origin", 6))
            take_origin(c, header->value);
        return equals_lower(name, "expect", 6) ? take_expect(c, header->value) : 0;
    case 10:
        if (equals_lower(name, "connection", 10))
            take_connection(c, header->value);
        return 0;
    case 14:
        return equals_lower(name, "content-length", 14) ? take_content_length(c, header->value)
                                                        : 0;
    case 17:
        return equals_lower(name, "transfer-encoding", 17)
                   ? take_transfer_encoding(c, header->value)
                   : 0;
    default:
        return 0;
    }
}

/* ---- The header section ---- */

static int refuse_name(struct cursor *c, const char *start)
{
    if (*c->p == '\n')
        return refuse(c, 400, "a line ends with LF alone");
    if (*c->p == '\r')
        return refuse(c, 400, "a header line has no ':'");
    if (is_blank(*c->p))
        return refuse(c, 400, c->p > start ? "there is a blank within or after a header name"
                                           : "a header is folded over two lines");
    if (*c->p == ':')
        return refuse(c, 400, "a header has no name");
    return refuse(c, 400, "a header name holds a forbidden character");
}

/* Steps over CRLF; p is where a line has to end. */
static inline int parse_line_end(struct cursor *c)
{
    if (__builtin_expect(c->end - c->p >= 2 && c->p[0] == '\r' && c->p[1] == '\n', 1)) {
        c->p += 2;
        return 0;
    }
    if (c->p == c->end)
        return starved(c);
    if (*c->p == '\n')
        return refuse(c, 400, "a line ends with LF alone");
    if (*c->p != '\r')
        return refuse(c, 400, "a header value holds a control character");
    c->p++;
    return refuse(c, 400, "a CR is not followed by LF");
}

static inline int parse_header(struct cursor *c, struct http1_header *header)
{
    const char *start = c->p, *stop;
    charclass_header_span(start, c->end, &c->p, &stop);
    if (c->p == c->end)
        return starved(c);
    if (*c->p != ':' || c->p == start)
        return refuse_name(c, start);
    header->name = slice(start, c->p);
    start = c->p + 1;
    while (start < stop && is_blank(*start))
        start++;
    c->p = stop;
    const char *value_end = stop;
    int verdict = parse_line_end(c);
    if (verdict != 0)
        return verdict;
    while (value_end > start && is_blank(value_end[-1]))
        value_end--;
    header->value = slice(start, value_end);
    return take_header(c, header);
}

static int parse_headers(struct cursor *c)
{
    uint16_t count = 0;
    limit_set(c, HTTP1_HEAD_BYTES_MAX);
    for (;;) {
        if (c->p == c->end)
            return starved(c);
        if (*c->p == '\r') {
            c->out->header_count = count;
            return parse_line_end(c);
        }
        if (count == HTTP1_HEADERS_MAX)
            return refuse(c, 431, "the request has more than 64 headers");
        int verdict = parse_header(c, &c->out->headers[count]);
        if (verdict != 0)
            return verdict;
        count++;
    }
}

/* What the headers say together (RFC 9112 3.2, 6.3, 9.3). */
static int conclude(const struct cursor *c)
{
    struct http1_request *out = c->out;
    if (out->minor == 1 && c->host_count == 0)
        return error_set(out, 400, "an HTTP/1.1 request needs a Host header");
    if (c->authority.p != NULL)
        out->host = c->authority;
    if (out->chunked && c->has_length)
        return error_set(out, 400, "both Content-Length and Transfer-Encoding are given");
    if (out->chunked && out->minor == 0)
        return error_set(out, 400, "Transfer-Encoding does not exist in HTTP/1.0");
    out->keep_alive = !c->has_close && (out->minor == 1 || c->has_keep_alive);
    out->expect_continue =
        c->has_expect && out->minor == 1 && (out->chunked || out->content_length > 0);
    return 0;
}

/* The bytes from last_len on hold no LF, so no line became complete: only the limits can have
 * been passed. */
static int resume(const char *buf, size_t len, size_t last_len, struct http1_request *out)
{
    const size_t line_max = HTTP1_REQUEST_LINE_BYTES_MAX;
    if (last_len < line_max && len >= line_max && memchr(buf, '\n', line_max) == NULL)
        return too_long(out, line_max);
    return len < HTTP1_HEAD_BYTES_MAX ? HTTP1_PARTIAL : too_long(out, HTTP1_HEAD_BYTES_MAX);
}

int http1_parse_head(const char *buf, size_t len, size_t last_len, struct http1_request *out)
{
    if (len == 0)
        return HTTP1_PARTIAL;
    if (last_len > 0 && last_len <= len &&
        memchr(buf + last_len, '\n', len - last_len) == NULL)
        return resume(buf, len, last_len, out);
    /* Whoever does not even start with a token is told so at once, line end or not. */
    if (!charclass_has(&CHARCLASS_TOKEN, buf[0]))
        return error_set(out, 400, buf[0] == 0x16 ? "this port speaks HTTP without TLS"
                                                  : "the request does not start with a method");
    struct cursor c = {.buf = buf, .p = buf, .len = len, .out = out};
    out->chunked = false;
    out->content_length = -1;
    out->host.p = out->origin.p = NULL;
    int verdict;
    if ((verdict = parse_request_line(&c)) != 0 || (verdict = parse_headers(&c)) != 0 ||
        (verdict = conclude(&c)) != 0)
        return verdict;
    out->error_status = 0;
    out->error_reason = NULL;
    return (int)(c.p - buf);
}
