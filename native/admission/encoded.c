#include "admission/encoded.h"

#include <assert.h>
#include <strings.h>

#define FIRST_TIMES 4u /* so many times what came, where nothing says how much it is */
#define FIRST_BYTES (4u << 10)

/* Room for more than there is, up to one byte beyond the limit: who needs that is over it. */
static bool grow(const struct reactor *reactor, struct body *body, uint64_t most)
{
    const uint64_t doubled = 2 * (uint64_t)body->capacity;
    const uint64_t want = doubled < most + 1 ? doubled : most + 1;
    assert(want > body->capacity);
    return reactor_memory(reactor, INFLATE_OWN_BYTES + want - body->capacity) &&
           body_reserve(body, want);
}

static uint16_t unpack(const struct reactor *reactor, struct inflater *inflater,
                       const uint8_t *bytes, size_t len, struct body *body)
{
    const uint64_t most = reactor->options.request_bytes_max;
    for (size_t used = 0;;) {
        size_t taken, made;
        const int status = inflate_some(inflater, bytes + used, len - used, &taken,
                                        body->data + body->len, body->capacity - body->len, &made);
        used += taken;
        body->len += made;
        assert(used <= len && body->len <= body->capacity);
        if (body->len > most)
            return PROBLEM_BODY_TOO_LARGE;
        if (status == 1)
            return PROBLEM_NONE;
        if (status < 0)
            return status == -2 ? PROBLEM_BUSY : PROBLEM_BAD_ENCODING;
        if (!grow(reactor, body, most))
            return PROBLEM_BUSY;
    }
}

uint16_t encoded_unpack(struct reactor *reactor, enum coding coding, const uint8_t *bytes,
                        size_t len, struct body **out)
{
    const uint64_t most = reactor->options.request_bytes_max;
    uint64_t first = inflate_hint(coding, bytes, len);
    if (first > most && coding != CODING_GZIP) /* its head says so: no need to unpack it */
        return PROBLEM_BODY_TOO_LARGE;
    if (first == 0 || first > most) /* gzip's end: perhaps it is cut off, and says nothing */
        first = (uint64_t)len * FIRST_TIMES < most ? (uint64_t)len * FIRST_TIMES : most;
    first = first > FIRST_BYTES ? first : FIRST_BYTES;
    if (!reactor_memory(reactor, INFLATE_OWN_BYTES + first))
        return PROBLEM_BUSY;
    struct inflater *inflater = inflate_new(coding);
    struct body *body = inflater ? body_new(&reactor->body_bytes, first) : NULL;
    uint16_t problem = body ? unpack(reactor, inflater, bytes, len, body) : PROBLEM_BUSY;
    if (inflater != NULL)
        inflate_free(inflater);
    if (problem != PROBLEM_NONE && body != NULL) {
        body_release(body);
        body = NULL;
    }
    assert((problem == PROBLEM_NONE) == (body != NULL));
    *out = body;
    return problem;
}

static bool is_text(const struct http1_slice *slice, const char *text, uint32_t len)
{
    return slice->len == len && strncasecmp(slice->p, text, len) == 0;
}

uint16_t encoded_as(const struct http1_request *head, uint8_t *coding)
{
    bool seen = false;
    *coding = CODING_NONE;
    for (uint16_t i = 0; i < head->header_count; i++) {
        const struct http1_header *header = &head->headers[i];
        if (!is_text(&header->name, "content-encoding", 16))
            continue;
        const enum coding named = is_text(&header->value, "snappy", 6)     ? CODING_NONE
                                  : is_text(&header->value, "identity", 8) ? CODING_NONE
                                                                   : inflate_coding(&header->value);
        if (named == CODING_UNKNOWN || seen)
            return PROBLEM_ENCODING; /* or more than one */
        assert(named < CODING_UNKNOWN && *coding == CODING_NONE); /* it is the first */
        seen = true;
        *coding = (uint8_t)named;
    }
    return PROBLEM_NONE;
}
