/* A table of users as bytes: what is none is refused, whatever it is, and the last one stays. */
#include "admission/access.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* An entry's parts, as access.h has them: the user's number, two rates, connections, a flag, the
 * count of patterns. */
#define USER_AT (2 * ACCESS_HASH_BYTES)
#define RATES_AT (USER_AT + 2)
#define CONNECTIONS_AT (RATES_AT + 2 * 8)
#define FLAGS_AT (CONNECTIONS_AT + 4)
#define COUNT_AT (FLAGS_AT + 1)

static size_t put_entry(uint8_t *at, uint8_t hash, const char *const *patterns, uint16_t count)
{
    uint8_t *start = at;
    memset(at, hash, ACCESS_HASH_BYTES);
    memset(at + ACCESS_HASH_BYTES, 7, ACCESS_HASH_BYTES);
    at += USER_AT;
    memset(at, 0, COUNT_AT - USER_AT); /* user 0, without a quota */
    at += COUNT_AT - USER_AT;
    *at++ = (uint8_t)count;
    *at++ = (uint8_t)(count >> 8);
    for (uint16_t i = 0; i < count; i++) {
        const size_t len = strlen(patterns[i]);
        *at++ = (uint8_t)len;
        memcpy(at, patterns[i], len);
        at += len;
    }
    return (size_t)(at - start);
}

/* In memory of its own length, so that a byte too far is found. */
static bool set(struct reactor *reactor, const uint8_t *table, size_t len)
{
    uint8_t *copy = malloc(len ? len : 1);
    assert(copy != NULL);
    if (len > 0)
        memcpy(copy, table, len);
    const bool taken = access_set(reactor, copy, len);
    free(copy);
    return taken;
}

int main(void)
{
    static const char *const patterns[] = {"orders.*", "a", "*"};
    struct reactor *reactor = calloc(1, sizeof *reactor);
    uint8_t table[512], wrong[512];
    assert(reactor != NULL);
    assert(access_set(reactor, NULL, 0) && reactor->access != NULL);
    size_t first = put_entry(table, 1, patterns, 3);
    size_t len = first + put_entry(table + first, 2, NULL, 0);
    assert(set(reactor, table, len) && set(reactor, table, first) && set(reactor, table, 0));
    for (size_t cut = 1; cut < len; cut++)
        assert(set(reactor, table, cut) == (cut == first));
    assert(set(reactor, table, len));
    /* Twice the same token, and not in order. */
    memcpy(wrong, table, first);
    memcpy(wrong + first, table, first);
    assert(!set(reactor, wrong, 2 * first));
    size_t second = put_entry(wrong, 2, NULL, 0);
    assert(!set(reactor, wrong, second + put_entry(wrong + second, 1, NULL, 0)));
    /* An empty pattern, and one that is longer than what is there. */
    put_entry(wrong, 1, (const char *const[]){""}, 1);
    assert(!set(reactor, wrong, COUNT_AT + 3));
    for (unsigned byte = 0; byte < 256; byte++) {
        memcpy(wrong, table, len);
        wrong[COUNT_AT + 2] = (uint8_t)byte;
        set(reactor, wrong, first); /* whatever it says: nothing is read beyond */
    }
    /* A user's number that is none, a rate that nobody could count up to, a flag that is none. */
    for (unsigned at = USER_AT; at < COUNT_AT; at++) {
        const bool rate = at >= RATES_AT && at < CONNECTIONS_AT;
        const bool connections = at >= CONNECTIONS_AT && at < FLAGS_AT;
        memcpy(wrong, table, len);
        wrong[at] = 255;
        assert(set(reactor, wrong, len) == ((rate && (at - RATES_AT) % 8 < 5) || connections));
    }
    assert(set(reactor, table, len) && !access_set(reactor, table, ACCESS_TABLE_BYTES_MAX + 1));
    assert(reactor->access != NULL);
    access_free(reactor);
    assert(reactor->access == NULL);
    free(reactor);
    return 0;
}
