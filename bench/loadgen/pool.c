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

static const char *const kinds[8] = {"page_view", "add_to_cart", "checkout", "search",
                                     "sign_in",   "refund",      "shipment", "review"};
static const char *const places[4] = {"eu-west-1", "us-east-2", "ap-south-1", "sa-east-1"};
static const char *const agents[4] = {
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36", "okhttp/4.12.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X)", "python-requests/2.32"};
static const char *const things[8] = {"wireless keyboard", "garden chair", "espresso machine",
                                      "running shoes",     "desk lamp",    "travel backpack",
                                      "cast iron pan",     "noise cancelling headphones"};

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

/* What an order line costs, at most; put_item writes no more. */
#define ITEM_BYTES_MAX 150

static char *put_item(uint64_t *random, char *out, int index)
{
    uint64_t r = next_random(random);
    out = put_text(out, ",\"item_");
    out = put_digits(out, (uint64_t)index, 2);
    out = put_text(out, "\":{\"sku\":\"");
    out = put_hex(out, next_random(random), 16);
    out = put_hex(out, r >> 36, 6);
    out = put_text(out, "\",\"name\":\"");
    out = put_text(out, things[r & 7]);
    out = put_text(out, "\",\"quantity\":");
    out = put_digits(out, 1 + (r >> 3) % 9, 1);
    out = put_text(out, ",\"price_cents\":");
    out = put_digits(out, 1 + (r >> 8) % 9, 1);
    out = put_digits(out, (r >> 12) % 10000, 4);
    out = put_text(out, ",\"warehouse\":\"bay-");
    out = put_digits(out, (r >> 32) % 1000, 3);
    return put_text(out, "\"}");
}

/* Identifiers, times and numbers as a shop's events have them: about two bytes in five are new,
 * the rest are names and phrases that come again. */
static char *put_base(uint64_t *random, char *out)
{
    uint64_t r = next_random(random);
    out = put_text(out, "{\"event_id\":\"");
    out = put_hex(out, next_random(random), 16);
    out = put_text(out, "\",\"timestamp\":17");
    out = put_digits(out, next_random(random) % 100000000000000ull, 14);
    out = put_text(out, ",\"type\":\"");
    out = put_text(out, kinds[r & 7]);
    return put_text(out, "\"");
}

static char *put_session(uint64_t *random, char *out)
{
    uint64_t r = next_random(random);
    out = put_text(out, ",\"user\":\"u");
    out = put_digits(out, r % 10000000, 7);
    out = put_text(out, "\",\"session\":\"");
    out = put_hex(out, next_random(random), 16);
    out = put_text(out, "\",\"latency_ms\":");
    out = put_digits(out, 1 + (r >> 24) % 9, 1);
    out = put_digits(out, (r >> 28) % 100, 2);
    out = put_text(out, ",\"region\":\"");
    out = put_text(out, places[(r >> 40) & 3]);
    return put_text(out, "\"");
}

static char *put_agent(uint64_t *random, char *out)
{
    uint64_t r = next_random(random);
    out = put_text(out, ",\"agent\":\"");
    out = put_text(out, agents[r & 3]);
    out = put_text(out, "\",\"page\":\"/products/");
    out = put_digits(out, (r >> 8) % 100000, 5);
    return put_text(out, "/reviews\"");
}

/* Up to sixteen new characters, then text that comes again: brings an event to its exact size. */
static void fill_note(uint64_t *random, char *out, char *end)
{
    static const char text[] = " left at the side entrance as agreed with the customer by phone; "
                               "the second parcel follows with the next delivery of the week";
    int width = end - out < 16 ? (int)(end - out) : 16;
    out = put_hex(out, next_random(random), width);
    for (size_t i = 0; out < end; i++)
        *out++ = text[i % (sizeof text - 1)];
}

void pool_event(uint64_t *random, char *out, uint32_t len)
{
    char *end = out + len;
    out = put_base(random, out);
    if (end - out > 110)
        out = put_session(random, out);
    if (end - out > 110)
        out = put_agent(random, out);
    for (int i = 0; end - out > ITEM_BYTES_MAX; i++)
        out = put_item(random, out, i % 100);
    if (end - out >= 12) {
        out = put_text(out, ",\"note\":\"");
        fill_note(random, out, end - 2);
        end[-2] = '"';
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
