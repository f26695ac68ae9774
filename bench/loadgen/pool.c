#include "pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* splitmix64: small, fast, and good enough to keep payloads apart. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

static const char *const words[64] = {
    "order",    "shipped",  "warehouse", "customer", "invoice",  "gateway",  "returned", "delayed",
    "session",  "checkout", "north",     "harbour",  "sensor",   "pressure", "reading",  "battery",
    "terminal", "airport",  "departure", "boarding", "runway",   "weather",  "visible",  "carrier",
    "payment",  "declined", "approved",  "currency", "transfer", "balance",  "account",  "branch",
    "upload",   "download", "timeout",   "retried",  "replica",  "healthy",  "degraded", "restart",
    "engine",   "turbine",  "coolant",   "rotation", "valve",    "pipeline", "station",  "voltage",
    "search",   "product",  "category",  "discount", "review",   "wishlist", "campaign", "browser",
    "mobile",   "desktop",  "tablet",    "firmware", "upgrade",  "rollback", "release",  "channel",
};
static const char *const kinds[8] = {"page_view", "order_paid", "item_sent", "sensor_read",
                                     "log_line",  "sign_in",    "refund",    "heartbeat"};
static const char *const places[8] = {"eu-west-1", "eu-north-1", "us-east-2",  "us-west-1",
                                      "ap-east-1", "sa-east-1",  "me-south-1", "af-south-1"};

static char *put_text(char *out, const char *text)
{
    size_t len = strlen(text);
    memcpy(out, text, len);
    return out + len;
}

static char *put_digits(char *out, uint64_t value, int width)
{
    for (int i = width - 1; i >= 0; i--, value /= 10)
        out[i] = (char)('0' + value % 10);
    return out + width;
}

static char *put_hex(char *out, uint64_t value, int width)
{
    for (int i = 0; i < width; i++, value >>= 4)
        out[i] = "0123456789abcdef"[value & 15];
    return out + width;
}

/* One further member of an event. About 60 bytes, of which a third is different every time. */
static char *put_member(uint64_t *random, char *out, int index)
{
    uint64_t r = next_random(random);
    out = put_text(out, ",\"attribute_");
    out = put_digits(out, (uint64_t)index, 2);
    out = put_text(out, "\":{\"name\":\"");
    out = put_text(out, words[r & 63]);
    out = put_text(out, "\",\"value\":");
    out = put_digits(out, 1 + (r >> 6) % 9, 1);
    out = put_digits(out, (r >> 10) % 100000, 5);
    out = put_text(out, ",\"unit\":\"");
    out = put_hex(out, r >> 28, 7);
    return put_text(out, "\"}");
}

/* Words with a number now and then, so that the filler is neither constant nor noise. */
static void fill_words(uint64_t *random, char *out, char *end)
{
    char scratch[32];
    while (out < end) {
        uint64_t r = next_random(random);
        char *p = put_text(scratch, words[r & 63]);
        if ((r >> 6) % 4 == 0)
            p = put_digits(p, (r >> 16) % 1000, 3);
        *p++ = ' ';
        size_t len = (size_t)(p - scratch);
        if (len > (size_t)(end - out))
            len = (size_t)(end - out);
        memcpy(out, scratch, len);
        out += len;
    }
}

void pool_event(uint64_t *random, char *out, uint32_t len)
{
    char *end = out + len;
    uint64_t r = next_random(random);
    out = put_text(out, "{\"id\":\"");
    out = put_hex(out, r, 12);
    out = put_text(out, "\",\"at\":17");
    out = put_digits(out, next_random(random) % 100000000000000ull, 14);
    out = put_text(out, ",\"kind\":\"");
    out = put_text(out, kinds[(r >> 48) & 7]);
    out = put_text(out, "\",\"zone\":\"");
    out = put_text(out, places[(r >> 51) & 7]);
    out = put_text(out, "\"");
    for (int i = 0; end - out >= 96; i++)
        out = put_member(random, out, i % 100);
    if (end - out >= 12) {
        out = put_text(out, ",\"note\":\"");
        fill_words(random, out, end - 2);
        out = end - 2;
        *out++ = '"';
    } else {
        memset(out, ' ', (size_t)(end - out) - 1);
    }
    end[-1] = '}';
}

static int add_body(struct pool *pool, size_t *cap, const char *p, size_t len, uint32_t events)
{
    if (pool->count == *cap) {
        *cap = *cap ? *cap * 2 : 1024;
        void *grown = realloc(pool->bodies, *cap * sizeof *pool->bodies);
        if (!grown)
            return -1;
        pool->bodies = grown;
    }
    pool->bodies[pool->count++] = (struct body){p, (uint32_t)len, events};
    return 0;
}

int pool_generate(struct pool *pool, const struct pool_spec *spec)
{
    uint64_t random = spec->seed;
    size_t cap = 0;
    size_t largest = spec->event_bytes + spec->event_jitter + 1;
    *pool = (struct pool){0};
    pool->bytes = malloc(spec->pool_bytes + spec->body_bytes + largest);
    if (!pool->bytes)
        return -1;
    while (pool->len < spec->pool_bytes) {
        char *start = pool->bytes + pool->len, *p = start;
        uint32_t events = 0;
        for (;;) {
            uint32_t size = spec->event_bytes;
            if (spec->event_jitter)
                size += (uint32_t)(next_random(&random) % (2 * spec->event_jitter + 1)) -
                        spec->event_jitter;
            if (events && (size_t)(p - start) + size + 1 > spec->body_bytes)
                break;
            pool_event(&random, p, size);
            p += size;
            events++;
            if (!spec->body_bytes)
                break;
            *p++ = '\n';
        }
        if (add_body(pool, &cap, start, (size_t)(p - start), events) < 0)
            return -1;
        pool->len += (size_t)(p - start);
    }
    return 0;
}

static int read_file(struct pool *pool, const char *path)
{
    *pool = (struct pool){0};
    FILE *file = fopen(path, "rb");
    if (!file)
        return -1;
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    pool->bytes = size > 0 ? malloc((size_t)size) : NULL;
    if (pool->bytes)
        pool->len = fread(pool->bytes, 1, (size_t)size, file);
    fclose(file);
    return pool->bytes && pool->len == (size_t)size ? 0 : -1;
}

int pool_load_file(struct pool *pool, const char *path)
{
    size_t cap = 0;
    if (read_file(pool, path) < 0)
        return -1;
    return add_body(pool, &cap, pool->bytes, pool->len, 1);
}

int pool_load_frames(struct pool *pool, const char *path)
{
    size_t cap = 0;
    if (read_file(pool, path) < 0)
        return -1;
    for (size_t at = 0; at < pool->len;) {
        uint32_t head[2];
        if (pool->len - at < sizeof head)
            return -1;
        memcpy(head, pool->bytes + at, sizeof head);
        at += sizeof head;
        if (pool->len - at < head[0] || add_body(pool, &cap, pool->bytes + at, head[0], head[1]))
            return -1;
        at += head[0];
    }
    return pool->count ? 0 : -1;
}

void pool_free(struct pool *pool)
{
    free(pool->bytes);
    free(pool->bodies);
}
