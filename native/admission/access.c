/* Who sends a request, whether that user may produce to a topic, and how much in all. */
#include "admission/access.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "admission/bearer.h"
#include "admission/refusals.h"
#include "loop/tls.h"

#define USER_AT (2 * ACCESS_HASH_BYTES)
#define RATES_AT (USER_AT + 2)
#define CONNECTIONS_AT (RATES_AT + 16)
#define FLAGS_AT (CONNECTIONS_AT + 4)
#define PATTERNS_AT (FLAGS_AT + 1)
#define ENTRY_BYTES (PATTERNS_AT + 2)
#define TOPIC_BYTES_MAX 127u
#define NAME_BYTES_MAX 128u /* of an id that is hashed with its user's name */

/* What may be had in a second, and is had at once where it was not used in the last one. */
struct bucket {
    uint64_t rate;  /* a second; 0: without end */
    int64_t level;  /* in thousandths; below 0: more was had, and is waited for */
    uint64_t at_ms; /* when that was so */
};

struct quota {
    struct bucket requests, bytes;
    uint32_t connections, connections_max; /* 0: without end */
};

struct access {
    uint64_t number; /* of this table among all that there were; from 1 */
    bool known;
    uint32_t count;
    uint8_t *bytes;
    const uint8_t **entries; /* into bytes, in the order of the hashes */
    const uint8_t **named;   /* the same, in the order of the hashes of the users' names */
    struct quota *quotas;    /* by the user's number; of each as many as entries */
};

/* What one connection was found to be. */
struct shown {
    struct shown *next, **prev; /* of all connections that were looked at */
    uint64_t number;            /* of the table; 0: nothing was found */
    const uint8_t *entry;
    bool counted; /* among its user's connections */
    bool by_certificate; /* `value` is the name in it */
    uint8_t topic_len; /* 0: none yet */
    uint16_t value_len;
    char value[SHOWN_BYTES_MAX]; /* the header's, by which it was shown */
    char topic[TOPIC_BYTES_MAX];  /* to which this user may produce */
};

/* ---- the table ---- */

static uint64_t le_at(const uint8_t *p, unsigned bytes)
{
    uint64_t found = 0;
    assert(bytes <= 8);
    for (unsigned i = bytes; i > 0; i--)
        found = found << 8 | p[i - 1];
    return found;
}

static uint16_t patterns_of(const uint8_t *entry)
{
    return (uint16_t)le_at(entry + PATTERNS_AT, 2);
}

static uint16_t user_of(const uint8_t *entry) { return (uint16_t)le_at(entry + USER_AT, 2); }

/* The length of the entry at p, 0: it is not whole, or no entry. */
static size_t entry_len(const uint8_t *p, size_t left)
{
    if (left < ENTRY_BYTES)
        return 0;
    size_t used = ENTRY_BYTES;
    for (uint16_t n = patterns_of(p); n > 0; n--) {
        if (used == left)
            return 0;
        const size_t len = p[used];
        if (len == 0 || len > TOPIC_BYTES_MAX + 1 || len > left - used - 1)
            return 0;
        used += 1 + len;
    }
    assert(used <= left);
    return used;
}

/* The users' quotas, all of them full. False: a number or a rate is out of its bounds. */
static bool fill_quotas(struct access *access, uint64_t now_ms)
{
    assert(access->count == 0 || access->quotas != NULL);
    for (uint32_t i = 0; i < access->count; i++) {
        const uint8_t *rates = access->entries[i] + RATES_AT;
        const uint16_t user = user_of(access->entries[i]);
        const uint64_t requests = le_at(rates, 8), bytes = le_at(rates + 8, 8);
        if (user >= access->count || requests > ACCESS_RATE_MAX || bytes > ACCESS_RATE_MAX ||
            access->entries[i][FLAGS_AT] > ACCESS_KNOWN_TOPICS)
            return false;
        access->quotas[user] = (struct quota){
            .requests = {requests, (int64_t)(requests * 1000), now_ms},
            .bytes = {bytes, (int64_t)(bytes * 1000), now_ms},
            .connections_max = (uint32_t)le_at(access->entries[i] + CONNECTIONS_AT, 4),
        };
    }
    return true;
}

static bool index_entries(struct access *access, size_t len)
{
    const uint8_t *before = NULL;
    for (size_t at = 0; at < len;) {
        const uint8_t *entry = access->bytes + at;
        const size_t own = entry_len(entry, len - at);
        if (own == 0 || (before != NULL && memcmp(before, entry, ACCESS_HASH_BYTES) >= 0))
            return false;
        access->entries[access->count++] = before = entry;
        at += own;
    }
    return true;
}

/* Whose token that is. The search goes by what is known of it, which tells nothing of the token;
 * the last comparison takes always as long. */
static const uint8_t *search(const uint8_t *const *entries, uint32_t count, size_t at,
                             const uint8_t *hash)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (memcmp(entries[middle] + at, hash, ACCESS_HASH_BYTES) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == count || CRYPTO_memcmp(entries[low] + at, hash, ACCESS_HASH_BYTES) != 0)
        return NULL;
    return entries[low];
}

static const uint8_t *find(const struct access *access, const uint8_t *hash)
{
    return search(access->entries, access->count, 0, hash);
}

/* One of a user with this name's hash: which one it is says nothing else than the others. */
static const uint8_t *find_named(const struct access *access, const uint8_t *hash)
{
    return search(access->named, access->count, ACCESS_HASH_BYTES, hash);
}

static int by_name(const void *one, const void *other)
{
    return memcmp(*(const uint8_t *const *)one + ACCESS_HASH_BYTES,
                  *(const uint8_t *const *)other + ACCESS_HASH_BYTES, ACCESS_HASH_BYTES);
}

static void table_free(struct access *access)
{
    if (access == NULL)
        return;
    free(access->bytes);
    free(access->entries);
    free(access->named);
    free(access->quotas);
    free(access);
}

/* Connections are whose they were, by the new table: a user's count goes on. */
static void recount(struct reactor *reactor, struct access *access)
{
    const struct access *last = reactor->access;
    for (struct shown *shown = reactor->shown; shown != NULL; shown = shown->next) {
        assert(shown->number == 0 || (last != NULL && shown->number == last->number));
        const uint8_t *entry = NULL;
        if (shown->number != 0)
            entry = shown->by_certificate ? find_named(access, shown->entry + ACCESS_HASH_BYTES)
                                          : find(access, shown->entry);
        shown->topic_len = 0;
        shown->counted = shown->counted && entry != NULL;
        shown->entry = entry;
        shown->number = entry == NULL ? 0 : access->number;
        if (shown->counted)
            access->quotas[user_of(entry)].connections++;
    }
}

bool access_set(struct reactor *reactor, const uint8_t *table, size_t len)
{
    if (len > ACCESS_TABLE_BYTES_MAX)
        return false;
    struct access *access = calloc(1, sizeof *access);
    if (access == NULL)
        return false;
    access->known = table != NULL;
    access->number = reactor->access != NULL ? reactor->access->number + 1 : 1;
    if (len > 0) {
        access->bytes = malloc(len);
        access->entries = malloc((len / ENTRY_BYTES + 1) * sizeof *access->entries);
        access->named = malloc((len / ENTRY_BYTES + 1) * sizeof *access->named);
        access->quotas = calloc(len / ENTRY_BYTES + 1, sizeof *access->quotas);
        if (access->bytes == NULL || access->entries == NULL || access->named == NULL ||
            access->quotas == NULL) {
            table_free(access);
            return false;
        }
        memcpy(access->bytes, table, len);
        if (!index_entries(access, len) || !fill_quotas(access, reactor->loop.now_ms)) {
            table_free(access);
            return false;
        }
        memcpy(access->named, access->entries, access->count * sizeof *access->named);
        qsort(access->named, access->count, sizeof *access->named, by_name);
    }
    if (!refusals_of(reactor, access->count)) {
        table_free(access);
        return false;
    }
    recount(reactor, access);
    table_free(reactor->access);
    reactor->access = access;
    return true;
}

void access_free(struct reactor *reactor)
{
    table_free(reactor->access);
    reactor->access = NULL;
    refusals_free(reactor);
}

/* ---- who ---- */

static bool hash_of(const struct http1_slice *text, uint8_t hash[EVP_MAX_MD_SIZE])
{
    unsigned len = 0;
    if (EVP_Digest(text->p, text->len, hash, &len, EVP_sha256(), NULL) != 1)
        return false;
    assert(len == ACCESS_HASH_BYTES);
    return true;
}

/* What says whose a request is: the value of its header or, without one, the name in the
 * certificate that its sender has shown. */
struct said {
    struct http1_slice text;
    bool by_certificate;
};

bool access_certificate(const struct conn *conn, struct http1_slice *name)
{
    if (!conn_reactor(conn)->by_certificate)
        return false;
    name->len = (uint32_t)tls_name(conn, &name->p);
    return name->len > 0;
}

/* Who shows a token is whose that is, and nobody else: also where it is nobody's. */
static bool says(const struct conn *conn, const struct http1_request *head, struct said *out)
{
    *out = (struct said){0};
    if (bearer_of(head, &out->text))
        return true;
    out->by_certificate = !bearer_is_there(head);
    return out->by_certificate && access_certificate(conn, &out->text);
}

/* Whose token a header's value has; NULL: nobody's, or not that of the user whom it names. */
static const uint8_t *token_entry(const struct access *access, const struct http1_slice *value)
{
    uint8_t hash[EVP_MAX_MD_SIZE];
    char room[NAMED_ROOM_BYTES];
    struct bearer bearer;
    if (!bearer_read(value, room, &bearer) || !hash_of(&bearer.token, hash))
        return NULL;
    const uint8_t *entry = find(access, hash);
    if (entry == NULL || bearer.name.p == NULL)
        return entry;
    if (!hash_of(&bearer.name, hash) ||
        CRYPTO_memcmp(entry + ACCESS_HASH_BYTES, hash, ACCESS_HASH_BYTES) != 0)
        return NULL;
    return entry;
}

static const uint8_t *entry_of(const struct access *access, const struct said *said)
{
    uint8_t hash[EVP_MAX_MD_SIZE];
    if (!said->by_certificate)
        return token_entry(access, &said->text);
    return hash_of(&said->text, hash) ? find_named(access, hash) : NULL;
}

/* The connection is its user's no more. */
static void give_back(const struct access *access, struct shown *shown)
{
    if (!shown->counted)
        return;
    assert(shown->number == access->number);
    struct quota *quota = &access->quotas[user_of(shown->entry)];
    assert(quota->connections > 0);
    quota->connections--;
    shown->counted = false;
}

/* One more connection of its user's, if it is not one yet. False: those are too many. */
static bool count_in(const struct access *access, struct shown *shown)
{
    struct quota *quota = &access->quotas[user_of(shown->entry)];
    if (shown->counted)
        return true;
    if (quota->connections_max > 0 && quota->connections >= quota->connections_max)
        return false;
    quota->connections++;
    return shown->counted = true;
}

static struct shown *show(struct conn *conn)
{
    struct reactor *reactor = conn_reactor(conn);
    struct shown *shown = client_of(conn)->shown = calloc(1, sizeof *shown);
    if (shown == NULL)
        return NULL;
    assert(!conn->closed); /* it would never be forgotten */
    shown->next = reactor->shown;
    shown->prev = &reactor->shown;
    if (shown->next != NULL)
        shown->next->prev = &shown->next;
    return reactor->shown = shown;
}

void access_forget(struct conn *conn)
{
    struct shown *shown = client_of(conn)->shown;
    if (shown == NULL)
        return;
    if (conn_reactor(conn)->access != NULL)
        give_back(conn_reactor(conn)->access, shown);
    if (shown->next != NULL)
        shown->next->prev = shown->prev;
    *shown->prev = shown->next;
    free(shown);
    client_of(conn)->shown = NULL;
}

/* What is known of whoever has this connection, after a look if need be; NULL: nobody. Who was
 * there before stays noted then: the answers that are still to come are theirs to pay, and the
 * connection is theirs. */
static const uint8_t *who(struct conn *conn, const struct access *access, const struct said *said)
{
    const struct http1_slice *value = &said->text;
    struct shown *shown = client_of(conn)->shown;
    if (shown != NULL && shown->number == access->number && shown->value_len == value->len &&
        shown->by_certificate == said->by_certificate &&
        CRYPTO_memcmp(shown->value, value->p, value->len) == 0)
        return shown->entry;
    const uint8_t *entry = entry_of(access, said);
    if (entry == NULL)
        return NULL;
    if (shown == NULL && (shown = show(conn)) == NULL)
        return NULL;
    give_back(access, shown);
    shown->topic_len = 0;
    shown->entry = entry;
    assert(value->len <= sizeof shown->value);
    shown->by_certificate = said->by_certificate;
    shown->value_len = (uint16_t)value->len;
    memcpy(shown->value, value->p, value->len);
    shown->number = access->number;
    return entry;
}

/* ---- what ---- */

static bool matches(const uint8_t *pattern, size_t len, const struct http1_slice *topic)
{
    assert(len > 0);
    if (pattern[len - 1] == '*')
        return topic->len >= len - 1 && memcmp(topic->p, pattern, len - 1) == 0;
    return topic->len == len && memcmp(topic->p, pattern, len) == 0;
}

static bool may_produce(struct shown *shown, const struct http1_slice *topic)
{
    if (topic->len == 0 || topic->len > TOPIC_BYTES_MAX)
        return true; /* it is no topic's name, and will be told so */
    if (shown->topic_len == topic->len && memcmp(shown->topic, topic->p, topic->len) == 0)
        return true;
    const uint8_t *at = shown->entry + ENTRY_BYTES;
    for (uint16_t n = patterns_of(shown->entry); n > 0; n--, at += 1 + *at) {
        if (matches(at + 1, *at, topic)) {
            memcpy(shown->topic, topic->p, topic->len);
            shown->topic_len = (uint8_t)topic->len;
            return true;
        }
    }
    return false;
}

/* ---- how much ---- */

/* The quota of whoever has this connection; NULL: it has none. */
static struct quota *quota_of(const struct conn *conn)
{
    const struct access *access = conn_reactor(conn)->access;
    const struct shown *shown = client_of(conn)->shown;
    if (access == NULL || shown == NULL || shown->number != access->number)
        return NULL; /* another table: all that was had under the last one is forgiven */
    assert(user_of(shown->entry) < access->count);
    return &access->quotas[user_of(shown->entry)];
}

static void bucket_fill(struct bucket *bucket, uint64_t now_ms)
{
    const uint64_t passed = now_ms > bucket->at_ms ? now_ms - bucket->at_ms : 0;
    const uint64_t enough = (ACCESS_DEBT_SECONDS + 1) * 1000ull;
    const int64_t most = (int64_t)(bucket->rate * 1000);
    assert(bucket->rate <= ACCESS_RATE_MAX && bucket->level <= most);
    bucket->level += (int64_t)(bucket->rate * (passed < enough ? passed : enough));
    if (bucket->level > most)
        bucket->level = most;
    bucket->at_ms = now_ms;
}

/* Milliseconds until there is so much (in thousandths); 0: there is. */
static uint64_t bucket_wait(struct bucket *bucket, int64_t need, uint64_t now_ms)
{
    assert(need > 0 && need <= 1000);
    if (bucket->rate == 0)
        return 0;
    bucket_fill(bucket, now_ms);
    if (bucket->level >= need)
        return 0;
    const uint64_t lacking = (uint64_t)(need - bucket->level);
    return (lacking + bucket->rate - 1) / bucket->rate;
}

static void bucket_take(struct bucket *bucket, uint64_t amount)
{
    const uint64_t most = bucket->rate * ACCESS_DEBT_SECONDS;
    if (bucket->rate == 0)
        return;
    bucket->level -= (int64_t)((amount < most ? amount : most) * 1000);
    if (bucket->level < -(int64_t)(most * 1000))
        bucket->level = -(int64_t)(most * 1000);
    assert(bucket->level <= (int64_t)(bucket->rate * 1000));
}

static uint64_t quota_wait(struct quota *quota, uint64_t now_ms)
{
    const uint64_t requests = bucket_wait(&quota->requests, 1000, now_ms);
    const uint64_t bytes = bucket_wait(&quota->bytes, 1, now_ms);
    return requests > bytes ? requests : bytes;
}

void access_charge(struct conn *conn, uint64_t bytes)
{
    struct quota *quota = quota_of(conn);
    if (quota != NULL)
        bucket_take(&quota->bytes, bytes);
}

uint32_t access_user(const struct conn *conn)
{
    const struct access *access = conn_reactor(conn)->access;
    const struct shown *shown = client_of(conn)->shown;
    if (access == NULL || shown == NULL || shown->number != access->number)
        return NO_USER;
    assert(user_of(shown->entry) < access->count);
    return user_of(shown->entry);
}

uint32_t access_wait(const struct conn *conn)
{
    struct quota *quota = quota_of(conn);
    const uint64_t ms = quota == NULL ? 0 : quota_wait(quota, conn->loop->now_ms);
    assert(ms <= (ACCESS_DEBT_SECONDS + 1) * 1000ull);
    return ms == 0 ? 1 : (uint32_t)((ms + 999) / 1000);
}

static bool path_is(const struct http1_request *head, const char *path, size_t length)
{
    return head->path.len == length && memcmp(head->path.p, path, length) == 0;
}

/* GET or HEAD of what nobody has to show anything for: /ready, and the console's page and files,
 * which say nothing of the broker. is_open() in workers/http/app.py has the same list. */
static bool is_open(const struct http1_request *head)
{
    static const char folder[] = "/console/";
    if (head->method != HTTP1_GET && head->method != HTTP1_HEAD)
        return false;
    return path_is(head, "/ready", 6) || path_is(head, "/", 1) || path_is(head, "/console", 8) ||
           (head->path.len >= sizeof folder - 1 &&
            memcmp(head->path.p, folder, sizeof folder - 1) == 0);
}

uint16_t access_check(struct conn *conn, const struct http1_request *head,
                      const struct http1_slice *topic)
{
    struct client *client = client_of(conn);
    const struct access *access = conn_reactor(conn)->access;
    if (access == NULL || is_open(head))
        return PROBLEM_NONE;
    if (!access->known)
        return PROBLEM_NOT_READY;
    struct said said;
    if (!says(conn, head, &said))
        return PROBLEM_UNAUTHORIZED;
    if (who(conn, access, &said) == NULL)
        return !said.by_certificate && bearer_is_bare(&said.text) ? PROBLEM_BEARER
                                                                  : PROBLEM_UNAUTHORIZED;
    assert(client->shown->number == access->number);
    if (!count_in(access, client->shown)) {
        conn_reactor(conn)->over_quota++;
        return PROBLEM_CONNECTIONS;
    }
    struct quota *quota = quota_of(conn);
    if (quota_wait(quota, conn->loop->now_ms) > 0) {
        conn_reactor(conn)->over_quota++;
        return PROBLEM_QUOTA;
    }
    bucket_take(&quota->requests, 1);
    return topic == NULL || may_produce(client->shown, topic) ? PROBLEM_NONE : PROBLEM_FORBIDDEN;
}

/* Whoever is shown on a connection was looked up again when the last table came, see recount(). */
uint16_t access_again(struct conn *conn, const struct http1_slice *topic)
{
    const struct access *access = conn_reactor(conn)->access;
    struct shown *shown = client_of(conn)->shown;
    if (access == NULL)
        return PROBLEM_NONE;
    if (shown == NULL || !access->known)
        return PROBLEM_NOT_READY;
    if (shown->number != access->number)
        return PROBLEM_UNAUTHORIZED;
    return may_produce(shown, topic) ? PROBLEM_NONE : PROBLEM_FORBIDDEN;
}

bool access_known_topics(const struct conn *conn)
{
    const struct access *access = conn_reactor(conn)->access;
    const struct shown *shown = client_of(conn)->shown;
    if (access == NULL)
        return false;
    assert(shown != NULL && shown->number == access->number); /* it was asked who this is */
    return shown->entry[FLAGS_AT] & ACCESS_KNOWN_TOPICS;
}

bool access_own(const struct conn *conn, const char *name, size_t len, uint8_t *id, size_t id_len)
{
    uint8_t text[ACCESS_HASH_BYTES + NAME_BYTES_MAX], hash[EVP_MAX_MD_SIZE];
    const struct access *access = conn_reactor(conn)->access;
    unsigned hash_len = 0;
    if (access == NULL)
        return true;
    const struct shown *shown = client_of(conn)->shown;
    assert(shown != NULL && shown->number == access->number); /* it was asked who this is */
    assert(len <= NAME_BYTES_MAX && id_len <= ACCESS_HASH_BYTES);
    memcpy(text, shown->entry + ACCESS_HASH_BYTES, ACCESS_HASH_BYTES);
    memcpy(text + ACCESS_HASH_BYTES, name, len);
    if (EVP_Digest(text, ACCESS_HASH_BYTES + len, hash, &hash_len, EVP_sha256(), NULL) != 1)
        return false;
    assert(hash_len == ACCESS_HASH_BYTES);
    memcpy(id, hash, id_len);
    return true;
}

uint32_t access_refused(const struct conn *conn, uint16_t problem)
{
    const bool unasked = problem == PROBLEM_UNAUTHORIZED || problem == PROBLEM_BEARER ||
                         problem == PROBLEM_FOREIGN_HOST || problem == PROBLEM_FOREIGN_ORIGIN;
    return unasked ? NO_USER : access_user(conn);
}
