/* What many listeners hear, rendered once. */
#define _GNU_SOURCE /* memrchr */
#include "broker/feed.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/urgent.h"
#include "admission/access.h"

static_assert(FEEDS_MAX * (FEED_BYTES + 2ull * FEED_BODY_BYTES) <= FEEDS_BYTES_MAX,
              "without laggards all feeds have room");

/* ---- bodies ---- */

static void body_drop(struct feed_body *body)
{
    assert(body->refs > 0);
    if (--body->refs > 0)
        return;
    *body->bytes_all -= sizeof *body + body->capacity;
    free(body);
}

static void body_sent(void *owner) { body_drop(owner); }

static struct feed_body *body_make(struct feeds *feeds, const char *id, size_t id_len,
                                   uint64_t base, size_t text_len)
{
    size_t capacity = id_len + text_len;
    if (capacity < FEED_BODY_BYTES)
        capacity = FEED_BODY_BYTES;
    if (id_len > FEED_ID_BYTES_MAX || capacity > UINT32_MAX / 2)
        return NULL;
    struct feed_body *body = malloc(sizeof *body + capacity);
    if (body == NULL)
        return NULL;
    *body = (struct feed_body){.bytes_all = &feeds->bytes, .base = base, .refs = 1,
                               .id_len = (uint32_t)id_len, .len = (uint32_t)id_len,
                               .capacity = (uint32_t)capacity};
    memcpy(body->bytes, id, id_len);
    feeds->bytes += sizeof *body + capacity;
    return body;
}

/* Where the id of the last of some whole events is: a line before its data, which has no breaks. */
static void note_last_id(struct feed_body *body, uint32_t from)
{
    const uint8_t *start = body->bytes + from, *end = body->bytes + body->len;
    assert(from >= body->id_len && end > start);
    while (end > start) {
        const uint8_t *broken = memrchr(start, '\n', (size_t)(end - 1 - start));
        const uint8_t *line = broken != NULL ? broken + 1 : start;
        if (end - line > 4 && memcmp(line, "id: ", 4) == 0) {
            body->last_id = (uint32_t)(line + 4 - body->bytes);
            body->last_id_len = (uint32_t)(end - 1 - (line + 4));
            return;
        }
        end = line;
    }
}

/* ---- lists ---- */

static void list_init(struct hearers *list)
{
    list->first = NULL;
    list->end = &list->first;
}

static void list_add(struct hearers *list, struct hearer *hearer)
{
    assert(hearer->prev == NULL && *list->end == NULL);
    hearer->next = NULL;
    hearer->prev = list->end;
    *list->end = hearer;
    list->end = &hearer->next;
}

static void list_take(struct feed *feed, struct hearer *hearer)
{
    if (hearer->prev == NULL)
        return;
    *hearer->prev = hearer->next;
    if (hearer->next != NULL)
        hearer->next->prev = hearer->prev;
    else if (feed->waiting.end == &hearer->next)
        feed->waiting.end = hearer->prev;
    else
        feed->due.end = hearer->prev;
    hearer->prev = NULL;
}

/* Those that had all there was have not any more. */
static void all_due(struct feed *feed)
{
    if (feed->waiting.first == NULL)
        return;
    *feed->due.end = feed->waiting.first;
    feed->waiting.first->prev = feed->due.end;
    feed->due.end = feed->waiting.end;
    list_init(&feed->waiting);
}

/* ---- feeds ---- */

struct feed *feed_at(const struct reactor *reactor, uint64_t number)
{
    struct feed *feed =
        reactor->feeds != NULL && number < FEEDS_MAX ? reactor->feeds->feeds[number] : NULL;
    return feed != NULL && !feed->ending ? feed : NULL;
}

int feed_open(struct reactor *reactor, const char *id, size_t id_len)
{
    if (reactor->feeds == NULL && (reactor->feeds = calloc(1, sizeof(struct feeds))) == NULL)
        return -1;
    struct feeds *feeds = reactor->feeds;
    uint32_t number = 0;
    while (number < FEEDS_MAX && feeds->feeds[number] != NULL)
        number++;
    if (number == FEEDS_MAX || feeds->bytes + FEED_BODY_BYTES > FEEDS_BYTES_MAX)
        return -1;
    struct feed *feed = calloc(1, sizeof *feed);
    struct feed_body *body = feed != NULL ? body_make(feeds, id, id_len, 0, 0) : NULL;
    if (body == NULL) {
        free(feed);
        return -1;
    }
    feed->first = feed->last = body;
    list_init(&feed->waiting);
    list_init(&feed->due);
    feeds->feeds[number] = feed;
    feeds->count++;
    return (int)number;
}

static void drop_first(struct feed *feed)
{
    struct feed_body *body = feed->first;
    assert(body->next != NULL);
    feed->first = body->next;
    body->next = NULL; /* nobody goes on from here to what may be gone by then */
    body->dropped = true;
    body_drop(body);
}

static void leave_feed(struct hearer *hearer)
{
    struct feed *feed = hearer->feed;
    if (feed == NULL)
        return;
    list_take(feed, hearer);
    body_drop(hearer->body);
    assert(feed->hearers > 0);
    feed->hearers--;
    hearer->feed = NULL;
    hearer->body = NULL;
}

static void feed_free(struct feeds *feeds, uint32_t number)
{
    struct feed *feed = feeds->feeds[number];
    assert(feed->hearers == 0);
    while (feed->first != feed->last)
        drop_first(feed);
    feed->first->dropped = true;
    body_drop(feed->first);
    feeds->ending -= feed->ending;
    free(feed);
    feeds->feeds[number] = NULL;
    feeds->count--;
}

void feed_close(struct reactor *reactor, uint32_t number)
{
    struct feed *feed = feed_at(reactor, number);
    assert(feed != NULL);
    feed->ending = true;
    reactor->feeds->ending++;
    if (feed->hearers == 0)
        feed_free(reactor->feeds, number);
}

/* Lets some go of those whose feeds are ending, and frees what nobody is left of. */
static void end_some(struct feeds *feeds)
{
    unsigned ended = 0;
    assert(feeds->ending > 0 && feeds->ending <= feeds->count);
    for (struct hearer *each = feeds->all, *next; each != NULL && ended < HEARERS_ENDED_AT_ONCE;
         each = next) {
        next = each->next_all;
        if (each->feed != NULL && each->feed->ending) {
            ended++;
            conn_close(each->conn);
        }
    }
    for (uint32_t number = 0; number < FEEDS_MAX; number++) {
        const struct feed *feed = feeds->feeds[number];
        if (feed != NULL && feed->ending && feed->hearers == 0)
            feed_free(feeds, number);
    }
}

void feeds_free(struct reactor *reactor)
{
    struct feeds *feeds = reactor->feeds;
    if (feeds == NULL)
        return;
    hearers_end(reactor);
    for (uint32_t number = 0; number < FEEDS_MAX; number++)
        if (feeds->feeds[number] != NULL)
            feed_free(feeds, number);
    free(feeds);
    reactor->feeds = NULL;
}

/* Some of those whose place is in text that nobody else needs. */
static void end_laggards(struct reactor *reactor)
{
    unsigned ended = 0;
    for (struct hearer *each = reactor->feeds->all, *next;
         each != NULL && ended < HEARERS_ENDED_AT_ONCE; each = next) {
        next = each->next_all;
        if (each->body != NULL && each->body->dropped) {
            ended++;
            reactor->shed++;
            conn_close(each->conn);
        }
    }
}

bool feed_push(struct reactor *reactor, uint32_t number, const char *id, size_t id_len,
               const uint8_t *text, size_t len)
{
    struct feeds *feeds = reactor->feeds;
    struct feed *feed = feed_at(reactor, number);
    assert(feed != NULL && len > 0);
    struct feed_body *last = feed->last;
    if (len > last->capacity - last->len) {
        if (feeds->bytes + id_len + len + FEED_BODY_BYTES > FEEDS_BYTES_MAX) {
            end_laggards(reactor);
            while (feed->first != feed->last)
                drop_first(feed);
            if (feeds->bytes + id_len + len + FEED_BODY_BYTES > FEEDS_BYTES_MAX)
                return false;
        }
        struct feed_body *body = body_make(feeds, id, id_len, feed_end(feed), len);
        if (body == NULL)
            return false;
        feed->last = last->next = body;
        last = body;
    }
    /* Behind what may be being sent just now. */
    memcpy(last->bytes + last->len, text, len);
    last->len += (uint32_t)len;
    note_last_id(last, last->len - (uint32_t)len);
    while (feed->first != feed->last && feed_end(feed) - feed->first->next->base >= FEED_BYTES)
        drop_first(feed);
    all_due(feed);
    return true;
}

/* ---- listeners ---- */

bool hearer_begin(struct conn *conn, uint64_t request)
{
    struct reactor *reactor = conn_reactor(conn);
    struct client *client = client_of(conn);
    assert(client->hearer == NULL);
    if (reactor->feeds == NULL && (reactor->feeds = calloc(1, sizeof(struct feeds))) == NULL)
        return false;
    struct hearer *hearer = malloc(sizeof *hearer);
    if (hearer == NULL)
        return false;
    struct hearer **all = &reactor->feeds->all;
    *hearer = (struct hearer){.next_all = *all, .prev_all = all, .conn = conn, .request = request,
                              .beat_ms = reactor->loop.now_ms};
    if (*all != NULL)
        (*all)->prev_all = &hearer->next_all;
    *all = client->hearer = hearer;
    reactor->feeds->hearers++;
    return true;
}

static bool has_all(const struct hearer *hearer)
{
    const struct feed_body *body = hearer->body;
    return hearer->at == body->len && body->next == NULL && !body->dropped;
}

static void line_up(struct hearer *hearer)
{
    list_add(has_all(hearer) ? &hearer->feed->waiting : &hearer->feed->due, hearer);
}

void hearer_write(struct conn *conn, const uint8_t *bytes, size_t len)
{
    struct hearer *hearer = client_of(conn)->hearer;
    assert(hearer != NULL && hearer->feed == NULL);
    conn_write(conn, bytes, len);
    hearer->tells = true;
    hearer->beat_ms = conn->loop->now_ms;
    conn_reactor(conn)->feeds->heard_bytes += len;
    access_charge(conn, len);
}

bool hearer_join(struct conn *conn, uint32_t number, uint64_t from)
{
    struct feed *feed = feed_at(conn_reactor(conn), number);
    struct hearer *hearer = client_of(conn)->hearer;
    assert(hearer != NULL && hearer->feed == NULL);
    if (feed == NULL || from < feed->first->base || from > feed_end(feed))
        return false;
    struct feed_body *body = feed->first;
    while (body->next != NULL && from >= body->next->base)
        body = body->next;
    body->refs++;
    hearer->body = body;
    hearer->at = body->id_len + (uint32_t)(from - body->base);
    assert(hearer->at <= body->len);
    hearer->feed = feed;
    hearer->tells = false;
    feed->hearers++;
    if (conn->out_first == NULL)
        line_up(hearer); /* else when that is sent */
    return true;
}

/* False: there is no memory for the id. */
static bool tell(struct hearer *hearer, uint8_t what, const uint8_t *id, size_t len)
{
    uint8_t *kept = len > 0 ? malloc(len) : NULL;
    if (len > 0 && kept == NULL)
        return false;
    struct upcall *up = reactor_upcall(conn_reactor(hearer->conn), UPCALL_HEARER,
                                       hearer->request);
    up->status = what;
    if (len > 0)
        memcpy(kept, id, len);
    up->head = kept;
    up->head_len = (uint32_t)len;
    return true;
}

void hearer_tended(struct conn *conn)
{
    struct hearer *hearer = client_of(conn)->hearer;
    if (conn->out_first != NULL || conn->closed)
        return;
    if (hearer->feed != NULL && hearer->prev == NULL) {
        line_up(hearer);
    } else if (hearer->tells) {
        hearer->tells = false;
        tell(hearer, HEARER_SENT, NULL, 0);
    }
}

void hearer_closed(struct conn *conn)
{
    struct hearer *hearer = client_of(conn)->hearer;
    leave_feed(hearer);
    *hearer->prev_all = hearer->next_all;
    if (hearer->next_all != NULL)
        hearer->next_all->prev_all = hearer->prev_all;
    conn_reactor(conn)->feeds->hearers--;
    tell(hearer, HEARER_GONE, NULL, 0);
    client_of(conn)->hearer = NULL;
    free(hearer);
}

void hearers_end(struct reactor *reactor)
{
    for (struct hearer *each = reactor->feeds != NULL ? reactor->feeds->all : NULL, *next;
         each != NULL; each = next) {
        next = each->next_all;
        conn_close(each->conn);
    }
}

static void send_piece(struct conn *conn, const void *bytes, size_t len,
                       void (*release)(void *), void *owner)
{
    conn_write_foreign(&conn->out_first, &conn->out_last, bytes, len, release, owner);
    conn->out_bytes += len;
    client_of(conn)->hearer->beat_ms = conn->loop->now_ms;
    conn_mark_dirty(conn);
}

void hearer_beat(struct conn *conn, int64_t now_ms)
{
    static const char beat[] = ":\n\n";
    const struct hearer *hearer = client_of(conn)->hearer;
    if (conn->out_first == NULL && now_ms - hearer->beat_ms >= HEARER_BEAT_MS)
        send_piece(conn, beat, sizeof beat - 1, NULL, NULL);
}

/* Sends what its body has beyond its place, or goes on to the next one first. */
static void serve(struct reactor *reactor, struct hearer *hearer)
{
    struct feed_body *body = hearer->body;
    list_take(hearer->feed, hearer);
    const struct feed *feed = hearer->feed;
    struct feed_body *next = body->next;
    if (body->dropped && feed->first->base == body->base + (body->len - body->id_len))
        next = feed->first; /* only just */
    if (hearer->at == body->len && next == NULL) {
        assert(body->dropped);
        const bool begun = body->last_id > 0;
        const bool told = tell(hearer, HEARER_BEHIND, body->bytes + body->last_id,
                               begun ? body->last_id_len : body->id_len);
        leave_feed(hearer);
        if (!told)
            conn_close(hearer->conn); /* it comes back with its id */
        return;
    }
    if (hearer->at == body->len) {
        next->refs++;
        hearer->body = next;
        hearer->at = next->id_len;
        body_drop(body);
        body = next;
    }
    const uint32_t len = body->len - hearer->at;
    assert(len > 0);
    body->refs++;
    send_piece(hearer->conn, body->bytes + hearer->at, len, body_sent, body);
    hearer->at += len;
    hearer->served_us = reactor->loop.monotonic_us;
    reactor->feeds->heard_bytes += len;
    access_charge(hearer->conn, len);
}

static int64_t due_in_us(const struct reactor *reactor, const struct feed *feed)
{
    const int64_t pace_us = (int64_t)feed->hearers * PACE_US_EACH;
    const int64_t left_us = feed->due.first->served_us +
                            (pace_us < PACE_US_MAX ? pace_us : PACE_US_MAX) -
                            reactor->loop.monotonic_us;
    return left_us > 0 ? left_us : 0;
}

bool hearers_serve(struct reactor *reactor)
{
    struct feeds *feeds = reactor->feeds;
    const bool ends = feeds != NULL && feeds->ending > 0;
    if (ends)
        end_some(feeds);
    if (feeds == NULL || feeds->hearers == 0)
        return ends;
    unsigned left = HEARERS_PER_TURN;
    if (urgent_at(reactor->loop.monotonic_us))
        left /= 2; /* clients wait for appends */
    const unsigned most = left;
    for (uint32_t i = 0, seen = 0; i < FEEDS_MAX && seen < feeds->count && left > 0; i++) {
        struct feed *feed = feeds->feeds[feeds->next];
        seen += feed != NULL;
        feeds->next = (feeds->next + 1) % FEEDS_MAX;
        while (feed != NULL && !feed->ending && left > 0 && feed->due.first != NULL &&
               due_in_us(reactor, feed) == 0) {
            serve(reactor, feed->due.first);
            left--;
        }
    }
    return ends || left < most;
}

int64_t hearers_in_us(const struct reactor *reactor)
{
    const struct feeds *feeds = reactor->feeds;
    int64_t soonest = INT32_MAX;
    if (feeds == NULL || feeds->hearers == 0)
        return soonest;
    if (feeds->ending > 0)
        return 0;
    uint32_t seen = 0;
    for (uint32_t number = 0; number < FEEDS_MAX && seen < feeds->count && soonest > 0; number++) {
        const struct feed *feed = feeds->feeds[number];
        seen += feed != NULL;
        if (feed == NULL || feed->ending || feed->due.first == NULL)
            continue;
        const int64_t in_us = due_in_us(reactor, feed);
        if (in_us < soonest)
            soonest = in_us;
    }
    return soonest;
}
