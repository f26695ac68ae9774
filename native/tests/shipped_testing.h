/* What the tests of shippers' formats share: a body that ends where its memory ends, read. */
#ifndef BARCO_SHIPPED_TESTING_H
#define BARCO_SHIPPED_TESTING_H

#include "format/shipped.h"

#include "codec_testing.h"

#define NOW 1700000000000000
#define EVENT_MAX 600u

struct result {
    uint8_t *bytes;
    struct shipped s;
    enum shipped_flaw flaw;
};

typedef enum shipped_flaw (*reader)(struct shipped *, const uint8_t *, size_t);

static struct result read_bytes(reader read, const void *bytes, size_t len)
{
    struct result r = {.bytes = exact_copy(bytes, len)};
    r.s.limits = (struct shipped_limits){EVENT_MAX, 10000, NOW - 1000000000, NOW + 1000000000};
    r.flaw = read(&r.s, r.bytes, len);
    return r;
}

static void result_free(struct result *r)
{
    shipped_free(&r->s);
    free(r->bytes);
}

#endif
