/* The chunked transfer coding (RFC 9112 7.1), strictly: CRLF only, no blanks around sizes, bounded
 * extensions and trailers, and no trailer that would change how the message was framed. */
#include <string.h>

#include "base/charclass.h"
#include "http/http1.h"

enum state {
    SIZE_FIRST,
    SIZE,
    EXTENSION_NAME_FIRST,
    EXTENSION_NAME,
    EXTENSION_VALUE_FIRST,
    EXTENSION_VALUE,
    EXTENSION_QUOTED,
    EXTENSION_ESCAPED,
    EXTENSION_QUOTED_END,
    SIZE_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    TRAILER_FIRST, /* From here on every byte counts as trailer. */
    TRAILER_NAME,
    TRAILER_VALUE,
    TRAILER_LF,
    END_LF,
    DONE,
};

enum { MALFORMED = -1, TOO_LARGE = -3, OUT_FULL = -4 };

#define SIZE_DIGITS_MAX 16 /* 64 bits; leading zeros count, or they could go on for ever. */

void http1_chunked_init(struct http1_chunked *d, uint64_t body_bytes_max)
{
    memset(d, 0, sizeof(*d));
    d->body_bytes_max = body_bytes_max;
    d->state = SIZE_FIRST;
}

/* Printable ASCII, the tab, and obs-text where wanted. */
static bool is_text(char c, bool obs_text)
{
    return c == '\t' || (c >= ' ' && c < 0x7f) || (obs_text && (uint8_t)c >= 0x80);
}

static int step_size(struct http1_chunked *d, char c)
{
    int digit = hex_digit(c);
    if (digit >= 0) {
        if (d->digit_count++ == SIZE_DIGITS_MAX)
            return MALFORMED;
        d->remaining = d->remaining << 4 | (uint64_t)digit;
        d->state = SIZE;
        return 0;
    }
    if (d->state == SIZE_FIRST || (c != '\r' && c != ';'))
        return MALFORMED;
    if (d->remaining > d->body_bytes_max - d->body_bytes)
        return TOO_LARGE;
    d->body_bytes += d->remaining;
    d->state = c == ';' ? EXTENSION_NAME_FIRST : SIZE_LF;
    return 0;
}

/* After an extension name or value: the next extension or the end of the line. */
static int end_extension(struct http1_chunked *d, char c)
{
    if (c != ';' && c != '\r')
        return MALFORMED;
    d->state = c == ';' ? EXTENSION_NAME_FIRST : SIZE_LF;
    return 0;
}

static int step_extension(struct http1_chunked *d, char c)
{
    if (++d->extension_bytes > HTTP1_CHUNK_EXTENSION_BYTES_MAX)
        return MALFORMED;
    bool token = charclass_has(&CHARCLASS_TOKEN, c);
    switch ((enum state)d->state) {
    case EXTENSION_NAME_FIRST:
        d->state = EXTENSION_NAME;
        return token ? 0 : MALFORMED;
    case EXTENSION_NAME:
        if (c == '=')
            d->state = EXTENSION_VALUE_FIRST;
        return token || c == '=' ? 0 : end_extension(d, c);
    case EXTENSION_VALUE_FIRST:
        d->state = c == '"' ? EXTENSION_QUOTED : EXTENSION_VALUE;
        return token || c == '"' ? 0 : MALFORMED;
    case EXTENSION_VALUE:
        return token ? 0 : end_extension(d, c);
    case EXTENSION_QUOTED:
        if (c == '"')
            d->state = EXTENSION_QUOTED_END;
        else if (c == '\\')
            d->state = EXTENSION_ESCAPED;
        return is_text(c, false) ? 0 : MALFORMED;
    case EXTENSION_ESCAPED:
        d->state = EXTENSION_QUOTED;
        return is_text(c, false) ? 0 : MALFORMED;
    default: /* EXTENSION_QUOTED_END */
        return end_extension(d, c);
    }
}

/* Trailers are read and dropped, but one that someone else would frame, route or end the connection
 * by is an attack. */
static bool is_forbidden_trailer(const struct http1_chunked *d)
{
    static const char *const names[] = {"content-length", "transfer-encoding", "host",
                                        "connection"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (d->name_len == strlen(names[i]) && memcmp(d->name, names[i], d->name_len) == 0)
            return true;
    return false;
}

static int step_trailer(struct http1_chunked *d, char c)
{
    if (++d->trailer_bytes > HTTP1_TRAILER_BYTES_MAX)
        return MALFORMED;
    switch ((enum state)d->state) {
    case TRAILER_FIRST:
        d->name_len = 0;
        if (c == '\r') {
            d->state = END_LF;
            return 0;
        }
        if (c == ':')
            return MALFORMED;
        d->state = TRAILER_NAME;
        /* fall through */
    case TRAILER_NAME:
        if (c == ':') {
            d->state = TRAILER_VALUE;
            return is_forbidden_trailer(d) ? MALFORMED : 0;
        }
        /* A name too long to keep is none of the forbidden ones: its length tells. */
        if (d->name_len < HTTP1_CHUNK_NAME_MAX)
            d->name[d->name_len++] = c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
        return charclass_has(&CHARCLASS_TOKEN, c) ? 0 : MALFORMED;
    case TRAILER_VALUE:
        if (c == '\r') {
            d->state = TRAILER_LF;
            return 0;
        }
        return is_text(c, true) ? 0 : MALFORMED;
    case TRAILER_LF:
        d->state = TRAILER_FIRST;
        return c == '\n' ? 0 : MALFORMED;
    default: /* END_LF */
        d->state = DONE;
        return c == '\n' ? 0 : MALFORMED;
    }
}

/* One byte that is not chunk data. */
static int step(struct http1_chunked *d, char c)
{
    switch ((enum state)d->state) {
    case SIZE_FIRST:
    case SIZE:
        return step_size(d, c);
    case SIZE_LF:
        /* A size of 0 is the last chunk: the trailer section follows. */
        d->state = d->remaining > 0 ? DATA : TRAILER_FIRST;
        return c == '\n' ? 0 : MALFORMED;
    case DATA_CR:
        d->state = DATA_LF;
        return c == '\r' ? 0 : MALFORMED;
    case DATA_LF:
        d->state = SIZE_FIRST;
        d->digit_count = 0;
        return c == '\n' ? 0 : MALFORMED;
    default:
        return d->state < SIZE_LF ? step_extension(d, c) : step_trailer(d, c);
    }
}

int http1_chunked_feed(struct http1_chunked *d, const char *in, size_t in_len, size_t *consumed,
                       char *out, size_t out_cap, size_t *produced)
{
    size_t read = 0, written = 0;
    int verdict = d->error;
    while (verdict == 0 && read < in_len && d->state != DONE) {
        if (d->state != DATA) {
            verdict = step(d, in[read]);
            if (verdict == 0)
                read++;
            d->error = (int8_t)verdict;
            continue;
        }
        size_t n = in_len - read;
        if (n > d->remaining)
            n = (size_t)d->remaining;
        if (n > out_cap - written)
            n = out_cap - written;
        if (n == 0) {
            verdict = OUT_FULL; /* Not an error of the body: not kept. */
            break;
        }
        memmove(out + written, in + read, n);
        read += n;
        written += n;
        d->remaining -= n;
        if (d->remaining == 0)
            d->state = DATA_CR;
    }
    *consumed = read;
    *produced = written;
    if (verdict == 0 && d->state == DONE)
        return 1;
    return verdict;
}
