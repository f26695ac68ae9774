#include "broker/headed.h"

#include <assert.h>

#include "format/batch.h"

static uint16_t body_problem(const struct reactor *reactor, const struct produce *produce,
                             size_t len)
{
    if (produce->no_value && len > 0)
        return PROBLEM_BAD_HEADER;
    if (!produce->no_value && len == 0)
        return PROBLEM_NO_EVENTS;
    return len > reactor->options.event_bytes_max ? PROBLEM_EVENT_TOO_LARGE : PROBLEM_NONE;
}

uint16_t headed_cut(struct reactor *reactor, const struct produce *produce, const uint8_t *bytes,
                    size_t len, struct body **cut)
{
    assert(produce->headed && produce->content == CONTENT_EVENT);
    const uint16_t problem = body_problem(reactor, produce, len);
    if (problem != PROBLEM_NONE)
        return problem;
    if (!reactor_takes_headers(reactor))
        return PROBLEM_OLD_BROKERS;
    const uint32_t value_len = produce->no_value ? KEY_NULL : (uint32_t)len;
    static const uint32_t one = 1;
    const bool zero = produce->timestamp == TIME_ZERO;
    struct chunk_columns made = {.base_timestamp_us = zero ? -1 : produce->timestamp};
    made.columns = (struct batch_columns){
        .count = 1,
        .val_len = &value_len,
        .vals = bytes,
        .vals_bytes = (uint32_t)len,
        .ts_delta = zero ? &one : NULL,
    };
    if (produce->has_key) {
        made.key_len = &produce->key_len;
        made.keys = produce->key;
        made.keys_bytes = produce->key_len;
    }
    if (produce->headers_len > 0) {
        made.hdr_len = &produce->headers_len;
        made.hdrs = produce->headers;
        made.hdrs_bytes = produce->headers_len;
    }
    const size_t bound = chunk_bound(&made);
    if (!reactor_memory(reactor, 3 * bound) || /* sealed, unpacked, and perhaps sent */
        (*cut = body_new(&reactor->body_bytes, bound)) == NULL)
        return PROBLEM_BUSY;
    (*cut)->len = batch_seal(NULL, &made, (*cut)->data, (*cut)->capacity);
    assert((*cut)->len > 0);
    return PROBLEM_NONE;
}
