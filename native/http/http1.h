/* http1: a strict HTTP/1.x request parser.
 *
 * Stateless for the head, a small state machine for a chunked body; allocates nothing, never
 * reads past the length it is given. Whatever it accepts, it frames as RFC 9112 says: what two
 * servers could understand differently is refused. */
#ifndef BARCO_HTTP1_H
#define BARCO_HTTP1_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HTTP1_ERROR = -1, HTTP1_PARTIAL = -2 };

enum http1_method {
    HTTP1_GET = 1,
    HTTP1_HEAD,
    HTTP1_POST,
    HTTP1_PUT,
    HTTP1_DELETE,
    HTTP1_OPTIONS,
    HTTP1_PATCH,
    HTTP1_OTHER, /* Any other token, lower-case spellings too: methods are case-sensitive. */
};

#define HTTP1_HEADERS_MAX 64
#define HTTP1_HEAD_BYTES_MAX 32768         /* Request line and headers; more is a 431. */
#define HTTP1_REQUEST_LINE_BYTES_MAX 16384 /* With its CRLF; more is a 414. */

struct http1_slice {
    const char *p;
    uint32_t len;
};

struct http1_header {
    struct http1_slice name;  /* As sent; token characters only. */
    struct http1_slice value; /* Without the blanks around it; may hold bytes from 0x80. */
};

/* One request head. Everything points into the buffer that was parsed. */
struct http1_request {
    uint8_t method;       /* enum http1_method */
    uint8_t minor;        /* 0 or 1, of HTTP/1.x */
    bool keep_alive;      /* The client wants to go on using the connection. */
    bool chunked;         /* Body in chunks: feed what follows to http1_chunked_feed. */
    bool expect_continue; /* HTTP/1.1, a body is announced, and the client waits for a 100. */
    uint16_t header_count;
    uint16_t error_status;    /* With HTTP1_ERROR: 400, 414, 417, 431, 501 or 505. */
    const char *error_reason; /* With HTTP1_ERROR: one static sentence, lower case, no dot. */
    struct http1_slice method_text;
    struct http1_slice path;  /* Raw; starts with '/' (absolute-form is reduced), or OPTIONS "*". */
    struct http1_slice query; /* Raw, without '?'; p is NULL where there is no '?'. */
    struct http1_slice host, origin; /* p NULL: not given. Twice an origin: empty. The host of an
                                      * absolute form counts, whatever the header says. */
    int64_t content_length;   /* Bytes; -1 where none was given (no body, unless chunked). */
    struct http1_header headers[HTTP1_HEADERS_MAX];
};

/* Parses the head of one request from buf[0,len), the bytes so far. last_len is the len of the
 * previous call that returned HTTP1_PARTIAL for the same request (0 first): bytes that complete no
 * line are then not scanned again. Returns the length of the head (> 0), HTTP1_ERROR with
 * error_status and error_reason set (answer, then close), or HTTP1_PARTIAL. A line is judged when
 * it is complete, so the verdict does not depend on how the bytes were cut. Leaves *out undefined
 * but for the error fields unless it returns > 0. */
int http1_parse_head(const char *buf, size_t len, size_t last_len, struct http1_request *out);

#define HTTP1_CHUNK_EXTENSION_BYTES_MAX 4096 /* Of all chunks of one body together. */
#define HTTP1_TRAILER_BYTES_MAX 8192         /* The trailer section with its line ends. */
#define HTTP1_CHUNK_NAME_MAX 20

/* The decoder of one chunked body; nothing in it is for the caller. */
struct http1_chunked {
    uint64_t body_bytes;     /* Announced by the chunk sizes so far. */
    uint64_t body_bytes_max; /* Limit of the above. */
    uint64_t remaining;      /* Of the current chunk's data. */
    uint32_t extension_bytes;
    uint32_t trailer_bytes;
    uint8_t state;
    uint8_t digit_count;
    int8_t error;
    uint8_t name_len;
    char name[HTTP1_CHUNK_NAME_MAX]; /* Of the trailer field being read, in lower case. */
};

void http1_chunked_init(struct http1_chunked *, uint64_t body_bytes_max);

/* Decodes from in to out; out may equal in. Returns 1 once the body is complete (what was not
 * consumed belongs to the next request), 0 when it needs more input, -1 malformed, -3 the body is
 * over body_bytes_max (told when the size is announced, before its data), -4 out is full (call
 * again with the rest). *consumed and *produced are always set. An error stays. */
int http1_chunked_feed(struct http1_chunked *, const char *in, size_t in_len, size_t *consumed,
                       char *out, size_t out_cap, size_t *produced);

#endif
